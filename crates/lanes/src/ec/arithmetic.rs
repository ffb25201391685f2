//! The arithmetic of fields and points for each vector type.
//!
//! The generic code is inlined into the functions of this file and so is compiled for their target
//! features. These are not inlined themselves, except for products of short numbers: the code would
//! grow to megabytes.

use super::field::{Factor, Modulus, Sum, inline};
use super::inversion;
use super::point::{AffinePoint, Point, formulas};
#[cfg(target_arch = "x86_64")]
use crate::vector::IfmaVector;
use crate::vector::{MultiplyAdd52, Portable, Vector};

/// Declares [`Arithmetic`] and implements it with the generic code that is named for each function.
/// With IFMA, a function is inlined for numbers of up to `inlined` digits.
macro_rules! arithmetic {
    ($(
        $(#[$documentation:meta])*
        fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $module:ident::$code:ident, inlined: $digits:literal;
    )*) => {
        /// Vectors with the arithmetic of fields and points.
        pub(super) trait Arithmetic: MultiplyAdd52 {
            $(
                $(#[$documentation])*
                fn $name<M: Modulus<N>, const N: usize>($($argument: $type),*) -> $result;
            )*
        }

        impl Arithmetic for Portable {
            $(
                #[inline(never)]
                fn $name<M: Modulus<N>, const N: usize>($($argument: $type),*) -> $result {
                    $module::$code::<M, Self, N>($($argument),*)
                }
            )*
        }

        #[cfg(target_arch = "x86_64")]
        impl Arithmetic for IfmaVector {
            $(
                #[inline(always)]
                fn $name<M: Modulus<N>, const N: usize>($($argument: $type),*) -> $result {
                    if N <= $digits {
                        $module::$code::<M, Self, N>($($argument),*)
                    } else {
                        // SAFETY: the CPU has AVX-512 IFMA, else the arguments would not exist.
                        unsafe { IfmaVector::$name::<M, N>($($argument),*) }
                    }
                }
            )*
        }

        /// The functions that have the target features.
        #[cfg(target_arch = "x86_64")]
        impl IfmaVector {
            $(
                #[target_feature(enable = "avx512f,avx512ifma")]
                #[inline(never)]
                fn $name<M: Modulus<N>, const N: usize>($($argument: $type),*) -> $result {
                    align_stack();
                    $module::$code::<M, Self, N>($($argument),*)
                }
            )*
        }
    };
}

arithmetic! {
    /// `a b / R`.
    fn multiply(a: &[Self; N], b: &[Self; N]) -> Sum<Self, N> = inline::multiply, inlined: 5;

    /// `a^2 / R`.
    fn square(a: &[Self; N]) -> Sum<Self, N> = inline::square, inlined: 5;

    /// `(a b - c d) / R`.
    fn difference_of_products(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N],
        d: &[Self; N]
    ) -> Sum<Self, N> = inline::difference_of_products, inlined: 5;

    /// `(a b - 8 c^2) / R`.
    fn product_less_squares(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N]
    ) -> Sum<Self, N> = inline::product_less_squares, inlined: 5;

    /// [`inversion::invert`].
    fn invert(a: &Factor<Self, N>) -> Factor<Self, N> = inversion::invert, inlined: 0;

    /// [`formulas::double`].
    fn double(point: &mut Point<Self, N>) -> () = formulas::double, inlined: 0;

    /// [`formulas::add`].
    fn add_point(
        point: &mut Point<Self, N>,
        other: &Point<Self, N>,
        negative: <Self as Vector>::Mask
    ) -> Factor<Self, N> = formulas::add, inlined: 0;

    /// [`formulas::add_affine`].
    fn add_affine(
        point: &mut Point<Self, N>,
        other: &AffinePoint<Self, N>,
        negative: <Self as Vector>::Mask
    ) -> () = formulas::add_affine, inlined: 0;

    /// [`formulas::add_with_same_z`].
    fn add_with_same_z(
        point: &mut Point<Self, N>,
        other: &mut Point<Self, N>
    ) -> () = formulas::add_with_same_z, inlined: 0;
}

/// Aligns the caller's stack for vectors. LLVM aligns it to 16 bytes only if vectors are there just
/// because they are spilled, and then each of them takes part of two cache lines.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn align_stack() {
    core::hint::black_box(&mut core::mem::MaybeUninit::<IfmaVector>::uninit());
}
