//! The Montgomery ladder (RFC 7748, section 5), eight scalars and eight points at once.
//!
//! It relies on two properties of a clamped scalar. The top bit is set, so the ladder begins after
//! it, with the point and its double. The low three bits are clear, so it ends with three
//! doublings. Instead of swapping the two points before a step, it selects the one to double, since
//! the differential addition is the same in either order.

use zeroize::{Zeroize, Zeroizing};

use super::element::{Element, words_to_digits52};
use super::field::{Factor, Multiplier, Sum, constant};
use super::{Elements, divide};
use crate::LANES;
use crate::vector::{Lanes, MultiplyAdd52};

/// (A + 2) / 4 for the coefficient A = 486662 of the curve.
const A24: u64 = 121_666;

/// Steps for the bits 253 to 3 of a scalar.
const STEPS: usize = 251;

/// The numbers that a batch computes with, by lanes.
#[derive(Default)]
pub(super) struct Batch {
    changes: Words,
    u: Elements,
    x: Elements,
    z: Elements,
}

impl Zeroize for Batch {
    fn zeroize(&mut self) {
        self.changes.0.0.zeroize();
        self.u.zeroize();
        self.x.zeroize();
        self.z.zeroize();
    }
}

/// Scalars in 64-bit words, the least significant first.
struct Words(Lanes<4>);

impl Default for Words {
    fn default() -> Self {
        Words(Lanes::splat(0))
    }
}

impl Batch {
    /// Sets the clamped scalar and the u coordinate of a lane, both in 64-bit words, the least
    /// significant first. The top bit of the coordinate is ignored.
    pub(super) fn set(&mut self, lane: usize, scalar: [u64; 4], mut u: [u64; 4]) {
        u[3] &= u64::MAX >> 1;
        self.u.set(lane, words_to_digits52(u));
        for (words, word) in self.changes.0.0.iter_mut().zip(changes(scalar)) {
            words[lane] = word;
        }
    }

    /// Multiplies the points by the scalars.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn run<V: MultiplyAdd52>(&mut self) {
        // SAFETY: the CPU has the instructions, by the contract of this function.
        unsafe {
            let (x, z) = multiply::<V>(self.changes.0.as_vectors(), self.u.0.as_vectors());
            self.x.store(&x);
            self.z.store(&z);
        }
    }

    /// Writes the u coordinates of the products; zero for the neutral element.
    pub(super) fn coordinates(&self, coordinates: &mut [Element; LANES]) {
        let mut denominators = Zeroizing::new([Element::ZERO; LANES]);
        for lane in 0..LANES {
            coordinates[lane] = self.x.get(lane);
            denominators[lane] = self.z.get(lane);
        }
        divide(coordinates, &mut denominators);
    }
}

/// The bits of a scalar that differ from the next higher bit, from bit 253 down to bit 2. The first
/// is the top bit of the last word.
fn changes(scalar: [u64; 4]) -> [u64; 4] {
    let [a, b, c, d] = scalar;
    let (e, f, g, h) = (
        a ^ (a >> 1 | b << 63),
        b ^ (b >> 1 | c << 63),
        c ^ (c >> 1 | d << 63),
        d ^ (d >> 1),
    );
    [e << 2, f << 2 | e >> 62, g << 2 | f >> 62, h << 2 | g >> 62]
}

/// Multiplies the points with the u coordinates `u`, which are below 2^255, by scalars given by
/// their [`changes`]. Returns the u coordinates of the products as quotients; the divisor of the
/// neutral element is zero.
#[inline(always)]
fn multiply<V: MultiplyAdd52>(changes: &[V; 4], u: &[V; 5]) -> (Factor<V>, Factor<V>) {
    let u = Factor(*u);
    let multiplier = Multiplier::new(&u);
    let top_bit = constant(&u.0[0], 1 << 63);

    let mut sum = Point::affine(&u);
    let mut doubled = sum.double().point();
    for (index, word) in changes.iter().enumerate().rev() {
        let mut word = *word;
        let steps = if index == 0 { STEPS % 64 } else { 64 };
        for _ in 0..steps {
            let changed = word.and(top_bit).equal(top_bit);
            word = word.add(word);
            let chosen = sum.select(&doubled, changed);
            (sum, doubled) = add_and_double(&sum, &doubled, &multiplier, &chosen);
        }
        if index == 0 {
            let changed = word.and(top_bit).equal(top_bit);
            doubled = sum.select(&doubled, changed);
        }
    }
    let Fraction { x, z } = doubled.double().point().double().point().double();
    (x.carry(), z.carry())
}

/// A u coordinate x / z in the form that a step reads.
#[derive(Clone, Copy)]
struct Point<V> {
    /// x + z.
    plus: Factor<V>,
    /// x - z.
    minus: Factor<V>,
}

/// A u coordinate x / z in the form that a step computes.
struct Fraction<V> {
    /// With the bias.
    x: Sum<V>,
    z: Sum<V>,
}

impl<V: MultiplyAdd52> Fraction<V> {
    #[inline(always)]
    fn point(self) -> Point<V> {
        Point {
            plus: self.x.add(&self.z).carry(),
            minus: self.x.subtract(&self.z).carry(),
        }
    }
}

impl<V: MultiplyAdd52> Point<V> {
    #[inline(always)]
    fn affine(u: &Factor<V>) -> Self {
        let zero = constant(&u.0[0], 0);
        let one = Sum::from_digits([constant(&zero, 1), zero, zero, zero, zero]);
        let x = Sum::from_digits(u.0).add(&Sum::bias(&zero));
        Fraction { x, z: one }.point()
    }

    /// `self` where `mask` is set, else `other`.
    #[inline(always)]
    fn select(&self, other: &Self, mask: V::Mask) -> Self {
        Point {
            plus: self.plus.select(&other.plus, mask),
            minus: self.minus.select(&other.minus, mask),
        }
    }

    #[inline(always)]
    fn double(&self) -> Fraction<V> {
        let plus_squared = self.plus.square_biased();
        let minus_squared = self.minus.square();
        let difference = plus_squared.subtract(&minus_squared).carry();
        let weighted = minus_squared.add_multiple(&difference, A24).carry();
        Fraction {
            x: plus_squared.carry().multiply_biased(&minus_squared.carry()),
            z: difference.multiply(&weighted),
        }
    }
}

/// The sum of two points whose difference is u, and the double of a third.
///
/// The two computations are interleaved, since each is a chain in which every step waits for the
/// one before. So the next multiplication does not depend on the last carry.
#[inline(always)]
fn add_and_double<V: MultiplyAdd52>(
    first: &Point<V>,
    second: &Point<V>,
    u: &Multiplier<V>,
    third: &Point<V>,
) -> (Point<V>, Point<V>) {
    let plus_squared = third.plus.square_biased();
    let minus_squared = third.minus.square();
    let cross1 = first.minus.multiply_biased(&second.plus);
    let cross2 = first.plus.multiply(&second.minus);
    let difference = plus_squared.subtract(&minus_squared).carry();
    let (plus_factor, minus_factor) = (plus_squared.carry(), minus_squared.carry());
    let cross_difference = cross1.subtract(&cross2).carry();
    let doubled_x = plus_factor.multiply_biased(&minus_factor);
    let cross_difference_squared = cross_difference.square();
    let cross_sum = cross1.add(&cross2).carry();
    let weighted = minus_squared.add_multiple(&difference, A24).carry();
    let cross_difference_squared = cross_difference_squared.carry();
    let doubled_z = difference.multiply(&weighted);
    let sum = Fraction {
        x: cross_sum.square_biased(),
        z: u.multiply(&cross_difference_squared),
    };
    let doubled = Fraction {
        x: doubled_x,
        z: doubled_z,
    };
    (sum.point(), doubled.point())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Bounds;

    #[test]
    fn no_column_overflows_for_any_scalar_and_any_point() {
        let digit = Bounds::new(0, (1 << 52) - 1);
        let last = Bounds::new(0, (1 << 47) - 1);
        let (x, z) = multiply(
            &[Bounds::any_bits(); 4],
            &[digit, digit, digit, digit, last],
        );
        for Factor([.., last]) in [x, z] {
            assert!(last.high() < (1 << 47) + (1 << 12));
        }
    }
}
