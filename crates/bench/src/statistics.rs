//! Rounds in turn, and medians of ratios that are paired by round.

use serde::Serialize;

/// `all` in the order in which they are measured in a round, counted from 1: forwards, then
/// backwards, so that a drift within rounds favours none.
pub fn in_turn<T>(all: impl IntoIterator<Item = T>, round: usize) -> Vec<T> {
    let mut order: Vec<T> = all.into_iter().collect();
    if round.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// A measurement that belongs to a round.
pub trait Measurement {
    /// The round, from 1.
    fn round(&self) -> usize;
}

/// The measurements of a configuration, each paired with that of the baseline in its round.
#[derive(Debug)]
pub struct Paired<'a, R> {
    own: Vec<&'a R>,
    /// Baseline first.
    pairs: Vec<(&'a R, &'a R)>,
}

impl<'a, R: Measurement> Paired<'a, R> {
    /// The rows for which `is_own` is true, paired with those for which `is_baseline` is.
    pub fn of(
        rows: &'a [R],
        is_baseline: impl Fn(&R) -> bool,
        is_own: impl Fn(&R) -> bool,
    ) -> Paired<'a, R> {
        let own: Vec<&R> = rows.iter().filter(|row| is_own(row)).collect();
        let pair = |base: &'a R| {
            let own = own.iter().find(|row| row.round() == base.round())?;
            Some((base, *own))
        };
        let pairs = rows
            .iter()
            .filter(|row| is_baseline(row))
            .filter_map(pair)
            .collect();
        Paired { own, pairs }
    }

    /// The first measurement of the configuration.
    pub fn first(&self) -> Option<&'a R> {
        self.own.first().copied()
    }

    /// The number of rounds in which both were measured.
    pub fn rounds(&self) -> usize {
        self.pairs.len()
    }

    /// The spread of a figure of the configuration, over all of its rounds.
    pub fn spread(&self, figure: impl Fn(&R) -> f64) -> Option<Spread> {
        Spread::of(self.own.iter().map(|row| figure(row)))
    }

    /// The same of a figure that some rows lack.
    pub fn spread_of_some(&self, figure: impl Fn(&R) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.own.iter().filter_map(|row| figure(row)))
    }

    /// The spread of a figure of the baseline, over the rounds in which both were measured.
    pub fn baseline_spread(&self, figure: impl Fn(&R) -> f64) -> Option<Spread> {
        Spread::of(self.pairs.iter().map(|(base, _)| figure(base)))
    }

    /// The spread of the configuration's figure divided by the baseline's.
    pub fn ratio(&self, figure: impl Fn(&R) -> f64) -> Option<Spread> {
        let pairs = self.pairs.iter();
        Spread::of_ratios(pairs.map(|(base, own)| (figure(own), figure(base))))
    }

    /// The spread of the baseline's figure divided by the configuration's: above 1 the
    /// configuration is better where less is better.
    pub fn inverse_ratio(&self, figure: impl Fn(&R) -> f64) -> Option<Spread> {
        let pairs = self.pairs.iter();
        Spread::of_ratios(pairs.map(|(base, own)| (figure(base), figure(own))))
    }
}

/// The median and the range of a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; of an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none or one of them is not finite (a rate
    /// measured over no handshakes, say, which must not pass for a figure).
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Spread {
            median,
            min: values[0],
            max: values[values.len() - 1],
        })
    }

    /// The spread of numerator / denominator, taken pair by pair: the two halves of a pair were
    /// measured next to each other, so that what disturbs the machine for longer than a pair
    /// cancels out.
    pub fn of_ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Spread> {
        Spread::of(
            pairs
                .into_iter()
                .map(|(numerator, denominator)| numerator / denominator),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_and_an_even_number_of_values() {
        let odd = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        let even = Spread::of([4.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((even.median, even.min, even.max), (3.0, 1.0, 10.0));
    }

    #[test]
    fn ratios_are_paired_before_the_median_is_taken() {
        // The machine is ten times slower in the second round: the paired ratio does not see it,
        // whereas the ratio of the medians would be 20 / 11.
        let pairs = [(2.0, 1.0), (20.0, 10.0), (22.0, 11.0)];
        assert_eq!(Spread::of_ratios(pairs).unwrap().median, 2.0);
        assert_eq!(Spread::of_ratios(pairs).unwrap().max, 2.0);
    }

    #[test]
    fn every_other_round_runs_backwards() {
        assert_eq!(in_turn(0..3, 1), [0, 1, 2]);
        assert_eq!(in_turn(0..3, 2), [2, 1, 0]);
    }

    #[test]
    fn rows_are_paired_by_round_and_a_round_without_its_other_half_is_left_out() {
        struct Row(&'static str, usize, f64);
        impl Measurement for Row {
            fn round(&self) -> usize {
                self.1
            }
        }
        let rows = [
            Row("base", 1, 2.0),
            Row("own", 1, 4.0),
            Row("own", 2, 3.0),
            Row("base", 2, 1.0),
            Row("base", 3, 7.0),
        ];
        let paired = Paired::of(&rows, |row| row.0 == "base", |row| row.0 == "own");
        assert_eq!(paired.rounds(), 2);
        assert_eq!(paired.first().unwrap().2, 4.0);
        assert_eq!(paired.spread(|row| row.2).unwrap().median, 3.5);
        assert_eq!(paired.baseline_spread(|row| row.2).unwrap().median, 1.5);
        assert_eq!(paired.ratio(|row| row.2).unwrap().median, 2.5);
        assert_eq!(paired.inverse_ratio(|row| row.2).unwrap().max, 0.5);
        let none = Paired::of(&rows, |row| row.0 == "base", |row| row.0 == "other");
        assert!(none.first().is_none() && none.ratio(|row| row.2).is_none());
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of_ratios([(1.0, 0.0)]), None);
        assert_eq!(Spread::of_ratios([(0.0, 0.0), (1.0, 1.0)]), None);
    }
}
