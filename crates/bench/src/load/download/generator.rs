//! The event loop that drives the connections of a load of downloads.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use super::super::tls::{Client, Session};
use super::super::{Edge, Failures, Step};
use super::connection::{Connection, Progress, Shared};
use super::reader::Response;
use super::{Download, Report};
use crate::Error;
use crate::cleanup::check_interrupted;
use crate::processor::thread_cpu_time;
use crate::zlib;

/// How often time-outs and signals are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A slot whose connection failed is used again after this time.
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// How long all connections may take to bring their first page. After that the window opens without them.
const LONGEST_WARM_UP: Duration = Duration::from_secs(10);
/// The longest latency that the histogram holds apart, in nanoseconds.
const LONGEST_LATENCY: u64 = 60_000_000_000;
/// Large enough for what is in a socket's buffer under load.
const BUFFER: usize = 256 * 1024;

pub(super) struct Generator<'a> {
    download: &'a Download<'a>,
    shared: Shared<'a>,
    poll: Poll,
    /// `None` where a connection has failed and the next has not been opened.
    connections: Vec<Option<Connection>>,
    /// Which of them have brought a page that was compared.
    has_brought: Vec<bool>,
    /// Sessions of connections that have ended, for their buffers.
    sessions: Vec<Session>,
    retries: Vec<usize>,
    retry_at: Option<Instant>,
    opened: u64,
    /// All bodies that were read to their end.
    bodies: u64,
    body_bytes: u64,
    window: Option<Window>,
    latency: Histogram<u64>,
    failures: Failures,
}

/// What is known when the window opens.
struct Window {
    opened: Instant,
    client_cpu: Duration,
    bytes: u64,
}

impl<'a> Generator<'a> {
    pub(super) fn new(download: &'a Download<'a>) -> Result<Generator<'a>, Error> {
        let client = download.suite.map(|suite| Client::new(suite, false));
        Ok(Generator {
            download,
            shared: Shared {
                client: client
                    .transpose()
                    .map_err(Error::openssl("cannot offer this suite"))?,
                request: download.request(),
                keeps_alive: download.keeps_alive,
                buffer: vec![0; BUFFER].into_boxed_slice(),
                bytes: 0,
            },
            poll: Poll::new().map_err(Error::io("cannot create an event queue"))?,
            connections: (0..download.concurrency).map(|_| None).collect(),
            has_brought: vec![false; download.concurrency],
            sessions: Vec::with_capacity(download.concurrency),
            retries: Vec::new(),
            retry_at: None,
            opened: 0,
            bodies: 0,
            body_bytes: 0,
            window: None,
            latency: Histogram::new_with_max(LONGEST_LATENCY, 3).expect("3 digits are allowed"),
            failures: Failures::default(),
        })
    }

    pub(super) fn run(
        mut self,
        mut observe: impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        let started = Instant::now();
        let mut events = Events::with_capacity(self.download.concurrency.clamp(16, 1024));
        let mut next_tick = started + TICK;
        for slot in 0..self.download.concurrency {
            self.open(slot);
            self.advance(slot)?;
        }
        loop {
            let now = Instant::now();
            match &self.window {
                None if self.is_warm(now.duration_since(started)) => {
                    observe(Edge::Open)?;
                    self.window = Some(Window {
                        opened: Instant::now(),
                        client_cpu: thread_cpu_time(),
                        bytes: self.shared.bytes,
                    });
                }
                Some(window) if now >= window.opened + self.download.window => {
                    let report = self.close_window();
                    observe(Edge::Close)?;
                    return Ok(report);
                }
                _ => {}
            }
            if now >= next_tick {
                check_interrupted()?;
                self.expire(now);
                next_tick = now + TICK;
            }
            self.restart_failed(now)?;
            self.wait(&mut events, started, next_tick)?;
            for event in &events {
                self.advance(event.token().0)?;
            }
        }
    }

    fn is_warm(&self, elapsed: Duration) -> bool {
        elapsed >= self.download.warm_up
            && (self.has_brought.iter().all(|&brought| brought) || elapsed >= LONGEST_WARM_UP)
    }

    fn close_window(&mut self) -> Report {
        let window = self.window.take().expect("a window is closed once");
        Report {
            bytes: self.shared.bytes - window.bytes,
            body_length: self.body_bytes as f64 / self.bodies as f64,
            wall: window.opened.elapsed(),
            client_cpu: thread_cpu_time().saturating_sub(window.client_cpu),
            latency: self.latency.clone(),
            compared: self.has_brought.iter().filter(|&&brought| brought).count() as u64,
            failures: std::mem::take(&mut self.failures),
        }
    }

    fn wait(
        &mut self,
        events: &mut Events,
        started: Instant,
        next_tick: Instant,
    ) -> Result<(), Error> {
        let edge = match &self.window {
            Some(window) => window.opened + self.download.window,
            None => started + self.download.warm_up,
        };
        let now = Instant::now();
        let wake = [Some(edge).filter(|edge| *edge > now), self.retry_at]
            .into_iter()
            .flatten()
            .fold(next_tick, Instant::min);
        match self
            .poll
            .poll(events, Some(wake.saturating_duration_since(now)))
        {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(Error::io("cannot wait for events")(error))
            }
            _ => Ok(()),
        }
    }

    /// Opens a connection in an empty slot.
    fn open(&mut self, slot: usize) {
        let number = u32::try_from(self.opened % u64::from(u32::MAX)).expect("reduced");
        self.opened += 1;
        let session = self
            .shared
            .client
            .as_ref()
            .map(|client| self.sessions.pop().unwrap_or_else(|| Session::new(client)));
        let opened = Connection::open(self.download.address, number, session, &self.shared)
            .and_then(|mut connection| {
                self.poll.registry().register(
                    connection.socket(),
                    Token(slot),
                    Interest::READABLE | Interest::WRITABLE,
                )?;
                Ok(connection)
            });
        match opened {
            Ok(mut connection) => {
                if !self.has_brought[slot] {
                    connection.keep_body();
                }
                self.connections[slot] = Some(connection);
            }
            Err(error) => self.fail(slot, Step::Connect, &error),
        }
    }

    /// Takes the connection in a slot as far as its socket allows, and its successors after it.
    fn advance(&mut self, slot: usize) -> Result<(), Error> {
        // An event may be left over from a connection that has ended.
        while let Some(connection) = &mut self.connections[slot] {
            match connection.advance(&mut self.shared) {
                Progress::Waiting => break,
                Progress::Received(response) => {
                    if self.window.is_some() {
                        record(&mut self.latency, connection.asked());
                    }
                    self.bodies += 1;
                    self.body_bytes += response.length;
                    if let Some(body) = connection.take_body() {
                        compare(&body, response, self.download)?;
                        self.has_brought[slot] = true;
                    }
                    if self.download.keeps_alive
                        && let Err(reason) = connection.ask(&mut self.shared)
                    {
                        self.fail(slot, Step::Request, &reason);
                    }
                }
                Progress::Closed => {
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
        let ended = self.connections[slot].take();
        self.sessions
            .extend(ended.and_then(Connection::into_session));
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
                .is_some_and(|connection| now > connection.asked() + self.download.timeout);
            if expired {
                let reason = format!("not done after {:?}", self.download.timeout);
                self.fail(slot, Step::Timeout, &reason);
            }
        }
    }
}

fn record(histogram: &mut Histogram<u64>, asked: Instant) {
    let nanoseconds = u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
    histogram.saturating_record(nanoseconds);
}

/// Whether a body is the page, compressed.
fn compare(body: &[u8], response: Response, download: &Download<'_>) -> Result<(), Error> {
    let wrong = |reason: &str| {
        Error::WrongContent(format!(
            "the server's answer to {} is not the page: {reason}",
            download.path
        ))
    };
    if !response.is_gzip {
        return Err(wrong("it is not compressed"));
    }
    let content = zlib::gunzip(body).map_err(|error| wrong(&error.to_string()))?;
    if content != download.content {
        return Err(wrong("its content differs"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_itself_passes_for_it() {
        let page = b"<p>a page</p>".repeat(100);
        let download = Download {
            address: ([127, 0, 0, 1], 1).into(),
            suite: None,
            path: "/page.html",
            content: &page,
            keeps_alive: true,
            concurrency: 1,
            warm_up: Duration::ZERO,
            window: Duration::ZERO,
            timeout: Duration::ZERO,
        };
        let response = |is_gzip| Response { length: 0, is_gzip };
        let mut body = Vec::new();
        zlib::gzip_as_nginx(&page, 1, &mut body).unwrap();
        compare(&body, response(true), &download).unwrap();
        assert!(compare(&body, response(false), &download).is_err());
        assert!(compare(&body[1..], response(true), &download).is_err());
        zlib::gzip_as_nginx(&page[1..], 1, &mut body).unwrap();
        let error = compare(&body, response(true), &download).unwrap_err();
        assert!(error.to_string().contains("differs"), "{error}");
    }
}
