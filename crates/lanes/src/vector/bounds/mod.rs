//! A vector of bounds, with which one run of a kernel covers all inputs.
//!
//! Its lanes do not hold eight integers but the lowest and the highest value that a lane can have.
//! Kernels have no branches on values, so what they do with bounds is what they do with every input
//! between them. A result that does not fit 64 bits is a panic, and so is a logical shift of a
//! number that may be negative, a signed shift of one that may be too large for a sign, and a bound
//! that is [stated](Vector::state_below) and does not hold.
//!
//! Bounds do not know that two values depend on each other, except where the kernels rely on it:
//! what remains of a number after the subtraction of its quotient, a choice by the sign of a number,
//! and the carries of an integer that is not negative. For these, some values have an [`Origin`].

mod interval;

use super::{DIGIT52, Multiply32, MultiplyAdd52, Vector};
use crate::LANES;
use interval::{ANY, CARRY, Interval, Origin, combine, is_last_of_not_negative, remainders};

/// Bounds of all lanes.
///
/// Eight lanes with the same integer are this integer, so memory that is filled with a constant
/// holds bounds. Otherwise the lanes are those that [`Bounds::encode`] writes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Bounds([u64; LANES]);

/// One truth value per lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Truth {
    /// The same for all values between the bounds.
    Known(bool),
    /// Depends on the values.
    Unknown,
    /// True where the value with this identity is negative.
    Negative(u64),
}

/// In the last lane of bounds.
const MARK: u64 = 0xb0b0_5eed_0b0b_dead;

impl Bounds {
    /// Integers from `low` to `high`, both included.
    pub(crate) fn new(low: i128, high: i128) -> Self {
        Interval::of_result(low, high).encode()
    }

    /// Any 64 bits, which are not a number.
    pub(crate) fn any_bits() -> Self {
        ANY.encode()
    }

    pub(crate) fn low(self) -> i128 {
        self.decode().low
    }

    pub(crate) fn high(self) -> i128 {
        self.decode().high
    }

    /// Lets it be known that the integer in these columns of 52 bits is not negative, nor is a
    /// multiple of it.
    pub(crate) fn assume_not_negative(columns: &[Bounds]) {
        interval::remember_not_negative(columns.iter().map(|column| column.decode().identity));
    }

    /// Runs `kernel`. Returns the lowest and the highest sum or difference that it computed.
    pub(crate) fn extremes(kernel: impl FnOnce()) -> (i128, i128) {
        interval::extremes(kernel)
    }

    fn decode(self) -> Interval {
        let lanes = self.0;
        if lanes.iter().all(|lane| *lane == lanes[0]) {
            let value = i128::from(lanes[0].cast_signed());
            return Interval {
                low: value,
                high: value,
                identity: 0,
            };
        }
        assert_eq!(lanes[7], MARK, "memory that holds no bounds: {lanes:x?}");
        let wide = |low: u64, high: u64| (u128::from(high) << 64 | u128::from(low)).cast_signed();
        Interval {
            low: wide(lanes[0], lanes[1]),
            high: wide(lanes[2], lanes[3]),
            identity: lanes[4],
        }
    }
}

impl Interval {
    fn encode(self) -> Bounds {
        let [low, high] = [self.low, self.high].map(i128::cast_unsigned);
        Bounds([
            low as u64,
            (low >> 64) as u64,
            high as u64,
            (high >> 64) as u64,
            self.identity,
            0,
            0,
            MARK,
        ])
    }
}

// SAFETY: `repr(C)` around `[u64; 8]`, aligned to 64 bytes. Any bit pattern may be in it: one that
// is no bounds makes an operation panic.
unsafe impl Vector for Bounds {
    type Mask = Truth;

    const IS_BOUNDS: bool = true;

    #[inline(never)]
    unsafe fn splat(value: u64) -> Self {
        Bounds([value; LANES])
    }

    #[inline(never)]
    #[track_caller]
    fn add(self, other: Self) -> Self {
        let (a, b) = (self.decode(), other.decode());
        if a.is_any() || b.is_any() {
            return ANY.encode();
        }
        if let Some(mut cases) = combine(a, b, |a, b| (a.low + b.low, a.high + b.high)) {
            cases.sum = Some((a, b));
            return cases.encode();
        }
        let mut low = a.low + b.low;
        if low < 0 && is_last_of_not_negative(a, b) {
            low = 0;
        }
        Interval::of_result(low, a.high + b.high)
            .tracked()
            .with_origin(Origin::Sum(a, b))
    }

    #[inline(never)]
    #[track_caller]
    fn subtract(self, other: Self) -> Self {
        let (a, b) = (self.decode(), other.decode());
        if a.is_any() || b.is_any() {
            return ANY.encode();
        }
        if let Some(cases) = remainders(a, b) {
            return cases.encode();
        }
        if let Some(cases) = combine(a, b, |a, b| (a.low - b.high, a.high - b.low)) {
            return cases.encode();
        }
        Interval::of_result(a.low - b.high, a.high - b.low)
            .tracked()
            .encode()
    }

    #[inline(never)]
    fn and(self, other: Self) -> Self {
        let (a, b) = (self.decode(), other.decode());
        let (value, mask) = match (a.constant(), b.constant()) {
            (_, Some(mask)) if mask >= 0 => (a, mask),
            (Some(mask), _) if mask >= 0 => (b, mask),
            _ => return ANY.encode(),
        };
        let is_all_ones = mask & (mask + 1) == 0;
        if is_all_ones && value.low >= 0 && value.high <= mask {
            return value.encode();
        }
        Interval::of_result(0, mask).with_origin(Origin::Masked(value))
    }

    #[inline(never)]
    fn xor(self, other: Self) -> Self {
        self.or(other)
    }

    #[inline(never)]
    fn or(self, other: Self) -> Self {
        let (a, b) = (self.decode(), other.decode());
        if a.is_any() || b.is_any() || a.low < 0 || b.low < 0 {
            return ANY.encode();
        }
        Interval::of_result(0, a.bits().max(b.bits())).encode()
    }

    #[inline(never)]
    #[track_caller]
    fn shift_left(self, count: u32) -> Self {
        let a = self.decode();
        if a.is_any() {
            return self;
        }
        Interval::of_result(a.low << count, a.high << count).with_origin(Origin::Multiple(a, count))
    }

    #[inline(never)]
    #[track_caller]
    fn shift_right(self, count: u32) -> Self {
        let a = self.decode();
        if a.is_any() {
            return Interval::of_result(0, (1 << (64 - count)) - 1).encode();
        }
        if count == 63 && a.high <= i128::from(i64::MAX) {
            let sign = |value: i128| i128::from(value < 0);
            return Interval::of_result(sign(a.high), sign(a.low)).with_origin(Origin::Sign(a));
        }
        assert!(a.low >= 0, "a logical shift of a negative number");
        Interval::of_result(a.low >> count, a.high >> count).with_origin(Origin::Quotient(a, count))
    }

    #[inline(never)]
    #[track_caller]
    fn shift_right_signed(self, count: u32) -> Self {
        let a = self.decode();
        assert!(
            a.high <= i128::from(i64::MAX),
            "a signed shift of a number without a sign"
        );
        if let Some(Origin::Cases(cases)) = a.origin()
            && count == CARRY
        {
            let carries = cases.map(|value| (value.low >> count, value.high >> count));
            return carries.encode();
        }
        Interval::of_result(a.low >> count, a.high >> count).with_origin(Origin::Quotient(a, count))
    }

    #[inline(never)]
    fn equal(self, other: Self) -> Truth {
        let (a, b) = (self.decode(), other.decode());
        if a.is_any() || b.is_any() {
            return Truth::Unknown;
        }
        if a.high < b.low || b.high < a.low {
            return Truth::Known(false);
        }
        if a.constant().is_some() && a.constant() == b.constant() {
            return Truth::Known(true);
        }
        match (a.origin(), b.constant()) {
            (Some(Origin::Sign(number)), Some(1)) => Truth::Negative(number.identity),
            (Some(Origin::Quotient(number, _)), Some(-1)) if a.low == -1 => {
                Truth::Negative(number.identity)
            }
            _ => Truth::Unknown,
        }
    }

    #[inline(never)]
    fn select(self, other: Self, mask: Truth) -> Self {
        match mask {
            Truth::Known(true) => self,
            Truth::Known(false) => other,
            Truth::Unknown => self.decode().hull(other.decode()).encode(),
            Truth::Negative(number) => self
                .decode()
                .where_sign_is(number, true)
                .hull(other.decode().where_sign_is(number, false))
                .encode(),
        }
    }

    /// The bounds of the sixteen integers in the table, which are no bounds themselves.
    #[inline(never)]
    fn look_up(self, table: &[Self; 2]) -> Self {
        let entries = table.iter().flat_map(|half| half.0).map(i128::from);
        let (low, high) = entries.fold((i128::MAX, i128::MIN), |(low, high), entry| {
            (low.min(entry), high.max(entry))
        });
        Interval::of_result(low, high).encode()
    }

    #[inline(never)]
    #[track_caller]
    fn state_below(&self, limit: u64) {
        let value = self.decode();
        assert!(
            value.low >= 0 && value.high < i128::from(limit),
            "{value:x?} is not below {limit:#x}"
        );
    }

    #[inline(never)]
    #[track_caller]
    fn state_multiples(columns: &[Self], modulus: &[u64], low: f64, high: f64) {
        // The margin is larger than the rounding errors.
        const MARGIN: f64 = 1e-12;
        let integer = |column: &dyn Fn(usize) -> f64| {
            (0..columns.len()).fold(0.0, |sum, index| {
                sum + column(index) * 2_f64.powi(52 * index as i32)
            })
        };
        let modulus = integer(&|index| modulus[index] as f64);
        let lowest = integer(&|index| columns[index].low() as f64) / modulus;
        let highest = integer(&|index| columns[index].high() as f64) / modulus;
        assert!(
            lowest >= low - MARGIN && highest <= high - MARGIN,
            "from {lowest} to {highest}, which is not between {low} and {high}"
        );
    }
}

impl Multiply32 for Bounds {
    #[inline(never)]
    fn multiply_low(self, other: Self) -> Self {
        let (a, b) = (self.decode().digit(32), other.decode().digit(32));
        Bounds::new((a.0 * b.0).cast_signed(), (a.1 * b.1).cast_signed())
    }
}

impl MultiplyAdd52 for Bounds {
    #[inline(never)]
    #[track_caller]
    fn madd_low(&mut self, a: &Self, b: &Self) {
        const DIGIT: u128 = DIGIT52 as u128;
        let (a, b) = (a.decode().digit(52), b.decode().digit(52));
        let (low, high) = if a.1 * b.1 <= DIGIT {
            (a.0 * b.0, a.1 * b.1)
        } else if a.0 == a.1 && b.0 == b.1 {
            [(a.0 * b.0) & DIGIT; 2].into()
        } else {
            (0, DIGIT)
        };
        *self = self.decode().increase(low, high);
    }

    #[inline(never)]
    #[track_caller]
    fn madd_high(&mut self, a: &Self, b: &Self) {
        let (a, b) = (a.decode().digit(52), b.decode().digit(52));
        *self = self.decode().increase((a.0 * b.0) >> 52, (a.1 * b.1) >> 52);
    }
}

mod tests {
    use super::*;
    use crate::vector::Portable;

    type Operation<V> = fn(V, V) -> V;

    /// The same operations for both types.
    fn operations<V: MultiplyAdd52>() -> [Operation<V>; 12] {
        [
            |a, b| a.add(b),
            |a, b| a.subtract(b),
            |a, b| a.and(b),
            |a, b| a.xor(b),
            |a, b| a.or(b),
            |a, _| a.shift_left(3),
            |a, _| a.shift_right(5),
            |a, _| a.subtract(a.add(a)).shift_right_signed(7),
            |a, b| a.select(b, a.equal(b)),
            |a, b| {
                let difference = a.subtract(b);
                let sign = difference.shift_right(63);
                let one = crate::digits::splat(sign, 1);
                b.subtract(a).select(difference, sign.equal(one))
            },
            |mut a, b| {
                a.madd_low(&b, &b);
                a
            },
            |mut a, b| {
                a.madd_high(&b, &a.clone());
                a
            },
        ]
    }

    #[test]
    fn results_are_between_their_bounds() {
        let ends: [(i128, i128); 5] = [
            (0, 0),
            (0, 1),
            (5, 0xffff),
            ((1 << 52) - 3, (1 << 52) + 2),
            (1 << 40, 1 << 59),
        ];
        let values = |(low, high): (i128, i128)| [low, (low + high) / 2, high];
        for (a, b) in ends.iter().flat_map(|a| ends.iter().map(move |b| (*a, *b))) {
            let names = operations::<Portable>().into_iter().enumerate();
            for ((index, exact), bounded) in names.zip(operations::<Bounds>()) {
                let bounds = bounded(Bounds::new(a.0, a.1), Bounds::new(b.0, b.1));
                for (a, b) in values(a).iter().flat_map(|a| values(b).map(|b| (*a, b))) {
                    // SAFETY: the portable vector needs no particular CPU.
                    let [a, b] = [a, b].map(|value| unsafe { Portable::splat(value as u64) });
                    let result = crate::digits::lanes_of(exact(a, b))[0].cast_signed();
                    let (low, high) = (bounds.low(), bounds.high());
                    let is_between = (low..=high).contains(&result.into());
                    assert!(is_between, "{index}: {result:#x} in {low:#x} to {high:#x}");
                }
            }
        }
    }
}
