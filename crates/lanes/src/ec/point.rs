//! Points of y^2 = x^3 - 3 x + b in Jacobian coordinates: x = X / Z^2, y = Y / Z^3. Never the point
//! at infinity.
//!
//! The formulas are those of the Explicit-Formulas Database (doubling: dbl-2001-b; additions: as
//! add-1998-cmo-2) and of N. Meloni, "New point addition formulae for ECC applications" (2007), for
//! points that share their Z. Additions are valid for points that are neither equal nor opposite.
//! Callers prove that, or check the result of [`formulas::add`].
//!
//! # Bounds
//!
//! Bounds are in multiples of p, for P-256, where R is 16; P-384 has room for far more. X is below
//! 1.1 or, if its field does not tighten, below [`Modulus::TIGHT`]; Y and Z are below 4. The
//! formulas state bounds with `below` and `between`, which do nothing but in the tests that prove
//! them.

use super::arithmetic::Arithmetic;
use super::curve::Parameters;
use super::field::{
    Element, Factor, Modulus, difference_of_products, multiply, product_less_squares, square,
};
use super::moduli::digits;
use super::wipe;
use crate::digits::splat;

/// A point in Jacobian coordinates.
#[derive(Clone, Copy)]
pub(super) struct Point<V, const N: usize> {
    pub(super) x: Element<V, N>,
    pub(super) y: Element<V, N>,
    pub(super) z: Factor<V, N>,
}

/// A point with Z = 1. Its x is bounded as X is, and its y is below 2.
#[derive(Clone, Copy)]
pub(super) struct AffinePoint<V, const N: usize> {
    pub(super) x: Element<V, N>,
    pub(super) y: Element<V, N>,
}

impl<V: Arithmetic, const N: usize> AffinePoint<V, N> {
    #[inline(always)]
    pub(super) fn to_point<M: Modulus<N>>(self) -> Point<V, N> {
        let one = Element::splat(self.x.0[0], &M::ONE);
        Point {
            x: self.x,
            y: self.y,
            z: one.as_factor(),
        }
    }

    /// The lanes in which the point is on the curve. Its coordinates are given a second time, as
    /// they will be released: `x` and `y` are not in Montgomery form, and below p.
    ///
    /// A product of one form and the other is in neither. So the equation holds only if both forms
    /// are right.
    #[inline(always)]
    pub(super) fn is_on_curve<C: Parameters<L, N>, const L: usize>(
        &self,
        x: &Element<V, N>,
        y: &Element<V, N>,
    ) -> V::Mask {
        let three = {
            let mut digits = [0; N];
            digits[0] = 3;
            Element::splat(x.0[0], &digits)
        };
        let b = Element::splat(x.0[0], &const { digits(&C::B) });
        let left = multiply::<C::Field, V, N>(&self.y, y)
            .element()
            .below::<C::Field>(1.2);
        let factor = multiply::<C::Field, V, N>(&self.x, x)
            .minus(&three)
            .plus_modulus::<C::Field>(1)
            .factor()
            .below::<C::Field>(2.2);
        multiply::<C::Field, V, N>(&self.x, &factor)
            .plus(&b)
            .minus(&left)
            .plus_modulus::<C::Field>(2)
            .element()
            .below::<C::Field>(4.3)
            .is_multiple::<C::Field>()
    }

    pub(super) fn wipe(&mut self) {
        wipe(&mut self.x.0);
        wipe(&mut self.y.0);
    }
}

impl<V: Arithmetic, const N: usize> Point<V, N> {
    /// Doubles the point.
    #[inline(always)]
    pub(super) fn double<M: Modulus<N>>(&mut self) {
        V::double::<M, N>(self);
    }

    /// Adds another point, or subtracts it where `negative` is set. The points are neither equal
    /// nor opposite.
    #[inline(always)]
    pub(super) fn add<M: Modulus<N>>(&mut self, other: &Self, negative: V::Mask) {
        V::add_point::<M, N>(self, other, negative);
    }

    /// Adds another point, or subtracts it where `negative` is set. The result is not the point at
    /// infinity.
    #[inline(always)]
    pub(super) fn add_or_double<M: Modulus<N>>(&mut self, other: &Self, negative: V::Mask) {
        let mut double = *self;
        double.double::<M>();
        let difference = V::add_point::<M, N>(self, other, negative);
        let are_equal = difference.element().is_multiple::<M>();
        self.x = double.x.select(&self.x, are_equal);
        self.y = double.y.select(&self.y, are_equal);
        let z = double.z.element().select(&self.z.element(), are_equal);
        self.z = z.as_factor();
        double.wipe();
    }

    /// Adds another point, or subtracts it where `negative` is set. The points are neither equal
    /// nor opposite.
    #[inline(always)]
    pub(super) fn add_affine<M: Modulus<N>>(
        &mut self,
        other: &AffinePoint<V, N>,
        negative: V::Mask,
    ) {
        V::add_affine::<M, N>(self, other, negative);
    }

    /// Adds this point to another of the same Z, and changes the Z of this point to that of the
    /// sum. The points are neither equal nor opposite.
    #[inline(always)]
    pub(super) fn add_to_same_z<M: Modulus<N>>(&mut self, other: &mut Self) {
        V::add_with_same_z::<M, N>(self, other);
    }

    /// The same point with Z multiplied by `factor`, which is below 8.
    #[inline(always)]
    pub(super) fn scale<M: Modulus<N>>(&self, factor: &Factor<V, N>) -> Self {
        let square = square::<M, V, N>(factor).factor().below::<M>(5.0);
        let cube = multiply::<M, V, N>(factor, &square)
            .factor()
            .below::<M>(3.5);
        Point {
            x: multiply::<M, V, N>(&self.x, &square)
                .tighten::<M>()
                .element(),
            y: multiply::<M, V, N>(&self.y, &cube)
                .element()
                .below::<M>(1.9),
            z: multiply::<M, V, N>(&self.z, factor)
                .factor()
                .below::<M>(3.0),
        }
    }

    /// The affine coordinates; `inverse` is 1 / Z.
    #[inline(always)]
    pub(super) fn to_affine<M: Modulus<N>>(self, inverse: &Factor<V, N>) -> AffinePoint<V, N> {
        let Point { x, y, .. } = self.scale::<M>(inverse);
        AffinePoint { x, y }
    }

    pub(super) fn wipe(&mut self) {
        wipe(&mut self.x.0);
        wipe(&mut self.y.0);
        wipe(&mut self.z.0);
    }
}

impl<V: Arithmetic, const N: usize> Element<V, N> {
    /// The lanes in which the integer is a multiple of the modulus.
    #[inline(always)]
    pub(super) fn is_multiple<M: Modulus<N>>(self) -> V::Mask {
        let canonical = self.canonical::<M>();
        let mut any = canonical.0[0];
        unroll!(I below N, { any = any.or(canonical.0[I]) });
        any.equal(splat(any, 0))
    }
}

/// The formulas as straight-line code.
pub(super) mod formulas {
    use super::*;

    /// `point = 2 point`.
    #[inline(always)]
    pub(in crate::ec) fn double<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &mut Point<V, N>,
    ) {
        let delta = square::<M, V, N>(&point.z).element().below::<M>(2.0);
        let gamma = square::<M, V, N>(&point.y).factor().below::<M>(2.0);
        let alpha = multiply::<M, V, N>(
            &point
                .x
                .sum()
                .minus(&delta)
                .plus_modulus::<M>(2)
                .factor()
                .below::<M>(3.1),
            &point.x.sum().plus(&delta).factor().below::<M>(3.1),
        )
        .thrice()
        .below::<M>(4.9)
        .tighten::<M>()
        .factor();
        let beta4 = multiply::<M, V, N>(&point.x, &gamma)
            .twice()
            .twice()
            .element()
            .below::<M>(4.6);
        let z = multiply::<M, V, N>(&point.y, &point.z)
            .twice()
            .factor()
            .below::<M>(4.0);
        let x = square::<M, V, N>(&alpha)
            .below::<M>(1.1)
            .minus_shifted(&beta4, 1)
            .between::<M>(-9.2, 1.1)
            .plus_modulus::<M>(10)
            .tighten::<M>()
            .element();
        let difference = beta4
            .sum()
            .minus(&x)
            .plus_modulus::<M>(M::TIGHT)
            .factor()
            .below::<M>(6.6);
        let y = product_less_squares::<M, V, N>(&alpha, &difference, &gamma)
            .between::<M>(-2.0, 1.5)
            .plus_modulus::<M>(2)
            .below::<M>(3.5)
            .element();
        *point = Point { x, y, z };
    }

    /// `point = point + other`, or `point - other` where `negative` is set. Returns a multiple of p
    /// in the lanes where the points are equal or opposite, and where the sum is therefore wrong.
    #[inline(always)]
    pub(in crate::ec) fn add<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &mut Point<V, N>,
        other: &Point<V, N>,
        negative: V::Mask,
    ) -> Factor<V, N> {
        let zz1 = square::<M, V, N>(&point.z).factor().below::<M>(2.0);
        let zz2 = square::<M, V, N>(&other.z).factor().below::<M>(2.0);
        let zzz1 = multiply::<M, V, N>(&point.z, &zz1).factor().below::<M>(1.5);
        let zzz2 = multiply::<M, V, N>(&other.z, &zz2).factor().below::<M>(1.5);
        let u1 = multiply::<M, V, N>(&point.x, &zz2)
            .element()
            .below::<M>(1.2);
        let h = multiply::<M, V, N>(&other.x, &zz1)
            .below::<M>(1.2)
            .minus(&u1)
            .plus_modulus::<M>(2)
            .below::<M>(3.2)
            .factor();
        let s1 = multiply::<M, V, N>(&point.y, &zzz2)
            .element()
            .below::<M>(1.4);
        let r = multiply::<M, V, N>(&other.y, &zzz1)
            .below::<M>(1.4)
            .negate_where(negative)
            .minus(&s1)
            .between::<M>(-2.8, 1.4)
            .plus_modulus::<M>(3)
            .below::<M>(4.4)
            .factor();
        let hh = square::<M, V, N>(&h).factor().below::<M>(1.7);
        let zz = multiply::<M, V, N>(&point.z, &other.z)
            .factor()
            .below::<M>(2.0);
        let hhh = multiply::<M, V, N>(&h, &hh).element().below::<M>(1.4);
        let v = multiply::<M, V, N>(&u1, &hh).element().below::<M>(1.2);
        let x = square::<M, V, N>(&r)
            .below::<M>(2.3)
            .minus(&hhh)
            .minus_shifted(&v, 1)
            .between::<M>(-3.8, 2.3)
            .plus_modulus::<M>(4)
            .tighten::<M>()
            .element();
        let z = multiply::<M, V, N>(&zz, &h).factor().below::<M>(1.4);
        let difference = v
            .sum()
            .minus(&x)
            .plus_modulus::<M>(M::TIGHT)
            .factor()
            .below::<M>(3.2);
        let y = difference_of_products::<M, V, N>(&r, &difference, &s1, &hhh)
            .between::<M>(-0.2, 1.9)
            .plus_modulus::<M>(1)
            .below::<M>(2.9)
            .element();
        *point = Point { x, y, z };
        h
    }

    /// `point = point + other`, or `point - other` where `negative` is set.
    #[inline(always)]
    pub(in crate::ec) fn add_affine<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &mut Point<V, N>,
        other: &AffinePoint<V, N>,
        negative: V::Mask,
    ) {
        let zz = square::<M, V, N>(&point.z).factor().below::<M>(2.0);
        let yz = multiply::<M, V, N>(&other.y, &point.z)
            .factor()
            .below::<M>(1.5);
        let h = multiply::<M, V, N>(&other.x, &zz)
            .below::<M>(1.2)
            .minus(&point.x)
            .plus_modulus::<M>(M::TIGHT)
            .below::<M>(3.2)
            .factor();
        let r = multiply::<M, V, N>(&yz, &zz)
            .below::<M>(1.2)
            .negate_where(negative)
            .minus(&point.y)
            .between::<M>(-5.2, 1.2)
            .plus_modulus::<M>(6)
            .below::<M>(7.2)
            .factor();
        let hh = square::<M, V, N>(&h).factor().below::<M>(1.7);
        let z = multiply::<M, V, N>(&point.z, &h).factor().below::<M>(1.8);
        let hhh = multiply::<M, V, N>(&h, &hh).element().below::<M>(1.4);
        let v = multiply::<M, V, N>(&point.x, &hh).element().below::<M>(1.2);
        let x = square::<M, V, N>(&r)
            .below::<M>(4.3)
            .minus(&hhh)
            .minus_shifted(&v, 1)
            .between::<M>(-3.8, 4.3)
            .plus_modulus::<M>(4)
            .below::<M>(8.3)
            .tighten::<M>()
            .element();
        let difference = v
            .sum()
            .minus(&x)
            .plus_modulus::<M>(M::TIGHT)
            .factor()
            .below::<M>(3.2);
        let y = difference_of_products::<M, V, N>(&r, &difference, &point.y, &hhh)
            .between::<M>(-0.4, 2.5)
            .plus_modulus::<M>(1)
            .below::<M>(3.5)
            .element();
        *point = Point { x, y, z };
    }

    /// `other = point + other` for points of the same Z, and the same `point` with the Z of the
    /// sum.
    #[inline(always)]
    pub(in crate::ec) fn add_with_same_z<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &mut Point<V, N>,
        other: &mut Point<V, N>,
    ) {
        let h = point
            .x
            .sum()
            .minus(&other.x)
            .plus_modulus::<M>(M::TIGHT)
            .factor()
            .below::<M>(3.1);
        let g = point
            .y
            .sum()
            .minus(&other.y)
            .plus_modulus::<M>(4)
            .factor()
            .below::<M>(8.0);
        let hh = square::<M, V, N>(&h).factor().below::<M>(1.7);
        let z = multiply::<M, V, N>(&point.z, &h).factor().below::<M>(1.8);
        let w1 = multiply::<M, V, N>(&point.x, &hh).tighten::<M>().element();
        let w2 = multiply::<M, V, N>(&other.x, &hh).element().below::<M>(1.2);
        let x = square::<M, V, N>(&g)
            .below::<M>(5.0)
            .minus(&w1)
            .minus(&w2)
            .between::<M>(-2.3, 5.0)
            .plus_modulus::<M>(3)
            .below::<M>(8.0)
            .tighten::<M>()
            .element();
        let scaled_y = multiply::<M, V, N>(
            &point.y,
            &w1.sum()
                .minus(&w2)
                .plus_modulus::<M>(2)
                .factor()
                .below::<M>(3.1),
        )
        .element()
        .below::<M>(1.8);
        let y = multiply::<M, V, N>(
            &g,
            &w1.sum()
                .minus(&x)
                .plus_modulus::<M>(M::TIGHT)
                .factor()
                .below::<M>(3.1),
        )
        .below::<M>(2.6)
        .minus(&scaled_y)
        .plus_modulus::<M>(2)
        .below::<M>(4.6)
        .tighten::<M>()
        .element();
        *other = Point { x, y, z };
        *point = Point {
            x: w1,
            y: scaled_y,
            z,
        };
    }
}
