//! What is a function of its own and what is inlined.
//!
//! The generic code is inlined everywhere, so that it becomes code for the target features of the functions here. Without
//! them it would become megabytes.

use super::field::{Factor, Modulus, Sum, inline};
use super::inversion;
use super::point::{AffinePoint, Point, formulas};
use crate::vector::{MultiplyAdd52, Portable};

/// Vectors with the arithmetic of fields and points.
pub(super) trait Arithmetic: MultiplyAdd52 {
    /// `a b / R`.
    fn multiply<M: Modulus<N>, const N: usize>(a: &[Self; N], b: &[Self; N]) -> Sum<Self, N>;

    /// `a^2 / R`.
    fn square<M: Modulus<N>, const N: usize>(a: &[Self; N]) -> Sum<Self, N>;

    /// `(a b - c d) / R`.
    fn difference_of_products<M: Modulus<N>, const N: usize>(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N],
        d: &[Self; N],
    ) -> Sum<Self, N>;

    /// `(a b - 8 c^2) / R`.
    fn product_less_squares<M: Modulus<N>, const N: usize>(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N],
    ) -> Sum<Self, N>;

    /// [`super::inversion::invert`].
    fn invert<M: Modulus<N>, const N: usize>(a: &Factor<Self, N>) -> Factor<Self, N>;

    /// [`formulas::double`].
    fn double<M: Modulus<N>, const N: usize>(point: &Point<Self, N>) -> Point<Self, N>;

    /// [`formulas::add`].
    fn add_points<M: Modulus<N>, const N: usize>(
        a: &Point<Self, N>,
        b: &Point<Self, N>,
        negative: Self::Mask,
    ) -> (Point<Self, N>, Factor<Self, N>);

    /// [`formulas::add_affine`].
    fn add_affine<M: Modulus<N>, const N: usize>(
        a: &Point<Self, N>,
        b: &AffinePoint<Self, N>,
        negative: Self::Mask,
    ) -> Point<Self, N>;

    /// [`formulas::add_with_same_z`].
    fn add_with_same_z<M: Modulus<N>, const N: usize>(
        a: &Point<Self, N>,
        b: &Point<Self, N>,
    ) -> (Point<Self, N>, Point<Self, N>);
}

impl Arithmetic for Portable {
    #[inline(never)]
    fn multiply<M: Modulus<N>, const N: usize>(a: &[Self; N], b: &[Self; N]) -> Sum<Self, N> {
        inline::multiply::<M, Self, N>(a, b)
    }

    #[inline(never)]
    fn square<M: Modulus<N>, const N: usize>(a: &[Self; N]) -> Sum<Self, N> {
        inline::square::<M, Self, N>(a)
    }

    #[inline(never)]
    fn difference_of_products<M: Modulus<N>, const N: usize>(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N],
        d: &[Self; N],
    ) -> Sum<Self, N> {
        inline::difference_of_products::<M, Self, N>(a, b, c, d)
    }

    #[inline(never)]
    fn product_less_squares<M: Modulus<N>, const N: usize>(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N],
    ) -> Sum<Self, N> {
        inline::product_less_squares::<M, Self, N>(a, b, c)
    }

    #[inline(never)]
    fn invert<M: Modulus<N>, const N: usize>(a: &Factor<Self, N>) -> Factor<Self, N> {
        inversion::invert::<M, Self, N>(a)
    }

    #[inline(never)]
    fn double<M: Modulus<N>, const N: usize>(point: &Point<Self, N>) -> Point<Self, N> {
        formulas::double::<M, Self, N>(point)
    }

    #[inline(never)]
    fn add_points<M: Modulus<N>, const N: usize>(
        a: &Point<Self, N>,
        b: &Point<Self, N>,
        negative: Self::Mask,
    ) -> (Point<Self, N>, Factor<Self, N>) {
        formulas::add::<M, Self, N>(a, b, negative)
    }

    #[inline(never)]
    fn add_affine<M: Modulus<N>, const N: usize>(
        a: &Point<Self, N>,
        b: &AffinePoint<Self, N>,
        negative: Self::Mask,
    ) -> Point<Self, N> {
        formulas::add_affine::<M, Self, N>(a, b, negative)
    }

    #[inline(never)]
    fn add_with_same_z<M: Modulus<N>, const N: usize>(
        a: &Point<Self, N>,
        b: &Point<Self, N>,
    ) -> (Point<Self, N>, Point<Self, N>) {
        formulas::add_with_same_z::<M, Self, N>(a, b)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{
        AffinePoint, Arithmetic, Factor, Modulus, Point, Sum, formulas, inline, inversion,
    };
    use crate::vector::{IfmaVector, Vector};

    type V = IfmaVector;
    type Mask = <IfmaVector as Vector>::Mask;

    impl Arithmetic for IfmaVector {
        #[inline(always)]
        fn multiply<M: Modulus<N>, const N: usize>(a: &[Self; N], b: &[Self; N]) -> Sum<Self, N> {
            if N <= 5 {
                inline::multiply::<M, Self, N>(a, b)
            } else {
                unsafe { multiply::<M, N>(a, b) }
            }
        }

        #[inline(always)]
        fn square<M: Modulus<N>, const N: usize>(a: &[Self; N]) -> Sum<Self, N> {
            if N <= 5 {
                inline::square::<M, Self, N>(a)
            } else {
                unsafe { square::<M, N>(a) }
            }
        }

        #[inline(always)]
        fn difference_of_products<M: Modulus<N>, const N: usize>(
            a: &[Self; N],
            b: &[Self; N],
            c: &[Self; N],
            d: &[Self; N],
        ) -> Sum<Self, N> {
            if N <= 5 {
                inline::difference_of_products::<M, Self, N>(a, b, c, d)
            } else {
                unsafe { difference_of_products::<M, N>(a, b, c, d) }
            }
        }

        #[inline(always)]
        fn product_less_squares<M: Modulus<N>, const N: usize>(
            a: &[Self; N],
            b: &[Self; N],
            c: &[Self; N],
        ) -> Sum<Self, N> {
            if N <= 5 {
                inline::product_less_squares::<M, Self, N>(a, b, c)
            } else {
                unsafe { product_less_squares::<M, N>(a, b, c) }
            }
        }

        #[inline(always)]
        fn invert<M: Modulus<N>, const N: usize>(a: &Factor<Self, N>) -> Factor<Self, N> {
            unsafe { invert::<M, N>(a) }
        }

        #[inline(always)]
        fn double<M: Modulus<N>, const N: usize>(point: &Point<Self, N>) -> Point<Self, N> {
            unsafe { double::<M, N>(point) }
        }

        #[inline(always)]
        fn add_points<M: Modulus<N>, const N: usize>(
            a: &Point<Self, N>,
            b: &Point<Self, N>,
            negative: Self::Mask,
        ) -> (Point<Self, N>, Factor<Self, N>) {
            unsafe { add_points::<M, N>(a, b, negative) }
        }

        #[inline(always)]
        fn add_affine<M: Modulus<N>, const N: usize>(
            a: &Point<Self, N>,
            b: &AffinePoint<Self, N>,
            negative: Self::Mask,
        ) -> Point<Self, N> {
            unsafe { add_affine::<M, N>(a, b, negative) }
        }

        #[inline(always)]
        fn add_with_same_z<M: Modulus<N>, const N: usize>(
            a: &Point<Self, N>,
            b: &Point<Self, N>,
        ) -> (Point<Self, N>, Point<Self, N>) {
            unsafe { add_with_same_z::<M, N>(a, b) }
        }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn multiply<M: Modulus<N>, const N: usize>(a: &[V; N], b: &[V; N]) -> Sum<V, N> {
        inline::multiply::<M, V, N>(a, b)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn square<M: Modulus<N>, const N: usize>(a: &[V; N]) -> Sum<V, N> {
        inline::square::<M, V, N>(a)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn difference_of_products<M: Modulus<N>, const N: usize>(
        a: &[V; N],
        b: &[V; N],
        c: &[V; N],
        d: &[V; N],
    ) -> Sum<V, N> {
        inline::difference_of_products::<M, V, N>(a, b, c, d)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn product_less_squares<M: Modulus<N>, const N: usize>(
        a: &[V; N],
        b: &[V; N],
        c: &[V; N],
    ) -> Sum<V, N> {
        inline::product_less_squares::<M, V, N>(a, b, c)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn invert<M: Modulus<N>, const N: usize>(a: &Factor<V, N>) -> Factor<V, N> {
        inversion::invert::<M, V, N>(a)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn double<M: Modulus<N>, const N: usize>(point: &Point<V, N>) -> Point<V, N> {
        formulas::double::<M, V, N>(point)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn add_points<M: Modulus<N>, const N: usize>(
        a: &Point<V, N>,
        b: &Point<V, N>,
        negative: Mask,
    ) -> (Point<V, N>, Factor<V, N>) {
        formulas::add::<M, V, N>(a, b, negative)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn add_affine<M: Modulus<N>, const N: usize>(
        a: &Point<V, N>,
        b: &AffinePoint<V, N>,
        negative: Mask,
    ) -> Point<V, N> {
        formulas::add_affine::<M, V, N>(a, b, negative)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn add_with_same_z<M: Modulus<N>, const N: usize>(
        a: &Point<V, N>,
        b: &Point<V, N>,
    ) -> (Point<V, N>, Point<V, N>) {
        formulas::add_with_same_z::<M, V, N>(a, b)
    }
}
