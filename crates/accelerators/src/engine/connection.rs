//! A client's connection to an engine, from the socket to the rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use slipstream_keys::{Handle, KeyParts};
use slipstream_ring::bell::Bell;
use slipstream_ring::memory::Memory;
use slipstream_ring::ring::{Consumer, Producer};

use super::peer::EngineUser;
use super::protocol::layout::{CLIENT_BELL, ENGINE_BELL, Layout};
use super::protocol::message::{Aggregation, ToClient, ToEngine, Token};
use super::protocol::policy::Policy;
use super::protocol::socket::{self, Packet};

/// The options with which an instance is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its rings.
    pub layout: Layout,
    /// The number of requests that are taken in this client's turn, when other clients wait too.
    pub weight: u32,
    /// When the engine wakes this client.
    pub aggregation: Aggregation,
    /// The keys of another connection that are to be used.
    pub token: Option<Token>,
    /// The user that the engine may run as, beside root and this process's own.
    pub user: EngineUser,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

/// The client's side of an instance.
#[derive(Debug)]
pub struct Instance {
    /// The ring that this side fills.
    pub requests: Producer<Arc<Memory>>,
    /// The ring that this side empties.
    pub responses: Consumer<Arc<Memory>>,
    /// The bell that this side arms when it sleeps.
    pub own_bell: Bell<Arc<Memory>>,
    /// The bell that the engine arms when it sleeps.
    pub engine_bell: Bell<Arc<Memory>>,
    /// The memory.
    pub memory: Arc<Memory>,
    /// Wakes the engine, when it is written.
    pub doorbell: OwnedFd,
    /// Readable after the engine has woken this side.
    pub event: OwnedFd,
}

impl Connection {
    /// Connects to the engine that listens at `path`, if it runs as `user`, as root, or as the user
    /// of this process: no other process is handed a key.
    ///
    /// # Errors
    /// As [`socket::connect`]; [`io::ErrorKind::PermissionDenied`] with the cure if it runs as
    /// another user.
    pub fn new(path: &Path, user: &EngineUser) -> io::Result<Self> {
        let connection = Self::to_anybody(path)?;
        connection.check(path, user)?;
        Ok(connection)
    }

    /// Connects to the process that listens at `path`, whoever it is. Send it no secret.
    ///
    /// # Errors
    /// As [`socket::connect`].
    pub fn to_anybody(path: &Path) -> io::Result<Self> {
        Ok(Self {
            socket: socket::connect(path)?,
        })
    }

    /// Checks who listens at `path`, to which this is connected.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn check(&self, path: &Path, user: &EngineUser) -> io::Result<()> {
        user.check(&self.socket, path)
    }

    /// Sends a message, to which [`receive`](Self::receive) will find an answer.
    ///
    /// # Errors
    /// As [`socket::send`].
    pub fn send(&self, message: &ToEngine<'_>) -> io::Result<()> {
        socket::send(&self.socket, &message.write(), &[])
    }

    /// Receives the next answer, if it is there.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it is not, [`io::ErrorKind::UnexpectedEof`] if the engine
    /// has gone away, [`io::ErrorKind::InvalidData`] if it cannot be understood.
    pub fn receive(&self) -> io::Result<(ToClient, Packet)> {
        let packet = socket::receive(&self.socket)?.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the engine has closed the connection",
            )
        })?;
        let message = ToClient::read(packet.bytes())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok((message, packet))
    }

    /// Sends a message and waits for its answer, for at most `patience`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], and the errors of sending and receiving; a refusal is
    /// [`io::ErrorKind::PermissionDenied`] with the engine's reason.
    pub fn ask(
        &self,
        message: &ToEngine<'_>,
        patience: Duration,
    ) -> io::Result<(ToClient, Packet)> {
        self.send(message)?;
        let deadline = Instant::now() + patience;
        loop {
            match self.receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(deadline)?,
                Ok((ToClient::Refused(reason), _)) => {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
                other => return other,
            }
        }
    }

    /// Hands a key over, for these uses, and waits for its handle, for at most `patience`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn register(
        &self,
        key: KeyParts<'_>,
        policy: Policy,
        patience: Duration,
    ) -> io::Result<Handle> {
        match self.ask(&ToEngine::Register { key, policy }, patience)? {
            (ToClient::Registered(handle), _) => Ok(handle),
            _ => Err(unexpected()),
        }
    }

    /// Takes a key back and waits until the engine refuses requests for it, for at most `patience`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn revoke(&self, handle: Handle, patience: Duration) -> io::Result<()> {
        match self.ask(&ToEngine::Revoke(handle), patience)? {
            (ToClient::Revoked, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Asks for a token with which other connections may use this one's keys, for at most
    /// `patience`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn grant(&self, patience: Duration) -> io::Result<Token> {
        match self.ask(&ToEngine::Grant, patience)? {
            (ToClient::Granted(token), _) => Ok(token),
            _ => Err(unexpected()),
        }
    }

    /// Opens an instance and waits for it, for at most `patience`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and the errors of mapping its memory.
    pub fn open(&self, options: &Options, patience: Duration) -> io::Result<Instance> {
        let (message, packet) = self.ask(&options.message(), patience)?;
        Instance::new(options.layout, &message, packet)
    }

    fn wait(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut socket, Some(&timeout)) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the engine does not answer",
            )),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Options {
    /// Returns the message that asks for such an instance.
    pub fn message(&self) -> ToEngine<'static> {
        ToEngine::Open {
            layout: self.layout,
            weight: self.weight,
            aggregation: self.aggregation,
            token: self.token,
        }
    }
}

impl Instance {
    /// Makes the instance that the engine's answer to [`Options::message`] brings.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] with the engine's reason if it has refused, and the
    /// errors of mapping its memory.
    pub fn new(layout: Layout, message: &ToClient, mut packet: Packet) -> io::Result<Self> {
        match message {
            ToClient::Opened => {}
            ToClient::Refused(reason) => {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    reason.clone(),
                ));
            }
            _ => return Err(unexpected()),
        }
        let (Some(event), Some(doorbell), Some(file)) = (
            packet.descriptors.pop(),
            packet.descriptors.pop(),
            packet.descriptors.pop(),
        ) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "an instance without its descriptors",
            ));
        };
        let memory = Arc::new(Memory::open(file.as_fd(), layout.words())?);
        Ok(Self {
            requests: Producer::new(memory.clone(), layout.requests()),
            responses: Consumer::new(memory.clone(), layout.responses()),
            own_bell: Bell::new(memory.clone(), CLIENT_BELL),
            engine_bell: Bell::new(memory.clone(), ENGINE_BELL),
            memory,
            doorbell,
            event,
        })
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer to another message")
}
