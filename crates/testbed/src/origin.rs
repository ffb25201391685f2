//! A server with a single response: a backend for a server, or the origin of a cache.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::Error;
use crate::processor::on_core;

const LISTENER: Token = Token(0);
const STOP: Token = Token(1);
const FIRST_CONNECTION: usize = 2;
/// The end of a request. None has a body.
const END: &[u8] = b"\r\n\r\n";
/// The longest request, in bytes.
const LONGEST_REQUEST: usize = 64 * 1024;

/// A thread that accepts connections on loopback, answers the first request of each with always the
/// same, and closes. It ends when this is dropped.
pub struct Origin {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    stop: Waker,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Origin {
    /// Starts one on a core, with the bytes that it answers.
    ///
    /// # Errors
    /// [`Error::Io`] when the system has no port or no thread left.
    pub fn start(core: usize, answer: &[u8]) -> Result<Origin, Error> {
        Origin::try_start(core, answer).map_err(Error::io("cannot start an origin server"))
    }

    fn try_start(core: usize, answer: &[u8]) -> io::Result<Origin> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        let stop = Waker::new(poll.registry(), STOP)?;
        let requests = Arc::new(AtomicU64::new(0));
        let mut server = Server {
            poll,
            listener,
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            answer: answer.to_vec(),
            requests: Arc::clone(&requests),
        };
        let thread = thread::Builder::new()
            .name("origin".to_owned())
            .spawn(move || {
                on_core(core, || {
                    server
                        .run()
                        .map_err(Error::io("the origin server has failed"))
                })
            })?;
        Ok(Origin {
            address,
            requests,
            stop,
            thread: Some(thread),
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of requests that it has seen.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // A thread that cannot be woken would be waited for in vain.
        if self.stop.wake().is_ok()
            && let Some(thread) = self.thread.take()
            && let Ok(Err(error)) = thread.join()
        {
            eprintln!("slipstream: {error}");
        }
    }
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    connections: HashMap<Token, Connection>,
    next: usize,
    answer: Vec<u8>,
    requests: Arc<AtomicU64>,
}

struct Connection {
    socket: TcpStream,
    request: Vec<u8>,
    /// The part of the answer that has been sent; none until the request has come.
    sent: Option<usize>,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                match event.token() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    connection => self.advance(connection),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // A peer that has gone again before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            let token = Token(self.next);
            self.next += 1;
            self.poll.registry().register(
                &mut socket,
                token,
                Interest::READABLE | Interest::WRITABLE,
            )?;
            let connection = Connection {
                socket,
                request: Vec::new(),
                sent: None,
            };
            self.connections.insert(token, connection);
            self.advance(token);
        }
    }

    /// Takes a connection as far as its socket allows, and drops it when it is done or broken.
    fn advance(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        match connection.advance(&self.answer, &self.requests) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => drop(self.connections.remove(&token)),
        }
    }
}

impl Connection {
    fn advance(&mut self, answer: &[u8], requests: &AtomicU64) -> io::Result<()> {
        if self.sent.is_none() && self.receive()? {
            requests.fetch_add(1, Ordering::Relaxed);
            self.sent = Some(0);
        }
        while let Some(sent) = &mut self.sent
            && *sent < answer.len()
        {
            *sent += self.socket.write(&answer[*sent..])?;
        }
        Ok(())
    }

    /// Returns true once the request has come, and false if none will.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        loop {
            let length = match self.socket.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                length => length?,
            };
            self.request.extend_from_slice(&buffer[..length]);
            if self.request.ends_with(END) {
                return Ok(true);
            }
            if length == 0 || self.request.len() > LONGEST_REQUEST {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::processor::usable_cores;

    #[test]
    fn every_request_is_counted_and_answered_however_it_comes() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        let origin = Origin::start(usable_cores().unwrap()[0], answer).unwrap();
        // One that says nothing, and stays, keeps nobody from being served.
        let silent = TcpStream::connect(origin.address()).unwrap();
        for pieces in [
            &["GET / HTTP/1.1\r\n\r\n"][..],
            &["GET / ", "HTTP/1.1\r\n\r", "\n"],
        ] {
            let mut socket = TcpStream::connect(origin.address()).unwrap();
            for piece in pieces {
                socket.write_all(piece.as_bytes()).unwrap();
            }
            let mut answered = Vec::new();
            socket.read_to_end(&mut answered).unwrap();
            assert_eq!(answered, answer);
        }
        drop(silent);
        // One that leaves without a request is closed, and no request.
        let mut leaving = TcpStream::connect(origin.address()).unwrap();
        leaving.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(leaving.read(&mut [0]).unwrap(), 0);
        assert_eq!(origin.requests(), 2);
    }
}
