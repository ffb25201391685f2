//! One connection of the load: its socket, its TLS session and the step it is at.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Instant;

use mio::net::TcpStream;

use super::tls::{Client, Session};
use super::{Behaviour, Step, socket};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const STATUS_LINE: &[u8] = b"HTTP/1.1 200 ";

/// A connection and how far it has come.
pub(super) struct Connection {
    socket: TcpStream,
    session: Session,
    stage: Stage,
    started: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// The request is sent; waits for the response and the server's close_notify.
    Response,
    /// Our close_notify and FIN are sent; waits for the server's FIN.
    Closing,
}

/// What [`Connection::advance`] has come to.
pub(super) enum Progress {
    /// Nothing more can be done until the socket is ready again.
    Waiting,
    /// The handshake has just been completed; there is more to do at once.
    HandshakeComplete,
    /// Over, and as it should be.
    Closed,
    /// Failed, at this step and for this reason.
    Failed(Step, String),
}

impl Connection {
    /// Starts to connect to `address`, with the `number`th source address where there is a choice. `session` is one
    /// that is no longer used. With `resume` the handshake offers to resume an earlier one's session.
    pub(super) fn open(
        address: SocketAddr,
        number: u32,
        mut session: Session,
        client: &Client<'_>,
        resume: bool,
    ) -> io::Result<Connection> {
        let started = Instant::now();
        let socket = socket::connect(address, number)?;
        session.start(client, resume).map_err(io::Error::other)?;
        Ok(Connection {
            socket,
            session,
            stage: Stage::Handshake,
            started,
        })
    }

    /// When the connection was started.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Whether its handshake, which is complete, was an abbreviated one.
    pub(super) fn is_resumed(&self) -> bool {
        self.session.is_resumed()
    }

    /// The socket, for the event queue.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Ends the connection and gives its session back for the next one.
    pub(super) fn into_session(self) -> Session {
        self.session
    }

    /// Goes as far as the socket allows, or to the end of the handshake.
    pub(super) fn advance(
        &mut self,
        client: &mut Client<'_>,
        behaviour: Behaviour,
        buffer: &mut [u8],
    ) -> Progress {
        loop {
            if let Err(error) = self.flush() {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Progress::Waiting,
                    io::ErrorKind::ConnectionRefused => {
                        Progress::Failed(Step::Connect, error.to_string())
                    }
                    _ => self.fail(&error),
                };
            }
            let length = match self.socket.read(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Progress::Waiting;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.fail(&error),
            };
            match self.stage {
                // What the server still sends then, tickets and its close_notify, is not looked at.
                Stage::Closing if length == 0 => return Progress::Closed,
                Stage::Closing => continue,
                _ if length == 0 => return self.fail(&"the server closed the connection"),
                _ => {}
            }
            if let Err(failure) = self.session.receive(client, &buffer[..length]) {
                return self.fail(&failure);
            }
            if self.stage == Stage::Handshake && self.session.is_complete() {
                return match self.after_handshake(client, behaviour) {
                    Ok(()) => Progress::HandshakeComplete,
                    Err(progress) => progress,
                };
            }
            if self.stage == Stage::Response && self.session.is_closed_by_peer() {
                return self.check_response();
            }
        }
    }

    fn after_handshake(
        &mut self,
        client: &mut Client<'_>,
        behaviour: Behaviour,
    ) -> Result<(), Progress> {
        match behaviour {
            Behaviour::Close => {
                // In one segment with the client's last flight, as far as it is still to be sent.
                self.session
                    .close(client)
                    .map_err(|failure| self.fail(&failure))?;
                self.flush().map_err(|error| self.fail(&error))?;
                self.socket
                    .shutdown(Shutdown::Write)
                    .map_err(|error| self.fail(&error))?;
                self.stage = Stage::Closing;
            }
            Behaviour::Request => {
                self.session
                    .send(client, REQUEST)
                    .map_err(|failure| self.fail(&failure))?;
                self.stage = Stage::Response;
            }
        }
        Ok(())
    }

    /// The server has closed first, as it was asked to: an answer of ours would only be met by a reset.
    fn check_response(&self) -> Progress {
        let data = self.session.data();
        if data.starts_with(STATUS_LINE) {
            return Progress::Closed;
        }
        let beginning = String::from_utf8_lossy(&data[..data.len().min(64)]);
        self.fail(&format_args!("answered {beginning:?}"))
    }

    /// Sends what is to be sent. A client's flights are far below the size of a socket's buffer: a socket that takes a part
    /// of one only does not occur, but is handled.
    fn flush(&mut self) -> io::Result<()> {
        while !self.session.outgoing().is_empty() {
            let sent = self.socket.write(self.session.outgoing())?;
            self.session.outgoing().drain(..sent);
        }
        Ok(())
    }

    fn fail(&self, reason: &dyn std::fmt::Display) -> Progress {
        let step = match self.stage {
            Stage::Handshake => Step::Handshake,
            Stage::Response => Step::Request,
            Stage::Closing => Step::Close,
        };
        Progress::Failed(step, reason.to_string())
    }
}
