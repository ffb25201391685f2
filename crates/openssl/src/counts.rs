//! What has been done in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add_one(&self) {
        // A statistic orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Private keys that can be used in lanes.
pub(crate) static KEYS_WITH_LANES: Count = Count(AtomicU64::new(0));
/// Private keys that are left to the default provider.
pub(crate) static KEYS_WITHOUT_LANES: Count = Count(AtomicU64::new(0));
/// Private operations whose result came from lanes.
pub(crate) static LANE_OPERATIONS: Count = Count(AtomicU64::new(0));
/// Ephemeral key pairs that had been made ahead when they were asked for.
pub(crate) static KEYS_MADE_AHEAD: Count = Count(AtomicU64::new(0));
/// Signatures with a nonce that had been made ahead.
pub(crate) static NONCES_MADE_AHEAD: Count = Count(AtomicU64::new(0));
