//! Medians of paired ratios.

use serde::Serialize;

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
    /// The spread of `values`; `None` if there are none or one of them is not finite (a rate measured over no
    /// handshakes, say, which must not pass for a figure).
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

    /// The spread of numerator / denominator, taken pair by pair: the two halves of a pair were measured next to
    /// each other, so that what disturbs the machine for longer than a pair cancels out.
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
        // The machine is ten times slower in the second round: the paired ratio does not see it, whereas the
        // ratio of the medians would be 20 / 11.
        let pairs = [(2.0, 1.0), (20.0, 10.0), (22.0, 11.0)];
        assert_eq!(Spread::of_ratios(pairs).unwrap().median, 2.0);
        assert_eq!(Spread::of_ratios(pairs).unwrap().max, 2.0);
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of_ratios([(1.0, 0.0)]), None);
        assert_eq!(Spread::of_ratios([(0.0, 0.0), (1.0, 1.0)]), None);
    }
}
