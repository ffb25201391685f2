//! Inversion by Fermat's little theorem: a^(modulus - 2).
//!
//! The exponents are public, so squarings and multiplications follow a fixed plan.

use super::arithmetic::Arithmetic;
use super::field::{Factor, Modulus, multiply, square};
use super::integers::{bits, subtract};
use super::wipe;

/// The powers that a plan keeps.
const SLOTS: usize = 17;

/// The most steps that a plan for an order has.
const MAXIMUM_STEPS: usize = 96;

/// One step of a plan: `kept[to] = kept[from]^(2^squarings) * kept[by]`.
#[derive(Clone, Copy)]
pub(super) struct Step {
    to: usize,
    from: usize,
    squarings: usize,
    by: usize,
}

/// `1 / a`, or 0 for 0. Both are in Montgomery form and below four times the modulus.
#[inline(always)]
pub(super) fn invert<M: Modulus<N>, V: Arithmetic, const N: usize>(
    a: &Factor<V, N>,
) -> Factor<V, N> {
    let mut kept = [*a; SLOTS];
    for step in M::INVERSION {
        let mut power = kept[step.from];
        for _ in 0..step.squarings {
            power = square::<M, V, N>(&power).factor();
        }
        kept[step.to] = multiply::<M, V, N>(&power, &kept[step.by]).factor();
    }
    let inverse = kept[0];
    for power in &mut kept {
        wipe(&mut power.0);
    }
    inverse
}

/// p - 2 for P-256, in hexadecimal: ffffffff 00000001 00000000 00000000 00000000 ffffffff ffffffff
/// fffffffd.
pub(super) const P256_FIELD: [Step; 12] = [
    step(1, 0, 1, 0),   // 2 ones
    step(2, 1, 1, 0),   // 3 ones
    step(3, 2, 3, 2),   // 6
    step(3, 3, 6, 3),   // 12
    step(3, 3, 3, 2),   // 15
    step(4, 3, 15, 3),  // 30
    step(5, 4, 2, 1),   // 32
    step(6, 5, 32, 0),  // ffffffff 00000001
    step(6, 6, 128, 5), // and 96 zeros, 32 ones
    step(6, 6, 32, 5),  // and 32 ones
    step(6, 6, 30, 4),  // and 30 ones
    step(0, 6, 2, 0),   // and 01
];

/// p - 2 for P-384: 255 ones, a zero, 32 ones, 64 zeros, 30 ones and 01.
pub(super) const P384_FIELD: [Step; 14] = [
    step(1, 0, 1, 0),   // 2 ones
    step(2, 1, 1, 0),   // 3
    step(3, 2, 3, 2),   // 6
    step(3, 3, 6, 3),   // 12
    step(3, 3, 3, 2),   // 15
    step(4, 3, 15, 3),  // 30
    step(5, 4, 2, 1),   // 32
    step(6, 4, 30, 4),  // 60
    step(6, 6, 60, 6),  // 120
    step(6, 6, 120, 6), // 240
    step(6, 6, 15, 3),  // 255
    step(6, 6, 33, 5),  // and 0, 32 ones
    step(6, 6, 94, 4),  // and 64 zeros, 30 ones
    step(0, 6, 2, 0),   // and 01
];

/// A plan for n - 2, where n is an order, with windows of up to five bits. Slot k holds the power
/// 2 k + 1, and the last slot the running result.
pub(super) struct SlidingWindow {
    steps: [Step; MAXIMUM_STEPS],
    length: usize,
}

impl SlidingWindow {
    pub(super) const fn new<const L: usize>(modulus: &[u64; L]) -> Self {
        const RUNNING: usize = SLOTS - 1;
        let mut two = [0; L];
        two[0] = 2;
        let (exponent, _) = subtract(modulus, &two);

        let mut plan = SlidingWindow {
            steps: [step(RUNNING, 0, 0, 0); MAXIMUM_STEPS],
            length: 1,
        };
        let mut slot = 1;
        while slot < RUNNING {
            plan.push(step(slot, slot - 1, 0, RUNNING));
            slot += 1;
        }

        let mut running = None;
        let mut squarings = 0;
        let mut position = 64 * L;
        while position > 0 {
            if bits(&exponent, position - 1, 1) == 0 {
                position -= 1;
                squarings += 1;
                continue;
            }
            let mut width = if position < 5 { position } else { 5 };
            while bits(&exponent, position - width, 1) == 0 {
                width -= 1;
            }
            position -= width;
            squarings += width;
            let odd = (bits(&exponent, position, width) / 2) as usize;
            running = match running {
                None => Some(odd),
                Some(from) => {
                    plan.push(step(RUNNING, from, squarings, odd));
                    Some(RUNNING)
                }
            };
            squarings = 0;
        }
        assert!(squarings == 0, "an odd exponent");
        plan.steps[plan.length - 1].to = 0;
        plan
    }

    pub(super) const fn steps(&self) -> &[Step] {
        self.steps.split_at(self.length).0
    }

    const fn push(&mut self, step: Step) {
        self.steps[self.length] = step;
        self.length += 1;
    }
}

const fn step(to: usize, from: usize, squarings: usize, by: usize) -> Step {
    Step {
        to,
        from,
        squarings,
        by,
    }
}
