//! The private keys of this process that an engine computes with.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use slipstream_keys::{Handle, PrivateKey};
use slipstream_offload::Operation;

use super::connection::Connection;
use super::protocol::message::{ToClient, ToEngine};
use super::protocol::policy::Policy;

/// Keys that an engine holds for one client.
const MAXIMUM_KEYS: usize = 1024;

/// Keys that are taken back at a time.
const FORGOTTEN_AT_ONCE: usize = 64;

/// The keys that have been sent over a connection, by [address](address).
pub(super) struct RegisteredKeys {
    /// False on a connection that uses the keys of another one, and cannot bring any.
    is_owner: bool,
    keys: HashMap<usize, RegisteredKey>,
    /// Messages that have been sent and not been answered, in order.
    asked: VecDeque<Asked>,
}

enum Asked {
    /// To take over the key at this address.
    Register(usize),
    /// To forget a key.
    Revoke,
}

struct RegisteredKey {
    /// Keeps the address from being used again.
    key: PrivateKey,
    state: Registration,
}

enum Registration {
    Sent,
    Done(Handle),
    Refused,
}

impl RegisteredKeys {
    /// The keys of a new connection; of one that has joined another unless `is_owner`.
    pub(super) fn new(is_owner: bool) -> Self {
        Self {
            is_owner,
            keys: HashMap::new(),
            asked: VecDeque::new(),
        }
    }

    /// Returns true if answers are still to come.
    pub(super) fn awaits_answers(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Returns true if the engine has the key of `operation`. A key that the engine does not know
    /// is sent to it, and until that is answered, software computes.
    pub(super) fn has(&mut self, connection: &Connection, operation: &Operation) -> bool {
        let Some(key) = key(operation).filter(|_| self.is_owner) else {
            return false;
        };
        let address = address(&key);
        if let Some(key) = self.keys.get(&address) {
            return matches!(key.state, Registration::Done(_));
        }
        if self.keys.len() >= MAXIMUM_KEYS {
            self.forget(connection);
        }
        // This process has the key itself: the engine may do with it whatever this process can.
        let register = ToEngine::Register {
            key: key.parts(),
            policy: Policy::ANYTHING,
        };
        if self.keys.len() < MAXIMUM_KEYS && connection.send(&register).is_ok() {
            let state = Registration::Sent;
            self.keys.insert(address, RegisteredKey { key, state });
            self.asked.push_back(Asked::Register(address));
        }
        false
    }

    /// Drops keys that have no other owner any more, here and at the engine: a server may read one
    /// for each connection. Some of them, so that the engine's answers find room.
    fn forget(&mut self, connection: &Connection) {
        let idle = self.keys.iter().filter(|(_, key)| !is_shared(&key.key));
        let idle: Vec<_> = idle
            .filter_map(|(address, key)| match key.state {
                Registration::Done(handle) => Some((*address, Some(handle))),
                Registration::Refused => Some((*address, None)),
                Registration::Sent => None,
            })
            .take(FORGOTTEN_AT_ONCE)
            .collect();
        for (address, handle) in idle {
            if let Some(handle) = handle {
                if connection.send(&ToEngine::Revoke(handle)).is_err() {
                    // The engine is busy, or has gone.
                    return;
                }
                self.asked.push_back(Asked::Revoke);
            }
            self.keys.remove(&address);
        }
    }

    /// The engine's name for the key of `operation`; `None` if it does not have it.
    pub(super) fn handle(&self, operation: &Operation) -> Option<Handle> {
        match self.keys.get(&address(&key(operation)?))?.state {
            Registration::Done(handle) => Some(handle),
            Registration::Sent | Registration::Refused => None,
        }
    }

    /// Takes the engine's answer to the oldest message that it has not answered yet.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn answered(&mut self, message: &ToClient) -> io::Result<()> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "an answer without a question");
        let address = match self.asked.pop_front().ok_or_else(broken)? {
            Asked::Register(address) => address,
            // The key may have gone with the engine that had it.
            Asked::Revoke => return Ok(()),
        };
        let key = self.keys.get_mut(&address).ok_or_else(broken)?;
        key.state = match message {
            ToClient::Registered(handle) => Registration::Done(*handle),
            _ => Registration::Refused,
        };
        Ok(())
    }
}

/// The private key of `operation`, if this process has it.
fn key(operation: &Operation) -> Option<PrivateKey> {
    Some(match operation {
        Operation::Rsa { key, .. } => PrivateKey::Rsa(key.value()?.clone()),
        Operation::Ecdsa { key, .. } => PrivateKey::Ec(key.value()?.clone()),
        _ => return None,
    })
}

/// Returns the address of the key, which tells it from every other as long as it is kept.
fn address(key: &PrivateKey) -> usize {
    match key {
        PrivateKey::Rsa(key) => Arc::as_ptr(key).addr(),
        PrivateKey::Ec(key) => Arc::as_ptr(key).addr(),
    }
}

fn is_shared(key: &PrivateKey) -> bool {
    match key {
        PrivateKey::Rsa(key) => Arc::strong_count(key) > 1,
        PrivateKey::Ec(key) => Arc::strong_count(key) > 1,
    }
}
