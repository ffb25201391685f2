//! Multiples of the base point, eight at once, on the twisted Edwards curve edwards25519, which is
//! birationally equivalent to curve25519 (RFC 7748, section 4.1).
//!
//! A clamped scalar is k = 8 (2^251 + b_250 2^250 + ... + b_0). With the base point B and P = 4 B,
//!
//! ```text
//! k B = S + sum of (2 b_i - 1) 2^i P over i from 0 to 249,
//! where S = (2^252 + b_250 2^251 + 2^250 - 1) P.
//! ```
//!
//! Five terms of the sum make an odd multiple of 2^(5 j) P, from -31 to 31, and one addition. So
//! the scalar need not be recoded, and no addition is omitted. The positive multiples of every
//! fifth of these points are in a table of 19 KB. For the others, the growing sum is multiplied by
//! 32 four times. Each lane selects its multiple by a permutation of two registers, so no address
//! depends on a secret.
//!
//! The formulas are those of Hisil, Wong, Carter and Dawson, "Twisted Edwards Curves Revisited"
//! (2008), sections 3.1 and 3.3; the addition is complete on this curve.

use zeroize::{Zeroize, Zeroizing};

use super::base_table::{OFFSETS, ROWS, TABLE, WINDOW_BITS, WINDOWS_PER_ROW};
use super::element::Element;
use super::field::{Factor, Sum, constant};
use super::{Elements, divide};
use crate::LANES;
use crate::vector::{Lanes, MultiplyAdd52};

/// The numbers that a batch computes with, by lanes.
pub(super) struct Batch {
    /// The bits b_0 to b_249, 25 for each row of the table.
    words: Lanes<ROWS>,
    /// The window that selects S in the row [`OFFSETS`].
    offset: Lanes<1>,
    /// y - x, y + x and z of the results.
    minus: Elements,
    plus: Elements,
    z: Elements,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            words: Lanes::splat(0),
            offset: Lanes::splat(0),
            minus: Elements::default(),
            plus: Elements::default(),
            z: Elements::default(),
        }
    }
}

impl Zeroize for Batch {
    fn zeroize(&mut self) {
        self.words.0.zeroize();
        self.offset.0.zeroize();
        self.minus.zeroize();
        self.plus.zeroize();
        self.z.zeroize();
    }
}

impl Batch {
    /// Sets the clamped scalar of a lane, in 64-bit words, the least significant first.
    pub(super) fn set(&mut self, lane: usize, scalar: [u64; 4]) {
        for (row, words) in self.words.0.iter_mut().enumerate() {
            let first = 3 + WINDOW_BITS * WINDOWS_PER_ROW * row;
            let low = scalar[first / 64] >> (first % 64);
            // Two shifts, since one by 64 would overflow.
            let high = scalar
                .get(first / 64 + 1)
                .map_or(0, |word| word << 1 << (63 - first % 64));
            words[lane] = (low | high) & ((1 << (WINDOW_BITS * WINDOWS_PER_ROW)) - 1);
        }
        // A positive sign and the index b_250.
        self.offset.0[0][lane] = 16 | (scalar[3] >> 61 & 1);
    }

    /// Multiplies the base point by the scalars.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn run<V: MultiplyAdd52>(&mut self) {
        // SAFETY: the CPU has the instructions, by the contract of this function.
        unsafe {
            let words = self.words.as_vectors::<V>();
            let [offset] = self.offset.as_vectors();
            let mut point = Point::neutral(offset);
            for window in (0..WINDOWS_PER_ROW).rev() {
                for (word, row) in words.iter().zip(&TABLE) {
                    let window = word.shift_right((WINDOW_BITS * window) as u32);
                    point = point.add(&Multiple::look_up(row.as_vectors(), &window));
                }
                if window > 0 {
                    for _ in 0..WINDOW_BITS {
                        point = point.double();
                    }
                }
            }
            point = point.add(&Multiple::look_up(OFFSETS.as_vectors(), offset));
            self.minus.store(&point.minus);
            self.plus.store(&point.plus);
            self.z.store(&point.z.carry());
        }
    }

    /// Writes the u coordinates of the products.
    pub(super) fn coordinates(&self, coordinates: &mut [Element; LANES]) {
        let mut denominators = Zeroizing::new([Element::ZERO; LANES]);
        for lane in 0..LANES {
            // u = (z + y) / (z - y), all doubled: 2 y is the sum of y - x and y + x.
            let y = self.minus.get(lane).add(self.plus.get(lane));
            let z = self.z.get(lane);
            let z = z.add(z);
            coordinates[lane] = z.add(y);
            denominators[lane] = z.subtract(y);
        }
        divide(coordinates, &mut denominators);
    }
}

/// A point (x / z, y / z), with t = x y / z, in the form that an addition takes.
struct Point<V> {
    /// y - x.
    minus: Factor<V>,
    /// y + x.
    plus: Factor<V>,
    t: Factor<V>,
    /// With the bias.
    z: Sum<V>,
}

/// A point (x, y) of the table in the form that an addition takes.
struct Multiple<V: MultiplyAdd52> {
    /// (y - x) / 2.
    minus: Factor<V>,
    /// (y + x) / 2.
    plus: Factor<V>,
    /// d x y, of the positive multiple.
    t: Factor<V>,
    /// Set in the lanes in which the multiple is negative.
    negative: V::Mask,
}

impl<V: MultiplyAdd52> Multiple<V> {
    /// The multiple in `row` that the low five bits of `window` select: 2 window - 31.
    #[inline(always)]
    fn look_up(row: &[V; 30], window: &V) -> Self {
        let zero = constant(window, 0);
        let negative = window.and(constant(window, 16)).equal(zero);
        // 31 - 2 window is the multiple of index 15 - window.
        let index = window.xor(constant(window, 15)).select(*window, negative);
        let (pairs, _) = row.as_chunks::<2>();
        let factor = |first: usize| {
            Factor([
                index.look_up(&pairs[first]),
                index.look_up(&pairs[first + 1]),
                index.look_up(&pairs[first + 2]),
                index.look_up(&pairs[first + 3]),
                index.look_up(&pairs[first + 4]),
            ])
        };
        // The negative of a point is (-x, y).
        let (minus, plus) = (factor(0), factor(5));
        Multiple {
            minus: plus.select(&minus, negative),
            plus: minus.select(&plus, negative),
            t: factor(10),
            negative,
        }
    }
}

impl<V: MultiplyAdd52> Point<V> {
    #[inline(always)]
    fn neutral(witness: &V) -> Self {
        let zero = constant(witness, 0);
        let one = [constant(witness, 1), zero, zero, zero, zero];
        Point {
            minus: Factor(one),
            plus: Factor(one),
            t: Factor([zero; 5]),
            z: Sum::from_digits(one).add(&Sum::bias(witness)),
        }
    }

    #[inline(always)]
    fn add(&self, other: &Multiple<V>) -> Self {
        let a = self.minus.multiply(&other.minus);
        let b = self.plus.multiply_biased(&other.plus);
        let c = self.t.multiply(&other.t).negate(other.negative);
        let e = b.subtract(&a).carry();
        let f = self.z.subtract(&c).carry();
        let g = self.z.add(&c).carry();
        let h = b.add(&a).carry();
        let x = e.multiply(&f);
        let y = g.multiply_biased(&h);
        Point {
            minus: y.subtract(&x).carry(),
            plus: y.add(&x).carry(),
            t: e.multiply(&h).carry(),
            z: f.multiply_biased(&g),
        }
    }

    #[inline(always)]
    fn double(&self) -> Self {
        // All four are twice those of the paper: 4 x y, 2 x^2 + 2 y^2, 2 y^2 - 2 x^2 and its
        // difference from 4 z^2. The products `e` f and `h` g have the opposite sign.
        let z_squared = self.z.carry().square_biased();
        let plus_squared = self.plus.square_biased();
        let minus_squared = self.minus.square();
        let g = self.plus.multiply(&self.minus);
        let g = g.add(&g);
        let f = z_squared.add(&z_squared);
        let f = f.add(&f).subtract(&g).carry();
        let g = g.carry();
        let e = plus_squared.subtract(&minus_squared).carry();
        let h = plus_squared.add(&minus_squared).carry();
        let x = e.multiply(&f);
        let y = g.multiply_biased(&h);
        Point {
            minus: y.subtract(&x).carry(),
            plus: y.add(&x).carry(),
            t: e.multiply(&h).carry(),
            z: f.multiply_biased(&g),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{Bounds, Vector};

    #[test]
    fn no_column_overflows_for_any_scalar() {
        let mut batch = Batch::default();
        // SAFETY: bounds need no particular CPU.
        unsafe {
            batch
                .words
                .as_vectors_mut::<Bounds>()
                .fill(Bounds::any_bits());
            batch
                .offset
                .as_vectors_mut::<Bounds>()
                .fill(Bounds::any_bits());
        }
        // SAFETY: as above.
        let (_, highest) = Bounds::extremes(|| unsafe { batch.run::<Bounds>() });
        // The largest sum is four times a product with the bias.
        assert!(highest > 3 << 61);
        for result in [&batch.minus, &batch.plus, &batch.z] {
            // SAFETY: as above.
            let [.., last] = unsafe { result.0.as_vectors::<Bounds>() };
            last.state_below((1 << 47) + (1 << 12));
        }
    }
}
