//! Multiples of points, eight at once.
//!
//! The scalar k is odd and less than the order n: callers replace an even one by n - k and negate
//! the result. It is read in windows of w bits, with odd digits k_i between -2^w and 2^w (M. Joye,
//! M. Tunstall, "Exponent recoding and regular exponentiation algorithms", 2009): with c_i = (k >>
//! w i) | 1, digit i is c_i - 2^w c_(i+1), and the last is c_i itself. So from the top down, after
//! digit i the multiple of the point is c_i, which is never zero.
//!
//! No addition before the last meets equal or opposite points. It adds k_i to c_i - k_i, which is
//! wrong if c_i = 0 or c_i = 2 k_i modulo n. For i > 0, c_i is odd and 0 < c_i < n/2, and |2 k_i| <
//! 2^(w+1), so neither is true. For i = 0, c_0 = k, and k = 2 k_0 modulo n is possible for at most
//! one k. The last addition handles it.

use zeroize::{Zeroize, Zeroizing};

use super::arithmetic::Arithmetic;
use super::base_table::BaseTable;
use super::curve::Parameters;
use super::field::{Element, Factor, Modulus, multiply};
use super::point::{AffinePoint, Point};
use super::{MAXIMUM_LIMBS, moduli, wipe};
use crate::LANES;
use crate::digits::{lanes_of, splat};
use crate::vector::{Lanes, Vector};

/// Bits of a window of the scalar for a point that is not known in advance.
const WINDOW: usize = 5;

/// Multiples of such a point in a table: the odd ones below 2^WINDOW.
const TABLE: usize = 1 << (WINDOW - 1);

/// Eight odd scalars in 64-bit limbs, and one more limb; wiped when dropped.
pub(super) struct Scalars(Lanes<{ MAXIMUM_LIMBS + 1 }>);

/// Eight integers in digits; wiped when dropped.
pub(super) struct Integers<const N: usize>(Lanes<N>);

/// Eight points in affine coordinates.
pub(super) struct Points<const N: usize> {
    pub(super) x: Integers<N>,
    pub(super) y: Integers<N>,
}

/// A digit of eight scalars: (2 `index` + 1), negative where `negative` is set.
#[derive(Clone, Copy)]
pub(super) struct Digit<V: Vector> {
    pub(super) index: V,
    pub(super) negative: V::Mask,
}

/// The number of windows of `width` bits of a scalar of L limbs.
pub(super) const fn windows<const L: usize>(width: usize) -> usize {
    (64 * L).div_ceil(width)
}

/// Sets `products` to the affine coordinates of the multiples of the base point. Returns zero in the
/// lanes whose product is a point of the curve.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn multiply_base<C, V, const L: usize, const N: usize>(
    scalars: &Scalars,
    table: &BaseTable,
    products: &mut Points<N>,
) -> [u64; LANES]
where
    C: Parameters<L, N>,
    V: Arithmetic,
{
    // SAFETY: the CPU has the instructions of `V`, by the contract of this function.
    let zero = unsafe { V::splat(0) };
    let last = windows::<L>(C::BASE_WINDOW) - 1;
    let Digit { index, .. } = scalars.digit::<L, V>(zero, C::BASE_WINDOW, last);
    let mut multiple = table.look_up::<C, V, L, N>(last, index);
    let mut sum = multiple.to_point::<C::Field>();
    for window in (1..last).rev() {
        let Digit { index, negative } = scalars.digit::<L, V>(zero, C::BASE_WINDOW, window);
        multiple = table.look_up::<C, V, L, N>(window, index);
        sum.add_affine::<C::Field>(&multiple, negative);
    }
    let Digit { index, negative } = scalars.digit::<L, V>(zero, C::BASE_WINDOW, 0);
    multiple = table.look_up::<C, V, L, N>(0, index);
    sum.add_or_double::<C::Field>(&multiple.to_point::<C::Field>(), negative);
    let faults = sum.store::<C, L>(products);
    sum.wipe();
    multiple.wipe();
    faults
}

/// Replaces `points`, in affine coordinates below p, by their multiples. Returns zero in the lanes
/// whose product is a point of the curve.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn multiply_points<C, V, const L: usize, const N: usize>(
    scalars: &Scalars,
    points: &mut Points<N>,
) -> [u64; LANES]
where
    C: Parameters<L, N>,
    V: Arithmetic,
{
    // SAFETY: the CPU has the instructions of `V`, by the contract of this function.
    let (zero, x, y) = unsafe {
        (
            V::splat(0),
            points.x.0.as_vectors::<V>(),
            points.y.0.as_vectors(),
        )
    };
    let point = AffinePoint {
        x: to_montgomery_form::<C::Field, V, N>(x),
        y: to_montgomery_form::<C::Field, V, N>(y),
    }
    .to_point::<C::Field>();
    let mut table = [point; TABLE];
    odd_multiples::<C::Field, V, N>(&point, &mut table);

    let last = windows::<L>(WINDOW) - 1;
    let Digit { index, .. } = scalars.digit::<L, V>(zero, WINDOW, last);
    let mut multiple = look_up(&table, index);
    let mut product = multiple;
    for window in (1..last).rev() {
        double_repeatedly::<C::Field, V, N>(&mut product);
        let Digit { index, negative } = scalars.digit::<L, V>(zero, WINDOW, window);
        multiple = look_up(&table, index);
        product.add::<C::Field>(&multiple, negative);
    }
    double_repeatedly::<C::Field, V, N>(&mut product);
    let Digit { index, negative } = scalars.digit::<L, V>(zero, WINDOW, 0);
    multiple = look_up(&table, index);
    product.add_or_double::<C::Field>(&multiple, negative);
    let faults = product.store::<C, L>(points);
    product.wipe();
    multiple.wipe();
    faults
}

/// Sets `multiples` to the odd multiples of `point`, from 1 on.
#[inline(always)]
pub(super) fn odd_multiples<M: Modulus<N>, V: Arithmetic, const N: usize>(
    point: &Point<V, N>,
    multiples: &mut [Point<V, N>],
) {
    let mut double = *point;
    double.double::<M>();
    // The double's Z is that of the point times 2 Y.
    let mut multiple = point.scale::<M>(&point.y.sum().plus(&point.y).factor());
    multiple.z = double.z;
    multiples[0] = *point;
    for next in &mut multiples[1..] {
        double.add_to_same_z::<M>(&mut multiple);
        *next = multiple;
    }
}

/// Replaces `scalars`, which are 1 to n - 1, by `power` divided by them modulo the order n.
///
/// # Safety
/// The CPU has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn invert_scalars<C, V, const L: usize, const N: usize>(
    scalars: &mut Integers<N>,
    power: &[u64; N],
) where
    C: Parameters<L, N>,
    V: Arithmetic,
{
    // SAFETY: the CPU has the instructions of `V`, by the contract of this function.
    let scalars = unsafe { scalars.0.as_vectors_mut::<V>() };
    let mut scalar = to_montgomery_form::<C::Order, V, N>(scalars).as_factor();
    let mut inverse = V::invert::<C::Order, N>(&scalar);
    let power = Element::splat(inverse.0[0], power);
    let quotient = multiply::<C::Order, V, N>(&inverse, &power).element();
    if V::IS_BOUNDS {
        V::state_multiples(&quotient.0, &C::Order::DIGITS, 0.0, 2.2);
    }
    *scalars = quotient
        .subtract_if_not_below(&C::Order::DIGITS)
        .subtract_if_not_below(&C::Order::DIGITS)
        .0;
    wipe(&mut scalar.0);
    wipe(&mut inverse.0);
}

/// The Montgomery form of an integer below R in digits.
#[inline(always)]
pub(super) fn to_montgomery_form<M: Modulus<N>, V: Arithmetic, const N: usize>(
    digits: &[V; N],
) -> Element<V, N> {
    let r_squared = Element::splat(digits[0], &M::R_SQUARED);
    multiply::<M, V, N>(&Factor(*digits), &r_squared)
        .tighten::<M>()
        .element()
}

#[inline(always)]
fn double_repeatedly<M: Modulus<N>, V: Arithmetic, const N: usize>(point: &mut Point<V, N>) {
    for _ in 0..WINDOW {
        point.double::<M>();
    }
}

/// The entries of `table` at the indices in the lanes of `index`. The whole table is read for every
/// index.
#[inline(always)]
fn look_up<V: Vector, const N: usize>(table: &[Point<V, N>; TABLE], index: V) -> Point<V, N> {
    let one = splat(index, 1);
    let mut found = table[0];
    let mut number = one;
    for entry in &table[1..] {
        let is_chosen = index.equal(number);
        unroll!(I below N, {
            found.x.0[I] = entry.x.0[I].select(found.x.0[I], is_chosen);
            found.y.0[I] = entry.y.0[I].select(found.y.0[I], is_chosen);
            found.z.0[I] = entry.z.0[I].select(found.z.0[I], is_chosen);
        });
        number = number.add(one);
    }
    found
}

impl<V: Arithmetic, const N: usize> Point<V, N> {
    /// Sets `points` to the affine coordinates. Returns zero in the lanes in which they are those of
    /// a point of the curve.
    #[inline(always)]
    fn store<C: Parameters<L, N>, const L: usize>(&self, points: &mut Points<N>) -> [u64; LANES] {
        let mut inverse = V::invert::<C::Field, N>(&self.z);
        let affine = self.to_affine::<C::Field>(&inverse);
        let (x, y) = (
            affine.x.canonical::<C::Field>(),
            affine.y.canonical::<C::Field>(),
        );
        // SAFETY: there are values of `V`, so the CPU has its instructions.
        unsafe {
            *points.x.0.as_vectors_mut() = x.0;
            *points.y.0.as_vectors_mut() = y.0;
        }
        wipe(&mut inverse.0);
        let zero = splat(x.0[0], 0);
        let is_on_curve = affine.is_on_curve::<C, L>(&x, &y);
        lanes_of(zero.select(splat(zero, 1), is_on_curve))
    }
}

impl Scalars {
    pub(super) fn new() -> Self {
        Scalars(Lanes::splat(0))
    }

    /// Sets the scalar of a lane.
    pub(super) fn set(&mut self, lane: usize, limbs: &[u64]) {
        for (lanes, limb) in self.0.0.iter_mut().zip(limbs) {
            lanes[lane] = *limb;
        }
    }

    /// The digit of the window with number `window`, of `width` bits.
    ///
    /// Digit i is 2 b + 1 - 2^w, where b are the w bits that begin with bit 1 of the window and end
    /// with bit 0 of the next window, which is read as set in the last window. So this bit is the
    /// sign, and the bits below it are the index, inverted if the digit is negative.
    #[inline(always)]
    pub(super) fn digit<const L: usize, V: Vector>(
        &self,
        witness: V,
        width: usize,
        window: usize,
    ) -> Digit<V> {
        // SAFETY: a value of `V` exists, so the CPU has its instructions.
        let limbs = unsafe { self.0.as_vectors::<V>() };
        let position = width * window + 1;
        let (limb, shift) = (position / 64, position % 64);
        let mut bits = limbs[limb].shift_right(shift as u32);
        if shift + width > 64 {
            bits = bits.or(limbs[limb + 1].shift_left(64 - shift as u32));
        }
        if window + 1 == windows::<L>(width) {
            bits = bits.or(splat(witness, 1 << (width - 1)));
        }
        let sign = bits.shift_right(width as u32 - 1).and(splat(witness, 1));
        let flip = sign.subtract(splat(witness, 1));
        Digit {
            index: bits.xor(flip).and(splat(witness, (1 << (width - 1)) - 1)),
            negative: sign.equal(splat(witness, 0)),
        }
    }
}

impl Drop for Scalars {
    fn drop(&mut self) {
        self.0.0.zeroize();
    }
}

impl<const N: usize> Integers<N> {
    /// The same integer in every lane.
    pub(super) fn splat<const L: usize>(limbs: &[u64; L]) -> Self {
        Integers(Lanes(
            moduli::digits(limbs).map(|digit: u64| [digit; LANES]),
        ))
    }

    /// Sets the integer of a lane.
    pub(super) fn set<const L: usize>(&mut self, lane: usize, limbs: &[u64; L]) {
        let digits = Zeroizing::new(moduli::digits::<L, N>(limbs));
        for (lanes, digit) in self.0.0.iter_mut().zip(digits.iter()) {
            lanes[lane] = *digit;
        }
    }

    /// The integer of a lane.
    pub(super) fn get<const L: usize>(&self, lane: usize) -> Zeroizing<[u64; L]> {
        let digits = Zeroizing::new(self.0.0.map(|lanes| lanes[lane]));
        Zeroizing::new(moduli::limbs(&digits))
    }
}

impl<const N: usize> Drop for Integers<N> {
    fn drop(&mut self) {
        self.0.0.zeroize();
    }
}

impl<const N: usize> Points<N> {
    /// The same point in every lane.
    pub(super) fn splat<const L: usize>(x: &[u64; L], y: &[u64; L]) -> Self {
        Points {
            x: Integers::splat(x),
            y: Integers::splat(y),
        }
    }
}

#[cfg(test)]
mod bounds;
