//! Histograms of durations.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The buckets that have an upper bound: 1 us, 2 us, 4 us and so on to 16.777216 s.
const BOUNDED: usize = 25;

/// Durations, counted by the smallest power of two of microseconds that they do not exceed.
///
/// It is counted by one thread: an observation costs two additions, no lock, and no clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Histogram {
    /// Counts of each bucket, not cumulative. The last one has no bound.
    counts: [u64; BOUNDED + 1],
    nanoseconds: u64,
}

impl Histogram {
    /// The length of [`as_slice`](Self::as_slice).
    pub const FIGURES: usize = BOUNDED + 2;

    /// Counts a duration.
    pub fn observe(&mut self, duration: Duration) {
        let (bucket, nanoseconds) = place(duration);
        self.counts[bucket] += 1;
        self.nanoseconds = self.nanoseconds.wrapping_add(nanoseconds);
    }

    /// Counts a duration in `figures`, in the order of their [names](Self::names). The caller is
    /// their only writer.
    pub fn observe_in(figures: &[AtomicU64], duration: Duration) {
        let (bucket, nanoseconds) = place(duration);
        for (index, more) in [(bucket, 1), (BOUNDED + 1, nanoseconds)] {
            let sum = figures[index].load(Ordering::Relaxed).wrapping_add(more);
            figures[index].store(sum, Ordering::Relaxed);
        }
    }

    /// The bounds of buckets, with the number of durations in each.
    pub fn buckets(&self) -> impl Iterator<Item = (Seconds, u64)> {
        (0..BOUNDED).map(|bucket| (bound(bucket), self.counts[bucket]))
    }

    /// The number of durations that exceed the last bound.
    pub fn rest(&self) -> u64 {
        self.counts[BOUNDED]
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Seconds {
        Seconds(self.nanoseconds)
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the durations of `other`.
    pub fn add(&mut self, other: &Histogram) {
        for (ours, theirs) in self.counts.iter_mut().zip(other.counts) {
            *ours = ours.wrapping_add(theirs);
        }
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }

    /// The upper bound of the bucket in which the duration lies that a share of `quantile` of all
    /// do not exceed; `None` if none has been counted. Above the last bound, it is that one.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(Duration::from_nanos(bound(bucket.min(BOUNDED - 1)).0))
    }

    /// All figures, in the order of their [names](Self::names).
    pub fn as_slice(&self) -> [u64; Self::FIGURES] {
        let mut figures = [0; Self::FIGURES];
        figures[..=BOUNDED].copy_from_slice(&self.counts);
        figures[BOUNDED + 1] = self.nanoseconds;
        figures
    }

    /// Reads it from figures in the order of their [names](Self::names). What is missing is 0.
    pub fn from_figures(figures: impl IntoIterator<Item = u64>) -> Self {
        let mut figures = figures.into_iter();
        let mut next = || figures.next().unwrap_or(0);
        Self {
            counts: std::array::from_fn(|_| next()),
            nanoseconds: next(),
        }
    }

    /// The names of the figures of a histogram called `name`, in which `label` is a label with its
    /// value, or empty.
    pub fn names(name: &str, label: &str) -> impl Iterator<Item = String> {
        let comma = if label.is_empty() { "" } else { "," };
        let braces = match label {
            "" => String::new(),
            _ => format!("{{{label}}}"),
        };
        let bounds = (0..BOUNDED).map(|bucket| bound(bucket).to_string());
        let bounds = bounds.chain(["+Inf".to_owned()]);
        bounds
            .map(move |bound| format!("{name}_seconds_bucket{{{label}{comma}le=\"{bound}\"}}"))
            .chain([format!("{name}_nanoseconds_sum{braces}")])
    }
}

/// A duration that is shown in seconds without an exponent, as in the text format of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let text = format!("{seconds}.{rest:09}");
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// The bucket of a duration, and its nanoseconds.
fn place(duration: Duration) -> (usize, u64) {
    let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let above = nanoseconds.div_ceil(1000).max(1) - 1;
    let bucket = (u64::BITS - above.leading_zeros()) as usize;
    (bucket.min(BOUNDED), nanoseconds)
}

fn bound(bucket: usize) -> Seconds {
    Seconds(1000 << bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for nanoseconds in durations {
            histogram.observe(Duration::from_nanos(*nanoseconds));
        }
        histogram
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (nanoseconds, bucket) in [
            (0, 0),
            (1, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
            (4001, 3),
            (1_024_000, 10),
            (16_777_216_000, 24),
            (16_777_216_001, 25),
            (u64::MAX, 25),
        ] {
            let histogram = of(&[nanoseconds]);
            let found = histogram.counts.iter().position(|count| *count == 1);
            assert_eq!(found, Some(bucket), "{nanoseconds}");
            if bucket < BOUNDED {
                assert!(nanoseconds <= bound(bucket).0, "{nanoseconds}");
            }
        }
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let histogram = of(&[900, 1500, 3000, 3000, 100_000]);
        let micros = |quantile| histogram.quantile(quantile).unwrap().as_micros();
        assert_eq!((micros(0.0), micros(0.2), micros(0.4)), (1, 1, 2));
        assert_eq!((micros(0.5), micros(0.8), micros(0.81)), (4, 4, 128));
        let late = of(&[u64::MAX]).quantile(1.0).unwrap();
        assert_eq!(late, Duration::from_micros(1 << 24));
    }

    #[test]
    fn sums_are_of_both() {
        let mut sum = of(&[900, 5000]);
        sum.add(&of(&[7000]));
        assert_eq!(sum, of(&[900, 5000, 7000]));
    }

    #[test]
    fn figures_have_names_and_come_back() {
        let histogram = of(&[900, 5000, u64::MAX / 2]);
        let figures = histogram.as_slice();
        let names: Vec<String> = Histogram::names("wait", "kind=\"a\"").collect();
        assert_eq!(names.len(), figures.len());
        assert_eq!(names[0], "wait_seconds_bucket{kind=\"a\",le=\"0.000001\"}");
        assert_eq!(
            names[24],
            "wait_seconds_bucket{kind=\"a\",le=\"16.777216\"}"
        );
        assert_eq!(names[25], "wait_seconds_bucket{kind=\"a\",le=\"+Inf\"}");
        assert_eq!(names[26], "wait_nanoseconds_sum{kind=\"a\"}");
        assert_eq!(
            Histogram::names("wait", "").last().unwrap(),
            "wait_nanoseconds_sum"
        );
        assert_eq!(Histogram::from_figures(figures), histogram);

        let shared = figures.map(AtomicU64::new);
        Histogram::observe_in(&shared, Duration::from_micros(7));
        let mut more = histogram;
        more.observe(Duration::from_micros(7));
        assert_eq!(
            Histogram::from_figures(shared.map(AtomicU64::into_inner)),
            more
        );
    }

    #[test]
    fn seconds_have_no_exponent() {
        for (nanoseconds, text) in [
            (0, "0"),
            (1000, "0.000001"),
            (1_500_000_000, "1.5"),
            (10_000_000_000, "10"),
        ] {
            assert_eq!(Seconds(nanoseconds).to_string(), text);
        }
    }
}
