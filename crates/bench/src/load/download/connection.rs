//! One connection of a load of downloads.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;

use super::super::tls::{Client, Session};
use super::super::{Step, socket};
use super::reader::{Reader, Response};

/// A connection and how far it has come.
pub(super) struct Connection {
    socket: TcpStream,
    session: Option<Session>,
    stage: Stage,
    /// What is to be sent, without TLS.
    outgoing: Vec<u8>,
    reader: Reader,
    /// When the response that is on its way was asked for.
    asked: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    Response,
    /// The response has come; waits for the server to close.
    Closing,
}

/// What connections share.
pub(super) struct Shared<'a> {
    pub(super) client: Option<Client<'a>>,
    pub(super) request: Vec<u8>,
    pub(super) keeps_alive: bool,
    pub(super) buffer: Box<[u8]>,
    /// Bytes of bodies that have come.
    pub(super) bytes: u64,
}

/// What [`Connection::advance`] has come to.
pub(super) enum Progress {
    /// Nothing more can be done until the socket is ready again.
    Waiting,
    /// A response has come to its end; there is more to do at once.
    Received(Response),
    /// Over, and as it should be.
    Closed,
    /// Failed, at this step and for this reason.
    Failed(Step, String),
}

impl Connection {
    /// Starts to connect to `address`, with the `number`th source address where there is a choice. With TLS, `session` is
    /// one that is no longer used.
    pub(super) fn open(
        address: SocketAddr,
        number: u32,
        mut session: Option<Session>,
        shared: &Shared<'_>,
    ) -> io::Result<Connection> {
        let asked = Instant::now();
        let socket = socket::connect(address, number)?;
        if let Some((client, session)) = shared.client.as_ref().zip(session.as_mut()) {
            session.start(client, false).map_err(io::Error::other)?;
        }
        let (stage, outgoing) = match session {
            Some(_) => (Stage::Handshake, Vec::new()),
            None => (Stage::Response, shared.request.clone()),
        };
        Ok(Connection {
            socket,
            session,
            stage,
            outgoing,
            reader: Reader::default(),
            asked,
        })
    }

    /// The body of the next response is kept.
    pub(super) fn keep_body(&mut self) {
        self.reader.keep_body();
    }

    /// The body that was kept.
    pub(super) fn take_body(&mut self) -> Option<Vec<u8>> {
        self.reader.take_body()
    }

    /// When the response that is on its way was asked for.
    pub(super) fn asked(&self) -> Instant {
        self.asked
    }

    /// The socket, for the event queue.
    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Ends the connection and gives its session back for the next one.
    pub(super) fn into_session(self) -> Option<Session> {
        self.session
    }

    /// Asks for the next response, after [`Progress::Received`].
    pub(super) fn ask(&mut self, shared: &mut Shared<'_>) -> Result<(), String> {
        self.asked = Instant::now();
        self.stage = Stage::Response;
        match (&mut self.session, &mut shared.client) {
            (Some(session), Some(client)) => session
                .send(client, &shared.request)
                .map_err(|failure| failure.to_string()),
            _ => {
                self.outgoing.extend_from_slice(&shared.request);
                Ok(())
            }
        }
    }

    /// Goes as far as the socket allows, or to the end of a response.
    pub(super) fn advance(&mut self, shared: &mut Shared<'_>) -> Progress {
        match self.try_advance(shared) {
            Ok(progress) => progress,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Progress::Waiting,
                io::ErrorKind::ConnectionRefused => {
                    Progress::Failed(Step::Connect, error.to_string())
                }
                _ => Progress::Failed(self.step(), error.to_string()),
            },
        }
    }

    fn try_advance(&mut self, shared: &mut Shared<'_>) -> io::Result<Progress> {
        loop {
            self.flush()?;
            let length = match self.socket.read(&mut shared.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                length => length?,
            };
            match self.stage {
                Stage::Closing if length == 0 => return Ok(Progress::Closed),
                // The server's close_notify.
                Stage::Closing => continue,
                _ if length == 0 => {
                    return Err(io::Error::other("the server closed the connection"));
                }
                _ => {}
            }
            if let Some(response) = self.receive(shared, length)? {
                if !shared.keeps_alive {
                    self.stage = Stage::Closing;
                }
                return Ok(Progress::Received(response));
            }
        }
    }

    /// Takes what has come.
    fn receive(&mut self, shared: &mut Shared<'_>, length: usize) -> io::Result<Option<Response>> {
        let (Some(session), Some(client)) = (&mut self.session, &mut shared.client) else {
            return read(
                &mut self.reader,
                &shared.buffer[..length],
                &mut shared.bytes,
            );
        };
        session
            .receive(client, &shared.buffer[..length])
            .map_err(io::Error::other)?;
        if self.stage == Stage::Handshake && session.is_complete() {
            session
                .send(client, &shared.request)
                .map_err(io::Error::other)?;
            self.stage = Stage::Response;
        }
        let response = read(&mut self.reader, session.data(), &mut shared.bytes)?;
        session.data_mut().clear();
        Ok(response)
    }

    /// Sends what is to be sent.
    fn flush(&mut self) -> io::Result<()> {
        let outgoing = match &mut self.session {
            Some(session) => session.outgoing(),
            None => &mut self.outgoing,
        };
        while !outgoing.is_empty() {
            let sent = self.socket.write(outgoing)?;
            outgoing.drain(..sent);
        }
        Ok(())
    }

    fn step(&self) -> Step {
        match self.stage {
            Stage::Handshake => Step::Handshake,
            Stage::Response => Step::Request,
            Stage::Closing => Step::Close,
        }
    }
}

/// Reads what belongs to a response, and counts its body.
fn read(reader: &mut Reader, data: &[u8], bytes: &mut u64) -> io::Result<Option<Response>> {
    let before = reader.length_so_far();
    let response = reader.read(data).map_err(io::Error::other)?;
    let after = response.map_or_else(|| reader.length_so_far(), |response| response.length);
    *bytes += after - before;
    Ok(response)
}
