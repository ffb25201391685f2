//! The event loop that drives the connections of a load, whatever they do.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use slipstream_testbed::cleanup::check_interrupted;
use slipstream_testbed::processor::thread_cpu_time;

use super::connection::{Connection, Progress, Stage};
use super::{Edge, Failures, Limit, Step};
use crate::Error;

/// Interval between two looks at time-outs and signals.
const TICK: Duration = Duration::from_millis(100);
/// A slot whose connection failed is used again after this time: a server that refuses all is not
/// hammered.
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// The window opens after this time even if [`Visits::is_warm`] is false.
const LONGEST_WARM_UP: Duration = Duration::from_secs(10);

/// A kind of load: the bytes that its connections exchange, and the counters of them.
pub(super) trait Visits {
    /// State of a connection beside its socket.
    type Visit;

    /// True if connections end by themselves: the load then ends when all have.
    const DRAINS: bool;

    /// Begins the `number`th connection, in `slot`, and returns its first stage.
    fn begin(&mut self, slot: usize, number: u64) -> io::Result<(Stage, Self::Visit)>;

    /// Bytes that are to be sent.
    fn outgoing(visit: &mut Self::Visit) -> &mut Vec<u8>;

    /// Room for what comes from a socket.
    fn buffer(&mut self) -> &mut [u8];

    /// Takes the first `length` bytes of the buffer.
    fn receive(
        &mut self,
        connection: &mut Connection<Self::Visit>,
        length: usize,
    ) -> io::Result<Option<Progress>>;

    /// Counts a handshake or a response that has just been completed.
    fn visited(
        &mut self,
        slot: usize,
        connection: &mut Connection<Self::Visit>,
    ) -> Result<(), Error>;

    /// Counts a connection that has ended in order.
    fn closed(&mut self, connection: &Connection<Self::Visit>);

    /// Takes back the state of a connection that has ended, for its buffers.
    fn ended(&mut self, visit: Self::Visit);

    /// Returns true if the window may open.
    fn is_warm(&self) -> bool;

    /// Opens the window: it has all that is counted from now on.
    fn open_window(&mut self);

    /// Closes the window.
    fn close_window(&mut self);
}

/// The part of a load that the event loop needs to know.
pub(super) struct Plan {
    pub(super) address: SocketAddr,
    pub(super) concurrency: usize,
    pub(super) limit: Limit,
    pub(super) timeout: Duration,
}

/// The window that was measured, and the connections that failed.
pub(super) struct Measured {
    pub(super) wall: Duration,
    pub(super) client_cpu: Duration,
    pub(super) failures: Failures,
}

pub(super) struct Generator<'a, L: Visits> {
    plan: Plan,
    visits: &'a mut L,
    poll: Poll,
    /// `None` where a connection has ended and the next has not been started.
    connections: Vec<Option<Connection<L::Visit>>>,
    retries: Vec<usize>,
    retry_at: Option<Instant>,
    opened: u64,
    draining: bool,
    window: Option<Window>,
    failures: Failures,
}

/// Readings at the moment at which the window opens.
struct Window {
    opened: Instant,
    client_cpu: Duration,
}

impl<'a, L: Visits> Generator<'a, L> {
    pub(super) fn new(plan: Plan, visits: &'a mut L) -> Result<Generator<'a, L>, Error> {
        Ok(Generator {
            visits,
            poll: Poll::new().map_err(Error::io("cannot create an event queue"))?,
            connections: (0..plan.concurrency).map(|_| None).collect(),
            retries: Vec::with_capacity(plan.concurrency),
            retry_at: None,
            opened: 0,
            draining: false,
            window: None,
            failures: Failures::default(),
            plan,
        })
    }

    /// Runs the load on the calling thread, and calls `observe` at both edges of the window.
    pub(super) fn run(
        mut self,
        mut observe: impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<Measured, Error> {
        let started = Instant::now();
        let mut events = Events::with_capacity(self.plan.concurrency.clamp(16, 1024));
        let mut next_tick = started + TICK;
        let mut closed_window = None;

        if matches!(self.plan.limit, Limit::Connections(_)) {
            self.open_window(&mut observe)?;
        }
        for slot in 0..self.plan.concurrency {
            self.open(slot);
            self.advance(slot)?;
        }
        loop {
            let now = Instant::now();
            if closed_window.is_none()
                && let Limit::Duration { warm_up, window } = self.plan.limit
            {
                if self.window.is_none() && self.is_warm(now.duration_since(started), warm_up) {
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
            self.restart_failed(now)?;
            let wake = self.next_wake(now, started, next_tick);
            match self
                .poll
                .poll(&mut events, Some(wake.saturating_duration_since(now)))
            {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(Error::io("cannot wait for events")(error));
                }
                _ => {}
            }
            for event in &events {
                self.advance(event.token().0)?;
            }
        }
        let (wall, client_cpu) = match closed_window {
            Some(closed) => closed,
            None => self.close_window(&mut observe)?,
        };
        Ok(Measured {
            wall,
            client_cpu,
            failures: self.failures,
        })
    }

    fn is_warm(&self, elapsed: Duration, warm_up: Duration) -> bool {
        elapsed >= warm_up && (self.visits.is_warm() || elapsed >= LONGEST_WARM_UP)
    }

    fn open_window(
        &mut self,
        observe: &mut impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<(), Error> {
        observe(Edge::Open)?;
        self.visits.open_window();
        self.window = Some(Window {
            opened: Instant::now(),
            client_cpu: thread_cpu_time(),
        });
        Ok(())
    }

    /// Returns the length of the window and the CPU time of the load inside it.
    fn close_window(
        &mut self,
        observe: &mut impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<(Duration, Duration), Error> {
        let window = self
            .window
            .take()
            .expect("a window is closed once, after it was opened");
        self.visits.close_window();
        let closed = (
            window.opened.elapsed(),
            thread_cpu_time().saturating_sub(window.client_cpu),
        );
        observe(Edge::Close)?;
        Ok(closed)
    }

    fn is_finished(&self) -> bool {
        !self.may_open() && (!L::DRAINS || self.connections.iter().all(Option::is_none))
    }

    fn may_open(&self) -> bool {
        match self.plan.limit {
            Limit::Duration { .. } => !self.draining,
            Limit::Connections(count) => self.opened < count,
        }
    }

    fn next_wake(&self, now: Instant, started: Instant, next_tick: Instant) -> Instant {
        let edge = match (self.plan.limit, &self.window) {
            (Limit::Duration { .. }, _) if self.draining => None,
            (Limit::Duration { warm_up, .. }, None) => Some(started + warm_up),
            (Limit::Duration { window, .. }, Some(open)) => Some(open.opened + window),
            (Limit::Connections(_), _) => None,
        };
        // An edge that is over belongs to a window that waits for connections to be warm.
        [edge.filter(|edge| *edge > now), self.retry_at]
            .into_iter()
            .flatten()
            .fold(next_tick, Instant::min)
    }

    /// Opens a connection in an empty slot, if the load still wants one.
    fn open(&mut self, slot: usize) {
        if !self.may_open() {
            return;
        }
        let count = self.opened;
        self.opened += 1;
        let number = u32::try_from(count % u64::from(u32::MAX)).expect("reduced");
        let begin = || self.visits.begin(slot, count);
        let opened =
            Connection::open(self.plan.address, number, begin).and_then(|mut connection| {
                self.poll.registry().register(
                    connection.socket(),
                    Token(slot),
                    Interest::READABLE | Interest::WRITABLE,
                )?;
                Ok(connection)
            });
        match opened {
            Ok(connection) => self.connections[slot] = Some(connection),
            Err(error) => self.fail(slot, Step::Connect, &error),
        }
    }

    /// Takes the connection in a slot as far as its socket allows, and its successors after it. A
    /// connection that was just opened need not wait for its first event: on loopback it is there
    /// when connect() returns.
    fn advance(&mut self, slot: usize) -> Result<(), Error> {
        // An event may be left over from a connection that has ended.
        while let Some(connection) = &mut self.connections[slot] {
            match connection.advance(self.visits) {
                Progress::Waiting => break,
                Progress::Visited => self.visits.visited(slot, connection)?,
                Progress::Closed => {
                    self.visits.closed(connection);
                    self.end(slot);
                    self.open(slot);
                }
                Progress::Failed(step, reason) => self.fail(slot, step, &reason),
            }
        }
        Ok(())
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
        if let Some(ended) = self.connections[slot].take() {
            self.visits.ended(ended.visit);
        }
    }

    fn restart_failed(&mut self, now: Instant) -> Result<(), Error> {
        if self.retry_at.is_none_or(|at| now < at) {
            return Ok(());
        }
        self.retry_at = None;
        // The list is taken: a connection that fails at once puts its slot back on it.
        for slot in std::mem::take(&mut self.retries) {
            self.open(slot);
            self.advance(slot)?;
        }
        Ok(())
    }

    fn expire(&mut self, now: Instant) {
        for slot in 0..self.connections.len() {
            let expired = self.connections[slot]
                .as_ref()
                .is_some_and(|connection| now > connection.since + self.plan.timeout);
            if expired {
                let reason = format!("not done after {:?}", self.plan.timeout);
                self.fail(slot, Step::Timeout, &reason);
            }
        }
    }
}
