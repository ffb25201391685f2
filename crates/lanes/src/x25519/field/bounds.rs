//! Proofs of the bounds that the documentation of this module states.

use super::*;
use crate::vector::{Bounds, Vector};

/// Any factor.
fn factor() -> Factor<Bounds> {
    let digit = Bounds::new(0, i128::from(u64::MAX));
    let last = Bounds::new(0, (1 << LAST_BITS) + (1 << 12) - 1);
    Factor([digit, digit, digit, digit, last])
}

fn columns(limit: i128) -> Sum<Bounds> {
    Sum([Bounds::new(0, limit - 1); 5])
}

#[test]
fn columns_of_products_are_below_eleven_digits() {
    let (a, b) = (factor(), factor());
    let multiplier = Multiplier::new(&a);
    for sum in [a.multiply(&b), a.square(), multiplier.multiply(&b)] {
        for column in sum.0 {
            column.state_below(11 << DIGIT_BITS);
        }
    }
    for sum in [a.multiply_biased(&b), a.square_biased()] {
        for column in sum.0 {
            column.state_below((11 << DIGIT_BITS) + (1 << 61));
        }
    }
}

#[test]
fn the_bias_is_larger_than_a_product() {
    let bias = Sum::bias(&Bounds::new(0, 0));
    for (bias, product) in bias.0.iter().zip(factor().multiply(&factor()).0) {
        assert!(bias.low() >= (1 << 56) - (1 << 9));
        assert!(bias.low() > product.high());
    }
    // A column would be negative otherwise, which a logical shift does not allow.
    let difference = factor().square_biased().subtract(&factor().square());
    difference.carry();
}

#[test]
fn sums_of_any_columns_can_be_carried() {
    // `carry` states the bound of the last digit.
    columns((1 << 64) - (1 << 36)).carry();
    columns(11 << DIGIT_BITS).add_multiple(&factor(), (1 << 20) - 1);
}

#[test]
#[should_panic(expected = "a logical shift of a negative number")]
fn a_difference_without_a_bias_is_found() {
    factor().square().subtract(&factor().square()).carry();
}

#[test]
#[should_panic(expected = "overflow")]
fn a_sum_that_is_too_large_is_found() {
    let sum = factor().square_biased();
    let sum = sum.add(&sum).add(&sum).add(&sum);
    let sum = sum.add(&sum);
    sum.carry();
}

#[test]
#[should_panic(expected = "is not below")]
fn a_multiplier_that_is_too_large_is_found() {
    columns(11 << DIGIT_BITS).add_multiple(&factor(), 1 << 22);
}

#[test]
#[should_panic(expected = "is not below")]
fn a_last_digit_that_is_too_large_is_found() {
    let mut wrong = factor();
    wrong.0[4] = Bounds::new(0, 1 << 50);
    wrong.multiply(&wrong);
}
