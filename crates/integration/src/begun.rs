//! Handshakes that have begun, so that something can happen to the server before they go on.

use std::io;
use std::iter;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use openssl::ssl::{ErrorCode, SslStream};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Signal, kill_process};

use crate::process::{is_stopped, process_id, send};
use crate::socket::Socket;
use crate::sockets::sockets;
use crate::{Client, ClientError, Connection, Nginx, eventually};

/// A handshake whose ClientHello has been sent, and of which nothing else has been sent or read.
pub struct Begun {
    client: Client,
    stream: SslStream<Socket>,
}

impl Begun {
    /// Connects and sends a ClientHello.
    ///
    /// # Errors
    /// Errors of the socket.
    ///
    /// # Panics
    /// If OpenSSL refuses.
    pub fn new(client: &Client) -> io::Result<Self> {
        let mut socket = Socket::from(client.open()?);
        // The server may be quick to answer.
        socket.set_deaf(true);
        let mut stream = SslStream::new(client.ssl(), socket).expect("a TLS stream");
        match stream.connect() {
            Err(error) if error.code() == ErrorCode::WANT_READ => {}
            Err(error) => return Err(error.into_io_error().unwrap_or_else(io::Error::other)),
            Ok(()) => unreachable!("no handshake ends with the ClientHello"),
        }
        stream.get_mut().set_deaf(false);
        Ok(Self {
            client: client.clone(),
            stream,
        })
    }

    /// Begins `count` handshakes while the workers of `nginx` are stopped, so that they find all of
    /// them at once if the configuration says `multi_accept on`.
    ///
    /// # Panics
    /// If the kernel does not take the connections.
    pub fn many(nginx: &Nginx, client: &Client, count: usize) -> Vec<Self> {
        Self::one_of_each(nginx, iter::repeat_n(client, count))
    }

    /// As [`Begun::many`], one handshake of each client.
    ///
    /// # Panics
    /// If the kernel does not take the connections.
    pub fn one_of_each<'a>(
        nginx: &Nginx,
        clients: impl IntoIterator<Item = &'a Client>,
    ) -> Vec<Self> {
        let _stopped = Stopped::new(nginx.workers());
        clients
            .into_iter()
            .map(|client| Self::new(client).expect("the server's queue has room"))
            .collect()
    }

    /// As [`Begun::many`], and stops the workers when they have begun all of the handshakes and
    /// answered few, so that at least half of the operations are in flight as long as the workers
    /// are stopped.
    ///
    /// A machine that runs the workers, but not this thread, lets operations end before they can be
    /// stopped: then it is begun anew. So the operations have to take some time, but how much this
    /// thread gets of it does not matter.
    ///
    /// # Panics
    /// If that does not come to pass.
    pub fn many_in_flight(nginx: &Nginx, client: &Client, count: usize) -> InFlight {
        let workers = nginx.workers();
        let mut operations = 0;
        let mut in_flight = None;
        eventually(
            "the workers are stopped while operations are in flight",
            || {
                let begun = Self::many(nginx, client, count);
                operations += count as u64;
                match stop_in_time(&workers, client, &begun) {
                    Some(stopped) => {
                        in_flight = Some(InFlight {
                            begun,
                            stopped,
                            operations,
                        });
                    }
                    // What becomes of these is not what the test is about.
                    None => drop(Self::visit(begun)),
                }
                in_flight.is_some()
            },
        );
        in_flight.expect("it was waited for")
    }

    /// Returns true if anything has come from the server, be it the end of the connection.
    fn is_answered(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(
            rustix::net::recv(self.socket(), &mut [0_u8][..], flags),
            Err(Errno::AGAIN)
        )
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn complete(self) -> Result<Connection, ClientError> {
        self.client.complete(self.stream)
    }

    /// Completes many handshakes at once, and fetches `/` in each.
    ///
    /// # Panics
    /// If a response is not 200.
    pub fn visit(many: Vec<Self>) -> Vec<Result<(), ClientError>> {
        thread::scope(|scope| {
            let threads: Vec<_> = many
                .into_iter()
                .map(|begun| {
                    scope.spawn(|| {
                        let response = begun.complete()?.get("/")?;
                        assert_eq!(response.status, 200);
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a response with status 200"))
                .collect()
        })
    }

    /// As [`Begun::visit`], where all must be served.
    ///
    /// # Panics
    /// If one is not.
    pub fn expect_service(many: Vec<Self>) {
        let failures: Vec<_> = Self::visit(many)
            .into_iter()
            .filter_map(Result::err)
            .collect();
        assert!(failures.is_empty(), "{}: {failures:#?}", failures.len());
    }

    /// Closes the connection with a RST instead of a FIN.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn reset(self) -> io::Result<()> {
        close_with_reset(self.socket())
    }

    /// The socket, to send or to read what no TLS client would.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }
}

/// Handshakes whose operations are in flight, in workers that are stopped.
pub struct InFlight {
    /// The handshakes.
    pub begun: Vec<Begun>,
    /// The workers, which go on when this is dropped.
    pub stopped: Stopped,
    /// Number of private-key operations, including those of attempts at which the workers were
    /// stopped too late.
    pub operations: u64,
}

/// Stops `workers` as [`Begun::many_in_flight`] says; `None` if they have answered too many by
/// then.
fn stop_in_time(workers: &[u32], client: &Client, begun: &[Begun]) -> Option<Stopped> {
    let mut in_time = None;
    eventually("all handshakes have begun", || {
        let stopped = Stopped::new(workers.to_vec());
        let answered = begun.iter().filter(|begun| begun.is_answered()).count();
        if 2 * answered > begun.len() {
            return true;
        }
        // Whatever has been read is a ClientHello: what is not answered is an operation in flight.
        let are_read = sockets(client.address())
            .iter()
            .all(|socket| socket.queued == 0);
        if are_read {
            in_time = Some(stopped);
        }
        are_read
    });
    in_time
}

/// Processes that are stopped, by SIGSTOP, as long as this lives.
pub struct Stopped(Vec<u32>);

impl Stopped {
    /// Stops `processes`, and waits until they are.
    ///
    /// # Panics
    /// If one of them is gone.
    pub fn new(processes: Vec<u32>) -> Self {
        for &process in &processes {
            send(process, Signal::STOP);
        }
        let stopped = Self(processes);
        eventually("processes are stopped", || {
            stopped.0.iter().all(|&process| is_stopped(process))
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &process in &self.0 {
            // A process that is gone, killed by a test that fails, is not stopped either.
            let _ = kill_process(process_id(process), Signal::CONT);
        }
    }
}

/// Has the kernel send a RST instead of a FIN once `socket` is closed.
pub(crate) fn close_with_reset(socket: &TcpStream) -> io::Result<()> {
    Ok(set_socket_linger(socket, Some(Duration::ZERO))?)
}
