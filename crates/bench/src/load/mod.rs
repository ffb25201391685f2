//! The load generator: one thread that keeps a number of connections at work on TLS handshakes.
//!
//! It is closed-loop: each of its connections connects, completes a handshake, closes in order (its own
//! close_notify and FIN first, then it waits for the server's FIN) and starts again. Waiting for the server's end
//! matters: a client that closed at once with TLS 1.3 tickets still on the way would make the kernel
//! answer them with a reset, which a server handles and logs as an error.
//!
//! [`download`] is the load for responses: connections that fetch a page again and again.
//!
//! Handshakes are full ones unless [`Load::resumed_percent`] says otherwise. It never verifies a certificate.

mod connection;
pub mod download;
mod generator;
mod socket;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Error;
use crate::suite::{Protocol, Suite};

/// A load on one server.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    /// The server.
    pub address: SocketAddr,
    /// The only kind of handshake that is offered.
    pub suite: &'a Suite,
    /// How many of 100 handshakes offer to resume a session, all the same one, with its ticket. In TLS 1.2 alone; 0 is
    /// for full handshakes. The first ones are full in any case, as there is no session yet.
    pub resumed_percent: u8,
    /// How many connections are kept at work at a time.
    pub concurrency: usize,
    /// When to stop.
    pub limit: Limit,
    /// What a connection does once its handshake is complete.
    pub behaviour: Behaviour,
    /// How long a connection may take before it counts as failed.
    pub timeout: Duration,
}

/// When a load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// After a warm-up that does not count and a window that does. What is in flight at either edge of
    /// the window belongs to it with the share that ends inside, as in any steady state.
    Duration {
        /// The time before the window opens.
        warm_up: Duration,
        /// The length of the window.
        window: Duration,
    },
    /// After this many connections, failed ones included. All of it counts.
    Connections(u64),
}

/// What a connection does once its handshake is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Closes.
    Close,
    /// Sends `GET /`, expects status 200, reads to the end and closes.
    Request,
}

/// What a load has measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// Handshakes completed inside the window.
    pub handshakes: u64,
    /// How many of them resumed a session.
    pub resumed: u64,
    /// The length of the window.
    pub wall: Duration,
    /// The CPU time of the load generator inside the window.
    pub client_cpu: Duration,
    /// Time from connect() to the completed handshake in nanoseconds, three significant digits.
    pub latency: Histogram<u64>,
    /// Time from connect() to the end of the response in nanoseconds, three significant digits. Empty without
    /// [`Behaviour::Request`].
    pub response: Histogram<u64>,
    /// What went wrong from the first connection to the last, warm-up and end included.
    pub failures: Failures,
}

impl Report {
    /// Completed handshakes per second.
    pub fn handshakes_per_second(&self) -> f64 {
        self.handshakes as f64 / self.wall.as_secs_f64()
    }

    /// The share of one core that the load generator took.
    pub fn client_share(&self) -> f64 {
        self.client_cpu.as_secs_f64() / self.wall.as_secs_f64()
    }

    /// The latency that `quantile` of the handshakes stayed within, in microseconds; not a number if there were none.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        quantile_us(&self.latency, quantile)
    }
}

/// The time in microseconds that `quantile` of a histogram of nanoseconds stayed within; not a number if it is empty.
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
    /// What the first failure was.
    pub first: Option<String>,
}

impl Failures {
    /// How many connections failed.
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

impl Load<'_> {
    /// Runs the load on the calling thread.
    ///
    /// # Errors
    /// [`Error::OpenSsl`] when the suite cannot be offered, [`Error::Io`] when the event queue fails,
    /// [`Error::Interrupted`]. Failed connections are no error: they are counted.
    ///
    /// # Panics
    /// When the concurrency is 0, or sessions of TLS 1.3 are to be resumed.
    pub fn run(&self) -> Result<Report, Error> {
        self.run_observed(|_| Ok(()))
    }

    /// Like [`Load::run`], and calls `observe` when the window opens and when it closes: the place to read what
    /// the server has used in between.
    ///
    /// # Errors
    /// Those of [`Load::run`] and of `observe`.
    ///
    /// # Panics
    /// Those of [`Load::run`].
    pub fn run_observed(
        &self,
        observe: impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        assert!(self.concurrency > 0, "a load needs a connection");
        assert!(
            self.resumed_percent == 0 || self.suite.protocol == Protocol::Tls12,
            "only sessions of TLS 1.2 are resumed"
        );
        generator::Generator::new(self)?.run(observe)
    }
}

/// An edge of the measured window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The window opens.
    Open,
    /// The window closes.
    Close,
}
