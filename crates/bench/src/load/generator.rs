//! The event loop that drives the connections of a load.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use super::connection::{Connection, Progress};
use super::tls::{Client, Session};
use super::{Behaviour, Edge, Failures, Limit, Load, Report, Step};
use crate::Error;
use crate::cleanup::check_interrupted;
use crate::processor::thread_cpu_time;

/// How often time-outs and signals are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A connection that failed is started again after this time: a server that refuses all is not hammered.
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// The longest latency that the histogram holds apart, in nanoseconds.
const LONGEST_LATENCY: u64 = 60_000_000_000;

pub(super) struct Generator<'a> {
    load: &'a Load<'a>,
    client: Client<'a>,
    poll: Poll,
    /// `None` where a connection has ended and the next has not been started.
    connections: Vec<Option<Connection>>,
    /// Sessions of connections that have ended, for their buffers.
    sessions: Vec<Session>,
    retries: Vec<usize>,
    retry_at: Option<Instant>,
    opened: u64,
    draining: bool,
    window: Option<Window>,
    resumed: u64,
    latency: Histogram<u64>,
    response: Histogram<u64>,
    failures: Failures,
    buffer: Box<[u8]>,
}

/// What is known when the window opens.
struct Window {
    opened: Instant,
    client_cpu: Duration,
}

impl<'a> Generator<'a> {
    pub(super) fn new(load: &'a Load<'a>) -> Result<Generator<'a>, Error> {
        Ok(Generator {
            load,
            client: Client::new(load.suite, load.resumed_percent > 0)
                .map_err(Error::openssl("cannot offer this suite"))?,
            poll: Poll::new().map_err(Error::io("cannot create an event queue"))?,
            connections: (0..load.concurrency).map(|_| None).collect(),
            sessions: Vec::with_capacity(load.concurrency),
            retries: Vec::with_capacity(load.concurrency),
            retry_at: None,
            opened: 0,
            draining: false,
            window: None,
            resumed: 0,
            latency: empty_histogram(),
            response: empty_histogram(),
            failures: Failures::default(),
            buffer: vec![0; 16 * 1024].into_boxed_slice(),
        })
    }

    pub(super) fn run(
        mut self,
        mut observe: impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        let started = Instant::now();
        let mut events = Events::with_capacity(self.load.concurrency.clamp(16, 1024));
        let mut next_tick = started + TICK;
        let mut closed_window = None;

        if matches!(self.load.limit, Limit::Connections(_)) {
            self.open_window(&mut observe)?;
        }
        for slot in 0..self.load.concurrency {
            self.open(slot);
            self.advance(slot);
        }
        loop {
            let now = Instant::now();
            if closed_window.is_none()
                && let Limit::Duration { warm_up, window } = self.load.limit
            {
                if self.window.is_none() && now >= started + warm_up {
                    self.open_window(&mut observe)?;
                }
                if let Some(open) = &self.window
                    && now >= open.opened + window
                {
                    closed_window = Some(self.close_window(&mut observe)?);
                    self.draining = true;
                }
            }
            if self.is_finished() {
                break;
            }
            if now >= next_tick {
                check_interrupted()?;
                self.expire(now);
                next_tick = now + TICK;
            }
            self.restart_failed(now);
            let wake = self.next_wake(started, next_tick);
            match self
                .poll
                .poll(&mut events, Some(wake.saturating_duration_since(now)))
            {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io {
                        context: "cannot wait for events".to_owned(),
                        source,
                    });
                }
            }
            for event in &events {
                self.advance(event.token().0);
            }
        }
        let closed = match closed_window {
            Some(closed) => closed,
            None => self.close_window(&mut observe)?,
        };
        Ok(Report {
            handshakes: closed.handshakes,
            wall: closed.wall,
            client_cpu: closed.client_cpu,
            resumed: self.resumed,
            latency: self.latency,
            response: self.response,
            failures: self.failures,
        })
    }

    fn open_window(
        &mut self,
        observe: &mut impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<(), Error> {
        observe(Edge::Open)?;
        self.window = Some(Window {
            opened: Instant::now(),
            client_cpu: thread_cpu_time(),
        });
        Ok(())
    }

    fn close_window(
        &mut self,
        observe: &mut impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<ClosedWindow, Error> {
        let window = self
            .window
            .take()
            .expect("a window is closed once, after it was opened");
        let closed = ClosedWindow {
            handshakes: self.latency.len(),
            wall: window.opened.elapsed(),
            client_cpu: thread_cpu_time().saturating_sub(window.client_cpu),
        };
        observe(Edge::Close)?;
        Ok(closed)
    }

    fn is_finished(&self) -> bool {
        !self.may_open() && self.connections.iter().all(Option::is_none)
    }

    fn may_open(&self) -> bool {
        match self.load.limit {
            Limit::Duration { .. } => !self.draining,
            Limit::Connections(count) => self.opened < count,
        }
    }

    fn next_wake(&self, started: Instant, next_tick: Instant) -> Instant {
        let edge = match (self.load.limit, &self.window) {
            (Limit::Duration { .. }, _) if self.draining => None,
            (Limit::Duration { warm_up, .. }, None) => Some(started + warm_up),
            (Limit::Duration { window, .. }, Some(open)) => Some(open.opened + window),
            (Limit::Connections(_), _) => None,
        };
        [edge, self.retry_at]
            .into_iter()
            .flatten()
            .fold(next_tick, Instant::min)
    }

    /// Opens a connection in an empty slot, if the load still wants one.
    fn open(&mut self, slot: usize) {
        if !self.may_open() {
            return;
        }
        let number = u32::try_from(self.opened % u64::from(u32::MAX)).expect("reduced");
        let resume = is_resumed(self.load.resumed_percent, self.opened);
        self.opened += 1;
        let session = self
            .sessions
            .pop()
            .unwrap_or_else(|| Session::new(&self.client));
        let address = self.load.address;
        let opened = Connection::open(address, number, session, &self.client, resume).and_then(
            |mut connection| {
                self.poll.registry().register(
                    connection.socket(),
                    Token(slot),
                    Interest::READABLE | Interest::WRITABLE,
                )?;
                Ok(connection)
            },
        );
        match opened {
            Ok(connection) => self.connections[slot] = Some(connection),
            Err(error) => self.fail(slot, Step::Connect, &error),
        }
    }

    /// Takes the connection in a slot as far as its socket allows, and its successors after it. A connection that
    /// was just opened need not wait for its first event: on loopback it is there when connect() returns.
    fn advance(&mut self, slot: usize) {
        // An event may be left over from a connection that has ended.
        while let Some(connection) = &mut self.connections[slot] {
            match connection.advance(&mut self.client, self.load.behaviour, &mut self.buffer) {
                Progress::Waiting => return,
                Progress::HandshakeComplete => {
                    if self.window.is_some() {
                        record(&mut self.latency, connection.started());
                        self.resumed += u64::from(connection.is_resumed());
                    }
                }
                Progress::Closed => {
                    if self.window.is_some() && self.load.behaviour == Behaviour::Request {
                        record(&mut self.response, connection.started());
                    }
                    self.end(slot);
                    self.open(slot);
                }
                Progress::Failed(step, reason) => return self.fail(slot, step, &reason),
            }
        }
    }

    fn fail(&mut self, slot: usize, step: Step, reason: &dyn std::fmt::Display) {
        self.failures.count(step, reason);
        self.end(slot);
        self.retries.push(slot);
        self.retry_at
            .get_or_insert_with(|| Instant::now() + RETRY_DELAY);
    }

    /// Frees a slot. Closing the descriptor takes it out of the event queue.
    fn end(&mut self, slot: usize) {
        let ended = self.connections[slot].take();
        self.sessions.extend(ended.map(Connection::into_session));
    }

    fn restart_failed(&mut self, now: Instant) {
        if self.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.retry_at = None;
        // The list is taken: a connection that fails at once puts its slot back on it.
        for slot in std::mem::take(&mut self.retries) {
            self.open(slot);
            self.advance(slot);
        }
    }

    fn expire(&mut self, now: Instant) {
        for slot in 0..self.connections.len() {
            let expired = self.connections[slot]
                .as_ref()
                .is_some_and(|connection| now > connection.started() + self.load.timeout);
            if expired {
                let reason = format!("not done after {:?}", self.load.timeout);
                self.fail(slot, Step::Timeout, &reason);
            }
        }
    }
}

struct ClosedWindow {
    handshakes: u64,
    wall: Duration,
    client_cpu: Duration,
}

/// Whether the `number`th connection, from 0, is among the `percent` of 100 that offer a session, which are spread evenly.
fn is_resumed(percent: u8, number: u64) -> bool {
    let before = |number: u64| number * u64::from(percent) / 100;
    before(number + 1) > before(number)
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_LATENCY, 3).expect("3 digits are allowed")
}

fn record(histogram: &mut Histogram<u64>, started: Instant) {
    let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    histogram.saturating_record(nanoseconds);
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
