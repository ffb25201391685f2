//! The private keys of this process that a device computes with.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use slipstream_lanes::ec::SigningKey;
use slipstream_lanes::rsa::PrivateKey;

use super::connection::Connection;
use super::message::{Key, ToClient, ToEngine};
use crate::request::{Handle, Operation};

/// What an engine holds for one client.
const MOST_KEYS: usize = 1024;

/// What has been sent over a connection, by [address](address).
#[derive(Default)]
pub(super) struct RegisteredKeys {
    keys: HashMap<usize, RegisteredKey>,
    /// Keys that have been sent and not been answered, in order.
    registering: VecDeque<usize>,
}

struct RegisteredKey {
    /// Keeps the address from being used again.
    key: OwnKey,
    state: Registration,
}

enum OwnKey {
    Rsa(Arc<PrivateKey>),
    Ec(Arc<SigningKey>),
}

enum Registration {
    Sent,
    Done(Handle),
    Refused,
}

impl RegisteredKeys {
    /// Whether answers are still to come.
    pub(super) fn is_registering(&self) -> bool {
        !self.registering.is_empty()
    }

    /// Whether the device has the key of `operation`. One that it has never seen is sent there, and until that is
    /// answered, software has to do.
    pub(super) fn has(&mut self, connection: &Connection, operation: &Operation) -> bool {
        let Some(address) = address(operation) else {
            return false;
        };
        if let Some(key) = self.keys.get(&address) {
            return matches!(key.state, Registration::Done(_));
        }
        if self.keys.len() >= MOST_KEYS {
            // Keys that nobody else has any more: a server may read one for each connection.
            let registering = &self.registering;
            self.keys
                .retain(|address, key| key.key.is_shared() || registering.contains(address));
        }
        if self.keys.len() < MOST_KEYS
            && let Some(key) = OwnKey::of(operation)
            && key.send(connection).is_ok()
        {
            let state = Registration::Sent;
            self.keys.insert(address, RegisteredKey { key, state });
            self.registering.push_back(address);
        }
        false
    }

    /// What the device calls the key of `operation`; `None` if it does not have it.
    pub(super) fn handle(&self, operation: &Operation) -> Option<Handle> {
        match self.keys.get(&address(operation)?)?.state {
            Registration::Done(handle) => Some(handle),
            Registration::Sent | Registration::Refused => None,
        }
    }

    /// Takes the device's answer to the oldest key that it has not answered yet.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn answered(&mut self, message: &ToClient) -> io::Result<()> {
        let address = self.registering.pop_front();
        let Some(key) = address.and_then(|address| self.keys.get_mut(&address)) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message that answers nothing",
            ));
        };
        key.state = match message {
            ToClient::Registered(handle) => Registration::Done(*handle),
            _ => Registration::Refused,
        };
        Ok(())
    }
}

impl OwnKey {
    /// The key of `operation`; `None` if it has none that is in this process.
    fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::RsaPrivate { key, .. } => Some(Self::Rsa(key.clone())),
            Operation::Ecdsa { key, .. } => Some(Self::Ec(key.clone())),
            _ => None,
        }
    }

    fn is_shared(&self) -> bool {
        match self {
            Self::Rsa(key) => Arc::strong_count(key) > 1,
            Self::Ec(key) => Arc::strong_count(key) > 1,
        }
    }

    fn send(&self, connection: &Connection) -> io::Result<()> {
        match self {
            Self::Rsa(key) => {
                let components = key.components();
                connection.send(&ToEngine::Register(Key::Rsa(components.borrow())))
            }
            Self::Ec(key) => connection.send(&ToEngine::Register(Key::Ec {
                curve: key.curve(),
                private: &key.private(),
            })),
        }
    }
}

/// Where the key of `operation` is, which tells it from every other; `None` as for [`OwnKey::of`].
fn address(operation: &Operation) -> Option<usize> {
    match operation {
        Operation::RsaPrivate { key, .. } => Some(Arc::as_ptr(key).addr()),
        Operation::Ecdsa { key, .. } => Some(Arc::as_ptr(key).addr()),
        _ => None,
    }
}
