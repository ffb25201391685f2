//! Proofs that no digit of an RSA operation overflows: each size runs once with [`Bounds`] of all
//! keys and inputs.

use num_bigint::BigUint;

use super::*;
#[cfg(target_arch = "x86_64")]
use crate::avx512;
use crate::radix52;
use crate::vector::Bounds;

/// Radix 2^52, with a check that operands and results are below R. Nothing is carried from a last
/// digit, so its bits above 52 would be lost.
struct Radix52;

impl Arithmetic for Radix52 {
    type Vector = Bounds;
    const DIGIT_BITS: u32 = radix52::DIGIT_BITS;

    fn multiply<const N: usize>(
        out: &mut [Bounds; N],
        a: &[Bounds; N],
        b: &[Bounds; N],
        modulus: &Modulus<Bounds, N>,
        product: &mut [Bounds; PRODUCT_LENGTH],
    ) {
        for operand in [a, b] {
            operand[N - 1].state_below(1 << 52);
        }
        radix52::multiply(
            out,
            a,
            b,
            &modulus.digits,
            &modulus.negated_inverse,
            product,
        );
        out[N - 1].state_below(1 << 52);
    }

    fn square<const N: usize>(
        out: &mut [Bounds; N],
        a: &[Bounds; N],
        modulus: &Modulus<Bounds, N>,
        product: &mut [Bounds; PRODUCT_LENGTH],
    ) {
        a[N - 1].state_below(1 << 52);
        radix52::square(out, a, &modulus.digits, &modulus.negated_inverse, product);
        out[N - 1].state_below(1 << 52);
    }
}

/// Radix 2^28, with a check that operands are normalised up to a top digit of 29 bits, and that
/// results are, too.
#[cfg(target_arch = "x86_64")]
struct Radix28;

#[cfg(target_arch = "x86_64")]
impl Radix28 {
    fn check<const N: usize>(number: &[Bounds; N]) {
        let (top, digits) = number.split_last().expect("a number has digits");
        for digit in digits {
            digit.state_below(1 << 28);
        }
        top.state_below(1 << 29);
    }
}

#[cfg(target_arch = "x86_64")]
impl Arithmetic for Radix28 {
    type Vector = Bounds;
    const DIGIT_BITS: u32 = 28;

    fn multiply<const N: usize>(
        out: &mut [Bounds; N],
        a: &[Bounds; N],
        b: &[Bounds; N],
        modulus: &Modulus<Bounds, N>,
        product: &mut [Bounds; PRODUCT_LENGTH],
    ) {
        Radix28::check(a);
        Radix28::check(b);
        let k0 = modulus.negated_inverse;
        // SAFETY: tests call this only if the CPU has AVX-512F.
        unsafe { avx512::multiply(out, a, b, &modulus.digits, k0, product) }
        Radix28::check(out);
    }

    fn square<const N: usize>(
        out: &mut [Bounds; N],
        a: &[Bounds; N],
        modulus: &Modulus<Bounds, N>,
        product: &mut [Bounds; PRODUCT_LENGTH],
    ) {
        Radix28::check(a);
        let k0 = modulus.negated_inverse;
        // SAFETY: as in `multiply`.
        unsafe { avx512::square(out, a, &modulus.digits, k0, product) }
        Radix28::check(out);
    }
}

/// The digits of all numbers from `low` to `high`.
fn between<A: Arithmetic<Vector = Bounds>, const N: usize>(
    low: &BigUint,
    high: &BigUint,
) -> [Bounds; N] {
    let width = A::DIGIT_BITS as usize;
    let digit = |number: &BigUint, index: usize| -> i128 {
        let above = number >> (width * index);
        (above % (1_u64 << width)).try_into().expect("a digit")
    };
    core::array::from_fn(|index| {
        let shift = width * (index + 1);
        if low >> shift == high >> shift {
            Bounds::new(digit(low, index), digit(high, index))
        } else {
            Bounds::new(0, (1 << width) - 1)
        }
    })
}

/// All primes and moduli of a size lie in eight ranges: these eighths of a number of `bits` bits.
fn range(bits: usize, eighth: usize) -> (BigUint, BigUint) {
    let unit = BigUint::from(1_u8) << (bits - 4);
    let low = (eighth + 8) * &unit;
    let high = &low + &unit - 1_u8;
    (low, high)
}

impl<const N: usize> Residue<Bounds, N> {
    /// Any modulus in a range.
    fn set<A: Arithmetic<Vector = Bounds>>(&mut self, (low, high): &(BigUint, BigUint)) {
        self.modulus.digits = between::<A, N>(low, high);
        self.modulus.negated_inverse = Bounds::new(0, (1 << A::DIGIT_BITS) - 1);
        self.r_squared = between::<A, N>(&BigUint::ZERO, high);
    }
}

/// Runs all of an operation but the conversions from and to bytes.
fn run<A: Arithmetic<Vector = Bounds>, const N: usize, const P: usize>(size: Size, eighth: usize) {
    let prime = range(size.bits() / 2, eighth);
    let zero = &BigUint::ZERO;
    let mut workspace = Workspace::new();
    // SAFETY: bounds need no particular CPU.
    let memory = &mut *unsafe { workspace.memory::<Bounds, N, P>() };
    memory.input = between::<A, P>(zero, &range(size.bits(), 7).1);
    memory.prime.set::<A>(&prime);
    memory.r_cubed = between::<A, N>(zero, &prime.1);
    memory.exponent.fill(Bounds::any_bits());

    memory.reduce_input::<A>();
    let chosen = memory.chosen[N - 1].high();
    assert!(chosen <= 4 * memory.prime.modulus.digits[N - 1].high() + 8);
    memory.exponentiate_with_any_length::<A>();
    memory.remainder1 = memory.power;
    memory.leave_montgomery_form::<A>();
    memory.remainder2 = memory.spare;

    // The other prime, and so the modulus, may be in any range.
    memory.coefficient = between::<A, N>(zero, &prime.1);
    memory
        .modulus
        .set::<A>(&(range(size.bits(), 0).0, range(size.bits(), 7).1));
    memory.prime2 = between::<A, P>(zero, &range(size.bits(), 7).1);
    memory.recombine::<A>();
    memory.check::<A>([0x1_0001; LANES]);
}

impl<const N: usize, const P: usize> Memory<Bounds, N, P> {
    /// After one word of the exponent, the power has the same bounds as after two. So each further
    /// word repeats what the second did.
    fn exponentiate_with_any_length<A: Arithmetic<Vector = Bounds>>(&mut self) {
        let base = self.chosen;
        self.exponentiate::<A>(1);
        let ends = |power: &[Bounds; N]| power.map(|digit| (digit.low(), digit.high()));
        let power = ends(&self.power);
        self.chosen = base;
        self.exponentiate::<A>(2);
        assert_eq!(ends(&self.power), power);
    }
}

/// Asserts that no column is 2^61 or larger.
fn run_in_radix52<const N: usize, const P: usize>(size: Size) {
    for eighth in 0..8 {
        let (lowest, highest) = Bounds::extremes(|| run::<Radix52, N, P>(size, eighth));
        assert!(
            lowest > -(1 << 61) && highest < 1 << 61,
            "{lowest:#x} to {highest:#x}"
        );
        assert!(highest > 1 << 57, "nothing was multiplied");
    }
}

#[test]
fn any_key_of_2048_bits_in_radix_52() {
    run_in_radix52::<20, 40>(Size::Rsa2048);
}

#[test]
fn any_key_of_3072_bits_in_radix_52() {
    run_in_radix52::<30, 60>(Size::Rsa3072);
}

#[test]
fn any_key_of_4096_bits_in_radix_52() {
    run_in_radix52::<40, 80>(Size::Rsa4096);
}

/// Asserts that no column is as large as the documentation of [`avx512`] says that none is.
#[cfg(target_arch = "x86_64")]
fn run_in_radix28<const N: usize, const P: usize>(size: Size) {
    if !Backend::Avx512.is_available() {
        println!("skipped: this CPU has no avx512f");
        return;
    }
    // The longer numbers are carried between product and reduction.
    let products = if P > 126 { P } else { 2 * P };
    let limit = ((products as i128 + 2) << 56) + (1 << 36);
    for eighth in 0..8 {
        let (lowest, highest) = Bounds::extremes(|| run::<Radix28, N, P>(size, eighth));
        assert!(
            lowest > -(1 << 30) && highest < limit,
            "{lowest:#x} to {highest:#x}"
        );
        assert!(highest > (P as i128) << 55, "nothing was multiplied");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn any_key_of_2048_bits_in_radix_28() {
    run_in_radix28::<37, 74>(Size::Rsa2048);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn any_key_of_3072_bits_in_radix_28() {
    run_in_radix28::<55, 110>(Size::Rsa3072);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn any_key_of_4096_bits_in_radix_28() {
    run_in_radix28::<74, 147>(Size::Rsa4096);
}

#[test]
#[cfg(target_arch = "x86_64")]
#[should_panic(expected = "overflow")]
fn digits_that_are_too_large_are_found() {
    assert!(
        Backend::Avx512.is_available(),
        "skipped: without avx512f, nothing can overflow"
    );
    let digits = [Bounds::new(0, (1 << 30) - 1); 110];
    let mut product = [digits[0]; PRODUCT_LENGTH];
    let k0 = Bounds::new(0, (1 << 28) - 1);
    // SAFETY: the CPU has AVX-512F.
    unsafe {
        avx512::multiply(
            &mut digits.clone(),
            &digits,
            &digits,
            &digits,
            k0,
            &mut product,
        )
    }
}

#[test]
#[should_panic(expected = "is not below 0x1")]
fn a_prime_that_is_too_long_is_found() {
    // 2 p does not fit 20 digits.
    let mut workspace = Workspace::new();
    // SAFETY: bounds need no particular CPU.
    let memory = &mut *unsafe { workspace.memory::<Bounds, 20, 40>() };
    let prime = range(1040, 7);
    memory.input = between::<Radix52, 40>(&BigUint::ZERO, &(&prime.1 * &prime.1));
    memory.prime.set::<Radix52>(&prime);
    memory.r_cubed = between::<Radix52, 20>(&BigUint::ZERO, &prime.1);
    memory.reduce_input::<Radix52>();
}
