//! The load of TLS handshakes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hdrhistogram::Histogram;
use slipstream_testbed::suite::{Protocol, Suite};

use super::connection::{Connection, Progress, Stage};
use super::generator::{Generator, Plan, Visits};
use super::tls::{Client, Session};
use super::{Edge, Failures, Limit, empty_histogram, quantile_us, record};
use crate::Error;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const STATUS_LINE: &[u8] = b"HTTP/1.1 200 ";

/// A load on one server.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    /// The server.
    pub address: SocketAddr,
    /// The only kind of handshake that is offered.
    pub suite: &'a Suite,
    /// Share of handshakes, in per cent, that offer to resume a session, all the same one, with its
    /// ticket. In TLS 1.2 alone; 0 is for full handshakes. The first ones are full in any case, as
    /// there is no session yet.
    pub resumed_percent: u8,
    /// Number of connections that are kept at work.
    pub concurrency: usize,
    /// When to stop.
    pub limit: Limit,
    /// The behaviour of a connection once its handshake is complete.
    pub behaviour: Behaviour,
    /// Time after which a connection counts as failed.
    pub timeout: Duration,
}

/// The behaviour of a connection once its handshake is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Closes.
    Close,
    /// Sends `GET /`, expects status 200, reads to the end and closes.
    Request,
}

/// The results of a load.
#[derive(Debug, Clone)]
pub struct Report {
    /// Handshakes completed inside the window.
    pub handshakes: u64,
    /// Number of those that resumed a session.
    pub resumed: u64,
    /// The length of the window.
    pub wall: Duration,
    /// The CPU time of the load generator inside the window.
    pub client_cpu: Duration,
    /// Time from connect() to the completed handshake in nanoseconds, three significant digits.
    pub latency: Histogram<u64>,
    /// Time from connect() to the end of the response in nanoseconds, three significant digits.
    /// Empty without [`Behaviour::Request`].
    pub response: Histogram<u64>,
    /// The failures from the first connection to the last, warm-up and end included.
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

    /// The latency that `quantile` of the handshakes stayed within, in microseconds; not a number
    /// if there were none.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        quantile_us(&self.latency, quantile)
    }
}

impl Load<'_> {
    /// Runs the load on the calling thread.
    ///
    /// # Errors
    /// [`Error::Testbed`] when the suite cannot be offered, the event queue fails or a signal asks
    /// for the end. Failed connections are no error: they are counted.
    ///
    /// # Panics
    /// When the concurrency is 0, or sessions of TLS 1.3 are to be resumed.
    pub fn run(&self) -> Result<Report, Error> {
        self.run_observed(|_| Ok(()))
    }

    /// Like [`Load::run`], and calls `observe` when the window opens and when it closes: the place
    /// to read the server's CPU time.
    ///
    /// # Errors
    /// Errors of [`Load::run`] and of `observe`.
    ///
    /// # Panics
    /// As [`Load::run`].
    pub fn run_observed(
        &self,
        observe: impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        assert!(self.concurrency > 0, "a load needs a connection");
        assert!(
            self.resumed_percent == 0 || self.suite.protocol == Protocol::Tls12,
            "only sessions of TLS 1.2 are resumed"
        );
        let mut visits = Handshakes::new(self)?;
        let plan = Plan {
            address: self.address,
            concurrency: self.concurrency,
            limit: self.limit,
            timeout: self.timeout,
        };
        let measured = Generator::new(plan, &mut visits)?.run(observe)?;
        Ok(Report {
            handshakes: visits.in_window,
            wall: measured.wall,
            client_cpu: measured.client_cpu,
            resumed: visits.resumed,
            latency: visits.latency,
            response: visits.response,
            failures: measured.failures,
        })
    }
}

struct Handshakes<'a> {
    client: Client<'a>,
    behaviour: Behaviour,
    resumed_percent: u8,
    /// Sessions of connections that have ended, for their buffers.
    sessions: Vec<Session>,
    is_window_open: bool,
    /// Handshakes inside the window.
    in_window: u64,
    resumed: u64,
    latency: Histogram<u64>,
    response: Histogram<u64>,
    buffer: Box<[u8]>,
}

impl<'a> Handshakes<'a> {
    fn new(load: &Load<'a>) -> Result<Handshakes<'a>, Error> {
        Ok(Handshakes {
            client: Client::new(load.suite, load.resumed_percent > 0)
                .map_err(Error::openssl("cannot offer this suite"))?,
            behaviour: load.behaviour,
            resumed_percent: load.resumed_percent,
            sessions: Vec::with_capacity(load.concurrency),
            is_window_open: false,
            in_window: 0,
            resumed: 0,
            latency: empty_histogram(),
            response: empty_histogram(),
            buffer: vec![0; 16 * 1024].into_boxed_slice(),
        })
    }

    fn after_handshake(&mut self, connection: &mut Connection<Session>) -> io::Result<()> {
        let session = &mut connection.visit;
        match self.behaviour {
            Behaviour::Close => {
                // In one segment with the client's last flight, as far as it is still to be sent.
                session.close(&mut self.client).map_err(io::Error::other)?;
                connection.finish(Self::outgoing)?;
                connection.stage = Stage::Closing;
            }
            Behaviour::Request => {
                session
                    .send(&mut self.client, REQUEST)
                    .map_err(io::Error::other)?;
                connection.stage = Stage::Response;
            }
        }
        Ok(())
    }
}

impl Visits for Handshakes<'_> {
    type Visit = Session;

    const DRAINS: bool = true;

    fn begin(&mut self, _slot: usize, number: u64) -> io::Result<(Stage, Session)> {
        let mut session = self
            .sessions
            .pop()
            .unwrap_or_else(|| Session::new(&self.client));
        let resumes = is_resumed(self.resumed_percent, number);
        session
            .start(&self.client, resumes)
            .map_err(io::Error::other)?;
        Ok((Stage::Handshake, session))
    }

    fn outgoing(session: &mut Session) -> &mut Vec<u8> {
        session.outgoing()
    }

    fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    fn receive(
        &mut self,
        connection: &mut Connection<Session>,
        length: usize,
    ) -> io::Result<Option<Progress>> {
        let session = &mut connection.visit;
        session
            .receive(&mut self.client, &self.buffer[..length])
            .map_err(io::Error::other)?;
        if connection.stage == Stage::Handshake && session.is_complete() {
            self.after_handshake(connection)?;
            return Ok(Some(Progress::Visited));
        }
        // The server has closed first, as it was asked to: an answer of ours would only be met by a
        // reset.
        if connection.stage == Stage::Response && session.is_closed_by_peer() {
            check_response(session.data())?;
            return Ok(Some(Progress::Closed));
        }
        Ok(None)
    }

    fn visited(&mut self, _slot: usize, connection: &mut Connection<Session>) -> Result<(), Error> {
        if self.is_window_open {
            record(&mut self.latency, connection.since);
            self.resumed += u64::from(connection.visit.is_resumed());
        }
        Ok(())
    }

    fn closed(&mut self, connection: &Connection<Session>) {
        if self.is_window_open && self.behaviour == Behaviour::Request {
            record(&mut self.response, connection.since);
        }
    }

    fn ended(&mut self, session: Session) {
        self.sessions.push(session);
    }

    fn is_warm(&self) -> bool {
        true
    }

    fn open_window(&mut self) {
        self.is_window_open = true;
    }

    fn close_window(&mut self) {
        self.is_window_open = false;
        self.in_window = self.latency.len();
    }
}

fn check_response(data: &[u8]) -> io::Result<()> {
    if data.starts_with(STATUS_LINE) {
        return Ok(());
    }
    let beginning = String::from_utf8_lossy(&data[..data.len().min(64)]);
    Err(io::Error::other(format!("answered {beginning:?}")))
}

/// Returns true if the `number`th connection, from 0, is among the `percent` of 100 that offer a
/// session. These are spread evenly.
fn is_resumed(percent: u8, number: u64) -> bool {
    let before = |number: u64| number * u64::from(percent) / 100;
    before(number + 1) > before(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_spread_evenly() {
        let count = |percent| (0..1000).filter(|&at| is_resumed(percent, at)).count();
        assert_eq!([0, 33, 90, 100].map(count), [0, 330, 900, 1000]);
        for start in (0..1000).step_by(10) {
            let full = (start..start + 10).filter(|&at| !is_resumed(90, at));
            assert_eq!(full.count(), 1);
        }
        // The first handshake cannot resume anything.
        assert!(!is_resumed(90, 0));
    }
}
