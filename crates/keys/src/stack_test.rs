//! Support for tests that look for residues of secrets on the stack.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::thread;

/// Bytes of stack between the frame that looks and that of the operation.
const DISTANCE: usize = 64 * 1024;

/// Bytes of stack below that which are looked at.
const DEPTH: usize = 256 * 1024;

/// Calls `operation` with two secrets, twice with each. Returns the words that it leaves on the
/// stack and that depend on the secret: their distance from its frame in bytes, with the values
/// that the secrets leave.
///
/// `prepare` puts the secret with number 0 or 1 where the operation reads it: at the same address,
/// since addresses may be left behind.
///
/// # Panics
/// If there is no thread with enough stack, or if the operation panics.
pub fn residues(
    prepare: impl Fn(usize) + Sync,
    operation: impl Fn() + Sync,
) -> Vec<(usize, [u64; 2])> {
    let look = || {
        // Tables are made by the first call.
        prepare(0);
        operation();
        let mut seen = [(); 4].map(|()| vec![0; DEPTH / 8]);
        for (round, seen) in seen.iter_mut().enumerate() {
            prepare(round % 2);
            look_below(&operation, seen);
        }
        let [first, second, first_again, second_again] = seen;
        (0..DEPTH / 8)
            .filter(|&place| first[place] == first_again[place])
            .filter(|&place| second[place] == second_again[place])
            .filter(|&place| first[place] != second[place])
            .map(|place| (DEPTH - 8 * place, [first[place], second[place]]))
            .collect()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .stack_size(4 * (DISTANCE + DEPTH))
            .spawn_scoped(scope, look)
            .expect("a thread");
        thread.join().expect("the operation")
    })
}

/// Calls `operation` far below this frame, on stack that is zero, and copies what it leaves there.
#[inline(never)]
fn look_below(operation: impl Fn(), seen: &mut [u64]) {
    let mut bottom = 0;
    call_below(&mut bottom, &|| {});
    let lowest = bottom - DEPTH;
    for place in 0..DEPTH / 8 {
        let word = std::ptr::with_exposed_provenance_mut::<u64>(lowest + 8 * place);
        // SAFETY: stack of this thread below all frames, which only frames of later calls use.
        unsafe { word.write_volatile(0) };
    }
    call_below(&mut bottom, &operation);
    for (place, seen) in seen.iter_mut().enumerate() {
        let word = std::ptr::with_exposed_provenance::<u64>(lowest + 8 * place);
        // SAFETY: as above.
        *seen = unsafe { word.read_volatile() };
    }
}

/// Calls `operation` with its frame just below the address in `bottom`.
#[inline(never)]
fn call_below(bottom: &mut usize, operation: &dyn Fn()) {
    let mut distance = MaybeUninit::<[u64; DISTANCE / 8]>::uninit();
    *bottom = black_box(distance.as_mut_ptr()).expose_provenance();
    operation();
    black_box(distance.as_mut_ptr());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SECRETS: [u64; 2] = [0x5a5a_a5a5_0f0f, 0x1234_5678_9abc];

    #[inline(never)]
    fn leave_behind(secret: &AtomicU64) {
        let mut copy = [secret.load(Ordering::Relaxed); 8];
        black_box(&mut copy);
    }

    #[test]
    fn what_is_left_behind_is_found() {
        let secret = AtomicU64::new(0);
        let prepare = |number: usize| secret.store(SECRETS[number], Ordering::Relaxed);
        let found = residues(prepare, || leave_behind(&secret));
        let copies = found.iter().filter(|(_, values)| *values == SECRETS);
        assert!(copies.count() >= 8, "{found:x?}");
    }

    #[test]
    fn what_is_wiped_is_not_found() {
        let secret = AtomicU64::new(0);
        let prepare = |number: usize| secret.store(SECRETS[number], Ordering::Relaxed);
        let found = residues(prepare, || {
            leave_behind(&secret);
            zeroize::zeroize_stack::<1024>();
        });
        assert!(found.is_empty(), "{found:x?}");
    }
}
