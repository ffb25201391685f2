//! Figures. Each event loop counts in its own [`Metrics`]; whoever shows them adds them up.

mod page;
mod server;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use slipstream_offload::counters::Counters;

pub use self::server::serve;
use crate::forward::Upstreams;

/// What one event loop has counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections accepted.
    pub connections: Count,
    /// Connections that are open.
    pub open: Count,
    /// Connections refused, by [`Refusal`].
    pub refused: [Count; Refusal::ALL.len()],
    /// Handshakes completed in TLS 1.2.
    pub handshakes_tls12: Count,
    /// Handshakes completed in TLS 1.3.
    pub handshakes_tls13: Count,
    /// Of those, resumptions.
    pub resumptions: Count,
    /// Handshakes that failed: an alert, nonsense, a connection that ended.
    pub handshakes_failed: Count,
    /// Handshakes that took too long.
    pub handshakes_timed_out: Count,
    /// Handshakes under way.
    pub handshakes_active: Count,
    /// Bytes of content read from clients, after decryption.
    pub received_bytes: Count,
    /// Bytes of content sent to clients, before encryption.
    pub sent_bytes: Count,
    /// Responses by the first digit of their status, 1 to 5.
    pub responses: [Count; 5],
    /// Connections to backends that could not be made.
    pub backend_failures: Count,
    /// Other backends, or the same again, tried after such a failure.
    pub backend_retries: Count,
    /// What the loop's instance of the offload framework has counted.
    pub offload: Mutex<Counters>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many connections as are allowed are open.
    Connections,
    /// As many handshakes as are allowed were under way for too long.
    Handshakes,
    /// Too many connections of its address in a second.
    Rate,
}

impl Refusal {
    /// Every refusal, in the order of their index.
    pub const ALL: [Refusal; 3] = [Refusal::Connections, Refusal::Handshakes, Refusal::Rate];

    /// Position in tables that hold one entry per refusal.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word used for it in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Connections => "connections",
            Refusal::Handshakes => "handshakes",
            Refusal::Rate => "rate",
        }
    }
}

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `amount`. Only the owner's thread may.
    pub fn add(&self, amount: u64) {
        self.0
            .store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// Takes `amount` away. Only the owner's thread may.
    pub fn subtract(&self, amount: u64) {
        self.add(amount.wrapping_neg());
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the metrics listener shows.
#[derive(Clone)]
pub struct Exhibits {
    /// Of each event loop.
    pub loops: Vec<Arc<Metrics>>,
    /// The backends with their health, as they are now.
    pub upstreams: Arc<dyn Fn() -> Arc<Upstreams> + Send + Sync>,
    /// Whether connections are taken: false while draining.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
}
