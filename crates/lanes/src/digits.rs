//! Digit-sliced numbers outside multiplication: addition, comparison, selection, conversion.
//!
//! Element i of an array holds digit i of all eight lanes. Digits have `bits` bits. Unless a
//! function says otherwise, they are normalised: below 2^`bits`.

use slipstream_keys::integer::{big_endian, digit};
use zeroize::{Zeroize, Zeroizing};

use crate::LANES;
use crate::vector::Vector;

/// Clears the bits above the digits.
#[inline(always)]
pub(crate) fn normalise<V: Vector>(number: &mut [V], bits: u32) {
    let mask = digit_mask(number[0], bits);
    for digit in number {
        *digit = digit.and(mask);
    }
}

/// `number += other`. The sum fits: there is no carry out of the last digit.
#[inline(always)]
pub(crate) fn add<V: Vector>(number: &mut [V], other: &[V], bits: u32) {
    let mask = digit_mask(number[0], bits);
    let mut carry = zero(number[0]);
    for (digit, other) in number.iter_mut().zip(other) {
        let sum = digit.add(*other).add(carry);
        *digit = sum.and(mask);
        carry = sum.shift_right(bits);
    }
    carry.state_below(1);
}

/// `out = a - b` modulo 2^(bits * length). Returns the borrow: all ones in the lanes where a < b,
/// else zero.
#[inline(always)]
pub(crate) fn subtract<V: Vector>(out: &mut [V], a: &[V], b: &[V], bits: u32) -> V {
    let mask = digit_mask(a[0], bits);
    let mut borrow = zero(a[0]);
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        let difference = a.subtract(*b).add(borrow);
        *out = difference.and(mask);
        borrow = difference.shift_right_signed(bits);
    }
    borrow
}

/// Subtracts `modulus` from the lanes of `number` that are not below it. `difference` is scratch.
#[inline(always)]
pub(crate) fn reduce_once<V: Vector>(
    number: &mut [V],
    modulus: &[V],
    difference: &mut [V],
    bits: u32,
) {
    let borrow = subtract(difference, number, modulus, bits);
    let is_reduced = borrow.equal(all_ones(borrow));
    for (digit, difference) in number.iter_mut().zip(&*difference) {
        *digit = digit.select(*difference, is_reduced);
    }
}

/// Zero in the lanes where `a` and `b` are equal, else another number.
#[inline(always)]
pub(crate) fn differ<V: Vector>(a: &[V], b: &[V]) -> V {
    let mut differences = zero(a[0]);
    for (a, b) in a.iter().zip(b) {
        differences = differences.or(a.xor(*b));
    }
    differences
}

/// Copies to each lane of `out` the entry of `table` at the index in that lane of `index`, 0 to 15.
/// The whole table is read for every index. Digits need not be normalised.
#[inline(always)]
pub(crate) fn look_up<V: Vector, const N: usize>(out: &mut [V; N], table: &[[V; N]; 16], index: V) {
    const AT_ONCE: usize = 10;
    let one = splat(index, 1);
    for start in (0..N).step_by(AT_ONCE) {
        // The last chunk may overlap the one before.
        let start = start.min(N - AT_ONCE);
        let chosen: &mut [V; AT_ONCE] = (&mut out[start..start + AT_ONCE])
            .try_into()
            .expect("that many digits");
        let mut digits = *entry_part(&table[0], start);
        let mut number = one;
        for entry in &table[1..] {
            let is_chosen = index.equal(number);
            let entry: &[V; AT_ONCE] = entry_part(entry, start);
            for (digit, entry) in digits.iter_mut().zip(entry) {
                *digit = entry.select(*digit, is_chosen);
            }
            number = number.add(one);
        }
        *chosen = digits;
    }
}

#[inline(always)]
fn entry_part<V, const N: usize, const M: usize>(entry: &[V; N], start: usize) -> &[V; M] {
    entry[start..].first_chunk().expect("that many digits")
}

/// The lanes of `vectors` as integers.
pub(crate) fn lanes_mut<V: Vector>(vectors: &mut [V]) -> &mut [[u64; LANES]] {
    // SAFETY: a `Vector` has the layout of `[u64; 8]`, at least its alignment, and any bit pattern
    // is a value of it; the borrow is exclusive and lasts as long.
    unsafe { core::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), vectors.len()) }
}

/// The lanes of `vector` as integers.
#[inline(always)]
pub(crate) fn lanes_of<V: Vector>(vector: V) -> [u64; LANES] {
    lanes_mut(&mut [vector])[0]
}

/// The vector with these lanes. `witness` is any vector.
#[inline(always)]
pub(crate) fn from_lanes<V: Vector>(witness: V, lanes: [u64; LANES]) -> V {
    let mut vector = [witness];
    lanes_mut(&mut vector)[0] = lanes;
    vector[0]
}

/// Writes `digits` to lane `lane` of `number`, and zeros above them.
pub(crate) fn load_lane<V: Vector>(number: &mut [V], lane: usize, digits: &[u64]) {
    assert!(digits.len() <= number.len(), "number too long");
    let digits = digits.iter().copied().chain(core::iter::repeat(0));
    for (lanes, digit) in lanes_mut(number).iter_mut().zip(digits) {
        lanes[lane] = digit;
    }
}

/// Limbs of the longest number that is converted, 4096 bits, and one for reading past the end.
const MAXIMUM_LIMBS: usize = 4096 / 64 + 1;

/// Writes the big-endian integer `bytes`, of at most 4096 bits, to lane `lane` of `number`.
pub(crate) fn load_bytes<V: Vector>(number: &mut [V], lane: usize, bytes: &[u8], bits: u32) {
    let mut limbs = Zeroizing::new([0; MAXIMUM_LIMBS]);
    for (limb, chunk) in limbs.iter_mut().zip(bytes.rchunks(8)) {
        *limb = big_endian(chunk);
    }
    for (index, lanes) in lanes_mut(number).iter_mut().enumerate() {
        lanes[lane] = digit(&limbs[..], index, bits);
    }
}

/// Writes lane `lane` of `number` to `bytes`, big-endian. The number fits.
pub(crate) fn store_bytes<V: Vector>(number: &mut [V], lane: usize, bytes: &mut [u8], bits: u32) {
    let mut pending: u128 = 0;
    let mut pending_bits = 0;
    let mut digits = lanes_mut(number).iter().map(|lanes| lanes[lane]);
    for chunk in bytes.rchunks_mut(8) {
        while pending_bits < 64 {
            pending |= u128::from(digits.next().unwrap_or(0)) << pending_bits;
            pending_bits += bits;
        }
        let limb = (pending as u64).to_be_bytes();
        chunk.copy_from_slice(&limb[8 - chunk.len()..]);
        pending >>= 64;
        pending_bits -= 64;
    }
    pending.zeroize();
}

#[inline(always)]
fn digit_mask<V: Vector>(witness: V, bits: u32) -> V {
    splat(witness, (1 << bits) - 1)
}

#[inline(always)]
fn zero<V: Vector>(witness: V) -> V {
    splat(witness, 0)
}

#[inline(always)]
fn all_ones<V: Vector>(witness: V) -> V {
    splat(witness, u64::MAX)
}

/// `value` in every lane.
#[inline(always)]
pub(crate) fn splat<V: Vector>(_witness: V, value: u64) -> V {
    // SAFETY: a value of V exists, so the CPU has its instructions.
    unsafe { V::splat(value) }
}
