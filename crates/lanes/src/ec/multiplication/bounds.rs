//! Proofs of the bounds that the arithmetic, the formulas and the kernels of curves rely on: each
//! kernel runs once with [`Bounds`] of all scalars and points.

use super::*;
use crate::digits::lanes_of;
use crate::ec::curve::{P256, P384};
use crate::ec::field::{Columns, Sum, inline};
use crate::ec::inversion::{self, Step};
use crate::ec::moduli::{FieldP256, FieldP384, OrderP256, OrderP384};
use crate::ec::point::formulas;
use crate::vector::{Bounds, MultiplyAdd52, Portable};

/// The arithmetic that the kernels use, after a check that every operand is between 0 and R.
impl Arithmetic for Bounds {
    fn multiply<M: Modulus<N>, const N: usize>(a: &[Self; N], b: &[Self; N]) -> Sum<Self, N> {
        check_operands([a, b]);
        not_negative(inline::multiply::<M, Self, N>(a, b))
    }

    fn square<M: Modulus<N>, const N: usize>(a: &[Self; N]) -> Sum<Self, N> {
        check_operands([a]);
        not_negative(inline::square::<M, Self, N>(a))
    }

    fn difference_of_products<M: Modulus<N>, const N: usize>(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N],
        d: &[Self; N],
    ) -> Sum<Self, N> {
        check_operands([a, b, c, d]);
        inline::difference_of_products::<M, Self, N>(a, b, c, d)
    }

    fn product_less_squares<M: Modulus<N>, const N: usize>(
        a: &[Self; N],
        b: &[Self; N],
        c: &[Self; N],
    ) -> Sum<Self, N> {
        check_operands([a, b, c]);
        inline::product_less_squares::<M, Self, N>(a, b, c)
    }

    fn invert<M: Modulus<N>, const N: usize>(a: &Factor<Self, N>) -> Factor<Self, N> {
        inversion::invert::<M, Self, N>(a)
    }

    fn double<M: Modulus<N>, const N: usize>(point: &mut Point<Self, N>) {
        formulas::double::<M, Self, N>(point);
    }

    fn add_point<M: Modulus<N>, const N: usize>(
        point: &mut Point<Self, N>,
        other: &Point<Self, N>,
        negative: <Self as Vector>::Mask,
    ) -> Factor<Self, N> {
        formulas::add::<M, Self, N>(point, other, negative)
    }

    fn add_affine<M: Modulus<N>, const N: usize>(
        point: &mut Point<Self, N>,
        other: &AffinePoint<Self, N>,
        negative: <Self as Vector>::Mask,
    ) {
        formulas::add_affine::<M, Self, N>(point, other, negative);
    }

    fn add_with_same_z<M: Modulus<N>, const N: usize>(
        point: &mut Point<Self, N>,
        other: &mut Point<Self, N>,
    ) {
        formulas::add_with_same_z::<M, Self, N>(point, other);
    }
}

/// A factor is between 0 and R if its last digit, which nothing is carried from, has 52 bits.
#[track_caller]
fn check_operands<const N: usize, const COUNT: usize>(operands: [&[Bounds; N]; COUNT]) {
    for operand in operands {
        operand[N - 1].state_below(1 << 52);
    }
}

/// A product `a b` plus a multiple `m p` of the modulus, by R: nothing in this is negative. Columns
/// do not show that, because p of P-384 has negative digits that are multiplied by the same m as the
/// others.
fn not_negative<const N: usize>(mut sum: Sum<Bounds, N>) -> Sum<Bounds, N> {
    Bounds::assume_not_negative(sum.columns());
    sum
}

/// All integers from 0 to `modulus`, and a few more.
fn residue<const N: usize>(modulus: &[u64; N]) -> [Bounds; N] {
    let mut digits = [Bounds::new(0, (1 << 52) - 1); N];
    digits[N - 1] = Bounds::new(0, modulus[N - 1].into());
    digits
}

fn any_scalars() -> Scalars {
    let mut scalars = Scalars::new();
    for (lane, value) in lanes_of(Bounds::any_bits()).into_iter().enumerate() {
        scalars.set(lane, &[value; MAXIMUM_LIMBS + 1]);
    }
    scalars
}

fn any_integers<const N: usize>(modulus: &[u64; N]) -> Integers<N> {
    let mut integers = Integers(Lanes::splat(0));
    // SAFETY: bounds need no particular CPU.
    *unsafe { integers.0.as_vectors_mut() } = residue(modulus);
    integers
}

fn any_points<M: Modulus<N>, const N: usize>() -> Points<N> {
    Points {
        x: any_integers(&M::DIGITS),
        y: any_integers(&M::DIGITS),
    }
}

/// Asserts that no column of a computation was 2^60 or larger in size.
fn expect_small_columns(kernel: impl FnOnce()) {
    let (lowest, highest) = Bounds::extremes(kernel);
    assert!(
        lowest > -(1 << 60) && highest < 1 << 60,
        "{lowest:#x} to {highest:#x}"
    );
    assert!(highest > 1 << 55, "nothing was multiplied");
}

fn multiply_any_point<C: Parameters<L, N>, const L: usize, const N: usize>() {
    let mut points = any_points::<C::Field, N>();
    // SAFETY: bounds need no particular CPU.
    expect_small_columns(|| unsafe {
        multiply_points::<C, Bounds, L, N>(&any_scalars(), &mut points);
    });
}

fn multiply_base_point<C: Parameters<L, N>, const L: usize, const N: usize>() {
    let mut points = any_points::<C::Field, N>();
    // SAFETY: the portable vector and bounds need no particular CPU.
    expect_small_columns(|| unsafe {
        let table = BaseTable::new::<C, Portable, L, N>();
        multiply_base::<C, Bounds, L, N>(&any_scalars(), &table, &mut points);
    });
}

fn invert_any_scalar<C: Parameters<L, N>, const L: usize, const N: usize>() {
    let mut scalars = any_integers(&C::Order::DIGITS);
    let power = moduli::digits(&crate::ec::integers::power_of_two(&C::ORDER.limbs, 64 * L));
    // SAFETY: bounds need no particular CPU.
    expect_small_columns(|| unsafe {
        invert_scalars::<C, Bounds, L, N>(&mut scalars, &power);
    });
}

#[test]
fn multiples_of_any_point_of_p256() {
    multiply_any_point::<P256, 4, 5>();
}

#[test]
fn multiples_of_any_point_of_p384() {
    multiply_any_point::<P384, 6, 8>();
}

#[test]
fn multiples_of_the_base_point_of_p256() {
    multiply_base_point::<P256, 4, 5>();
}

#[test]
fn multiples_of_the_base_point_of_p384() {
    multiply_base_point::<P384, 6, 8>();
}

#[test]
fn inverses_of_any_scalar_of_p256() {
    invert_any_scalar::<P256, 4, 5>();
}

#[test]
fn inverses_of_any_scalar_of_p384() {
    invert_any_scalar::<P384, 6, 8>();
}

/// Asserts that `a b / R` is below `limit` times the modulus for any a and a b below the modulus.
fn expect_products_below<M: Modulus<N>, const N: usize>(limit: f64) {
    let any = [Bounds::new(0, (1 << 52) - 1); N];
    let mut product = Bounds::multiply::<M, N>(&any, &residue(&M::DIGITS));
    Bounds::state_multiples(product.columns(), &M::DIGITS, 0.0, limit);
}

#[test]
fn products_are_reduced_as_far_as_stated() {
    // The quotient by R is below one.
    expect_products_below::<FieldP256, 5>(1.0 + 1.000_000_1);
    expect_products_below::<FieldP384, 8>(1.0 + 1.01);
    expect_products_below::<OrderP256, 5>(1.0 + 2.01);
    expect_products_below::<OrderP384, 8>(1.0 + 2.01);
}

/// The field of P-256 with a mistake: less is added to differences than is subtracted.
struct Mistaken;

impl Modulus<5> for Mistaken {
    const DIGITS: [u64; 5] = FieldP256::DIGITS;
    const SIGNED_DIGITS: [i64; 5] = FieldP256::SIGNED_DIGITS;
    const ONE: [u64; 5] = FieldP256::ONE;
    const R_SQUARED: [u64; 5] = FieldP256::R_SQUARED;
    const INVERSION: &'static [Step] = FieldP256::INVERSION;
    const TIGHT: i64 = 1;

    fn eliminate<V: MultiplyAdd52>(columns: &mut Columns<V>, index: usize) {
        FieldP256::eliminate(columns, index);
    }

    fn tighten<V: Vector>(sum: Sum<V, 5>) -> Sum<V, 5> {
        FieldP256::tighten(sum)
    }
}

#[test]
#[should_panic(expected = "which is not between")]
fn a_difference_that_may_be_negative_is_found() {
    let [x, y] = [(); 2].map(|()| Element(residue(&Mistaken::DIGITS)));
    let mut point = AffinePoint { x, y }.to_point::<Mistaken>();
    point.double::<Mistaken>();
}
