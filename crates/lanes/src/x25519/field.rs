//! Integers modulo p = 2^255 - 19 in radix 2^52, eight at once.
//!
//! There are two forms. A [`Factor`] can be multiplied. It has five digits, and the multiplier
//! reads the low 52 bits of each; the bits above them have been carried to the next digit. A
//! product is a [`Sum`]: five columns that have not been carried yet. Sums are added and subtracted
//! column by column, and are carried only to be multiplied. So a ladder step carries eleven times
//! for its nine multiplications, with all sums and differences. Carries cost as much as
//! multiply-adds, since both run on the same two ports.
//!
//! # Bounds
//!
//! The last digit of a `Factor` is below 2^47 + 2^12. The columns of a product are below 11 2^52,
//! to which [`Sum::bias`] adds less than 2^61. The largest sum, in a doubling on the Edwards curve,
//! is four times a product with the bias: below 2^64.

use crate::vector::MultiplyAdd52;

/// Bits per digit.
const DIGIT_BITS: u32 = 52;

/// Bits of the last digit: 4 * 52 + 47 = 255.
const LAST_BITS: u32 = 47;

/// 2^255 modulo p.
const FOLD_255: u64 = 19;

/// 2^260 modulo p.
const FOLD_260: u64 = 19 << 5;

/// The digits of p: the first, the three in the middle and the last.
const FIRST: u64 = (1 << DIGIT_BITS) - 19;
const MIDDLE: u64 = (1 << DIGIT_BITS) - 1;
const LAST: u64 = (1 << LAST_BITS) - 1;

/// An operand of a multiplication: digits that have been carried.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Factor<V>(pub(super) [V; 5]);

/// A result of a multiplication: columns of radix 2^52 that have not been carried.
#[derive(Clone, Copy)]
pub(super) struct Sum<V>([V; 5]);

/// `value` in every lane.
#[inline(always)]
pub(super) fn constant<V: MultiplyAdd52>(_witness: &V, value: u64) -> V {
    // SAFETY: a value of V exists, so the CPU has its instructions.
    unsafe { V::splat(value) }
}

impl<V: MultiplyAdd52> Sum<V> {
    /// 512 p, in columns of at least 2^56 - 2^9, which are larger than those of a product. It is
    /// the initial value of a product from which another will be subtracted.
    #[inline(always)]
    pub(super) fn bias(witness: &V) -> Self {
        let middle = constant(witness, MIDDLE << 9);
        let first = constant(witness, FIRST << 9);
        Sum([first, middle, middle, middle, constant(witness, LAST << 9)])
    }

    /// The bias before all columns but the first are doubled.
    #[inline(always)]
    fn bias_before_doubling(witness: &V) -> [V; 5] {
        let middle = constant(witness, MIDDLE << 8);
        let first = constant(witness, FIRST << 9);
        [first, middle, middle, middle, constant(witness, LAST << 8)]
    }

    /// The columns of an integer in digits.
    #[inline(always)]
    pub(super) fn from_digits(digits: [V; 5]) -> Self {
        Sum(digits)
    }

    #[inline(always)]
    pub(super) fn add(self, other: &Self) -> Self {
        let [a, b, c, d, e] = self.0;
        let other = &other.0;
        Sum([
            a.add(other[0]),
            b.add(other[1]),
            c.add(other[2]),
            d.add(other[3]),
            e.add(other[4]),
        ])
    }

    /// `self - other`, where `self` has the bias and `other` is a product without it.
    #[inline(always)]
    pub(super) fn subtract(self, other: &Self) -> Self {
        let [a, b, c, d, e] = self.0;
        let other = &other.0;
        Sum([
            a.subtract(other[0]),
            b.subtract(other[1]),
            c.subtract(other[2]),
            d.subtract(other[3]),
            e.subtract(other[4]),
        ])
    }

    /// `-self` where `mask` is set, modulo 2^64 in each column. It may only be added to or
    /// subtracted from a sum with a bias.
    #[inline(always)]
    pub(super) fn negate(self, mask: V::Mask) -> Self {
        let zero = constant(&self.0[0], 0);
        let [a, b, c, d, e] = self.0;
        Sum([
            zero.subtract(a).select(a, mask),
            zero.subtract(b).select(b, mask),
            zero.subtract(c).select(c, mask),
            zero.subtract(d).select(d, mask),
            zero.subtract(e).select(e, mask),
        ])
    }

    /// The same integer modulo p as a factor.
    ///
    /// The bits above 2^255 are folded into the first column before a carry reaches the last
    /// column, so that one chain of carries is enough.
    #[inline(always)]
    pub(super) fn carry(self) -> Factor<V> {
        let [mut a, mut b, mut c, mut d, mut e] = self.0;
        let excess = e.shift_right(LAST_BITS);
        excess.state_below((1 << DIGIT_BITS) / FOLD_255);
        a.madd_low(&excess, &constant(&a, FOLD_255));
        e = e.and(constant(&a, LAST));
        b = b.add(a.shift_right(DIGIT_BITS));
        c = c.add(b.shift_right(DIGIT_BITS));
        d = d.add(c.shift_right(DIGIT_BITS));
        e = e.add(d.shift_right(DIGIT_BITS));
        e.state_below((1 << LAST_BITS) + (1 << 12));
        Factor([a, b, c, d, e])
    }

    /// `self + factor * multiplier`, for a public multiplier below 2^20.
    #[inline(always)]
    pub(super) fn add_multiple(self, factor: &Factor<V>, multiplier: u64) -> Self {
        let Sum([mut a, mut b, mut c, mut d, mut e]) = self;
        let [fa, fb, fc, fd, fe] = &factor.0;
        let multiplier = &constant(&a, multiplier);
        // Its multiple by 608 has no high half.
        let mut excess = constant(&a, 0);
        excess.madd_high(fe, multiplier);
        excess.state_below(1 << 16);
        a.madd_low(fa, multiplier);
        b.madd_low(fb, multiplier);
        c.madd_low(fc, multiplier);
        d.madd_low(fd, multiplier);
        e.madd_low(fe, multiplier);
        b.madd_high(fa, multiplier);
        c.madd_high(fb, multiplier);
        d.madd_high(fc, multiplier);
        e.madd_high(fd, multiplier);
        a.madd_low(&excess, &constant(&a, FOLD_260));
        Sum([a, b, c, d, e])
    }
}

/// Adds `digit` times `factor` to the columns from `ROW` on.
#[inline(always)]
fn add_row<V: MultiplyAdd52, const ROW: usize>(columns: &mut [V; 10], digit: &V, factor: &[V; 5]) {
    columns[ROW].madd_low(digit, &factor[0]);
    columns[ROW + 1].madd_low(digit, &factor[1]);
    columns[ROW + 2].madd_low(digit, &factor[2]);
    columns[ROW + 3].madd_low(digit, &factor[3]);
    columns[ROW + 4].madd_low(digit, &factor[4]);
    columns[ROW + 1].madd_high(digit, &factor[0]);
    columns[ROW + 2].madd_high(digit, &factor[1]);
    columns[ROW + 3].madd_high(digit, &factor[2]);
    columns[ROW + 4].madd_high(digit, &factor[3]);
    columns[ROW + 5].madd_high(digit, &factor[4]);
}

/// Adds the product of two digits to `COLUMN` and the next.
#[inline(always)]
fn add_product<V: MultiplyAdd52, const COLUMN: usize>(columns: &mut [V; 10], a: &V, b: &V) {
    columns[COLUMN].madd_low(a, b);
    columns[COLUMN + 1].madd_high(a, b);
}

impl<V: MultiplyAdd52> Factor<V> {
    /// `self * other`.
    #[inline(always)]
    pub(super) fn multiply(&self, other: &Self) -> Sum<V> {
        self.multiply_onto(other, [constant(&self.0[0], 0); 5])
    }

    /// `self * other` with the bias for a later subtraction from it.
    #[inline(always)]
    pub(super) fn multiply_biased(&self, other: &Self) -> Sum<V> {
        self.multiply_onto(other, Sum::bias(&self.0[0]).0)
    }

    /// `self^2`.
    #[inline(always)]
    pub(super) fn square(&self) -> Sum<V> {
        self.square_onto([constant(&self.0[0], 0); 5])
    }

    /// `self^2` with the bias for a later subtraction from it.
    #[inline(always)]
    pub(super) fn square_biased(&self) -> Sum<V> {
        self.square_onto(Sum::bias_before_doubling(&self.0[0]))
    }

    /// `self` where `mask` is set, else `other`.
    #[inline(always)]
    pub(super) fn select(&self, other: &Self, mask: V::Mask) -> Self {
        let [a, b, c, d, e] = self.0;
        let other = &other.0;
        Factor([
            a.select(other[0], mask),
            b.select(other[1], mask),
            c.select(other[2], mask),
            d.select(other[3], mask),
            e.select(other[4], mask),
        ])
    }

    /// `self * other` plus `start`.
    #[inline(always)]
    fn multiply_onto(&self, other: &Self, start: [V; 5]) -> Sum<V> {
        let mut columns = begin(start);
        add_row::<V, 0>(&mut columns, &self.0[0], &other.0);
        add_row::<V, 1>(&mut columns, &self.0[1], &other.0);
        add_row::<V, 2>(&mut columns, &self.0[2], &other.0);
        add_row::<V, 3>(&mut columns, &self.0[3], &other.0);
        add_row::<V, 4>(&mut columns, &self.0[4], &other.0);
        fold(columns)
    }

    /// `self^2` plus `start`, where all columns of `start` but the first are doubled.
    #[inline(always)]
    fn square_onto(&self, start: [V; 5]) -> Sum<V> {
        let [a, b, c, d, e] = &self.0;
        let mut columns = begin(start);
        // Digits of 52 bits cannot be doubled before they are multiplied, except for the last.
        add_product::<V, 1>(&mut columns, a, b);
        add_product::<V, 2>(&mut columns, a, c);
        add_product::<V, 3>(&mut columns, a, d);
        add_product::<V, 3>(&mut columns, b, c);
        add_product::<V, 4>(&mut columns, b, d);
        add_product::<V, 5>(&mut columns, c, d);
        let [_, doubled @ .., _, _, _] = &mut columns;
        for column in doubled {
            *column = column.add(*column);
        }
        let twice = &e.add(*e);
        add_product::<V, 0>(&mut columns, a, a);
        add_product::<V, 2>(&mut columns, b, b);
        add_product::<V, 4>(&mut columns, c, c);
        add_product::<V, 6>(&mut columns, d, d);
        add_product::<V, 4>(&mut columns, a, twice);
        add_product::<V, 5>(&mut columns, b, twice);
        add_product::<V, 6>(&mut columns, c, twice);
        add_product::<V, 7>(&mut columns, d, twice);
        add_product::<V, 8>(&mut columns, e, e);
        fold(columns)
    }
}

#[inline(always)]
fn begin<V: MultiplyAdd52>(start: [V; 5]) -> [V; 10] {
    let [a, b, c, d, e] = start;
    let zero = constant(&a, 0);
    [a, b, c, d, e, zero, zero, zero, zero, zero]
}

/// Folds the upper five columns of a product into the lower five, since 2^260 is 608 modulo p.
///
/// A column has gathered at most nine halves of products of digits. The last is the high half of a
/// product below 2^94 + 2^61, and a carry below 8: its multiple by 608 is below 2^52 and has no
/// high half. So no column is the sum of more than eleven terms below 2^52.
#[inline(always)]
fn fold<V: MultiplyAdd52>(columns: [V; 10]) -> Sum<V> {
    let [
        mut a,
        mut b,
        mut c,
        mut d,
        mut e,
        f,
        mut g,
        mut h,
        mut i,
        mut j,
    ] = columns;
    let multiplier = &constant(&a, FOLD_260);
    g = g.add(f.shift_right(DIGIT_BITS));
    h = h.add(g.shift_right(DIGIT_BITS));
    i = i.add(h.shift_right(DIGIT_BITS));
    j = j.add(i.shift_right(DIGIT_BITS));
    j.state_below((1 << DIGIT_BITS) / FOLD_260);
    a.madd_low(&f, multiplier);
    b.madd_low(&g, multiplier);
    c.madd_low(&h, multiplier);
    d.madd_low(&i, multiplier);
    e.madd_low(&j, multiplier);
    b.madd_high(&f, multiplier);
    c.madd_high(&g, multiplier);
    d.madd_high(&h, multiplier);
    e.madd_high(&i, multiplier);
    Sum([a, b, c, d, e])
}

/// A factor that is multiplied many times, prepared so that no product with it has upper columns:
/// row i is its multiple by 2^(52 i).
pub(super) struct Multiplier<V>([[V; 5]; 5]);

impl<V: MultiplyAdd52> Multiplier<V> {
    #[inline(always)]
    pub(super) fn new(factor: &Factor<V>) -> Self {
        let zero = constant(&factor.0[0], 0);
        let mut rows = [factor.0; 5];
        for (index, row) in rows.iter_mut().enumerate() {
            let mut shift = Factor([zero; 5]);
            shift.0[index] = constant(&zero, 1);
            *row = factor.multiply(&shift).carry().0;
        }
        Multiplier(rows)
    }

    /// `self * other`.
    ///
    /// The sixth column is five high halves of products with a last digit: below 2^50.
    #[inline(always)]
    pub(super) fn multiply(&self, other: &Factor<V>) -> Sum<V> {
        let mut columns = [constant(&other.0[0], 0); 10];
        for (row, digit) in self.0.iter().zip(&other.0) {
            add_row::<V, 0>(&mut columns, digit, row);
        }
        let [mut a, mut b, c, d, e, f, ..] = columns;
        f.state_below(1 << 50);
        let multiplier = &constant(&a, FOLD_260);
        a.madd_low(&f, multiplier);
        b.madd_high(&f, multiplier);
        Sum([a, b, c, d, e])
    }
}

#[cfg(test)]
mod bounds;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LANES;
    use crate::vector::{Lanes, Portable, Vector};
    use crate::x25519::Elements;
    use crate::x25519::element::Element;

    /// Factors with the smallest and the largest digits. The bits above 52 must not matter.
    const EXTREMES: [[u64; 5]; LANES] = {
        let above = 0xfff << DIGIT_BITS;
        let last = LAST + (1 << 12);
        [
            [0, 0, 0, 0, 0],
            [above | 1, above, above, above, 0],
            [MIDDLE, MIDDLE, MIDDLE, MIDDLE, last],
            [FIRST, MIDDLE, MIDDLE, MIDDLE, LAST],
            [FIRST - 1, MIDDLE, MIDDLE, MIDDLE, LAST],
            [0, 0, 0, 0, last],
            [u64::MAX, u64::MAX, u64::MAX, u64::MAX, last],
            [0x5_5555_5555_5555, 1, MIDDLE, 0, 0x2aaa_aaaa_aaaa],
        ]
    };

    /// Runs `test` with every pair of extremes: once in each lane, with all others beside it.
    fn for_pairs(test: impl Fn(&Factor<Portable>, &Factor<Portable>, [[Element; 2]; LANES])) {
        for rotation in 0..LANES {
            let second = |lane: usize| EXTREMES[(lane + rotation) % LANES];
            let (mut a, mut b) = (Elements::default(), Elements::default());
            for (lane, digits) in EXTREMES.iter().enumerate() {
                a.set(lane, *digits);
                b.set(lane, second(lane));
            }
            let pairs = core::array::from_fn(|lane| [a.get(lane), b.get(lane)]);
            // SAFETY: the portable vector needs no particular CPU.
            let (a, b) = unsafe { (a.0.as_vectors(), b.0.as_vectors()) };
            test(&Factor(*a), &Factor(*b), pairs);
        }
    }

    #[track_caller]
    fn assert_lanes(sum: Sum<Portable>, expected: impl Fn(usize) -> Element) {
        let factor = sum.carry();
        let mut elements = Elements::default();
        // SAFETY: the portable vector needs no particular CPU.
        unsafe { elements.store(&factor) };
        for lane in 0..LANES {
            assert!(elements.0.0[4][lane] < LAST + (1 << 12), "lane {lane}");
            assert_eq!(
                elements.get(lane).to_words(),
                expected(lane).to_words(),
                "lane {lane}"
            );
        }
    }

    #[test]
    fn products() {
        for_pairs(|a, b, pairs| {
            let product = |lane: usize| pairs[lane][0].multiply(pairs[lane][1]);
            assert_lanes(a.multiply(b), product);
            assert_lanes(a.multiply_biased(b), product);
            assert_lanes(Multiplier::new(a).multiply(b), product);
            let square = |lane: usize| pairs[lane][0].multiply(pairs[lane][0]);
            assert_lanes(a.square(), square);
            assert_lanes(a.square_biased(), square);
        });
    }

    #[test]
    fn sums_and_differences_of_products() {
        for_pairs(|a, b, pairs| {
            let products = |lane: usize| {
                let [a, b] = pairs[lane];
                (a.multiply(a), a.multiply(b))
            };
            let (square, product) = (a.square_biased(), a.multiply(b));
            assert_lanes(square.add(&product), |lane| {
                let (square, product) = products(lane);
                square.add(product)
            });
            assert_lanes(square.subtract(&product), |lane| {
                let (square, product) = products(lane);
                square.subtract(product)
            });
            let all = product.0[0].equal(product.0[0]);
            assert_lanes(square.add(&product.negate(all)), |lane| {
                let (square, product) = products(lane);
                square.subtract(product)
            });
            assert_lanes(product.add_multiple(b, (1 << 20) - 1), |lane| {
                let multiplier = Element::from_words([(1 << 20) - 1, 0, 0, 0]);
                products(lane).1.add(pairs[lane][1].multiply(multiplier))
            });
        });
    }

    /// Below 2^64 by more than any carry.
    const LARGEST: u64 = u64::MAX - (1 << 40);

    #[test]
    fn columns_can_be_large() {
        let column = Lanes::<1>::splat(LARGEST);
        // SAFETY: the portable vector needs no particular CPU.
        let [column] = *unsafe { column.as_vectors() };
        let sum = Sum([column; 5]);
        let weight = Element::from_digits52([0, 1, 0, 0, 0]);
        let digit = Element::from_words([LARGEST, 0, 0, 0]);
        let expected = (0..5).fold(Element::ZERO, |sum, _| sum.multiply(weight).add(digit));
        assert_lanes(sum, |_| expected);
    }
}
