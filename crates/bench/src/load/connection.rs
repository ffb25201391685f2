//! One connection of a load: its socket, and the stage that it is at.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Instant;

use mio::net::TcpStream;

use super::{Step, Visits, socket};

/// A connection, with the state `V` that its kind of load keeps for it.
pub(super) struct Connection<V> {
    socket: TcpStream,
    pub(super) stage: Stage,
    /// The time of connect(), or of the latest request.
    pub(super) since: Instant,
    pub(super) visit: V,
}

/// The stage of a connection. Data from the server means something else in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Handshake,
    /// A request has been sent; waits for its response.
    Response,
    /// All has been said; waits for the server's FIN.
    Closing,
}

/// The point that [`Connection::advance`] has reached.
pub(super) enum Progress {
    /// Nothing more can be done until the socket is ready again.
    Waiting,
    /// A handshake or a response has just been completed; there is more to do at once.
    Visited,
    /// The connection is over, and in order.
    Closed,
    /// The connection has failed, at this step and for this reason.
    Failed(Step, io::Error),
}

impl<V> Connection<V> {
    /// Starts to connect to `address`, with the `number`th source address where there is a choice.
    /// `begin` returns its first stage and its state.
    pub(super) fn open(
        address: SocketAddr,
        number: u32,
        begin: impl FnOnce() -> io::Result<(Stage, V)>,
    ) -> io::Result<Connection<V>> {
        let since = Instant::now();
        let socket = socket::connect(address, number)?;
        let (stage, visit) = begin()?;
        Ok(Connection {
            socket,
            stage,
            since,
            visit,
        })
    }

    /// The socket, for the event queue.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Goes as far as the socket allows, or to the end of a handshake or a response.
    pub(super) fn advance(&mut self, visits: &mut impl Visits<Visit = V>) -> Progress {
        match self.try_advance(visits) {
            Ok(progress) => progress,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Progress::Waiting,
                io::ErrorKind::ConnectionRefused => Progress::Failed(Step::Connect, error),
                _ => Progress::Failed(self.step(), error),
            },
        }
    }

    /// Sends `outgoing` and then FIN.
    pub(super) fn finish(&mut self, outgoing: fn(&mut V) -> &mut Vec<u8>) -> io::Result<()> {
        // A socket that has no room for it is a failure: this is far below the size of its buffer.
        send(&mut self.socket, outgoing(&mut self.visit)).map_err(io::Error::other)?;
        self.socket.shutdown(Shutdown::Write)
    }

    fn try_advance<L: Visits<Visit = V>>(&mut self, visits: &mut L) -> io::Result<Progress> {
        loop {
            send(&mut self.socket, L::outgoing(&mut self.visit))?;
            let length = match self.socket.read(visits.buffer()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                length => length?,
            };
            match self.stage {
                // Tickets and close_notify that the server still sends then are not looked at.
                Stage::Closing if length == 0 => return Ok(Progress::Closed),
                Stage::Closing => continue,
                _ if length == 0 => {
                    return Err(io::Error::other("the server closed the connection"));
                }
                _ => {}
            }
            if let Some(progress) = visits.receive(self, length)? {
                return Ok(progress);
            }
        }
    }

    fn step(&self) -> Step {
        match self.stage {
            Stage::Handshake => Step::Handshake,
            Stage::Response => Step::Request,
            Stage::Closing => Step::Close,
        }
    }
}

/// Sends all of `outgoing`. A socket rarely takes a part of it only: a client's flights are far
/// below the size of its buffer.
fn send(socket: &mut TcpStream, outgoing: &mut Vec<u8>) -> io::Result<()> {
    while !outgoing.is_empty() {
        let sent = socket.write(outgoing)?;
        outgoing.drain(..sent);
    }
    Ok(())
}
