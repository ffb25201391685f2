//! Montgomery arithmetic for RSA, and its implementation for each backend.

use crate::radix52;
use crate::vector::{Portable, Vector};

/// Montgomery arithmetic on digit-sliced numbers: element i holds digit i of all eight lanes.
///
/// R = 2^(N * `DIGIT_BITS`). Results are almost reduced: for inputs a, b < R the result is
/// congruent to a b / R and less than modulus + a b / R + 1. A digit is the low `DIGIT_BITS` bits
/// of its lane. A backend may leave garbage above it, which it ignores in its own inputs and which
/// all other code must mask.
pub(crate) trait Arithmetic {
    /// Eight lanes.
    type Vector: Vector;

    /// Bits per digit.
    const DIGIT_BITS: u32;

    /// `out = a b / R`. `product` is scratch of [`PRODUCT_LENGTH`] elements.
    fn multiply<const N: usize>(
        out: &mut [Self::Vector; N],
        a: &[Self::Vector; N],
        b: &[Self::Vector; N],
        modulus: &Modulus<Self::Vector, N>,
        product: &mut [Self::Vector; PRODUCT_LENGTH],
    );

    /// `out = a^2 / R`. `product` is scratch of [`PRODUCT_LENGTH`] elements.
    fn square<const N: usize>(
        out: &mut [Self::Vector; N],
        a: &[Self::Vector; N],
        modulus: &Modulus<Self::Vector, N>,
        product: &mut [Self::Vector; PRODUCT_LENGTH],
    );
}

/// Scratch for a product of the longest numbers, 147 digits of 28 bits each, and 8 elements for the
/// kernels.
pub(crate) const PRODUCT_LENGTH: usize = 2 * 147 + 8;

/// Eight odd moduli of N digits.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Modulus<V, const N: usize> {
    /// The digits, fully normalised.
    pub(crate) digits: [V; N],
    /// -1 / modulus modulo 2^`DIGIT_BITS`.
    pub(crate) negated_inverse: V,
}

/// Radix 2^52 on any CPU.
pub(crate) struct PortableArithmetic;

impl Arithmetic for PortableArithmetic {
    type Vector = Portable;
    const DIGIT_BITS: u32 = radix52::DIGIT_BITS;

    #[inline(never)]
    fn multiply<const N: usize>(
        out: &mut [Portable; N],
        a: &[Portable; N],
        b: &[Portable; N],
        modulus: &Modulus<Portable, N>,
        product: &mut [Portable; PRODUCT_LENGTH],
    ) {
        radix52::multiply(
            out,
            a,
            b,
            &modulus.digits,
            &modulus.negated_inverse,
            product,
        );
    }

    #[inline(never)]
    fn square<const N: usize>(
        out: &mut [Portable; N],
        a: &[Portable; N],
        modulus: &Modulus<Portable, N>,
        product: &mut [Portable; PRODUCT_LENGTH],
    ) {
        radix52::square(out, a, &modulus.digits, &modulus.negated_inverse, product);
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Avx512Arithmetic, IfmaArithmetic};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Arithmetic, Modulus, PRODUCT_LENGTH};
    use crate::avx512;
    use crate::radix52;
    use crate::vector::{IfmaVector, Zmm};

    /// Radix 2^52 with IFMA.
    pub(crate) struct IfmaArithmetic;

    impl Arithmetic for IfmaArithmetic {
        type Vector = IfmaVector;
        const DIGIT_BITS: u32 = radix52::DIGIT_BITS;

        #[inline(always)]
        fn multiply<const N: usize>(
            out: &mut [IfmaVector; N],
            a: &[IfmaVector; N],
            b: &[IfmaVector; N],
            modulus: &Modulus<IfmaVector, N>,
            product: &mut [IfmaVector; PRODUCT_LENGTH],
        ) {
            // SAFETY: the CPU has AVX-512 IFMA, else the arguments would not exist.
            unsafe { multiply_ifma(out, a, b, modulus, product) }
        }

        #[inline(always)]
        fn square<const N: usize>(
            out: &mut [IfmaVector; N],
            a: &[IfmaVector; N],
            modulus: &Modulus<IfmaVector, N>,
            product: &mut [IfmaVector; PRODUCT_LENGTH],
        ) {
            // SAFETY: as in `multiply`.
            unsafe { square_ifma(out, a, modulus, product) }
        }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn multiply_ifma<const N: usize>(
        out: &mut [IfmaVector; N],
        a: &[IfmaVector; N],
        b: &[IfmaVector; N],
        modulus: &Modulus<IfmaVector, N>,
        product: &mut [IfmaVector; PRODUCT_LENGTH],
    ) {
        radix52::multiply(
            out,
            a,
            b,
            &modulus.digits,
            &modulus.negated_inverse,
            product,
        );
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn square_ifma<const N: usize>(
        out: &mut [IfmaVector; N],
        a: &[IfmaVector; N],
        modulus: &Modulus<IfmaVector, N>,
        product: &mut [IfmaVector; PRODUCT_LENGTH],
    ) {
        radix52::square(out, a, &modulus.digits, &modulus.negated_inverse, product);
    }

    /// Radix 2^28 with plain AVX-512F.
    pub(crate) struct Avx512Arithmetic;

    impl Arithmetic for Avx512Arithmetic {
        type Vector = Zmm;
        const DIGIT_BITS: u32 = 28;

        #[inline(always)]
        fn multiply<const N: usize>(
            out: &mut [Zmm; N],
            a: &[Zmm; N],
            b: &[Zmm; N],
            modulus: &Modulus<Zmm, N>,
            product: &mut [Zmm; PRODUCT_LENGTH],
        ) {
            let k0 = modulus.negated_inverse;
            // SAFETY: the CPU has AVX-512F, else the arguments would not exist.
            unsafe { avx512::multiply(out, a, b, &modulus.digits, k0, product) }
        }

        #[inline(always)]
        fn square<const N: usize>(
            out: &mut [Zmm; N],
            a: &[Zmm; N],
            modulus: &Modulus<Zmm, N>,
            product: &mut [Zmm; PRODUCT_LENGTH],
        ) {
            let k0 = modulus.negated_inverse;
            // SAFETY: as in `multiply`.
            unsafe { avx512::square(out, a, &modulus.digits, k0, product) }
        }
    }
}
