//! Single integers of 256 or 384 bits in 64-bit limbs, least significant first, and Montgomery
//! arithmetic on them.
//!
//! Constant time in the values of all integers. R = 2^(64 L).

use zeroize::Zeroizing;

/// `count` bits of `limbs` from `position` on; zero beyond the end.
pub(super) const fn bits(limbs: &[u64], position: usize, count: usize) -> u64 {
    let (limb, shift) = (position / 64, position % 64);
    let mut window = 0;
    if limb < limbs.len() {
        window = limbs[limb] >> shift;
    }
    if shift != 0 && limb + 1 < limbs.len() {
        window |= limbs[limb + 1] << (64 - shift);
    }
    window & (u64::MAX >> (64 - count))
}

/// The integer in big-endian `bytes`. There are exactly as many as the integer has.
pub(super) fn from_bytes<const L: usize>(bytes: &[u8]) -> [u64; L] {
    let (chunks, rest) = bytes.as_chunks::<8>();
    assert!(chunks.len() == L && rest.is_empty());
    let mut limbs = [0; L];
    for (limb, chunk) in limbs.iter_mut().rev().zip(chunks) {
        *limb = u64::from_be_bytes(*chunk);
    }
    limbs
}

/// Writes `limbs` to `bytes`, big-endian. There are exactly as many bytes.
pub(super) fn to_bytes(limbs: &[u64], bytes: &mut [u8]) {
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    assert!(chunks.len() == limbs.len() && rest.is_empty());
    for (chunk, limb) in chunks.iter_mut().zip(limbs.iter().rev()) {
        *chunk = limb.to_be_bytes();
    }
}

/// `a - b` modulo 2^(64 L), and all ones if `a` is less than `b`, else zero.
pub(super) const fn subtract<const L: usize>(a: &[u64; L], b: &[u64; L]) -> ([u64; L], u64) {
    let mut difference = [0; L];
    let mut borrow = 0;
    let mut index = 0;
    while index < L {
        let wide = (a[index] as u128)
            .wrapping_sub(b[index] as u128)
            .wrapping_sub(borrow as u128 & 1);
        difference[index] = wide as u64;
        borrow = (wide >> 64) as u64;
        index += 1;
    }
    (difference, borrow)
}

/// `a + b` modulo 2^(64 L), and the carry: 0 or 1.
pub(super) const fn add<const L: usize>(a: &[u64; L], b: &[u64; L]) -> ([u64; L], u64) {
    let mut sum = [0; L];
    let mut carry = 0;
    let mut index = 0;
    while index < L {
        let wide = a[index] as u128 + b[index] as u128 + carry as u128;
        sum[index] = wide as u64;
        carry = (wide >> 64) as u64;
        index += 1;
    }
    (sum, carry)
}

/// `a` where `mask` is all ones, `b` where it is zero.
pub(super) const fn select<const L: usize>(a: &[u64; L], b: &[u64; L], mask: u64) -> [u64; L] {
    let mut chosen = [0; L];
    let mut index = 0;
    while index < L {
        chosen[index] = b[index] ^ ((a[index] ^ b[index]) & mask);
        index += 1;
    }
    chosen
}

/// All ones if `limbs` are all zero, else zero.
pub(super) fn is_zero(limbs: &[u64]) -> u64 {
    let any = limbs.iter().fold(0, |any, limb| any | limb);
    value_barrier(((any | any.wrapping_neg()) >> 63).wrapping_sub(1))
}

/// Keeps the optimizer from turning a selection by a mask into a branch.
pub(super) const fn value_barrier(mask: u64) -> u64 {
    core::hint::black_box(mask)
}

/// An odd modulus of 64 L bits with its top bit set.
pub(super) struct Modulus<const L: usize> {
    pub(super) limbs: [u64; L],
    /// -1 / modulus modulo 2^64.
    negated_inverse: u64,
    /// R^2 modulo the modulus.
    r_squared: [u64; L],
}

impl<const L: usize> Modulus<L> {
    pub(super) const fn new(limbs: [u64; L]) -> Self {
        // Newton's iteration doubles the number of correct bits. It begins with three.
        let mut inverse = limbs[0];
        let mut round = 0;
        while round < 5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(limbs[0].wrapping_mul(inverse)));
            round += 1;
        }
        Modulus {
            limbs,
            negated_inverse: inverse.wrapping_neg(),
            r_squared: power_of_two(&limbs, 128 * L),
        }
    }

    /// `a + b` modulo the modulus, for a and b below it.
    pub(super) const fn add(&self, a: &[u64; L], b: &[u64; L]) -> [u64; L] {
        add_modulo(a, b, &self.limbs)
    }

    /// `a - b` modulo the modulus, for a and b below it.
    pub(super) const fn subtract(&self, a: &[u64; L], b: &[u64; L]) -> [u64; L] {
        let (difference, borrow) = subtract(a, b);
        let (corrected, _) = add(&difference, &self.limbs);
        select(&corrected, &difference, value_barrier(borrow))
    }

    /// `a` modulo the modulus, for any a.
    pub(super) fn reduce(&self, a: &[u64; L]) -> [u64; L] {
        let (difference, borrow) = subtract(a, &self.limbs);
        select(a, &difference, value_barrier(borrow))
    }

    /// `a b / R` modulo the modulus, for a b below R times the modulus.
    #[inline(always)]
    pub(super) fn multiply(&self, a: &[u64; L], b: &[u64; L]) -> [u64; L] {
        let mut sum = [0; L];
        let mut top = 0;
        for digit in b {
            let mut carry = 0;
            for (sum, a) in sum.iter_mut().zip(a) {
                (*sum, carry) = multiply_add(*a, *digit, *sum, carry);
            }
            let (high, overflow) = add_carry(top, carry, 0);
            let factor = sum[0].wrapping_mul(self.negated_inverse);
            let (_, mut carry) = multiply_add(factor, self.limbs[0], sum[0], 0);
            for index in 1..L {
                (sum[index - 1], carry) =
                    multiply_add(factor, self.limbs[index], sum[index], carry);
            }
            let (high, carry) = add_carry(high, carry, 0);
            sum[L - 1] = high;
            top = overflow + carry;
        }
        // Below twice the modulus.
        let (difference, borrow) = subtract(&sum, &self.limbs);
        select(
            &sum,
            &difference,
            value_barrier(borrow & top.wrapping_sub(1)),
        )
    }

    /// `a R` modulo the modulus: Montgomery form.
    pub(super) fn montgomery_form(&self, a: &[u64; L]) -> [u64; L] {
        self.multiply(a, &self.r_squared)
    }

    /// Returns true if the integer, which may be secret, is at least 1 and less than the modulus.
    pub(super) fn contains(&self, a: &[u64; L]) -> bool {
        let (difference, borrow) = subtract(a, &self.limbs);
        let _wiped = Zeroizing::new(difference);
        borrow & !is_zero(a) != 0
    }
}

/// 2^`exponent` modulo `modulus`, which has 64 L bits.
pub(super) const fn power_of_two<const L: usize>(modulus: &[u64; L], exponent: usize) -> [u64; L] {
    let (mut power, _) = subtract(&[0; L], modulus);
    let mut doublings = 64 * L;
    assert!(exponent >= doublings);
    while doublings < exponent {
        power = add_modulo(&power, &power, modulus);
        doublings += 1;
    }
    power
}

const fn add_modulo<const L: usize>(a: &[u64; L], b: &[u64; L], modulus: &[u64; L]) -> [u64; L] {
    let (sum, carry) = add(a, b);
    let (difference, borrow) = subtract(&sum, modulus);
    select(
        &sum,
        &difference,
        value_barrier(borrow & carry.wrapping_sub(1)),
    )
}

/// Low and high limb of `a b + c + d`.
#[inline(always)]
const fn multiply_add(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let wide = a as u128 * b as u128 + c as u128 + d as u128;
    (wide as u64, (wide >> 64) as u64)
}

/// `a + b + carry`, and the carry out.
#[inline(always)]
const fn add_carry(a: u64, b: u64, carry: u64) -> (u64, u64) {
    let wide = a as u128 + b as u128 + carry as u128;
    (wide as u64, (wide >> 64) as u64)
}
