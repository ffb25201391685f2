//! The messages of a client on its connection, and the answers to them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use rustix::net::{RecvFlags, Shutdown};
use slipstream_accelerators::engine::protocol::message::{
    MESSAGE_BYTES, ToClient, ToEngine, Token,
};
use slipstream_accelerators::engine::protocol::socket;
use zeroize::Zeroizing;

use crate::Shared;
use crate::counters::count;
use crate::instance::{Instance, Terms};
use crate::quotas::{Resource, Share};
use crate::session::Session;

/// A client's connection. Dropping it ends the client's instance.
pub(crate) struct Connection {
    socket: Arc<OwnedFd>,
    session: Option<Arc<Session>>,
    /// The session is that of another connection.
    has_joined: bool,
    user: u32,
    /// Its place among those of its user.
    place: Option<Share>,
    instance: Option<Arc<Instance>>,
    shared: Arc<Shared>,
}

/// Sessions that can be joined.
pub(crate) type Sessions = Vec<Weak<Session>>;

/// Tells if a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It stays open.
    Open,
    /// It is closed.
    Close,
}

struct Reply {
    message: ToClient,
    descriptors: ArrayVec<OwnedFd, 3>,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, user: u32, shared: Arc<Shared>) -> Self {
        Self {
            socket: Arc::new(socket),
            session: None,
            has_joined: false,
            user,
            place: None,
            instance: None,
            shared,
        }
    }

    /// Takes a place for the connection.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn take_place(&mut self) -> Result<(), String> {
        let ledger = &self.shared.ledger;
        self.place = Some(ledger.take(self.user, Resource::Connections, 1)?);
        Ok(())
    }

    /// Receives a message and answers it.
    pub(crate) fn serve(&mut self, sessions: &mut Sessions) -> Next {
        let packet = match receive(&self.socket) {
            Ok(Some(packet)) => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Open,
            Ok(None) | Err(_) => {
                if let Some(instance) = &self.instance {
                    instance.abandon();
                }
                return Next::Close;
            }
        };
        let message = match ToEngine::read(&packet) {
            Ok(message) => message,
            Err(error) => {
                count(self.shared.counters.malformed_messages);
                let _ = self.send(Reply::from(ToClient::Refused(error.to_string())));
                return Next::Close;
            }
        };
        let reply = self.answer(message, sessions).unwrap_or_else(|reason| {
            count(self.shared.counters.refused_messages);
            ToClient::Refused(reason).into()
        });
        match self.send(reply) {
            Ok(()) => Next::Open,
            // One that does not read its answers is closed, too.
            Err(_) => Next::Close,
        }
    }

    /// Returns the session that ends with this connection, if there is one.
    pub(crate) fn owned(&self) -> Option<&Arc<Session>> {
        self.session.as_ref().filter(|_| !self.has_joined)
    }

    /// Tells the client the reason why the connection is closed.
    pub(crate) fn refuse(&self, reason: &str) {
        let _ = self.send(Reply::from(ToClient::Refused(reason.to_owned())));
    }

    fn send(&self, reply: Reply) -> io::Result<()> {
        let descriptors: ArrayVec<_, 3> = reply.descriptors.iter().map(AsFd::as_fd).collect();
        socket::send(&*self.socket, &reply.message.write(), &descriptors)
    }

    fn answer(&mut self, message: ToEngine<'_>, sessions: &mut Sessions) -> Result<Reply, String> {
        match message {
            ToEngine::Open {
                layout,
                weight,
                aggregation,
                token,
            } => {
                if self.instance.is_some() {
                    return Err("a connection has one instance; open another connection".to_owned());
                }
                if let Some(token) = token {
                    self.join(&token, sessions)?;
                }
                let terms = Terms {
                    layout,
                    weight,
                    aggregation,
                };
                self.open(terms, sessions)
            }
            ToEngine::Register { key, policy } => {
                let session = self.own_session(sessions)?;
                let ledger = &self.shared.ledger;
                let share = || ledger.take(self.user, Resource::Keys, 1);
                let handle = session.register(self.shared.backend, key, policy, share)?;
                Ok(ToClient::Registered(handle).into())
            }
            ToEngine::Revoke(handle) => {
                self.own_session(sessions)?.revoke(handle)?;
                Ok(ToClient::Revoked.into())
            }
            ToEngine::Grant => {
                let token = self.own_session(sessions)?.token()?;
                Ok(ToClient::Granted(token).into())
            }
            ToEngine::Status => {
                let status = self.shared.counters.status();
                let text = serde_json::to_string(&status).map_err(|error| error.to_string())?;
                Ok(ToClient::Status(text).into())
            }
        }
    }

    fn open(&mut self, terms: Terms, sessions: &mut Sessions) -> Result<Reply, String> {
        let session = self.session(sessions);
        let socket = self.socket.clone();
        let counters = self.shared.counters.clone();
        let describe =
            |error: io::Error| format!("the engine has no memory for an instance: {error}");
        let (user, ledger) = (self.user, &self.shared.ledger);
        let bytes = terms.layout.words() * size_of::<u64>();
        let shares = [
            ledger.take(user, Resource::Instances, 1)?,
            ledger.take(user, Resource::Memory, bytes)?,
        ];
        let (instance, requests, handover) =
            Instance::new(terms, session, socket, counters, (user, shares)).map_err(describe)?;
        let instance = Arc::new(instance);
        let mut scheduler = self.shared.scheduler();
        scheduler
            .add(instance.clone(), requests)
            .map_err(describe)?;
        self.instance = Some(instance);
        Ok(Reply {
            message: ToClient::Opened,
            descriptors: handover.into(),
        })
    }

    fn join(&mut self, token: &Token, sessions: &Sessions) -> Result<(), String> {
        // All are compared, so that the time does not tell which one is nearly right.
        let mut found = None;
        for session in sessions.iter().filter_map(Weak::upgrade) {
            if session.is_joined_with(token) {
                found = Some(session);
            }
        }
        let found = found.ok_or("no connection has granted this token, or it has been closed")?;
        match &self.session {
            Some(own) if !Arc::ptr_eq(own, &found) => {
                Err("this connection has keys of its own; open another one to join".to_owned())
            }
            Some(_) | None => {
                self.session = Some(found);
                self.has_joined = true;
                Ok(())
            }
        }
    }

    /// Returns the session that this connection owns: registering, revoking and granting are for
    /// owners, so that a process that may use keys cannot change them, or keep them.
    fn own_session(&mut self, sessions: &mut Sessions) -> Result<Arc<Session>, String> {
        match self.has_joined {
            true => {
                Err("these keys belong to another connection, which alone may change them".into())
            }
            false => Ok(self.session(sessions)),
        }
    }

    fn session(&mut self, sessions: &mut Sessions) -> Arc<Session> {
        let counters = &self.shared.counters;
        let session = self.session.get_or_insert_with(|| {
            let session = Arc::new(Session::new(counters.clone()));
            sessions.retain(|session| session.strong_count() > 0);
            sessions.push(Arc::downgrade(&session));
            session
        });
        session.clone()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.take() {
            self.shared.scheduler().remove(&instance);
        }
        // A batch that is being computed keeps the socket open a little longer; the client shall
        // know now.
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        // With messages unread, the client would receive an error before the last answer.
        while let Ok(Some(_)) = receive(&self.socket) {}
    }
}

impl From<ToClient> for Reply {
    fn from(message: ToClient) -> Self {
        Self {
            message,
            descriptors: ArrayVec::new(),
        }
    }
}

/// Receives a message, without descriptors: the kernel drops those that a client sends. Closing
/// them here could block.
fn receive(socket: &OwnedFd) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut packet = Zeroizing::new(vec![0; MESSAGE_BYTES + 1]);
    let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
    let (_, length) = rustix::net::recv(socket, &mut packet[..], flags)?;
    if length == 0 {
        return Ok(None);
    }
    // A message that is too long is malformed in any case.
    packet.truncate(length);
    Ok(Some(packet))
}
