//! An interval of integers, and the relations between intervals that matter to kernels.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::Bounds;

/// Bounds in another form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) low: i128,
    pub(super) high: i128,
    /// Different for every result of an operation. Constants have none, which is zero.
    pub(super) identity: u64,
}

/// The operation that computed a value, if it matters.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// The sum of two values.
    Sum(Interval, Interval),
    /// A value shifted right, with its sign.
    Quotient(Interval, u32),
    /// A value shifted left.
    Multiple(Interval, u32),
    /// The sign bit of a value.
    Sign(Interval),
    /// A value without the bits above a mask, if there are any.
    Masked(Interval),
    Cases(Cases),
}

/// The bounds of a value for each value of a quotient.
#[derive(Clone, Debug)]
pub(super) struct Cases {
    /// The identity of the quotient.
    quotient: u64,
    values: Vec<(i128, Interval)>,
    /// The summands, if the value is a sum.
    pub(super) sum: Option<(Interval, Interval)>,
}

/// All 64 bits may have any value: additions may wrap, and the value is no number.
pub(super) const ANY: Interval = Interval {
    low: i128::MIN,
    high: i128::MAX,
    identity: 0,
};

/// Origins of so many values before the last are known.
pub(super) const REMEMBERED: usize = 1 << 12;

/// The number of integers that are known not to be negative.
pub(super) const INTEGERS: usize = 64;

/// The bits of a digit: a quotient by 2^52 is a carry.
pub(super) const CARRY: u32 = 52;

/// The most values of a quotient that are told apart.
pub(super) const QUOTIENTS: i128 = 64;

thread_local! {
    static LAST_IDENTITY: Cell<u64> = const { Cell::new(0) };
    static ORIGINS: RefCell<Vec<(u64, Origin)>> = const { RefCell::new(Vec::new()) };
    static NOT_NEGATIVE: RefCell<VecDeque<Vec<u64>>> = const { RefCell::new(VecDeque::new()) };
    static EXTREMES: Cell<(i128, i128)> = const { Cell::new((0, 0)) };
}

/// Runs `kernel`. Returns the lowest and the highest sum or difference that it computed.
pub(super) fn extremes(kernel: impl FnOnce()) -> (i128, i128) {
    EXTREMES.set((0, 0));
    kernel();
    EXTREMES.get()
}

/// Remembers that the integer in the columns with these identities is not negative.
pub(super) fn remember_not_negative(identities: impl Iterator<Item = u64>) {
    NOT_NEGATIVE.with_borrow_mut(|integers| {
        integers.push_front(identities.collect());
        integers.truncate(INTEGERS);
    });
}

impl Interval {
    /// The bounds of a number that is computed.
    #[track_caller]
    pub(super) fn of_result(low: i128, high: i128) -> Self {
        assert!(low <= high, "no value between {low:#x} and {high:#x}");
        assert!(
            low >= i128::from(i64::MIN) && high <= i128::from(u64::MAX),
            "overflow: {low:#x} to {high:#x}"
        );
        let identity = LAST_IDENTITY.get() + 1;
        LAST_IDENTITY.set(identity);
        Interval {
            low,
            high,
            identity,
        }
    }

    /// The sum with a number between `low` and `high`.
    #[track_caller]
    pub(super) fn increase(self, low: u128, high: u128) -> Bounds {
        assert!(!self.is_any(), "a sum with what is no number");
        let (low, high) = (low.cast_signed(), high.cast_signed());
        Interval::of_result(self.low + low, self.high + high)
            .tracked()
            .encode()
    }

    /// Counts for the [extremes](Bounds::extremes).
    pub(super) fn tracked(self) -> Self {
        let (lowest, highest) = EXTREMES.get();
        EXTREMES.set((lowest.min(self.low), highest.max(self.high)));
        self
    }

    /// The bounds for each value of a quotient that the value depends on. Carries of digits are not
    /// told apart.
    pub(super) fn cases(self) -> Option<Cases> {
        let (quotient, count) = match self.origin()? {
            Origin::Cases(cases) => return Some(cases),
            Origin::Multiple(quotient, count) => (quotient, count),
            Origin::Quotient(..) => (self, 0),
            _ => return None,
        };
        let Some(Origin::Quotient(_, divisor)) = quotient.origin() else {
            return None;
        };
        if divisor == CARRY || quotient.high - quotient.low > QUOTIENTS {
            return None;
        }
        let value = |quotient: i128| {
            let multiple = quotient << count;
            (quotient, Interval::of_result(multiple, multiple))
        };
        Some(Cases {
            quotient: quotient.identity,
            values: (quotient.low..=quotient.high).map(value).collect(),
            sum: None,
        })
    }

    pub(super) fn with_origin(self, origin: Origin) -> Bounds {
        ORIGINS.with_borrow_mut(|origins| {
            if origins.is_empty() {
                origins.resize(REMEMBERED, (0, Origin::Sign(ANY)));
            }
            origins[self.identity as usize % REMEMBERED] = (self.identity, origin);
        });
        self.encode()
    }

    pub(super) fn origin(self) -> Option<Origin> {
        ORIGINS.with_borrow(|origins| {
            let (identity, origin) = origins.get(self.identity as usize % REMEMBERED)?;
            (*identity == self.identity).then(|| origin.clone())
        })
    }

    pub(super) fn is_any(self) -> bool {
        self.low == i128::MIN
    }

    pub(super) fn constant(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    pub(super) fn is_same(self, other: Interval) -> bool {
        self.identity == other.identity && self.identity != 0
    }

    /// A number that this is a multiple of, as a factor and the identity.
    pub(super) fn as_multiple(self) -> (u32, u64) {
        if let Some(Origin::Sum(a, b)) = self.origin() {
            let ((a, number), (b, other)) = (a.as_multiple(), b.as_multiple());
            if number == other && number != 0 {
                return (a + b, number);
            }
        }
        (1, self.identity)
    }

    /// The smallest bounds that include both.
    pub(super) fn hull(self, other: Interval) -> Interval {
        if self.is_any() || other.is_any() {
            return ANY;
        }
        Interval::of_result(self.low.min(other.low), self.high.max(other.high))
    }

    /// The low `count` bits.
    #[track_caller]
    pub(super) fn digit(self, count: u32) -> (u128, u128) {
        assert!(!self.is_any(), "the digits of what is no number");
        let mask = (1 << count) - 1;
        let (low, high) = (self.low.cast_unsigned(), self.high.cast_unsigned());
        match self.constant() {
            Some(_) => (low & mask, low & mask),
            None if low <= high && high <= mask => (low, high),
            None => (0, mask),
        }
    }

    /// All bits that a value from zero up may have.
    pub(super) fn bits(self) -> i128 {
        let length = 128 - self.high.leading_zeros();
        (1 << length) - 1
    }

    /// The value, if that of `number` is negative, or if it is not.
    pub(super) fn where_sign_is(self, number: u64, is_negative: bool) -> Interval {
        let mut chosen = self;
        if let Some(Origin::Masked(whole)) = self.origin()
            && whole.identity == number
            && !is_negative
            && whole.high <= self.high
        {
            chosen = whole;
        }
        if chosen.identity == number {
            if is_negative {
                chosen.high = chosen.high.min(-1);
            } else {
                chosen.low = chosen.low.max(0);
            }
        }
        chosen
    }
}

/// `value - quotient 2^count`, where the quotient is that of `value + carry` by 2^count.
pub(super) fn remainders(value: Interval, multiple: Interval) -> Option<Cases> {
    let Some(Origin::Multiple(quotient, count)) = multiple.origin() else {
        return None;
    };
    let Some(Origin::Quotient(dividend, divisor)) = quotient.origin() else {
        return None;
    };
    let (Origin::Sum(first, carry)
    | Origin::Cases(Cases {
        sum: Some((first, carry)),
        ..
    })) = dividend.origin()?
    else {
        return None;
    };
    if divisor != count || !first.is_same(value) {
        return None;
    }
    let mut cases = multiple.cases()?;
    cases.values.retain_mut(|(quotient, remainder)| {
        let multiple = *quotient << count;
        let low = (dividend.low.max(multiple) - carry.high).max(value.low);
        let high = (dividend.high.min(multiple + (1 << count) - 1) - carry.low).min(value.high);
        let is_possible = low <= high;
        if is_possible {
            *remainder = Interval::of_result(low - multiple, high - multiple);
        }
        is_possible
    });
    Some(cases)
}

impl Cases {
    /// The results of an operation on the value, in each case.
    #[track_caller]
    pub(super) fn map(mut self, operation: impl Fn(Interval) -> (i128, i128)) -> Self {
        self.sum = None;
        for (_, value) in &mut self.values {
            let (low, high) = operation(*value);
            *value = Interval::of_result(low, high);
        }
        self
    }

    pub(super) fn encode(self) -> Bounds {
        let hull = self.values.iter().map(|(_, case)| *case);
        let hull = hull
            .reduce(Interval::hull)
            .expect("a case that is possible");
        hull.with_origin(Origin::Cases(self))
    }
}

/// The results of an operation on two values, in each case of a quotient that one or both of them
/// depend on. If they depend on two, the later counts.
#[track_caller]
pub(super) fn combine(
    a: Interval,
    b: Interval,
    operation: impl Fn(Interval, Interval) -> (i128, i128),
) -> Option<Cases> {
    let (a_cases, b_cases) = (a.cases(), b.cases());
    let quotient_of = |cases: &Option<Cases>| cases.as_ref().map_or(0, |cases| cases.quotient);
    let quotient = quotient_of(&a_cases).max(quotient_of(&b_cases));
    let own = |cases: Option<Cases>| cases.filter(|cases| cases.quotient == quotient);
    let (mut cases, others) = match (own(a_cases), own(b_cases)) {
        (None, None) => return None,
        (Some(cases), None) => return Some(cases.map(|a| operation(a, b))),
        (None, Some(cases)) => return Some(cases.map(|b| operation(a, b))),
        (Some(cases), Some(others)) => (cases, others),
    };
    cases.sum = None;
    cases.values.retain_mut(|(quotient, value)| {
        let other = others.values.iter().find(|(other, _)| other == quotient);
        if let Some((_, other)) = other {
            let (low, high) = operation(*value, *other);
            *value = Interval::of_result(low, high);
        }
        other.is_some()
    });
    Some(cases)
}

/// Returns true if `column` is the last column of an integer that is not negative, and `carry` is
/// what the columns below it carry.
pub(super) fn is_last_of_not_negative(column: Interval, mut carry: Interval) -> bool {
    let (count, identity) = column.as_multiple();
    let mut identities = vec![identity];
    while let Some(Origin::Quotient(below, CARRY)) = carry.origin() {
        let own = match below.origin() {
            Some(Origin::Sum(own, next))
                if matches!(next.origin(), Some(Origin::Quotient(_, CARRY))) =>
            {
                carry = next;
                own
            }
            _ => {
                carry = below;
                below
            }
        };
        let (own_count, identity) = own.as_multiple();
        if own_count != count {
            return false;
        }
        identities.push(identity);
    }
    identities.reverse();
    NOT_NEGATIVE.with_borrow(|integers| integers.contains(&identities))
}
