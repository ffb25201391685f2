//! Counters of requests and tunnels.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::usage::Overload;

/// Counters of one event loop.
#[derive(Debug, Default)]
pub struct Counters {
    /// Content bytes read from clients, after decryption.
    pub received_bytes: Count,
    /// Content bytes sent to clients, before encryption.
    pub sent_bytes: Count,
    /// Responses, indexed by the first digit of the status minus one.
    pub responses: [Count; 5],
    /// Failed connections to backends.
    pub backend_failures: Count,
    /// Further attempts after a failed connection, to another backend or to the same one.
    pub backend_retries: Count,
    /// Requests and tunnels that were refused, indexed by [`Overload`].
    pub overloads: [Count; Overload::ALL.len()],
}

/// Counter that one thread writes and others read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `amount`. Must be called by the owner's thread only.
    pub fn add(&self, amount: u64) {
        self.0
            .store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts `amount`. Must be called by the owner's thread only.
    pub fn subtract(&self, amount: u64) {
        self.add(amount.wrapping_neg());
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
