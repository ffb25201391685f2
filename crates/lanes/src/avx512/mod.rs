//! Montgomery multiplication and squaring in radix 2^28 on plain AVX-512F, eight lanes at once.
//!
//! For processors with AVX-512F but without IFMA (Skylake-SP, Cascade Lake): `vpmuludq` multiplies
//! 32 by 32 bits, so a digit has 28 bits and a 64-bit lane has room for the sum of a whole column
//! of products.
//!
//! A number is an array of digit vectors, least significant first: element `i` holds digit `i` of
//! all eight lanes. With R = 2^(28N), both operations return a·b/R + (something below n) by the
//! Montgomery reduction of P. L. Montgomery, "Modular multiplication without trial division"
//! (1985), without its final subtraction (almost-Montgomery: S. Gueron, "Efficient software
//! implementations of modular exponentiation", 2012).
//!
//! # Bounds
//!
//! The modulus n is odd and normalised: every digit below 2^28. An operand is normalised too,
//! except that its top digit may be as large as 2^29 - 1. The result is congruent to a·b/R modulo n
//! and lies in 0..(n + a·b/R]; all of its digits but the top one are below 2^28, and the top one
//! holds whatever is left of the value.
//!
//! - a, b below R give a result below R + n, whose top digit is below 2^29: it may be an operand
//!   again.
//! - n < R/16 and a, b < 2n give a result below 5n/4, so a chain of operations never grows.
//! - a < R and b < n (conversion into Montgomery form) give a result below 2n.
//! - a ≤ R and b = 1 (conversion out of it) give a result of at most n, and n only for a ≡ 0 mod n.
//!
//! A column of a product sums at most N products of digits, and the reduction adds at most N more,
//! each below 2^56; the two products of a column that can involve a top digit are below 2^57
//! instead (the single one of two top digits is alone in its column), and a carry is below 2^36. So
//! a column stays below (2N + 2)·2^56 + 2^36, which fits 64 bits up to N = 126. For longer numbers
//! the columns are carried once between product and reduction: N products fit up to N = 253, and a
//! carried column is below 2^28 + 2^36. Squaring adds the same terms: a doubled digit is below 2^30
//! and meets each digit once.
//!
//! # Constant time
//!
//! No branch and no address depends on an operand: all loops are bounded by N, and the instructions
//! (vpmuludq, vpaddq, vpandq, vpsrlq) take the same time for all values.

mod product;
mod reduction;
mod rows;
#[cfg(test)]
mod tests;

use crate::digits::splat;
use crate::vector::Multiply32;

/// Bits in a digit.
const DIGIT_BITS: u32 = 28;

/// The low [`DIGIT_BITS`] bits of a lane.
const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;

/// The greatest number of digits whose column sums fit 64 bits throughout (see the module's
/// bounds).
const UNCARRIED_DIGITS: usize = 126;

/// The greatest number of digits whose products fit 64 bits (see the module's bounds).
const MAXIMUM_DIGITS: usize = 253;

/// Sets `out` to the almost-Montgomery product a·b·2^(-28N) modulo n in each lane.
///
/// `k0` is -n^(-1) mod 2^28 in each lane. The module's documentation states the bounds of operands
/// and result. `product` is scratch of at least 2N vectors; it is left holding values derived from
/// the operands.
///
/// # Panics
///
/// If `product` is shorter than 2N.
#[target_feature(enable = "avx512f")]
pub(crate) fn multiply<V: Multiply32, const N: usize>(
    out: &mut [V; N],
    a: &[V; N],
    b: &[V; N],
    modulus: &[V; N],
    k0: V,
    product: &mut [V],
) {
    let product = &mut product[..2 * N];
    product::multiply(product, a, b);
    finish(out, modulus, k0, product);
}

/// Sets `out` to the almost-Montgomery square a²·2^(-28N) modulo n in each lane.
///
/// Parameters, bounds and panics are those of [`multiply`], with b = a.
#[target_feature(enable = "avx512f")]
pub(crate) fn square<V: Multiply32, const N: usize>(
    out: &mut [V; N],
    a: &[V; N],
    modulus: &[V; N],
    k0: V,
    product: &mut [V],
) {
    let product = &mut product[..2 * N];
    product::square(product, a);
    finish(out, modulus, k0, product);
}

/// Reduces the columns of a product and normalises the result into `out`.
#[inline]
#[target_feature(enable = "avx512f")]
fn finish<V: Multiply32, const N: usize>(
    out: &mut [V; N],
    modulus: &[V; N],
    k0: V,
    product: &mut [V],
) {
    const { assert!(N <= MAXIMUM_DIGITS) };
    if N > UNCARRIED_DIGITS {
        carry_once(product);
    }
    reduction::reduce(product, modulus, k0);
    normalise(out, &product[N..]);
}

/// Moves what exceeds a digit in each column to the next column, once, without rippling.
#[inline]
#[target_feature(enable = "avx512f")]
fn carry_once<V: Multiply32>(columns: &mut [V]) {
    let mask = splat(columns[0], DIGIT_MASK);
    let mut carry = splat(columns[0], 0);
    for column in columns {
        let low = column.and(mask);
        let high = column.shift_right(DIGIT_BITS);
        *column = low.add(carry);
        carry = high;
    }
}

/// Turns column sums into digits, rippling the carry up to the top digit, which keeps all of its
/// bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn normalise<V: Multiply32, const N: usize>(out: &mut [V; N], columns: &[V]) {
    let mask = splat(columns[0], DIGIT_MASK);
    let mut carry = splat(columns[0], 0);
    let (top, digits) = out.split_last_mut().expect("a number has digits");
    for (digit, column) in digits.iter_mut().zip(columns) {
        let sum = column.add(carry);
        *digit = sum.and(mask);
        carry = sum.shift_right(DIGIT_BITS);
    }
    *top = columns[N - 1].add(carry);
}
