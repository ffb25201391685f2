use super::{DIGIT_BITS, multiply, square};
use crate::vector::{Vector, Zmm};
use num_bigint::BigUint;

const LANES: usize = 8;

#[target_feature(enable = "avx512f")]
fn splat(value: u64) -> Zmm {
    // SAFETY: the CPU has AVX-512F, else this function must not be called.
    unsafe { Zmm::splat(value) }
}

/// One value for each lane.
type Values = [BigUint; LANES];

/// SplitMix64 (Steele, Lea, Flood 2014): reproducible test values.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: &BigUint) -> BigUint {
        let words = (0..limit.bits() / 32 + 2).map(|_| self.next() as u32);
        BigUint::new(words.collect()) % limit
    }
}

fn power_of_two(bits: usize) -> BigUint {
    BigUint::from(1u8) << bits
}

/// R = 2^(28N).
fn radix<const N: usize>() -> BigUint {
    power_of_two(DIGIT_BITS as usize * N)
}

/// The greatest operand: all digits at their maximum, the top one 2^29 - 1.
fn greatest_operand<const N: usize>() -> BigUint {
    radix::<N>() * 2u8 - 1u8
}

/// -n^(-1) mod 2^`bits` for odd n, by Newton's iteration, which doubles the number of correct bits.
fn negated_inverse(n: &BigUint, bits: usize) -> BigUint {
    let mut inverse = BigUint::from(1u8);
    let mut correct_bits = 1;
    while correct_bits < bits {
        correct_bits = bits.min(2 * correct_bits);
        let modulus = power_of_two(correct_bits);
        let product = n * &inverse % &modulus;
        inverse = inverse * (&modulus + 2u8 - product) % modulus;
    }
    assert_eq!(n * &inverse % power_of_two(bits), BigUint::from(1u8));
    power_of_two(bits) - inverse
}

/// [`negated_inverse`] modulo 2^28 in each lane.
fn k0_of(n: &Values) -> Zmm {
    let k0 = std::array::from_fn(|lane| negated_inverse(&n[lane], DIGIT_BITS as usize));
    let [k0] = digits_of(&k0);
    k0
}

/// The exact value that almost-Montgomery reduction gives: (a·b + m·n)/R with m = -a·b/n mod R.
fn reference<const N: usize>(a: &BigUint, b: &BigUint, n: &BigUint) -> BigUint {
    let r = radix::<N>();
    let product = a * b;
    let m = (&product * negated_inverse(n, DIGIT_BITS as usize * N)) % &r;
    (product + m * n) / r
}

fn digits_of<const N: usize>(values: &Values) -> [Zmm; N] {
    let mut lanes = [[0u64; LANES]; N];
    for (lane, value) in values.iter().enumerate() {
        for (i, digit) in lanes.iter_mut().enumerate() {
            let shifted = value >> (DIGIT_BITS as usize * i);
            let digit_value = if i == N - 1 {
                shifted
            } else {
                shifted % (1u64 << DIGIT_BITS)
            };
            digit[lane] = digit_value.try_into().expect("the top digit is small");
        }
    }
    // SAFETY: both are eight 64-bit integers, for which all bit patterns are valid.
    lanes.map(|digit| unsafe { std::mem::transmute::<[u64; LANES], Zmm>(digit) })
}

/// The values of the lanes, after a check that all digits but the top one are normalised.
fn values_of<const N: usize>(digits: &[Zmm; N]) -> Values {
    // SAFETY: both are eight 64-bit integers, for which all bit patterns are valid.
    let lanes = digits.map(|digit| unsafe { std::mem::transmute::<Zmm, [u64; LANES]>(digit) });
    std::array::from_fn(|lane| {
        let mut value = BigUint::ZERO;
        for (i, digit) in lanes.iter().enumerate() {
            assert!(
                i == N - 1 || digit[lane] >> DIGIT_BITS == 0,
                "digit {i} of {N} in lane {lane} is not normalised: {:#x}",
                digit[lane]
            );
            value += BigUint::from(digit[lane]) << (DIGIT_BITS as usize * i);
        }
        value
    })
}

#[target_feature(enable = "avx512f")]
fn check<const N: usize>(a: &Values, b: &Values, n: &Values) {
    let k0 = k0_of(n);
    let (a_digits, b_digits, n_digits) = (digits_of::<N>(a), digits_of(b), digits_of(n));
    let garbage = splat(u64::MAX);
    let mut scratch = vec![garbage; 2 * N + 8];

    let mut out = [garbage; N];
    multiply(&mut out, &a_digits, &b_digits, &n_digits, k0, &mut scratch);
    let product = values_of(&out);
    scratch.fill(garbage);
    out = [garbage; N];
    square(&mut out, &a_digits, &n_digits, k0, &mut scratch);
    let squared = values_of(&out);

    for lane in 0..LANES {
        let (a, b, n) = (&a[lane], &b[lane], &n[lane]);
        assert_eq!(
            product[lane],
            reference::<N>(a, b, n),
            "multiply, {N} digits, lane {lane}: {a:x} * {b:x} mod {n:x}"
        );
        assert_eq!(
            squared[lane],
            reference::<N>(a, a, n),
            "square, {N} digits, lane {lane}: {a:x} mod {n:x}"
        );
    }
}

/// An odd modulus: of a size in use, or the greatest or the least that fits.
fn some_modulus<const N: usize>(random: &mut Random) -> BigUint {
    let r = radix::<N>();
    let mut modulus = match random.next() % 8 {
        0 => &r - 1u8,
        1 => BigUint::from(1u8),
        2 => random.below(&(&r >> (r.bits() / 2))),
        3 => random.below(&r),
        _ => random.below(&(&r >> 5)) + (&r >> 5),
    };
    modulus.set_bit(0, true);
    modulus
}

/// An operand of any kind, including those at the bounds.
fn some_operand<const N: usize>(random: &mut Random, modulus: &BigUint) -> BigUint {
    let r = radix::<N>();
    match random.next() % 12 {
        0 => BigUint::ZERO,
        1 => BigUint::from(1u8),
        2 => modulus - 1u8,
        3 => modulus.clone(),
        4 => modulus + 1u8,
        5 => r - 1u8,
        6 => greatest_operand::<N>(),
        7 => r % modulus,
        8 => random.below(&r),
        _ => random.below(modulus),
    }
}

fn avx512f_or_say_skipped() -> bool {
    let available = is_x86_feature_detected!("avx512f");
    if !available {
        println!("skipped: this processor has no avx512f");
    }
    available
}

/// Calls a generic test function for the digit counts in use, and for others, so that each
/// remainder of a division by blocks of eight and of four rows occurs, as well as the greatest
/// count that is not carried in between.
macro_rules! for_each_digit_count {
    ($function:ident) => {
        if avx512f_or_say_skipped() {
            // SAFETY: AVX-512F has been detected.
            unsafe {
                $function::<37>();
                $function::<55>();
                $function::<74>();
                $function::<110>();
                $function::<147>();

                $function::<12>();
                $function::<16>();
                $function::<17>();
                $function::<126>();
            }
        }
    };
}

#[test]
fn random_and_extreme_values_match_the_reference() {
    #[target_feature(enable = "avx512f")]
    fn test<const N: usize>() {
        let mut random = Random(N as u64);
        for _ in 0..16 {
            let n: Values = std::array::from_fn(|_| some_modulus::<N>(&mut random));
            let a = std::array::from_fn(|lane| some_operand::<N>(&mut random, &n[lane]));
            let b = std::array::from_fn(|lane| some_operand::<N>(&mut random, &n[lane]));
            check::<N>(&a, &b, &n);
        }
    }
    for_each_digit_count!(test);
}

#[test]
fn greatest_column_sums_do_not_overflow() {
    /// 127 divides 2^28 - 1, so (R - 127)·(R - (R - 1)/127) ≡ R - 1 mod R: with n = R - 1 the
    /// quotient is R - 1 too, and nearly all digits of both products are at, or within 1% of, their
    /// maximum.
    #[target_feature(enable = "avx512f")]
    fn test<const N: usize>() {
        let r = radix::<N>();
        let n = &r - 1u8;
        let a = &r - 127u8;
        let b = &r - &n / 127u8;
        assert_eq!((&a * &b) % &r, n);
        let n = std::array::from_fn(|_| n.clone());
        // The lanes differ in which operand is which and in how full the top digits are.
        let with_top = |value: &BigUint, fill: bool| {
            let mut value = value.clone();
            value.set_bit(r.bits() - 1, fill);
            value
        };
        let a_lanes = std::array::from_fn(|lane| {
            with_top(if lane & 1 == 0 { &a } else { &b }, lane & 2 != 0)
        });
        let b_lanes = std::array::from_fn(|lane| {
            with_top(if lane & 1 == 0 { &b } else { &a }, lane & 4 != 0)
        });
        check::<N>(&a_lanes, &b_lanes, &n);
    }
    for_each_digit_count!(test);
}

#[test]
fn chains_of_operations_stay_within_their_bound() {
    /// n just below R/16, the greatest modulus for which the module promises results below 5n/4.
    #[target_feature(enable = "avx512f")]
    fn test<const N: usize>() {
        let r = radix::<N>();
        let n: Values = std::array::from_fn(|lane| (&r >> 4) - 1u8 - 2 * lane as u32);
        let k0 = k0_of(&n);
        let n_digits = digits_of::<N>(&n);
        let start: Values = std::array::from_fn(|lane| &n[lane] * 2u8 - 1u8 - lane as u32);
        let base = digits_of::<N>(&start);
        let mut scratch = vec![splat(0); 2 * N];
        let mut value = base;
        let mut next = base;
        for _ in 0..20 {
            square(&mut next, &value, &n_digits, k0, &mut scratch);
            multiply(&mut value, &next, &base, &n_digits, k0, &mut scratch);
            for (value, n) in values_of(&value).iter().zip(&n) {
                assert!(value * 4u8 < n * 5u8);
            }
        }
        // 20 rounds of x -> x²·x0/R² from x0 give x0^(2^21 - 1) / R^(2^21 - 2).
        for (lane, value) in values_of(&value).iter().enumerate() {
            let n = &n[lane];
            let exponent = BigUint::from((1u32 << 21) - 2);
            let scaled = value * r.modpow(&exponent, n) % n;
            assert_eq!(
                scaled,
                start[lane].modpow(&(exponent + 1u8), n),
                "lane {lane}"
            );
        }
    }
    for_each_digit_count!(test);
}

#[test]
fn short_scratch_panics() {
    #[target_feature(enable = "avx512f")]
    fn multiply_with_short_scratch() {
        let zero = splat(0);
        let operand = [zero; 37];
        let mut scratch = [zero; 73];
        multiply(
            &mut [zero; 37],
            &operand,
            &operand,
            &operand,
            zero,
            &mut scratch,
        );
    }
    if avx512f_or_say_skipped() {
        // SAFETY: AVX-512F has been detected.
        let call = || unsafe { multiply_with_short_scratch() };
        assert!(std::panic::catch_unwind(call).is_err());
    }
}
