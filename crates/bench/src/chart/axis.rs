//! An axis whose labels are chosen by hand, and round numbers for it.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// A linear axis with labels at `marks` alone.
pub(super) struct Axis {
    range: Range<f64>,
    marks: Vec<f64>,
}

impl Axis {
    pub(super) fn new(range: Range<f64>, marks: Vec<f64>) -> Axis {
        Axis { range, marks }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// About five round numbers from 0 to `top`.
pub(super) fn steps(top: f64) -> Vec<f64> {
    let decade = 10f64.powf((top / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * decade)
        .into_iter()
        .find(|step| top / step <= 6.0)
        .unwrap_or(top);
    (0..)
        .map(|count| f64::from(count) * step)
        .take_while(|mark| *mark <= top)
        .collect()
}

/// 1, 2 and 5 of each decade within `heights`, which are logarithms.
pub(super) fn one_two_five(heights: &Range<f64>) -> Vec<f64> {
    let first = heights.start.floor() as i32;
    let last = heights.end.ceil() as i32;
    (first..=last)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit: f64| digit.log10() + f64::from(power)))
        .filter(|mark| heights.contains(mark))
        .collect()
}

/// Without the digits that come of computing with logarithms.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_labelled_with_what_they_are_of() {
        let labels: Vec<f64> = one_two_five(&(-0.5..1.1))
            .into_iter()
            .map(|mark| rounded(10f64.powf(mark)))
            .collect();
        assert_eq!(labels, [0.5, 1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(
            steps(2430.0),
            [0.0, 500.0, 1000.0, 1500.0, 2000.0].as_slice()
        );
        assert_eq!(steps(1.08), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        for top in [1.0, 3.7, 99.0, 100.0, 12_345.0, 7e6] {
            assert!((3..=7).contains(&steps(top).len()), "{top}");
        }
    }

    #[test]
    fn an_axis_may_run_downwards_as_the_vertical_one_does() {
        let axis = Axis::new(0.0..10.0, vec![5.0]);
        assert_eq!(axis.map(&0.0, (400, 0)), 400);
        assert_eq!(axis.map(&10.0, (400, 0)), 0);
        assert_eq!(axis.map(&2.5, (0, 400)), 100);
    }
}
