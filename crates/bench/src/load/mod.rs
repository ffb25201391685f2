//! The load generator: one thread that keeps a number of connections at work on a server.
//!
//! It is closed-loop: a connection that has ended is followed by the next. One event loop
//! (`generator`) drives two kinds of load:
//!
//! - [`Load`]: TLS handshakes. Each connection connects, completes a handshake, closes in order
//!   (its own close_notify and FIN first, then it waits for the server's FIN) and starts again.
//!   Waiting for the server's end matters: a client that closed at once with TLS 1.3 tickets still
//!   on the way would make the kernel answer them with a reset, which a server handles and logs as
//!   an error.
//! - [`Download`]: responses. Connections fetch a page again and again, with or without TLS.
//!
//! Handshakes are full ones unless [`Load::resumed_percent`] says otherwise. A certificate is never
//! verified.

mod connection;
mod cpu;
pub mod download;
mod generator;
mod handshakes;
mod reader;
mod socket;
mod tls;

use std::fmt;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

pub use cpu::{CpuTimes, with_cpu_times};
pub use download::Download;
use generator::Visits;
pub use handshakes::{Behaviour, Load, Report};

/// The longest latency that a histogram holds apart, in nanoseconds.
const LONGEST_LATENCY: u64 = 60_000_000_000;

/// When a load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// After a warm-up that does not count and a window that does. What is in flight at either edge
    /// of the window belongs to it with the share that ends inside, as in any steady state.
    Duration {
        /// The time before the window opens.
        warm_up: Duration,
        /// The length of the window.
        window: Duration,
    },
    /// After this many connections, failed ones included. All of it counts.
    Connections(u64),
}

/// An edge of the measured window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The window opens.
    Open,
    /// The window closes.
    Close,
}

/// The time in microseconds that `quantile` of a histogram of nanoseconds stayed within; not a
/// number if it is empty.
pub fn quantile_us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    if histogram.is_empty() {
        return f64::NAN;
    }
    histogram.value_at_quantile(quantile) as f64 / 1_000.0
}

/// The mean of a histogram of nanoseconds in microseconds; not a number if it is empty.
pub fn mean_us(histogram: &Histogram<u64>) -> f64 {
    if histogram.is_empty() {
        return f64::NAN;
    }
    histogram.mean() / 1_000.0
}

/// Connections that failed, by the step in which they did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// connect() failed: refused, unreachable, out of descriptors.
    pub connect: u64,
    /// The handshake failed: an alert, a reset, an early end.
    pub handshake: u64,
    /// The request or its response failed ([`Behaviour::Request`]).
    pub request: u64,
    /// The handshake was complete, but the server then reset the connection.
    pub close: u64,
    /// Any step took longer than [`Load::timeout`].
    pub timeout: u64,
    /// The first failure.
    pub first: Option<String>,
}

impl Failures {
    /// Number of connections that failed.
    pub fn total(&self) -> u64 {
        self.connect + self.handshake + self.request + self.close + self.timeout
    }

    fn count(&mut self, step: Step, reason: &dyn fmt::Display) {
        let counter = match step {
            Step::Connect => &mut self.connect,
            Step::Handshake => &mut self.handshake,
            Step::Request => &mut self.request,
            Step::Close => &mut self.close,
            Step::Timeout => &mut self.timeout,
        };
        *counter += 1;
        self.first
            .get_or_insert_with(|| format!("{}: {reason}", step.name()));
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} (connect {}, handshake {}, request {}, close {}, timeout {})",
            self.total(),
            self.connect,
            self.handshake,
            self.request,
            self.close,
            self.timeout
        )?;
        match &self.first {
            Some(first) => write!(formatter, "; the first: {first}"),
            None => Ok(()),
        }
    }
}

/// The step of a connection in which it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connect,
    Handshake,
    Request,
    Close,
    Timeout,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Connect => "connect",
            Step::Handshake => "handshake",
            Step::Request => "request",
            Step::Close => "close",
            Step::Timeout => "timeout",
        }
    }
}

/// A histogram of nanoseconds with three significant digits.
fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_LATENCY, 3).expect("3 digits are allowed")
}

/// Records the time that has passed since an instant.
fn record(histogram: &mut Histogram<u64>, since: Instant) {
    let nanoseconds = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    histogram.saturating_record(nanoseconds);
}
