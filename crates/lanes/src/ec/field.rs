//! Integers modulo a prime in eight lanes: radix 2^52, Montgomery form with R = 2^(52 N).
//!
//! Element i of an array holds digit i of all eight lanes. Carries and additions run on the same
//! ports as multiply-adds and cost as much, so a value has a type that says how far it has been
//! carried:
//!
//! - [`Columns`]: a product of 2 N columns that has to be reduced;
//! - [`Sum`]: N signed columns. Elements are added to a product, or subtracted from it, in this
//!   form, before the carries;
//! - [`Factor`]: carried. The low 52 bits of an element are the digit. The bits above them are
//!   already part of the next digit, and the multiplier ignores them;
//! - [`Element`]: a factor without those bits. It can be added and subtracted too.
//!
//! # Bounds
//!
//! A factor is between 0 and R, and need not be below the modulus p. A product of a and b is
//! reduced to less than a b / R + p, unless [`Modulus::eliminate`] says otherwise. Callers ensure
//! that the sums that they carry are neither negative nor as large as R. A column is the sum of at
//! most 2 N digit halves of each of two products, one of them eightfold, and as many of the
//! reduction, each below 2^52: less than 2^60 in size.

use super::arithmetic::Arithmetic;
use super::inversion::Step;
use crate::digits::splat;
use crate::vector::{MultiplyAdd52, Vector};

/// Bits per digit.
pub(super) const DIGIT_BITS: u32 = 52;

/// The most digits that an integer has.
pub(super) const MAXIMUM_DIGITS: usize = 8;

/// Repeats a block with a constant that counts from 0 up to a limit of at most 16. A loop could
/// leave the columns in memory: LLVM allocates registers before it unrolls nested loops.
macro_rules! unroll {
    ($index:ident below $limit:expr, $body:block) => {
        unroll!(@ $index, $limit, $body, 0 1 2 3 4 5 6 7)
    };
    ($index:ident below twice $limit:expr, $body:block) => {
        unroll!(@ $index, 2 * $limit, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $index:ident, $limit:expr, $body:block, $($value:literal)*) => {
        $({ const $index: usize = $value; if $index < $limit $body })*
    };
}

/// A prime modulus of `N` digits, for arithmetic in lanes.
pub(super) trait Modulus<const N: usize>: 'static {
    /// The digits.
    const DIGITS: [u64; N];
    /// The modulus in signed digits, as few as possible of them other than zero.
    const SIGNED_DIGITS: [i64; N];
    /// R modulo the modulus: 1 in Montgomery form.
    const ONE: [u64; N];
    /// R^2 modulo the modulus: the factor that brings integers into Montgomery form.
    const R_SQUARED: [u64; N];
    /// The steps that raise a number to the power of the modulus minus 2.
    const INVERSION: &'static [Step];

    /// The result of [`Modulus::tighten`] is less than this multiple of the modulus.
    const TIGHT: i64 = 16;

    /// Adds a multiple of the modulus that makes column `index` zero modulo 2^52, and its carry to
    /// the next. The columns below have been eliminated.
    fn eliminate<V: MultiplyAdd52>(columns: &mut Columns<V>, index: usize);

    /// Reduces a sum between 0 and 16 times the modulus to less than 1.01 times the modulus. A
    /// field whose factors have enough room above the modulus leaves the sum as it is.
    #[inline(always)]
    fn tighten<V: Vector>(sum: Sum<V, N>) -> Sum<V, N> {
        sum
    }
}

/// A factor of a product.
pub(super) trait Operand<V, const N: usize> {
    fn digits(&self) -> &[V; N];
}

/// An integer with a digit in the low 52 bits of each element.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Factor<V, const N: usize>(pub(super) [V; N]);

/// An integer with a digit in each element, and nothing above it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Element<V, const N: usize>(pub(super) [V; N]);

/// An integer in signed columns.
#[derive(Clone, Copy)]
pub(super) struct Sum<V, const N: usize>([V; N]);

/// A product that has to be reduced.
#[derive(Clone, Copy)]
pub(super) struct Columns<V> {
    pub(super) sums: [V; 2 * MAXIMUM_DIGITS],
    /// The numbers that a reduction subtracts from the columns.
    pub(super) negative: [V; 2 * MAXIMUM_DIGITS],
}

impl<V, const N: usize> Operand<V, N> for Factor<V, N> {
    #[inline(always)]
    fn digits(&self) -> &[V; N] {
        &self.0
    }
}

impl<V, const N: usize> Operand<V, N> for Element<V, N> {
    #[inline(always)]
    fn digits(&self) -> &[V; N] {
        &self.0
    }
}

/// `a b / R`.
#[inline(always)]
pub(super) fn multiply<M: Modulus<N>, V: Arithmetic, const N: usize>(
    a: &impl Operand<V, N>,
    b: &impl Operand<V, N>,
) -> Sum<V, N> {
    V::multiply::<M, N>(a.digits(), b.digits())
}

/// `a^2 / R`.
#[inline(always)]
pub(super) fn square<M: Modulus<N>, V: Arithmetic, const N: usize>(
    a: &impl Operand<V, N>,
) -> Sum<V, N> {
    V::square::<M, N>(a.digits())
}

/// `(a b - c d) / R`.
#[inline(always)]
pub(super) fn difference_of_products<M: Modulus<N>, V: Arithmetic, const N: usize>(
    a: &impl Operand<V, N>,
    b: &impl Operand<V, N>,
    c: &impl Operand<V, N>,
    d: &impl Operand<V, N>,
) -> Sum<V, N> {
    V::difference_of_products::<M, N>(a.digits(), b.digits(), c.digits(), d.digits())
}

/// `(a b - 8 c^2) / R`.
#[inline(always)]
pub(super) fn product_less_squares<M: Modulus<N>, V: Arithmetic, const N: usize>(
    a: &impl Operand<V, N>,
    b: &impl Operand<V, N>,
    c: &impl Operand<V, N>,
) -> Sum<V, N> {
    V::product_less_squares::<M, N>(a.digits(), b.digits(), c.digits())
}

/// The multiplications as straight-line code.
pub(super) mod inline {
    use super::{Columns, Modulus, Sum};
    use crate::vector::MultiplyAdd52;

    #[inline(always)]
    pub(in crate::ec) fn multiply<M: Modulus<N>, V: MultiplyAdd52, const N: usize>(
        a: &[V; N],
        b: &[V; N],
    ) -> Sum<V, N> {
        let mut columns = Columns::zero(a[0]);
        unroll!(I below N, {
            columns.add_row(a, &b[I], I);
            M::eliminate(&mut columns, I);
        });
        columns.upper_half()
    }

    #[inline(always)]
    pub(in crate::ec) fn square<M: Modulus<N>, V: MultiplyAdd52, const N: usize>(
        a: &[V; N],
    ) -> Sum<V, N> {
        // The square has columns of its own: the reduction's sums must not be doubled, and neither
        // waits for the other, which would slow inversions down.
        let mut square = Columns::zero(a[0]);
        let mut columns = Columns::zero(a[0]);
        unroll!(K below twice N, {
            square.add_column_of_square(a, K);
            columns.sums[K] = columns.sums[K].add(square.sums[K]);
            if K < N {
                M::eliminate(&mut columns, K);
            }
        });
        columns.upper_half()
    }

    #[inline(always)]
    pub(in crate::ec) fn difference_of_products<M: Modulus<N>, V: MultiplyAdd52, const N: usize>(
        a: &[V; N],
        b: &[V; N],
        c: &[V; N],
        d: &[V; N],
    ) -> Sum<V, N> {
        let mut columns = Columns::zero(a[0]);
        unroll!(I below N, { columns.add_row(c, &d[I], I) });
        columns.negate_and_shift::<N>(0);
        unroll!(I below N, {
            columns.add_row(a, &b[I], I);
            M::eliminate(&mut columns, I);
        });
        columns.upper_half()
    }

    #[inline(always)]
    pub(in crate::ec) fn product_less_squares<M: Modulus<N>, V: MultiplyAdd52, const N: usize>(
        a: &[V; N],
        b: &[V; N],
        c: &[V; N],
    ) -> Sum<V, N> {
        let mut columns = Columns::zero(a[0]);
        unroll!(K below twice N, { columns.add_column_of_square(c, K) });
        columns.negate_and_shift::<N>(3);
        unroll!(I below N, {
            columns.add_row(a, &b[I], I);
            M::eliminate(&mut columns, I);
        });
        columns.upper_half()
    }
}

impl<V: MultiplyAdd52> Columns<V> {
    #[inline(always)]
    fn zero(witness: V) -> Self {
        let zero = splat(witness, 0);
        Columns {
            sums: [zero; 2 * MAXIMUM_DIGITS],
            negative: [zero; 2 * MAXIMUM_DIGITS],
        }
    }

    /// `self = -self 2^count`, for 2 N columns.
    #[inline(always)]
    fn negate_and_shift<const N: usize>(&mut self, count: u32) {
        let zero = splat(self.sums[0], 0);
        unroll!(K below twice N, {
            self.sums[K] = zero.subtract(self.sums[K].shift_left(count));
        });
    }

    #[inline(always)]
    fn add_row<const N: usize>(&mut self, a: &[V; N], digit: &V, row: usize) {
        unroll!(J below N, { self.sums[row + J].madd_low(&a[J], digit) });
        unroll!(J below N, { self.sums[row + J + 1].madd_high(&a[J], digit) });
    }

    /// Sets a column, which must be zero before the call.
    #[inline(always)]
    fn add_column_of_square<const N: usize>(&mut self, a: &[V; N], column: usize) {
        let sum = &mut self.sums[column];
        unroll!(I below N, {
            if column > 2 * I && column - I < N {
                sum.madd_low(&a[I], &a[column - I]);
            }
            if column > 2 * I + 1 && column - I - 1 < N {
                sum.madd_high(&a[I], &a[column - I - 1]);
            }
        });
        *sum = sum.add(*sum);
        let digit = &a[column / 2];
        if column.is_multiple_of(2) {
            sum.madd_low(digit, digit);
        } else {
            sum.madd_high(digit, digit);
        }
    }

    #[inline(always)]
    fn upper_half<const N: usize>(&self) -> Sum<V, N> {
        let mut sum = [self.sums[0]; N];
        unroll!(I below N, { sum[I] = self.sums[N + I].subtract(self.negative[N + I]) });
        Sum(sum)
    }
}

impl<V: Vector, const N: usize> Sum<V, N> {
    /// `self + other`.
    #[inline(always)]
    pub(super) fn plus(mut self, other: &Element<V, N>) -> Self {
        unroll!(I below N, { self.0[I] = self.0[I].add(other.0[I]) });
        self
    }

    /// `self - other`.
    #[inline(always)]
    pub(super) fn minus(mut self, other: &Element<V, N>) -> Self {
        unroll!(I below N, { self.0[I] = self.0[I].subtract(other.0[I]) });
        self
    }

    /// `self - 2^count other`.
    #[inline(always)]
    pub(super) fn minus_shifted(mut self, other: &Element<V, N>, count: u32) -> Self {
        unroll!(I below N, {
            self.0[I] = self.0[I].subtract(other.0[I].shift_left(count));
        });
        self
    }

    /// `2 self`.
    #[inline(always)]
    pub(super) fn twice(mut self) -> Self {
        unroll!(I below N, { self.0[I] = self.0[I].add(self.0[I]) });
        self
    }

    /// `3 self`.
    #[inline(always)]
    pub(super) fn thrice(mut self) -> Self {
        unroll!(I below N, { self.0[I] = self.0[I].add(self.0[I]).add(self.0[I]) });
        self
    }

    /// `-self` where `mask` is set.
    #[inline(always)]
    pub(super) fn negate_where(mut self, mask: V::Mask) -> Self {
        let zero = splat(self.0[0], 0);
        unroll!(I below N, { self.0[I] = zero.subtract(self.0[I]).select(self.0[I], mask) });
        self
    }

    /// `self` plus a multiple of the modulus.
    #[inline(always)]
    pub(super) fn plus_modulus<M: Modulus<N>>(mut self, multiple: i64) -> Self {
        unroll!(I below N, {
            if M::SIGNED_DIGITS[I] != 0 {
                let digit = (M::SIGNED_DIGITS[I] * multiple).cast_unsigned();
                self.0[I] = self.0[I].add(splat(self.0[I], digit));
            }
        });
        self
    }

    /// Reduces the sum: see [`Modulus::tighten`].
    #[inline(always)]
    pub(super) fn tighten<M: Modulus<N>>(self) -> Self {
        if V::IS_BOUNDS {
            V::state_multiples(&self.0, &M::DIGITS, 0.0, 16.0);
        }
        M::tighten(self).below::<M>(1.01)
    }

    /// States that the sum is not negative and below `multiple` times the modulus, in fields that
    /// tighten.
    #[inline(always)]
    pub(super) fn below<M: Modulus<N>>(self, multiple: f64) -> Self {
        self.between::<M>(0.0, multiple)
    }

    /// States that the sum is between these multiples of the modulus, in fields that tighten.
    #[inline(always)]
    pub(super) fn between<M: Modulus<N>>(self, low: f64, high: f64) -> Self {
        if V::IS_BOUNDS && M::TIGHT < 16 {
            V::state_multiples(&self.0, &M::DIGITS, low, high);
        }
        self
    }

    /// The columns.
    #[inline(always)]
    pub(super) fn columns(&mut self) -> &mut [V; N] {
        &mut self.0
    }

    #[inline(always)]
    pub(super) fn factor(mut self) -> Factor<V, N> {
        unroll!(I below N - 1, {
            let carry = self.0[I].shift_right_signed(DIGIT_BITS);
            self.0[I + 1] = self.0[I + 1].add(carry);
        });
        Factor(self.0)
    }

    #[inline(always)]
    pub(super) fn element(self) -> Element<V, N> {
        self.factor().element()
    }
}

impl<V: Vector, const N: usize> Factor<V, N> {
    /// States that the integer is below `multiple` times the modulus, in fields that tighten.
    #[inline(always)]
    pub(super) fn below<M: Modulus<N>>(self, multiple: f64) -> Self {
        if V::IS_BOUNDS {
            self.element().below::<M>(multiple);
        }
        self
    }

    /// The same integer without the bits above the digits.
    #[inline(always)]
    pub(super) fn element(mut self) -> Element<V, N> {
        let mask = splat(self.0[0], (1 << DIGIT_BITS) - 1);
        // Nothing is above the last digit of an integer below R.
        unroll!(I below N - 1, { self.0[I] = self.0[I].and(mask) });
        Element(self.0)
    }
}

impl<V: Vector, const N: usize> Element<V, N> {
    /// The same integer in every lane.
    #[inline(always)]
    pub(super) fn splat(witness: V, digits: &[u64; N]) -> Self {
        let mut element = [witness; N];
        unroll!(I below N, { element[I] = splat(witness, digits[I]) });
        Element(element)
    }

    /// States that the integer is below `multiple` times the modulus, in fields that tighten.
    #[inline(always)]
    pub(super) fn below<M: Modulus<N>>(self, multiple: f64) -> Self {
        if V::IS_BOUNDS {
            self.sum().below::<M>(multiple);
        }
        self
    }

    /// The same integer.
    #[inline(always)]
    pub(super) fn as_factor(&self) -> Factor<V, N> {
        Factor(self.0)
    }

    /// The same integer as a sum.
    #[inline(always)]
    pub(super) fn sum(&self) -> Sum<V, N> {
        Sum(self.0)
    }

    /// `self` where `mask` is set, else `other`.
    #[inline(always)]
    pub(super) fn select(mut self, other: &Self, mask: V::Mask) -> Self {
        unroll!(I below N, { self.0[I] = self.0[I].select(other.0[I], mask) });
        self
    }
}

impl<V: Arithmetic, const N: usize> Element<V, N> {
    /// The integer itself, below the modulus, of one in Montgomery form.
    #[inline(always)]
    pub(super) fn canonical<M: Modulus<N>>(self) -> Self {
        let one = {
            let mut digits = [0; N];
            digits[0] = 1;
            Element::splat(self.0[0], &digits)
        };
        let integer = multiply::<M, V, N>(&self, &one).element();
        if V::IS_BOUNDS {
            V::state_multiples(&integer.0, &M::DIGITS, 0.0, 1.01);
        }
        integer.subtract_if_not_below(&M::DIGITS)
    }
}

impl<V: Vector, const N: usize> Element<V, N> {
    /// `self - modulus` in the lanes where that is not negative, else `self`.
    #[inline(always)]
    pub(super) fn subtract_if_not_below(self, modulus: &[u64; N]) -> Self {
        let difference = self
            .sum()
            .minus(&Element::splat(self.0[0], modulus))
            .factor();
        let sign = difference.0[N - 1].shift_right(63);
        let is_negative = sign.equal(splat(sign, 1));
        self.select(&difference.element(), is_negative)
    }
}
