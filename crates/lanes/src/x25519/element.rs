//! Single integers modulo p = 2^255 - 19, in five digits of 51 bits, for computations that run once
//! per batch or at compile time.
//!
//! Everything runs in constant time. Most of it is `const`, for the table of [`super::fixed_base`].

use zeroize::Zeroize;

use super::inversion;

/// Bits per digit.
const DIGIT_BITS: u32 = 51;

const DIGIT: u64 = (1 << DIGIT_BITS) - 1;

/// An integer modulo p, not always the smallest representative. Digits are below 2^52.
#[derive(Clone, Copy, Zeroize)]
pub(super) struct Element([u64; 5]);

impl Element {
    pub(super) const ZERO: Element = Element([0; 5]);
    pub(super) const ONE: Element = Element([1, 0, 0, 0, 0]);

    /// From 64-bit words, the least significant first, of an integer below 2^255.
    pub(super) const fn from_words(words: [u64; 4]) -> Element {
        let [a, b, c, d] = words;
        Element([
            a & DIGIT,
            (a >> 51 | b << 13) & DIGIT,
            (b >> 38 | c << 26) & DIGIT,
            (c >> 25 | d << 39) & DIGIT,
            d >> 12,
        ])
    }

    /// From five digits of 52 bits. The bits above them are ignored, except in the last digit,
    /// which is below 2^48.
    pub(super) const fn from_digits52(digits: [u64; 5]) -> Element {
        const DIGIT52: u64 = (1 << 52) - 1;
        let [a, b, c, d, e] = digits;
        let (a, b, c, d) = (a & DIGIT52, b & DIGIT52, c & DIGIT52, d & DIGIT52);
        Element([
            a & DIGIT,
            (a >> 51 | b << 1) & DIGIT,
            (b >> 50 | c << 2) & DIGIT,
            (c >> 49 | d << 3) & DIGIT,
            d >> 48 | e << 4,
        ])
    }

    /// The smallest representative in 64-bit words, the least significant first.
    pub(super) const fn to_words(self) -> [u64; 4] {
        // Digits below 2^51 + 2^8 after one round of carries, and so a number below 2 p.
        let mut digits = self.carried().0;
        // The quotient by p is 0 or 1: the carry out of 255 bits when 19 is added.
        let mut carry = 19;
        let mut index = 0;
        while index < 5 {
            carry = (digits[index] + carry) >> DIGIT_BITS;
            index += 1;
        }
        carry *= 19;
        index = 0;
        while index < 5 {
            let sum = digits[index] + carry;
            digits[index] = sum & DIGIT;
            carry = sum >> DIGIT_BITS;
            index += 1;
        }
        let [a, b, c, d, e] = digits;
        [
            a | b << 51,
            b >> 13 | c << 38,
            c >> 26 | d << 25,
            d >> 39 | e << 12,
        ]
    }

    /// The smallest representative in five digits of 52 bits.
    pub(super) const fn to_digits52(self) -> [u64; 5] {
        words_to_digits52(self.to_words())
    }

    /// The smallest representative in bytes, the least significant first.
    pub(super) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.to_words()) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// 1 if the element is zero, else 0.
    pub(super) const fn is_zero(self) -> u64 {
        let [a, b, c, d] = self.to_words();
        let any = a | b | c | d;
        1 ^ ((any | any.wrapping_neg()) >> 63)
    }

    /// `self` where `choice` is 0, `other` where it is 1.
    pub(super) fn select(self, other: Element, choice: u64) -> Element {
        // Hidden from the compiler, which could make a branch of it.
        let mask = core::hint::black_box(choice.wrapping_neg());
        let mut digits = self.0;
        for (digit, other) in digits.iter_mut().zip(other.0) {
            *digit ^= (*digit ^ other) & mask;
        }
        Element(digits)
    }

    pub(super) const fn add(self, other: Element) -> Element {
        let mut digits = self.0;
        let mut index = 0;
        while index < 5 {
            digits[index] += other.0[index];
            index += 1;
        }
        Element(digits).carried()
    }

    pub(super) const fn subtract(self, other: Element) -> Element {
        // 4 p keeps every digit positive.
        const BIAS: [u64; 5] = [
            (DIGIT - 18) << 2,
            DIGIT << 2,
            DIGIT << 2,
            DIGIT << 2,
            DIGIT << 2,
        ];
        let mut digits = self.0;
        let mut index = 0;
        while index < 5 {
            digits[index] += BIAS[index] - other.0[index];
            index += 1;
        }
        Element(digits).carried()
    }

    /// One round of carries, of digits below 2^54.
    const fn carried(self) -> Element {
        let [a, b, c, d, e] = self.0;
        Element([
            (a & DIGIT) + 19 * (e >> DIGIT_BITS),
            (b & DIGIT) + (a >> DIGIT_BITS),
            (c & DIGIT) + (b >> DIGIT_BITS),
            (d & DIGIT) + (c >> DIGIT_BITS),
            (e & DIGIT) + (d >> DIGIT_BITS),
        ])
    }

    #[inline(always)]
    pub(super) const fn multiply(self, other: Element) -> Element {
        let [a0, a1, a2, a3, a4] = self.0;
        let [b0, b1, b2, b3, b4] = other.0;
        let (b1_19, b2_19, b3_19, b4_19) = (19 * b1, 19 * b2, 19 * b3, 19 * b4);
        carry_columns([
            wide(a0, b0) + wide(a1, b4_19) + wide(a2, b3_19) + wide(a3, b2_19) + wide(a4, b1_19),
            wide(a0, b1) + wide(a1, b0) + wide(a2, b4_19) + wide(a3, b3_19) + wide(a4, b2_19),
            wide(a0, b2) + wide(a1, b1) + wide(a2, b0) + wide(a3, b4_19) + wide(a4, b3_19),
            wide(a0, b3) + wide(a1, b2) + wide(a2, b1) + wide(a3, b0) + wide(a4, b4_19),
            wide(a0, b4) + wide(a1, b3) + wide(a2, b2) + wide(a3, b1) + wide(a4, b0),
        ])
    }

    /// 1 / self; 0 for 0.
    pub(super) const fn invert(self) -> Element {
        Element::from_words(inversion::invert(self.to_words()))
    }
}

/// Five digits of 52 bits, the least significant first, of an integer below 2^256 in 64-bit words.
pub(super) const fn words_to_digits52(words: [u64; 4]) -> [u64; 5] {
    const DIGIT52: u64 = (1 << 52) - 1;
    let [a, b, c, d] = words;
    [
        a & DIGIT52,
        (a >> 52 | b << 12) & DIGIT52,
        (b >> 40 | c << 24) & DIGIT52,
        (c >> 28 | d << 36) & DIGIT52,
        d >> 16,
    ]
}

#[inline(always)]
const fn wide(a: u64, b: u64) -> u128 {
    a as u128 * b as u128
}

/// An element from columns below 2^112: its digits are below 2^51 + 2^15.
#[inline(always)]
const fn carry_columns(columns: [u128; 5]) -> Element {
    let [a, mut b, mut c, mut d, mut e] = columns;
    b += a >> DIGIT_BITS;
    c += b >> DIGIT_BITS;
    d += c >> DIGIT_BITS;
    e += d >> DIGIT_BITS;
    // The carry times 19 can exceed 64 bits.
    let a = (a as u64 & DIGIT) as u128 + 19 * (e >> DIGIT_BITS);
    Element([
        a as u64 & DIGIT,
        (b as u64 & DIGIT) + (a >> DIGIT_BITS) as u64,
        c as u64 & DIGIT,
        d as u64 & DIGIT,
        e as u64 & DIGIT,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: [u64; 4] = [u64::MAX - 18, u64::MAX, u64::MAX, u64::MAX >> 1];

    #[test]
    fn the_smallest_representative() {
        let [low, rest @ ..] = P;
        let number = |low| {
            let [a, b, c] = rest;
            Element::from_words([low, a, b, c]).to_words()
        };
        assert_eq!(number(low - 1), [low - 1, rest[0], rest[1], rest[2]]);
        for excess in 0..19 {
            assert_eq!(number(low + excess), [excess, 0, 0, 0]);
        }
        // All digits have their maximum, 2^52 - 1, which is 2 (2^51 - 1) + 1.
        let largest = Element([(1 << 52) - 1; 5]);
        let once = Element([DIGIT; 5]);
        let ones = Element([1; 5]);
        assert_eq!(largest.to_words(), once.add(once).add(ones).to_words());
    }

    #[test]
    fn only_zero_is_zero() {
        assert_eq!(Element::ZERO.is_zero(), 1);
        assert_eq!(Element::from_words(P).is_zero(), 1);
        assert_eq!(Element::ONE.subtract(Element::ONE).is_zero(), 1);
        for bit in 0..255 {
            let mut words = [0; 4];
            words[bit / 64] = 1 << (bit % 64);
            assert_eq!(Element::from_words(words).is_zero(), 0, "{bit}");
        }
    }

    #[test]
    fn digits_and_bytes() {
        let words = [
            0x0123_4567_89ab_cdef,
            0xfedc_ba98_7654_3210,
            0x0f1e_2d3c_4b5a_6978,
            0x7777_6666_5555_4444,
        ];
        let element = Element::from_words(words);
        assert_eq!(element.to_words(), words);
        let mut digits = element.to_digits52();
        assert_eq!(Element::from_digits52(digits).to_words(), words);
        for digit in &mut digits[..4] {
            *digit |= 0xabc << 52;
        }
        assert_eq!(Element::from_digits52(digits).to_words(), words);
        let bytes = element.to_bytes();
        assert_eq!((bytes[0], bytes[1], bytes[31]), (0xef, 0xcd, 0x77));
    }

    #[test]
    fn selection() {
        let [first, second] = [[1, 2, 3, 4], [5, 6, 7, 8]].map(Element::from_words);
        assert_eq!(first.select(second, 0).to_words(), [1, 2, 3, 4]);
        assert_eq!(first.select(second, 1).to_words(), [5, 6, 7, 8]);
    }
}
