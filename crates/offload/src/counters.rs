//! Counters of an instance.

use std::sync::atomic::{AtomicU64, Ordering};

use slipstream_metrics::{Histogram, Page, Type};

use crate::operation::Kind;
use crate::request::Reason;

/// The largest batch that [`Counters::fill`] counts separately.
pub const BATCH_SIZE: usize = 8;

/// Monotonic counts since the instance was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Requests accepted, by [`Kind`].
    pub submitted: [u64; Kind::COUNT],
    /// Batches that were computed in lanes.
    pub batches: u64,
    /// Operations computed in lanes, by [`Kind`]; their sum over `batches` is the mean fill.
    pub lane_operations: [u64; Kind::COUNT],
    /// Batches by the number of live lanes: entry `n - 1` counts those with `n`.
    pub fill: [u64; BATCH_SIZE],
    /// Operations computed by a device, by [`Kind`].
    pub device_operations: [u64; Kind::COUNT],
    /// Polls of the accelerators.
    pub polls: u64,
    /// Polls that returned no answer although requests were in flight.
    pub ineffective_polls: u64,
    /// Requests for which there was no room at first.
    pub retried: u64,
    /// Operations handed back for software, by [`Reason`].
    pub software: [u64; Reason::ALL.len()],
    /// Operations whose job went away while they were in flight.
    pub orphans: u64,
    /// Operations computed on the calling thread without a pause, by [`Kind`]: precomputed key
    /// pairs, signatures with precomputed nonces, and lone exchanges.
    pub at_once: [u64; Kind::COUNT],
    /// The time from submission to the answer, by [`Kind`].
    pub durations: [Histogram; Kind::COUNT],
}

impl Counters {
    /// The number of counts.
    pub const FIGURES: usize = size_of::<Counters>() / size_of::<u64>();

    /// The counts that are no histograms. These stand before them.
    const PLAIN: usize = Self::FIGURES - Kind::COUNT * Histogram::FIGURES;

    /// Counts one operation that is handed back for `reason`.
    pub fn count_software(&mut self, reason: Reason) {
        self.software[reason.index()] += 1;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counters) {
        for (ours, theirs) in self.as_mut_slice().iter_mut().zip(other.as_slice()) {
            *ours = ours.wrapping_add(*theirs);
        }
    }

    /// Writes all counts to the beginning of `figures`, in the order of their names. The caller is
    /// the only writer of them.
    pub fn store(&self, figures: &[AtomicU64]) {
        let store = |figures: &[AtomicU64], counts: &[u64]| {
            for (figure, count) in figures.iter().zip(counts) {
                figure.store(*count, Ordering::Relaxed);
            }
        };
        let (plain, durations) = self.as_slice().split_at(Self::PLAIN);
        store(figures, plain);
        // Few of them have changed since the last call. The last figure of one, its sum, tells.
        let figures = figures[Self::PLAIN..].chunks(Histogram::FIGURES);
        for (figures, counts) in figures.zip(durations.chunks(Histogram::FIGURES)) {
            let sum = Histogram::FIGURES - 1;
            if figures[sum].load(Ordering::Relaxed) != counts[sum] {
                store(figures, counts);
            }
        }
    }

    /// Reads counts that [`store`](Self::store) has written. What is missing is 0.
    pub fn load(figures: impl IntoIterator<Item = u64>) -> Self {
        let mut counters = Counters::default();
        for (count, figure) in counters.as_mut_slice().iter_mut().zip(figures) {
            *count = figure;
        }
        counters
    }

    /// The names of all counts, as those of metrics.
    pub fn names() -> Vec<String> {
        let by = |name: &'static str, label: &'static str, values: Vec<String>| {
            let labelled = move |value| format!("{name}{{{label}=\"{value}\"}}");
            values.into_iter().map(labelled)
        };
        let by_kind = |name| {
            let kinds = Kind::ALL.map(|kind| kind.name().to_owned());
            by(name, "operation", kinds.to_vec())
        };
        let lanes = (1..=BATCH_SIZE).map(|lanes| lanes.to_string()).collect();
        let reasons = Reason::ALL.map(|reason| reason.name().to_owned());
        let plain = |name: &str| [name.to_owned()];
        let mut names: Vec<String> = by_kind("operations_total").collect();
        names.extend(plain("batches_total"));
        names.extend(by_kind("lane_operations_total"));
        names.extend(by("batches_by_fill_total", "lanes", lanes));
        names.extend(by_kind("device_operations_total"));
        names
            .extend(["polls_total", "ineffective_polls_total", "retried_total"].map(str::to_owned));
        names.extend(by("software_operations_total", "reason", reasons.to_vec()));
        names.extend(plain("orphans_total"));
        names.extend(by_kind("at_once_operations_total"));
        for kind in Kind::ALL {
            let label = format!("operation=\"{}\"", kind.name());
            names.extend(Histogram::names("operation_duration", &label));
        }
        names
    }

    /// Writes all counts as families of `page`. `software` is the name of the library that computes
    /// what accelerators do not.
    pub fn write(&self, page: &mut Page, software: &str) {
        let by_kind = |page: &mut Page, name: &str, help: &str, counts: &[u64; Kind::COUNT]| {
            let mut family = page.family(name, Type::Counter, help);
            for kind in Kind::ALL {
                family.sample(&[("operation", kind.name())], counts[kind.index()]);
            }
        };
        let help = "Operations submitted.";
        by_kind(page, "operations_total", help, &self.submitted);
        let help = "Operations computed in lanes.";
        by_kind(page, "lane_operations_total", help, &self.lane_operations);
        let help = "Operations computed by the device.";
        by_kind(
            page,
            "device_operations_total",
            help,
            &self.device_operations,
        );
        let help = "Operations computed in lanes at once, without a pause.";
        by_kind(page, "at_once_operations_total", help, &self.at_once);

        for (name, help, count) in [
            (
                "retried_total",
                "Operations for which the accelerator had no room at first.",
                self.retried,
            ),
            (
                "polls_total",
                "How often the accelerator was polled.",
                self.polls,
            ),
            (
                "ineffective_polls_total",
                "Polls that brought nothing although operations were in flight.",
                self.ineffective_polls,
            ),
            ("batches_total", "Batches computed in lanes.", self.batches),
            (
                "orphans_total",
                "Operations whose connection went away while they were in flight.",
                self.orphans,
            ),
            (
                "ahead_used_total",
                "Key pairs and nonces that were made ahead and then used.",
                self.precomputed(),
            ),
        ] {
            page.counter(name, help, count);
        }

        let help = "Batches by the number of live lanes.";
        let mut family = page.family("batches_by_fill_total", Type::Counter, help);
        for (live, count) in (1..).zip(self.fill) {
            family.sample(&[("lanes", &format!("{live}"))], count);
        }
        write_batch_size(page, &self.fill);

        let help = format!("Operations left to {software}, by reason.");
        let mut family = page.family("software_operations_total", Type::Counter, &help);
        for reason in Reason::ALL {
            let count = self.software[reason.index()];
            family.sample(&[("reason", reason.name())], count);
        }
        let help = "Time from submission of an operation to its answer.";
        let mut family = page.family("operation_duration_seconds", Type::Histogram, help);
        for kind in Kind::ALL {
            let label = ("operation", kind.name());
            family.durations(&[label], &self.durations[kind.index()]);
        }
    }

    /// The key pairs and signatures for which a precomputed value was used.
    pub fn precomputed(&self) -> u64 {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_precomputed());
        kinds.map(|kind| self.at_once[kind.index()]).sum()
    }

    /// Counts one batch of `kind` with `live` lanes.
    pub fn count_batch(&mut self, kind: Kind, live: usize) {
        self.batches += 1;
        self.lane_operations[kind.index()] += live as u64;
        self.fill[live - 1] += 1;
    }

    fn as_slice(&self) -> &[u64; Self::FIGURES] {
        // SAFETY: all fields are u64, arrays of u64 or structures of such, in the order of C, so
        // there is no padding, and the constant is their number.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    fn as_mut_slice(&mut self) -> &mut [u64; Self::FIGURES] {
        // SAFETY: as above; any bytes are a value of each field.
        unsafe { &mut *std::ptr::from_mut(self).cast() }
    }
}

/// Writes the family of batch sizes, from the number of batches by live lanes.
pub fn write_batch_size(page: &mut Page, fill: &[u64; BATCH_SIZE]) {
    let help = "Operations in a batch computed in lanes.";
    let sum: u64 = (1..).zip(fill).map(|(lanes, count)| lanes * count).sum();
    page.family("batch_size", Type::Histogram, help)
        .distribution(&[], (1..).zip(fill.iter().copied()), 0, sum);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// Counts that all differ.
    fn counters() -> Counters {
        Counters::load(1..)
    }

    #[test]
    fn every_count_has_a_name_of_its_own() {
        let names = Counters::names();
        assert_eq!(names.len(), Counters::FIGURES);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let counters = counters();
        let count = |name: &str| {
            let place = names.iter().position(|known| known == name);
            counters.as_slice()[place.unwrap_or_else(|| panic!("no {name}"))]
        };
        assert_eq!(
            count("operations_total{operation=\"X25519\"}"),
            counters.submitted[3]
        );
        assert_eq!(count("batches_total"), counters.batches);
        assert_eq!(
            count("lane_operations_total{operation=\"RSA-2048\"}"),
            counters.lane_operations[0]
        );
        assert_eq!(
            count("batches_by_fill_total{lanes=\"8\"}"),
            counters.fill[7]
        );
        assert_eq!(
            count("device_operations_total{operation=\"ZSTD\"}"),
            counters.device_operations[12]
        );
        assert_eq!(count("polls_total"), counters.polls);
        assert_eq!(count("ineffective_polls_total"), counters.ineffective_polls);
        assert_eq!(count("retried_total"), counters.retried);
        assert_eq!(
            count("software_operations_total{reason=\"lost\"}"),
            counters.software[6]
        );
        assert_eq!(count("orphans_total"), counters.orphans);
        assert_eq!(
            count("at_once_operations_total{operation=\"RSA-2048\"}"),
            counters.at_once[0]
        );
        let sum = "operation_duration_nanoseconds_sum{operation=\"ZSTD\"}";
        assert_eq!(count(sum), Counters::FIGURES as u64);
    }

    #[test]
    fn stored_counts_can_be_loaded() {
        let figures: Vec<AtomicU64> = (0..Counters::FIGURES).map(|_| AtomicU64::new(0)).collect();
        let load = || Counters::load(figures.iter().map(|figure| figure.load(Ordering::Relaxed)));
        let mut counters = counters();
        counters.store(&figures);
        assert_eq!(load(), counters);
        counters.durations[3].observe(Duration::from_millis(1));
        counters.polls += 1;
        counters.store(&figures);
        assert_eq!(load(), counters);
        let mut sum = counters.clone();
        sum.add(&counters);
        assert_eq!(sum.polls, 2 * counters.polls);
        assert_eq!(sum.durations[3].count(), 2 * counters.durations[3].count());
    }

    #[test]
    fn the_size_of_batches_is_cumulative() {
        let mut page = Page::new("a_");
        write_batch_size(&mut page, &[1, 0, 0, 0, 0, 0, 0, 3]);
        let text = page.finish();
        assert!(text.contains("a_batch_size_bucket{le=\"7\"} 1\n"), "{text}");
        assert!(text.contains("a_batch_size_bucket{le=\"8\"} 4\n"), "{text}");
        assert!(
            text.contains("a_batch_size_sum 25\na_batch_size_count 4\n"),
            "{text}"
        );
    }
}
