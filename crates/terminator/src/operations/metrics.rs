//! Metrics. Each event loop counts in its own [`Metrics`], and the page adds them up.

mod page;
mod server;

use std::sync::{Arc, Mutex};

use slipstream_http::Upstreams;
use slipstream_offload::counters::Counters as OffloadCounters;

pub use self::server::serve;
pub use slipstream_http::counters::{Count, Counters};

/// Metrics of one event loop.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Accepted connections.
    pub connections: Count,
    /// Open connections.
    pub open: Count,
    /// Refused connections by [`Refusal`].
    pub refused: [Count; Refusal::ALL.len()],
    /// Handshakes completed with TLS 1.2.
    pub handshakes_tls12: Count,
    /// Handshakes completed with TLS 1.3.
    pub handshakes_tls13: Count,
    /// Resumptions among the completed handshakes.
    pub resumptions: Count,
    /// Handshakes that failed with an alert, malformed bytes or the end of the connection.
    pub handshakes_failed: Count,
    /// Handshakes that exceeded their time limit.
    pub handshakes_timed_out: Count,
    /// Handshakes in progress.
    pub handshakes_active: Count,
    /// Counters of requests and tunnels.
    pub http: Arc<Counters>,
    /// Counters of the loop's instance of the offload framework.
    pub offload: Mutex<OffloadCounters>,
}

/// Reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of open connections is reached.
    Connections,
    /// The limit of concurrent handshakes was reached for too long.
    Handshakes,
    /// The address has opened too many connections in a second.
    Rate,
}

impl Refusal {
    /// All reasons in the order of their index.
    pub const ALL: [Refusal; 3] = [Refusal::Connections, Refusal::Handshakes, Refusal::Rate];

    /// Returns the position in tables with one entry per reason.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Connections => "connections",
            Refusal::Handshakes => "handshakes",
            Refusal::Rate => "rate",
        }
    }
}

/// Sources of the metrics page and of the health page.
#[derive(Clone)]
pub struct StatusSource {
    /// Metrics of each event loop.
    pub loops: Vec<Arc<Metrics>>,
    /// Returns the backends that are in use now.
    pub upstreams: Arc<dyn Fn() -> Arc<Upstreams> + Send + Sync>,
    /// Returns true while connections are accepted, false while the process drains.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
}
