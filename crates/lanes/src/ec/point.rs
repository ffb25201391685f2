//! Points of y^2 = x^3 - 3 x + b in Jacobian coordinates: x = X / Z^2, y = Y / Z^3. Never the point at infinity.
//!
//! The formulas are those of the Explicit-Formulas Database (doubling: dbl-2001-b; additions: as add-1998-cmo-2) and of
//! N. Meloni, "New point addition formulae for ECC applications" (2007), for points that share their Z. Additions
//! hold for points that are neither equal nor opposite; callers show that, or look at what [`Point::add`] tells.
//!
//! Bounds are in multiples of p, for P-256, where R is 16; P-384 has room for far more. X is below 1.1 or, if its
//! field does not tighten, below [`Modulus::TIGHT`]; Y and Z are below 4. A comment after a line is a bound of its result.

use super::arithmetic::Arithmetic;
use super::field::{
    Element, Factor, Modulus, difference_of_products, multiply, product_less_squares, square,
};
use crate::digits::splat;

/// A point in Jacobian coordinates.
#[derive(Clone, Copy)]
pub(super) struct Point<V, const N: usize> {
    pub(super) x: Element<V, N>,
    pub(super) y: Element<V, N>,
    pub(super) z: Factor<V, N>,
}

/// A point with Z = 1, its coordinates below p.
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
            z: Factor(one.0),
        }
    }
}

impl<V: Arithmetic, const N: usize> Point<V, N> {
    /// `2 self`.
    #[inline(always)]
    pub(super) fn double<M: Modulus<N>>(&self) -> Self {
        V::double::<M, N>(self)
    }

    /// `self + other`, or `self - other` where `negative` is set; and a multiple of p in the lanes where these are
    /// equal or opposite and the result is void.
    #[inline(always)]
    pub(super) fn add<M: Modulus<N>>(
        &self,
        other: &Self,
        negative: V::Mask,
    ) -> (Self, Factor<V, N>) {
        V::add_points::<M, N>(self, other, negative)
    }

    /// `self + other`, or `self - other` where `negative` is set.
    #[inline(always)]
    pub(super) fn add_affine<M: Modulus<N>>(
        &self,
        other: &AffinePoint<V, N>,
        negative: V::Mask,
    ) -> Self {
        V::add_affine::<M, N>(self, other, negative)
    }

    /// `self + other` for points of the same Z, and `self` with the Z of the sum.
    #[inline(always)]
    pub(super) fn add_with_same_z<M: Modulus<N>>(&self, other: &Self) -> (Self, Self) {
        V::add_with_same_z::<M, N>(self, other)
    }

    /// `self + other`, or `self - other` where `negative` is set; these may be equal.
    #[inline(always)]
    pub(super) fn add_or_double<M: Modulus<N>>(&self, other: &Self, negative: V::Mask) -> Self {
        let (sum, h) = self.add::<M>(other, negative);
        let double = self.double::<M>();
        let are_equal = h.element().is_multiple::<M>();
        Point {
            x: double.x.select(&sum.x, are_equal),
            y: double.y.select(&sum.y, are_equal),
            z: Factor(double.z.element().select(&sum.z.element(), are_equal).0),
        }
    }

    /// The same point with Z multiplied by `factor`, which is below 4.
    #[inline(always)]
    pub(super) fn scale<M: Modulus<N>>(&self, factor: &Factor<V, N>) -> Self {
        let square = square::<M, V, N>(factor).factor(); // 2
        let cube = multiply::<M, V, N>(factor, &square).factor(); // 1.5
        Point {
            x: multiply::<M, V, N>(&self.x, &square)
                .tighten::<M>()
                .element(),
            y: multiply::<M, V, N>(&self.y, &cube).element(), // 1.4
            z: multiply::<M, V, N>(&self.z, factor).factor(), // 2
        }
    }
}

impl<V: Arithmetic, const N: usize> Element<V, N> {
    /// In which lanes the integer is a multiple of the modulus.
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

    /// `2 point`.
    #[inline(always)]
    pub(in crate::ec) fn double<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &Point<V, N>,
    ) -> Point<V, N> {
        let delta = square::<M, V, N>(&point.z).element(); // 2
        let gamma = square::<M, V, N>(&point.y).factor(); // 2
        let alpha = multiply::<M, V, N>(
            &point.x.sum().minus(&delta).plus_modulus::<M>(2).factor(), // 3.1
            &point.x.sum().plus(&delta).factor(),                       // 3.1
        )
        .thrice() // 4.9
        .tighten::<M>()
        .factor();
        let beta4 = multiply::<M, V, N>(&point.x, &gamma)
            .twice()
            .twice()
            .element(); // 4.6
        let z = multiply::<M, V, N>(&point.y, &point.z).twice().factor(); // 4
        let x = square::<M, V, N>(&alpha) // 1.1
            .minus_shifted(&beta4, 1) // more than -9.2
            .plus_modulus::<M>(10)
            .tighten::<M>()
            .element();
        let difference = beta4.sum().minus(&x).plus_modulus::<M>(M::TIGHT).factor(); // 6.6
        let y = product_less_squares::<M, V, N>(&alpha, &difference, &gamma) // more than -2
            .plus_modulus::<M>(2) // 3.5
            .element();
        Point { x, y, z }
    }

    /// `point + other`, or `point - other` where `negative` is set; and a multiple of p in the lanes where these are
    /// equal or opposite and the result is void.
    #[inline(always)]
    pub(in crate::ec) fn add<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &Point<V, N>,
        other: &Point<V, N>,
        negative: V::Mask,
    ) -> (Point<V, N>, Factor<V, N>) {
        let zz1 = square::<M, V, N>(&point.z).factor(); // 2
        let zz2 = square::<M, V, N>(&other.z).factor(); // 2
        let zzz1 = multiply::<M, V, N>(&point.z, &zz1).factor(); // 1.5
        let zzz2 = multiply::<M, V, N>(&other.z, &zz2).factor(); // 1.5
        let u1 = multiply::<M, V, N>(&point.x, &zz2).element(); // 1.2
        let h = multiply::<M, V, N>(&other.x, &zz1) // 1.2
            .minus(&u1)
            .plus_modulus::<M>(2) // 3.2
            .factor();
        let s1 = multiply::<M, V, N>(&point.y, &zzz2).element(); // 1.4
        let r = multiply::<M, V, N>(&other.y, &zzz1) // 1.4
            .negate_where(negative)
            .minus(&s1) // more than -2.8
            .plus_modulus::<M>(3) // 4.4
            .factor();
        let hh = square::<M, V, N>(&h).factor(); // 1.7
        let zz = multiply::<M, V, N>(&point.z, &other.z).factor(); // 2
        let hhh = multiply::<M, V, N>(&h, &hh).element(); // 1.4
        let v = multiply::<M, V, N>(&u1, &hh).element(); // 1.2
        let x = square::<M, V, N>(&r) // 2.3
            .minus(&hhh)
            .minus_shifted(&v, 1) // more than -3.8
            .plus_modulus::<M>(4)
            .tighten::<M>()
            .element();
        let z = multiply::<M, V, N>(&zz, &h).factor(); // 1.4
        let difference = v.sum().minus(&x).plus_modulus::<M>(M::TIGHT).factor(); // 3.2
        let y = difference_of_products::<M, V, N>(&r, &difference, &s1, &hhh) // -0.2 to 1.9
            .plus_modulus::<M>(1) // 2.9
            .element();
        (Point { x, y, z }, h)
    }

    /// `point + other`, or `point - other` where `negative` is set.
    #[inline(always)]
    pub(in crate::ec) fn add_affine<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &Point<V, N>,
        other: &AffinePoint<V, N>,
        negative: V::Mask,
    ) -> Point<V, N> {
        let zz = square::<M, V, N>(&point.z).factor(); // 2
        let yz = multiply::<M, V, N>(&other.y, &point.z).factor(); // 1.3
        let h = multiply::<M, V, N>(&other.x, &zz) // 1.2
            .minus(&point.x)
            .plus_modulus::<M>(M::TIGHT) // 3.2
            .factor();
        let r = multiply::<M, V, N>(&yz, &zz) // 1.2
            .negate_where(negative)
            .minus(&point.y) // more than -5.2
            .plus_modulus::<M>(6) // 7.2
            .factor();
        let hh = square::<M, V, N>(&h).factor(); // 1.7
        let z = multiply::<M, V, N>(&point.z, &h).factor(); // 1.8
        let hhh = multiply::<M, V, N>(&h, &hh).element(); // 1.4
        let v = multiply::<M, V, N>(&point.x, &hh).element(); // 1.2
        let x = square::<M, V, N>(&r) // 4.3
            .minus(&hhh)
            .minus_shifted(&v, 1) // more than -3.8
            .plus_modulus::<M>(4) // 8.3
            .tighten::<M>()
            .element();
        let difference = v.sum().minus(&x).plus_modulus::<M>(M::TIGHT).factor(); // 3.2
        let y = difference_of_products::<M, V, N>(&r, &difference, &point.y, &hhh) // -0.4 to 2.5
            .plus_modulus::<M>(1) // 3.5
            .element();
        Point { x, y, z }
    }

    /// `point + other` for points of the same Z, and `point` with the Z of the sum.
    #[inline(always)]
    pub(in crate::ec) fn add_with_same_z<M: Modulus<N>, V: Arithmetic, const N: usize>(
        point: &Point<V, N>,
        other: &Point<V, N>,
    ) -> (Point<V, N>, Point<V, N>) {
        let h = point
            .x
            .sum()
            .minus(&other.x)
            .plus_modulus::<M>(M::TIGHT)
            .factor(); // 3.1
        let g = point.y.sum().minus(&other.y).plus_modulus::<M>(4).factor(); // 8
        let hh = square::<M, V, N>(&h).factor(); // 1.7
        let z = multiply::<M, V, N>(&point.z, &h).factor(); // 1.8
        let w1 = multiply::<M, V, N>(&point.x, &hh).tighten::<M>().element();
        let w2 = multiply::<M, V, N>(&other.x, &hh).element(); // 1.2
        let x = square::<M, V, N>(&g) // 5
            .minus(&w1)
            .minus(&w2) // more than -2.3
            .plus_modulus::<M>(3) // 8
            .tighten::<M>()
            .element();
        let scaled_y = multiply::<M, V, N>(
            &point.y,
            &w1.sum().minus(&w2).plus_modulus::<M>(2).factor(), // 3.1
        )
        .element(); // 1.8
        let y = multiply::<M, V, N>(
            &g,
            &w1.sum().minus(&x).plus_modulus::<M>(M::TIGHT).factor(), // 3.1
        ) // 2.6
        .minus(&scaled_y)
        .plus_modulus::<M>(2) // 4.6
        .tighten::<M>()
        .element();
        let scaled = Point {
            x: w1,
            y: scaled_y,
            z,
        };
        (Point { x, y, z }, scaled)
    }
}
