//! Integers of any length, for checking keys and for preparing them.
//!
//! They are wiped when dropped. They are slow, and take a time that depends on their values: no
//! operation with a key uses them.

use core::cmp::Ordering;

use zeroize::Zeroizing;

/// A non-negative integer: 64-bit limbs, the least significant first, leading zeros allowed.
#[derive(Clone)]
pub struct Integer {
    limbs: Zeroizing<Vec<u64>>,
}

impl Integer {
    /// The integer in big-endian `bytes`.
    pub fn from_big_endian(bytes: &[u8]) -> Integer {
        Integer {
            limbs: Zeroizing::new(bytes.rchunks(8).map(big_endian).collect()),
        }
    }

    /// 2^`exponent`.
    pub fn power_of_two(exponent: usize) -> Integer {
        let mut limbs = vec![0; exponent / 64 + 1];
        limbs[exponent / 64] = 1 << (exponent % 64);
        Integer {
            limbs: Zeroizing::new(limbs),
        }
    }

    /// The integer as u64, if it fits.
    pub fn to_u64(&self) -> Option<u64> {
        (self.bits() <= 64).then(|| self.limb(0))
    }

    /// The limb with number `index`, zero beyond the end.
    pub fn limb(&self, index: usize) -> u64 {
        self.limbs.get(index).copied().unwrap_or(0)
    }

    /// The `count` digits of `bits` bits each, the least significant first; what is above is left
    /// out.
    pub fn digits(&self, count: usize, bits: u32) -> Zeroizing<Vec<u64>> {
        Zeroizing::new(
            (0..count)
                .map(|index| digit(&self.limbs, index, bits))
                .collect(),
        )
    }

    /// The `length` bytes, big-endian; what is above is left out.
    pub fn to_big_endian(&self, length: usize) -> Vec<u8> {
        (0..length)
            .rev()
            .map(|index| (self.limb(index / 8) >> (8 * (index % 8))) as u8)
            .collect()
    }

    /// Length without leading zero bits.
    pub fn bits(&self) -> usize {
        let Some(highest) = self.limbs.iter().rposition(|limb| *limb != 0) else {
            return 0;
        };
        64 * highest + 64 - self.limbs[highest].leading_zeros() as usize
    }

    /// Returns true if the integer is odd.
    pub fn is_odd(&self) -> bool {
        self.limb(0) & 1 == 1
    }

    /// `self - 1`, for an odd integer.
    pub fn odd_minus_one(&self) -> Integer {
        debug_assert!(self.is_odd());
        let mut result = self.clone();
        result.limbs[0] &= !1;
        result
    }

    /// The product.
    pub fn multiply(&self, other: &Integer) -> Integer {
        let mut limbs = Zeroizing::new(vec![0; self.limbs.len() + other.limbs.len()]);
        for (row, a) in self.limbs.iter().enumerate() {
            let mut carry = 0;
            for (b, sum) in other.limbs.iter().zip(&mut limbs[row..]) {
                let wide = u128::from(*a) * u128::from(*b) + u128::from(*sum) + carry;
                *sum = wide as u64;
                carry = wide >> 64;
            }
            limbs[row + other.limbs.len()] = carry as u64;
        }
        Integer { limbs }
    }

    /// `self` modulo `modulus`, which is not zero.
    pub fn remainder(&self, modulus: &Integer) -> Integer {
        let mut result = Integer::zero_for(modulus);
        for bit in (0..self.bits()).rev() {
            result.double_and_add(self.limb(bit / 64) >> (bit % 64) & 1, modulus);
        }
        result
    }

    /// `self` 2^`count` modulo `modulus`; `self` is less than it.
    pub fn shift_left_modulo(&self, count: usize, modulus: &Integer) -> Integer {
        let mut result = Integer::zero_for(modulus);
        for (limb, value) in result.limbs.iter_mut().zip(self.limbs.iter()) {
            *limb = *value;
        }
        for _ in 0..count {
            result.double_and_add(0, modulus);
        }
        result
    }

    /// -1 / `self` modulo 2^`bits`, for an odd integer and up to 64 bits.
    pub fn negated_inverse(&self, bits: u32) -> u64 {
        let low = self.limb(0);
        // Newton's iteration doubles the number of right bits, which are 3 at first: x * x = 1
        // modulo 8.
        let mut inverse = low;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(low.wrapping_mul(inverse)));
        }
        inverse.wrapping_neg() & (u64::MAX >> (u64::BITS - bits))
    }

    /// Zero, with room for remainders modulo `modulus` and one bit more.
    fn zero_for(modulus: &Integer) -> Integer {
        Integer {
            limbs: Zeroizing::new(vec![0; modulus.bits() / 64 + 1]),
        }
    }

    /// `self` = 2 `self` + `bit` modulo `modulus`; `self` is less than it and comes from
    /// [`Integer::zero_for`].
    fn double_and_add(&mut self, bit: u64, modulus: &Integer) {
        let mut carry = bit;
        for limb in self.limbs.iter_mut() {
            let doubled = *limb << 1 | carry;
            carry = *limb >> 63;
            *limb = doubled;
        }
        if (*self).cmp(modulus) != Ordering::Less {
            let mut borrow = false;
            for (index, limb) in self.limbs.iter_mut().enumerate() {
                (*limb, borrow) = limb.borrowing_subtract(modulus.limb(index), borrow);
            }
        }
    }
}

/// The digit with number `index`, of `bits` bits, of the integer with little-endian `limbs`.
pub fn digit(limbs: &[u64], index: usize, bits: u32) -> u64 {
    let position = index * bits as usize;
    let (limb, shift) = (position / 64, position % 64);
    let limb_at = |index| u128::from(limbs.get(index).copied().unwrap_or(0));
    let window = limb_at(limb) | limb_at(limb + 1) << 64;
    (window >> shift) as u64 & (u64::MAX >> (u64::BITS - bits))
}

/// The integer in up to eight big-endian bytes.
pub fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// `u64::borrowing_sub`, which is not stable in the oldest supported compiler.
trait BorrowingSubtract: Sized {
    fn borrowing_subtract(self, other: Self, borrow: bool) -> (Self, bool);
}

impl BorrowingSubtract for u64 {
    fn borrowing_subtract(self, other: u64, borrow: bool) -> (u64, bool) {
        let (difference, first) = self.overflowing_sub(other);
        let (difference, second) = difference.overflowing_sub(u64::from(borrow));
        (difference, first | second)
    }
}

impl PartialEq for Integer {
    fn eq(&self, other: &Integer) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Integer {}

impl PartialOrd for Integer {
    fn partial_cmp(&self, other: &Integer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Integer {
    fn cmp(&self, other: &Integer) -> Ordering {
        let length = self.limbs.len().max(other.limbs.len());
        (0..length)
            .rev()
            .map(|index| self.limb(index).cmp(&other.limb(index)))
            .find(|ordering| *ordering != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(value: u128) -> Integer {
        Integer::from_big_endian(&value.to_be_bytes())
    }

    #[test]
    fn agrees_with_native_arithmetic() {
        let values = [
            1,
            2,
            3,
            0xffff_ffff,
            u128::from(u64::MAX),
            0x1234_5678_9abc_def0_0fed_cba9,
        ];
        for a in values {
            for b in values {
                let product = integer(a).multiply(&integer(b));
                if let Some(expected) = a.checked_mul(b) {
                    assert!(product == integer(expected), "{a} * {b}");
                }
                assert!(
                    integer(a).remainder(&integer(b)) == integer(a % b),
                    "{a} mod {b}"
                );
                assert!(product.remainder(&integer(b)) == integer(0));
                assert_eq!(integer(a).cmp(&integer(b)), a.cmp(&b));
                if a < b && b < 1 << 96 {
                    let shifted = integer(a).shift_left_modulo(30, &integer(b));
                    assert!(shifted == integer((a << 30) % b), "{a} << 30 mod {b}");
                }
            }
        }
    }

    #[test]
    fn knows_its_length_and_bytes() {
        assert_eq!(integer(0).bits(), 0);
        assert_eq!(integer(1 << 64).bits(), 65);
        assert_eq!(Integer::power_of_two(128).bits(), 129);
        assert_eq!(integer(1 << 64).to_u64(), None);
        assert_eq!(integer(u128::from(u64::MAX)).to_u64(), Some(u64::MAX));
        let bytes: Vec<u8> = (1..=11).collect();
        assert_eq!(Integer::from_big_endian(&bytes).to_big_endian(11), bytes);
        assert_eq!(integer(0xabcdef).digits(3, 8)[..], [0xef, 0xcd, 0xab]);
    }

    #[test]
    fn negated_inverse_is_minus_one_times_the_inverse() {
        for odd in [1_u64, 3, 0xffff_ffff_ffff_ffff, 0x1234_5678_9abc_def1] {
            for bits in [28, 52] {
                let product = odd.wrapping_mul(integer(u128::from(odd)).negated_inverse(bits));
                assert_eq!(product.wrapping_add(1) & ((1 << bits) - 1), 0);
            }
        }
    }
}
