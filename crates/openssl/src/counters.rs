//! Counters of this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        // Relaxed: no other memory access depends on the order.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Private keys that accelerators can compute with.
pub(crate) static KEYS_FOR_ACCELERATORS: Counter = Counter(AtomicU64::new(0));
/// Private keys that are left to the default provider.
pub(crate) static KEYS_LEFT_TO_SOFTWARE: Counter = Counter(AtomicU64::new(0));
/// Operations that an accelerator computed while their caller was paused.
pub(crate) static OFFLOADED_OPERATIONS: Counter = Counter(AtomicU64::new(0));
/// Key pairs that were precomputed.
pub(crate) static PRECOMPUTED_KEYS: Counter = Counter(AtomicU64::new(0));
/// Signatures with precomputed nonces.
pub(crate) static PRECOMPUTED_NONCES: Counter = Counter(AtomicU64::new(0));
