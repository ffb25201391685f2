//! The load for responses: connections that fetch one page again and again.
//!
//! One thread keeps a number of connections at work, each with one request at a time. Bodies are
//! counted and thrown away, but for the first one that each of the connections brings: that is
//! decompressed, and has to be the page.
//!
//! Throughput is counted in bytes, and divided by those of a response. With responses that take a
//! tenth of the window, and many of them on their way, the number of those that happen to end in
//! the window would be a matter of chance.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use slipstream_testbed::suite::Suite;

use super::connection::{Connection, Progress, Stage};
use super::generator::{Generator, Plan, Visits};
use super::reader::{Reader, Response};
use super::tls::{Client, Session};
use super::{Edge, Failures, Limit, empty_histogram, record};
use crate::{Error, zlib};

/// Large enough for what is in a socket's buffer under load.
const BUFFER: usize = 256 * 1024;

/// A load of downloads from one server.
#[derive(Debug, Clone)]
pub struct Download<'a> {
    /// The server.
    pub address: SocketAddr,
    /// The only kind of handshake that is offered; `None` for no TLS.
    pub suite: Option<&'a Suite>,
    /// The path of the request, from the slash on.
    pub path: &'a str,
    /// The content of the response, after decompression.
    pub content: &'a [u8],
    /// True if a connection is used for the next request.
    pub keeps_alive: bool,
    /// Number of connections that are kept at work.
    pub concurrency: usize,
    /// The time before the window opens. It opens later if not every connection has brought a page
    /// until then.
    pub warm_up: Duration,
    /// The length of the window.
    pub window: Duration,
    /// Time after which a connection without its response counts as failed.
    pub timeout: Duration,
}

/// The results of a load of downloads.
#[derive(Debug, Clone)]
pub struct Report {
    /// Bytes of bodies inside the window.
    pub bytes: u64,
    /// The mean length of the bodies that were read to their end, in bytes; not a number if there
    /// were none.
    pub body_length: f64,
    /// The length of the window.
    pub wall: Duration,
    /// The CPU time of the load inside the window.
    pub client_cpu: Duration,
    /// Time from the request, or connect() if it is the first, to the end of the response in
    /// nanoseconds.
    pub latency: Histogram<u64>,
    /// Number of responses that were compared with the page.
    pub compared: u64,
    /// The failures from the first connection to the last, warm-up included.
    pub failures: Failures,
}

impl Report {
    /// Responses inside the window, parts of them included; not a number if none was read to its
    /// end.
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
    /// Runs the load on the calling thread, and calls `observe` when the window opens and when it
    /// closes.
    ///
    /// # Errors
    /// [`Error::WrongContent`] when a response is not the page; [`Error::Testbed`]; those of
    /// `observe`. Failed connections are no error: they are counted.
    ///
    /// # Panics
    /// When the concurrency is 0.
    pub fn run_observed(
        &self,
        observe: impl FnMut(Edge) -> Result<(), Error>,
    ) -> Result<Report, Error> {
        assert!(self.concurrency > 0, "a load needs a connection");
        let mut visits = Downloads::new(self)?;
        let plan = Plan {
            address: self.address,
            concurrency: self.concurrency,
            limit: Limit::Duration {
                warm_up: self.warm_up,
                window: self.window,
            },
            timeout: self.timeout,
        };
        let measured = Generator::new(plan, &mut visits)?.run(observe)?;
        Ok(Report {
            bytes: visits.in_window,
            body_length: visits.body_bytes as f64 / visits.bodies as f64,
            wall: measured.wall,
            client_cpu: measured.client_cpu,
            compared: visits.compared(),
            latency: visits.latency,
            failures: measured.failures,
        })
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

struct Downloads<'a> {
    download: &'a Download<'a>,
    client: Option<Client<'a>>,
    request: Vec<u8>,
    /// The slots whose connections have brought a page that was compared.
    has_brought: Vec<bool>,
    /// Sessions of connections that have ended, for their buffers.
    sessions: Vec<Session>,
    is_window_open: bool,
    /// Bytes of bodies that have come, and those of them that came inside the window.
    bytes: u64,
    in_window: u64,
    /// Bodies that were read to their end, and their bytes.
    bodies: u64,
    body_bytes: u64,
    latency: Histogram<u64>,
    buffer: Box<[u8]>,
}

/// The state of a connection.
struct Visit {
    session: Option<Session>,
    /// Bytes to be sent without TLS.
    plain: Vec<u8>,
    reader: Reader,
    /// The response that has just come to its end.
    response: Response,
}

impl<'a> Downloads<'a> {
    fn new(download: &'a Download<'a>) -> Result<Downloads<'a>, Error> {
        let client = download.suite.map(|suite| Client::new(suite, false));
        Ok(Downloads {
            download,
            client: client
                .transpose()
                .map_err(Error::openssl("cannot offer this suite"))?,
            request: download.request(),
            has_brought: vec![false; download.concurrency],
            sessions: Vec::with_capacity(download.concurrency),
            is_window_open: false,
            bytes: 0,
            in_window: 0,
            bodies: 0,
            body_bytes: 0,
            latency: empty_histogram(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
        })
    }

    fn compared(&self) -> u64 {
        self.has_brought.iter().filter(|&&brought| brought).count() as u64
    }

    /// Puts a request into what is to be sent.
    fn ask(&mut self, visit: &mut Visit) -> io::Result<()> {
        match (&mut visit.session, &mut self.client) {
            (Some(session), Some(client)) => session
                .send(client, &self.request)
                .map_err(io::Error::other),
            _ => {
                visit.plain.extend_from_slice(&self.request);
                Ok(())
            }
        }
    }
}

impl Visits for Downloads<'_> {
    type Visit = Visit;

    const DRAINS: bool = false;

    fn begin(&mut self, slot: usize, _number: u64) -> io::Result<(Stage, Visit)> {
        let mut visit = Visit {
            session: None,
            plain: Vec::new(),
            reader: Reader::default(),
            response: Response::default(),
        };
        if !self.has_brought[slot] {
            visit.reader.keep_body();
        }
        let Some(client) = &self.client else {
            self.ask(&mut visit)?;
            return Ok((Stage::Response, visit));
        };
        let mut session = self.sessions.pop().unwrap_or_else(|| Session::new(client));
        session.start(client, false).map_err(io::Error::other)?;
        visit.session = Some(session);
        Ok((Stage::Handshake, visit))
    }

    fn outgoing(visit: &mut Visit) -> &mut Vec<u8> {
        match &mut visit.session {
            Some(session) => session.outgoing(),
            None => &mut visit.plain,
        }
    }

    fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    fn receive(
        &mut self,
        connection: &mut Connection<Visit>,
        length: usize,
    ) -> io::Result<Option<Progress>> {
        let visit = &mut connection.visit;
        let received = match (&mut visit.session, &mut self.client) {
            (Some(session), Some(client)) => {
                session
                    .receive(client, &self.buffer[..length])
                    .map_err(io::Error::other)?;
                if connection.stage == Stage::Handshake && session.is_complete() {
                    session
                        .send(client, &self.request)
                        .map_err(io::Error::other)?;
                    connection.stage = Stage::Response;
                }
                let response = read(&mut visit.reader, session.data(), &mut self.bytes)?;
                session.data_mut().clear();
                response
            }
            _ => read(&mut visit.reader, &self.buffer[..length], &mut self.bytes)?,
        };
        let Some(response) = received else {
            return Ok(None);
        };
        visit.response = response;
        if !self.download.keeps_alive {
            connection.stage = Stage::Closing;
        }
        Ok(Some(Progress::Visited))
    }

    fn visited(&mut self, slot: usize, connection: &mut Connection<Visit>) -> Result<(), Error> {
        if self.is_window_open {
            record(&mut self.latency, connection.since);
        }
        let visit = &mut connection.visit;
        self.bodies += 1;
        self.body_bytes += visit.response.length;
        if let Some(body) = visit.reader.take_body() {
            compare(&body, visit.response, self.download)?;
            self.has_brought[slot] = true;
        }
        if self.download.keeps_alive {
            connection.since = Instant::now();
            self.ask(visit)
                .map_err(Error::io("cannot encrypt a request"))?;
        }
        Ok(())
    }

    fn closed(&mut self, _connection: &Connection<Visit>) {}

    fn ended(&mut self, visit: Visit) {
        self.sessions.extend(visit.session);
    }

    fn is_warm(&self) -> bool {
        self.has_brought.iter().all(|&brought| brought)
    }

    fn open_window(&mut self) {
        self.is_window_open = true;
        self.in_window = self.bytes;
    }

    fn close_window(&mut self) {
        self.is_window_open = false;
        self.in_window = self.bytes - self.in_window;
    }
}

/// Reads bytes of a response, and counts those of its body.
fn read(reader: &mut Reader, data: &[u8], bytes: &mut u64) -> io::Result<Option<Response>> {
    let before = reader.length_so_far();
    let response = reader.read(data).map_err(io::Error::other)?;
    let after = response.map_or_else(|| reader.length_so_far(), |response| response.length);
    *bytes += after - before;
    Ok(response)
}

/// Checks that a body is the page, compressed.
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
