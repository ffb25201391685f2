//! Code that is not in constant time, to show that it would be noticed.

use std::hint::black_box;

use crate::trace::{Difference, Subject, compare};

/// Two numbers that differ in every bit.
const SECRETS: [u64; 2] = [0x5a5a_1234_9669_c3c3, !0x5a5a_1234_9669_c3c3];

/// One of the functions below, and its secret.
struct Leaky {
    function: fn(u64) -> u64,
    secret: u64,
}

impl Subject for Leaky {
    fn set_secrets(&mut self, second: bool) {
        self.secret = SECRETS[usize::from(second)];
    }

    fn compute(&mut self) {
        black_box((self.function)(black_box(self.secret)));
    }

    fn is_sound(&self) -> bool {
        true
    }
}

#[track_caller]
fn difference(function: fn(u64) -> u64) -> Option<Difference> {
    let mut subject = Leaky {
        function,
        secret: 0,
    };
    compare(&mut subject).0
}

#[test]
fn a_branch_on_a_secret_bit_is_found() {
    let difference = difference(square_and_multiply);
    assert!(
        matches!(difference, Some(Difference::Branch(_))),
        "{difference:?}"
    );
}

#[test]
fn a_look_up_at_a_secret_index_is_found() {
    let difference = difference(fixed_windows);
    assert!(
        matches!(difference, Some(Difference::Address(_))),
        "{difference:?}"
    );
}

#[test]
fn a_copy_of_secret_length_is_found() {
    assert!(difference(copy).is_some());
}

#[test]
fn arithmetic_with_a_secret_is_not_reported() {
    let difference = difference(polynomial);
    assert_eq!(difference, None);
}

/// 3^exponent, with a multiplication only for each bit that is set.
#[inline(never)]
fn square_and_multiply(exponent: u64) -> u64 {
    let mut power = 1_u64;
    for bit in (0..64).rev() {
        power = power.wrapping_mul(power);
        if exponent >> bit & 1 == 1 {
            power = black_box(power.wrapping_mul(3));
        }
    }
    power
}

/// 3^exponent, reading only the wanted entry of the table.
#[inline(never)]
fn fixed_windows(exponent: u64) -> u64 {
    let table: [u64; 16] = black_box(std::array::from_fn(|index| 3_u64.pow(index as u32)));
    let mut power = 1_u64;
    for window in (0..16).rev() {
        for _ in 0..4 {
            power = power.wrapping_mul(power);
        }
        // SAFETY: the index is below 16. A check of it would be a branch.
        let entry = unsafe {
            table
                .as_ptr()
                .add((exponent >> (4 * window) & 15) as usize)
                .read()
        };
        power = power.wrapping_mul(entry);
    }
    power
}

#[inline(never)]
fn copy(length: u64) -> u64 {
    let source = black_box([1_u8; 4096]);
    let mut target = [0; 4096];
    let length = (length & 0xfff) as usize;
    target[..length].copy_from_slice(&source[..length]);
    u64::from(black_box(target)[0])
}

#[inline(never)]
fn polynomial(number: u64) -> u64 {
    number
        .wrapping_mul(number)
        .wrapping_add(number)
        .rotate_left(7)
}
