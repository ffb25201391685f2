//! The four primes, and the reduction by each of them in lanes.

use super::curve::{P256_FIELD, P256_ORDER, P384_FIELD, P384_ORDER};
use super::field::{Columns, DIGIT_BITS, Modulus, Sum};
use super::integers::{bits, power_of_two};
use super::inversion::{self, SlidingWindow, Step};
use crate::digits::splat;
use crate::vector::{MultiplyAdd52, Vector};

/// p = 2^256 - 2^224 + 2^192 + 2^96 - 1.
pub(super) struct FieldP256;

impl Modulus<5> for FieldP256 {
    const DIGITS: [u64; 5] = digits(&P256_FIELD);
    const SIGNED_DIGITS: [i64; 5] = [-1, 1 << 44, 0, 1 << 36, (1 << 48) - (1 << 16)];
    const ONE: [u64; 5] = digits(&power_of_two(&P256_FIELD, 260));
    const R_SQUARED: [u64; 5] = digits(&power_of_two(&P256_FIELD, 520));
    const INVERSION: &'static [Step] = &inversion::P256_FIELD;
    const TIGHT: i64 = 2;

    /// -1 / p modulo 2^52 is 1, so the multiple is the column itself: m p = m (2^256 - 2^224 +
    /// 2^192 + 2^96) - m.
    #[inline(always)]
    fn eliminate<V: MultiplyAdd52>(columns: &mut Columns<V>, index: usize) {
        let sums = &mut columns.sums;
        let multiple = sums[index];
        let carry = multiple.shift_right_signed(DIGIT_BITS);
        let power96 = splat(carry, 1 << (96 - 52));
        let power192 = splat(carry, 1 << (192 - 156));
        let top = splat(carry, (1 << (256 - 208)) - (1 << (224 - 208)));
        sums[index + 1].madd_low(&multiple, &power96);
        sums[index + 1] = sums[index + 1].add(carry);
        sums[index + 2].madd_high(&multiple, &power96);
        sums[index + 3].madd_low(&multiple, &power192);
        sums[index + 4].madd_high(&multiple, &power192);
        sums[index + 4].madd_low(&multiple, &top);
        sums[index + 5].madd_high(&multiple, &top);
    }

    /// Subtracts q p, where q is the sum divided by 2^256, rounded down.
    ///
    /// q is computed from the upper two columns. The lower columns change the quotient of those by
    /// 2^208 by one at most. So the sum minus q 2^256 is between -2^208 and 2^256 + 2^209, and
    /// q (2^256 - p), which is added to it, is more than 2^208 if q is positive. If q is 0, nothing
    /// changes. If q is -1, because the sum is below 2^208 and was rounded down, p is added.
    #[inline(always)]
    fn tighten<V: Vector>(mut sum: Sum<V, 5>) -> Sum<V, 5> {
        let columns = sum.columns();
        let top = columns[4].add(columns[3].shift_right_signed(DIGIT_BITS));
        let quotient = top.shift_right_signed(256 - 208);
        columns[0] = columns[0].add(quotient);
        columns[1] = columns[1].subtract(quotient.shift_left(96 - 52));
        columns[3] = columns[3].subtract(quotient.shift_left(192 - 156));
        columns[4] = columns[4].subtract(quotient.shift_left(256 - 208));
        columns[4] = columns[4].add(quotient.shift_left(224 - 208));
        sum
    }
}

/// p = 2^384 - 2^128 - 2^96 + 2^32 - 1.
pub(super) struct FieldP384;

impl Modulus<8> for FieldP384 {
    const DIGITS: [u64; 8] = digits(&P384_FIELD);
    const SIGNED_DIGITS: [i64; 8] = [(1 << 32) - 1, -(1 << 44), -(1 << 24), 0, 0, 0, 0, 1 << 20];
    const ONE: [u64; 8] = digits(&power_of_two(&P384_FIELD, 416));
    const R_SQUARED: [u64; 8] = digits(&power_of_two(&P384_FIELD, 832));
    const INVERSION: &'static [Step] = &inversion::P384_FIELD;

    /// p (2^32 + 1) = 2^416 + 2^384 - 2^160 - 2^129 - 2^96 + 2^64 - 1 is -1 modulo 2^52, so the
    /// multiple of it is the column itself. Since it is larger than R, the last column uses p
    /// instead, and the result is below a b / R + 1.01 p. Subtractions go to columns of their own.
    #[inline(always)]
    fn eliminate<V: MultiplyAdd52>(columns: &mut Columns<V>, index: usize) {
        let Columns { sums, negative } = columns;
        let column = sums[index].subtract(negative[index]);
        if index < 7 {
            let power96 = splat(column, (1 << (96 - 52)) - (1 << (64 - 52)));
            let power129 = splat(column, 1 << (129 - 104));
            let power160 = splat(column, 1 << (160 - 156));
            let power384 = splat(column, 1 << (384 - 364));
            negative[index + 1].madd_low(&column, &power96);
            sums[index + 1] = sums[index + 1].add(column.shift_right_signed(DIGIT_BITS));
            negative[index + 2].madd_high(&column, &power96);
            negative[index + 2].madd_low(&column, &power129);
            negative[index + 3].madd_high(&column, &power129);
            negative[index + 3].madd_low(&column, &power160);
            negative[index + 4].madd_high(&column, &power160);
            sums[index + 7].madd_low(&column, &power384);
            sums[index + 8].madd_high(&column, &power384);
            sums[index + 8].madd_low(&column, &splat(column, 1));
        } else {
            let low = splat(column, (1 << 32) - 1);
            let power96 = splat(column, 1 << (96 - 52));
            let power128 = splat(column, 1 << (128 - 104));
            let power384 = splat(column, 1 << (384 - 364));
            let (mut multiple, mut carry) = (column, column);
            multiple.madd_low(&column, &splat(column, 1 << 32));
            carry.madd_low(&multiple, &low);
            sums[index + 1].madd_high(&multiple, &low);
            sums[index + 1] = sums[index + 1].add(carry.shift_right_signed(DIGIT_BITS));
            negative[index + 1].madd_low(&multiple, &power96);
            negative[index + 2].madd_high(&multiple, &power96);
            negative[index + 2].madd_low(&multiple, &power128);
            negative[index + 3].madd_high(&multiple, &power128);
            sums[index + 7].madd_low(&multiple, &power384);
            sums[index + 8].madd_high(&multiple, &power384);
        }
    }
}

/// The order of P-256.
pub(super) struct OrderP256;

impl Modulus<5> for OrderP256 {
    const DIGITS: [u64; 5] = digits(&P256_ORDER);
    const SIGNED_DIGITS: [i64; 5] = signed(&Self::DIGITS);
    const ONE: [u64; 5] = digits(&power_of_two(&P256_ORDER, 260));
    const R_SQUARED: [u64; 5] = digits(&power_of_two(&P256_ORDER, 520));
    const INVERSION: &'static [Step] = {
        const PLAN: SlidingWindow = SlidingWindow::new(&P256_ORDER);
        PLAN.steps()
    };

    #[inline(always)]
    fn eliminate<V: MultiplyAdd52>(columns: &mut Columns<V>, index: usize) {
        eliminate(
            columns,
            index,
            &Self::DIGITS,
            &const { friendly_multiple(&Self::DIGITS) },
        );
    }
}

/// The order of P-384.
pub(super) struct OrderP384;

impl Modulus<8> for OrderP384 {
    const DIGITS: [u64; 8] = digits(&P384_ORDER);
    const SIGNED_DIGITS: [i64; 8] = signed(&Self::DIGITS);
    const ONE: [u64; 8] = digits(&power_of_two(&P384_ORDER, 416));
    const R_SQUARED: [u64; 8] = digits(&power_of_two(&P384_ORDER, 832));
    const INVERSION: &'static [Step] = {
        const PLAN: SlidingWindow = SlidingWindow::new(&P384_ORDER);
        PLAN.steps()
    };

    #[inline(always)]
    fn eliminate<V: MultiplyAdd52>(columns: &mut Columns<V>, index: usize) {
        eliminate(
            columns,
            index,
            &Self::DIGITS,
            &const { friendly_multiple(&Self::DIGITS) },
        );
    }
}

/// [`Modulus::eliminate`] for a modulus n without a pattern.
///
/// n k, where k is -1 / n modulo 2^52, is -1 modulo 2^52, so the multiple of it is the column
/// itself. That saves the wait for one multiplication. For the last column the result would be too
/// large, so that column uses a multiple of n. Column i adds less than 2^(52 (i + 2 - N)) n to the
/// result, and the last column less than n, so the result is below a b / R + 2.01 n.
#[inline(always)]
fn eliminate<V: MultiplyAdd52, const N: usize>(
    columns: &mut Columns<V>,
    index: usize,
    modulus: &[u64; N],
    friendly: &[u64; N],
) {
    let sums = &mut columns.sums;
    let column = sums[index];
    if index < N - 1 {
        let carry = column.shift_right_signed(DIGIT_BITS);
        unroll!(J below N, {
            sums[index + 1 + J].madd_low(&column, &splat(column, friendly[J]));
            if J == 0 {
                sums[index + 1] = sums[index + 1].add(carry);
            }
            sums[index + 2 + J].madd_high(&column, &splat(column, friendly[J]));
        });
    } else {
        let (mut multiple, mut carry) = (splat(column, 0), column);
        multiple.madd_low(&column, &splat(column, negated_inverse(modulus[0])));
        carry.madd_low(&multiple, &splat(column, modulus[0]));
        unroll!(J below N, {
            if J != 0 {
                sums[index + J].madd_low(&multiple, &splat(column, modulus[J]));
            }
            sums[index + J + 1].madd_high(&multiple, &splat(column, modulus[J]));
        });
        sums[index + 1] = sums[index + 1].add(carry.shift_right_signed(DIGIT_BITS));
    }
}

/// (n k + 1) / 2^52, where k is -1 / n modulo 2^52.
const fn friendly_multiple<const N: usize>(modulus: &[u64; N]) -> [u64; N] {
    let factor = negated_inverse(modulus[0]) as u128;
    let mut multiple = [0; N];
    let mut carry = 1;
    let mut index = 0;
    while index < N {
        carry += factor * modulus[index] as u128;
        if index > 0 {
            multiple[index - 1] = carry as u64 & ((1 << DIGIT_BITS) - 1);
        }
        carry >>= DIGIT_BITS;
        index += 1;
    }
    multiple[N - 1] = carry as u64;
    multiple
}

/// -1 / `digit` modulo 2^52.
const fn negated_inverse(digit: u64) -> u64 {
    let mut inverse = digit;
    let mut round = 0;
    while round < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(digit.wrapping_mul(inverse)));
        round += 1;
    }
    inverse.wrapping_neg() & ((1 << DIGIT_BITS) - 1)
}

/// The digits of an integer in 64-bit limbs.
pub(super) const fn digits<const L: usize, const N: usize>(limbs: &[u64; L]) -> [u64; N] {
    assert!(N * DIGIT_BITS as usize >= 64 * L);
    let mut digits = [0; N];
    let mut index = 0;
    while index < N {
        digits[index] = bits(limbs, index * DIGIT_BITS as usize, DIGIT_BITS as usize);
        index += 1;
    }
    digits
}

/// The 64-bit limbs of an integer in digits. The integer fits.
pub(super) const fn limbs<const L: usize, const N: usize>(digits: &[u64; N]) -> [u64; L] {
    let mut limbs = [0; L];
    let mut index = 0;
    while index < N {
        let position = index * DIGIT_BITS as usize;
        let (limb, shift) = (position / 64, position % 64);
        if limb < L {
            limbs[limb] |= digits[index] << shift;
        }
        if shift > 12 && limb + 1 < L {
            limbs[limb + 1] |= digits[index] >> (64 - shift);
        }
        index += 1;
    }
    limbs
}

const fn signed<const N: usize>(digits: &[u64; N]) -> [i64; N] {
    let mut signed = [0; N];
    let mut index = 0;
    while index < N {
        signed[index] = digits[index].cast_signed();
        index += 1;
    }
    signed
}
