//! The load for responses: connections that fetch one page again and again.
//!
//! One thread keeps a number of connections at work, each with one request at a time. Bodies are counted and thrown away,
//! but for the first one that each of the connections brings: that is decompressed, and has to be the page.
//!
//! Throughput is counted in bytes, and divided by those of a response. With responses that take a tenth of the window,
//! and many of them on their way, the number of those that happen to end in the window would be a matter of chance.

mod connection;
mod generator;
mod reader;

use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Edge, Failures};
use crate::Error;
use crate::suite::Suite;

/// A load of downloads from one server.
#[derive(Debug, Clone)]
pub struct Download<'a> {
    /// The server.
    pub address: SocketAddr,
    /// The only kind of handshake that is offered; `None` for no TLS.
    pub suite: Option<&'a Suite>,
    /// What is asked for, from the slash on.
    pub path: &'a str,
    /// What has to come, when it has been decompressed.
    pub content: &'a [u8],
    /// Whether a connection is used for the next request.
    pub keeps_alive: bool,
    /// How many connections are kept at work at a time.
    pub concurrency: usize,
    /// The time before the window opens. It opens later if not every connection has brought a page until then.
    pub warm_up: Duration,
    /// The length of the window.
    pub window: Duration,
    /// How long a response may take before its connection counts as failed.
    pub timeout: Duration,
}

/// What a load of downloads has measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// Bytes of bodies inside the window.
    pub bytes: u64,
    /// The mean length of the bodies that were read to their end, in bytes; not a number if there were none.
    pub body_length: f64,
    /// The length of the window.
    pub wall: Duration,
    /// The CPU time of the load inside the window.
    pub client_cpu: Duration,
    /// Time from the request, or connect() if it is the first, to the end of the response in nanoseconds.
    pub latency: Histogram<u64>,
    /// How many responses were compared with the page.
    pub compared: u64,
    /// What went wrong from the first connection to the last, warm-up included.
    pub failures: Failures,
}

impl Report {
    /// Responses inside the window, parts of them included; not a number if none was read to its end.
    pub fn responses(&self) -> f64 {
        self.bytes as f64 / self.body_length
    }

    /// Responses per second.
    pub fn responses_per_second(&self) -> f64 {
        self.responses() / self.wall.as_secs_f64()
    }

    /// The share of one core that the load took.
    pub fn client_share(&self) -> f64 {
        self.client_cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

impl Download<'_> {
    /// Runs the load on the calling thread, and calls `observe` when the window opens and when it closes.
    ///
    /// # Errors
    /// [`Error::WrongContent`] when a response is not the page; [`Error::OpenSsl`], [`Error::Io`],
    /// [`Error::Interrupted`]; those of `observe`. Failed connections are no error: they are counted.
    ///
    /// # Panics
    /// When the concurrency is 0.
    pub fn run_observed(
        &self,
        observe: impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        assert!(self.concurrency > 0, "a load needs a connection");
        generator::Generator::new(self)?.run(observe)
    }

    fn request(&self) -> Vec<u8> {
        let connection = match self.keeps_alive {
            true => "keep-alive",
            false => "close",
        };
        format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: {connection}\r\n\r\n",
            self.path
        )
        .into_bytes()
    }
}
