//! Inversion modulo p = 2^255 - 19 in constant time: Bernstein and Yang, "Fast constant-time gcd
//! computation and modular inversion" (2019), with the initial delta of 1/2 and the number of steps
//! that Wuille found, as libsecp256k1 has it ("The safegcd implementation in libsecp256k1
//! explained").
//!
//! Division steps take (f, g) from (p, x) to (1 or -1, 0). A step depends only on the lowest bit of
//! g and the sign of delta. So 59 of them are done on the lowest words and combined in a matrix,
//! which is then applied to all of f and g, and modulo p to (d, e), so that f = d x and g = e x
//! stay true.

/// Bits per digit.
const DIGIT_BITS: u32 = 62;

const DIGIT: u64 = (1 << DIGIT_BITS) - 1;

/// 590 division steps are enough for every odd modulus and every number below 2^256.
const ROUNDS: usize = 10;
const STEPS_PER_ROUND: u32 = 59;

/// An integer in signed digits. All but the last are between 0 and 2^62 - 1 after an update.
#[derive(Clone, Copy)]
struct Signed([i64; 5]);

/// p.
const MODULUS: Signed = Signed([-19, 0, 0, 0, 1 << (255 - 4 * DIGIT_BITS)]);

/// 1 / p modulo 2^62.
const MODULUS_INVERSE: u64 = {
    // Newton's iteration doubles the number of correct bits. It begins with three: an odd number is
    // its own inverse modulo 8.
    let modulus = MODULUS.0[0].cast_unsigned();
    let mut inverse = modulus;
    let mut iteration = 0;
    while iteration < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(modulus.wrapping_mul(inverse)));
        iteration += 1;
    }
    inverse & DIGIT
};

/// The effect of 59 division steps on (f, g), times 2^62: (u f + v g, q f + r g).
struct Matrix {
    u: i64,
    v: i64,
    q: i64,
    r: i64,
}

/// 1 / `number` modulo p, or 0 for 0; `number` and the result are below p and in 64-bit words, the
/// least significant first.
pub(super) const fn invert(number: [u64; 4]) -> [u64; 4] {
    let mut d = Signed([0; 5]);
    let mut e = Signed([1, 0, 0, 0, 0]);
    let mut f = MODULUS;
    let mut g = Signed::from_words(number);
    // -(delta + 1/2).
    let mut zeta = -1;
    let mut round = 0;
    while round < ROUNDS {
        let matrix;
        (zeta, matrix) = division_steps(zeta, f.0[0].cast_unsigned(), g.0[0].cast_unsigned());
        (d, e) = matrix.apply_modulo(d, e);
        (f, g) = matrix.apply(f, g);
        round += 1;
    }
    d.normalized(f.0[4]).to_words()
}

const fn division_steps(mut zeta: i64, mut f: u64, mut g: u64) -> (i64, Matrix) {
    // 2^3: with the 59 steps, 2^62.
    let (mut u, mut v, mut q, mut r) = (8_u64, 0_u64, 0_u64, 8_u64);
    let mut step = 0;
    while step < STEPS_PER_ROUND {
        // All ones where delta is positive.
        let positive = (zeta >> 63).cast_unsigned();
        let odd = (g & 1).wrapping_neg();
        g = g.wrapping_add((f ^ positive).wrapping_sub(positive) & odd);
        q = q.wrapping_add((u ^ positive).wrapping_sub(positive) & odd);
        r = r.wrapping_add((v ^ positive).wrapping_sub(positive) & odd);
        let swap = positive & odd;
        zeta = (zeta ^ swap.cast_signed()) - 1;
        f = f.wrapping_add(g & swap);
        u = u.wrapping_add(q & swap);
        v = v.wrapping_add(r & swap);
        g >>= 1;
        u <<= 1;
        v <<= 1;
        step += 1;
    }
    let matrix = Matrix {
        u: u.cast_signed(),
        v: v.cast_signed(),
        q: q.cast_signed(),
        r: r.cast_signed(),
    };
    (zeta, matrix)
}

impl Matrix {
    /// The matrix times (f, g) / 2^62, which is an integer.
    const fn apply(&self, f: Signed, g: Signed) -> (Signed, Signed) {
        (
            combine(self.u, f, self.v, g, 0),
            combine(self.q, f, self.r, g, 0),
        )
    }

    /// The matrix times (d, e) / 2^62 modulo p; in and out are between -2 p and p.
    const fn apply_modulo(&self, d: Signed, e: Signed) -> (Signed, Signed) {
        (
            combine_modulo(self.u, d, self.v, e),
            combine_modulo(self.q, d, self.r, e),
        )
    }
}

/// (a x + b y) / 2^62 modulo p.
const fn combine_modulo(a: i64, x: Signed, b: i64, y: Signed) -> Signed {
    // p is added to x and y if they are negative, and then the multiple of p that makes the lowest
    // digit zero.
    let multiple = (a & (x.0[4] >> 63)) + (b & (y.0[4] >> 63));
    let lowest = a
        .wrapping_mul(x.0[0])
        .wrapping_add(b.wrapping_mul(y.0[0]))
        .cast_unsigned();
    let correction = MODULUS_INVERSE
        .wrapping_mul(lowest)
        .wrapping_add(multiple.cast_unsigned())
        & DIGIT;
    combine(a, x, b, y, multiple - correction.cast_signed())
}

/// (a x + b y + c p) / 2^62, where the lowest digit of the dividend is zero.
const fn combine(a: i64, x: Signed, b: i64, y: Signed, c: i64) -> Signed {
    let mut sum = wide(a, x.0[0]) + wide(b, y.0[0]) + wide(c, MODULUS.0[0]);
    let mut digits = [0; 5];
    let mut index = 1;
    while index < 5 {
        sum >>= DIGIT_BITS;
        sum += wide(a, x.0[index]) + wide(b, y.0[index]);
        if index == 4 {
            sum += wide(c, MODULUS.0[4]);
        }
        digits[index - 1] = sum as i64 & DIGIT.cast_signed();
        index += 1;
    }
    digits[4] = (sum >> DIGIT_BITS) as i64;
    Signed(digits)
}

#[inline(always)]
const fn wide(a: i64, b: i64) -> i128 {
    a as i128 * b as i128
}

impl Signed {
    const fn from_words(words: [u64; 4]) -> Signed {
        let [a, b, c, d] = words;
        let digits = [
            a & DIGIT,
            (a >> 62 | b << 2) & DIGIT,
            (b >> 60 | c << 4) & DIGIT,
            (c >> 58 | d << 6) & DIGIT,
            d >> 56,
        ];
        let [a, b, c, d, e] = digits;
        Signed([
            a.cast_signed(),
            b.cast_signed(),
            c.cast_signed(),
            d.cast_signed(),
            e.cast_signed(),
        ])
    }

    /// From digits that are not negative.
    const fn to_words(self) -> [u64; 4] {
        let [a, b, c, d, e] = self.0;
        let (a, b, c, d, e) = (
            a.cast_unsigned(),
            b.cast_unsigned(),
            c.cast_unsigned(),
            d.cast_unsigned(),
            e.cast_unsigned(),
        );
        [
            a | b << 62,
            b >> 2 | c << 60,
            c >> 4 | d << 58,
            d >> 6 | e << 56,
        ]
    }

    /// The number times the sign of `sign`, modulo p, from 0 to p - 1. The number is between -2 p
    /// and p.
    const fn normalized(self, sign: i64) -> Signed {
        let negate = sign >> 63;
        let mut number = self.with_modulus_if_negative();
        let mut index = 0;
        while index < 5 {
            number.0[index] = (number.0[index] ^ negate) - negate;
            index += 1;
        }
        number.carried().with_modulus_if_negative().carried()
    }

    const fn with_modulus_if_negative(self) -> Signed {
        let mut digits = self.0;
        let negative = digits[4] >> 63;
        digits[0] += MODULUS.0[0] & negative;
        digits[4] += MODULUS.0[4] & negative;
        Signed(digits)
    }

    const fn carried(self) -> Signed {
        let mut digits = self.0;
        let mut index = 0;
        while index < 4 {
            digits[index + 1] += digits[index] >> DIGIT_BITS;
            digits[index] &= DIGIT.cast_signed();
            index += 1;
        }
        Signed(digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x25519::element::Element;

    #[test]
    fn zero_has_no_inverse() {
        assert_eq!(invert([0; 4]), [0; 4]);
    }

    #[test]
    fn a_number_times_its_inverse_is_one() {
        let check = |number: Element| {
            let inverse = Element::from_words(invert(number.to_words()));
            assert_eq!(number.multiply(inverse).to_words(), [1, 0, 0, 0]);
        };
        let one = Element::ONE;
        for bit in 0..255 {
            let mut words = [0; 4];
            words[bit / 64] = 1 << (bit % 64);
            let power = Element::from_words(words);
            check(power);
            check(power.add(one));
            check(Element::ZERO.subtract(power));
            if bit > 0 {
                check(power.subtract(one));
            }
        }
        for _ in 0..20_000 {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).expect("random bytes");
            bytes[31] &= 0x7f;
            check(Element::from_words(crate::x25519::words(&bytes)));
        }
    }

    #[test]
    fn results_are_below_the_modulus() {
        // The inverse of -1 is -1, the largest number. That of 2 is (p + 1) / 2.
        let largest = [u64::MAX - 19, u64::MAX, u64::MAX, u64::MAX >> 1];
        assert_eq!(invert(largest), largest);
        let half = [u64::MAX - 8, u64::MAX, u64::MAX, u64::MAX >> 2];
        assert_eq!(invert([2, 0, 0, 0]), half);
    }
}
