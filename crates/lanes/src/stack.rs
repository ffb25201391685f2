//! Computations that leave nothing of a secret on the stack.

use zeroize::zeroize_stack;

/// Computes, and wipes at least `bytes` of stack below this call, on which the computation had its
/// frames. Values are handed over through frames that have ended, and vectors are kept in memory
/// where registers do not suffice: nothing else wipes that memory. A test finds what is left if
/// `bytes` are too few.
#[inline(always)]
pub(crate) fn wiped<R>(bytes: usize, compute: impl FnOnce() -> R) -> R {
    debug_assert!(bytes <= MOST, "more stack than callers have");
    let result = apart(compute);
    match bytes.div_ceil(1024) {
        0..=12 => zeroize_stack::<{ 12 * 1024 }>(),
        13..=32 => zeroize_stack::<{ 32 * 1024 }>(),
        33..=56 => zeroize_stack::<{ 56 * 1024 }>(),
        _ => zeroize_stack::<MOST>(),
    }
    result
}

/// Calls may take 80 KiB of stack.
const MOST: usize = 76 * 1024;

/// In a frame of its own, at the place where the stack is wiped.
#[inline(never)]
fn apart<R>(compute: impl FnOnce() -> R) -> R {
    compute()
}
