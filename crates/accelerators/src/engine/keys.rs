//! The private keys of this process that an engine computes with.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use slipstream_keys::{Handle, PrivateKey};
use slipstream_offload::Operation;

use super::connection::Connection;
use super::protocol::message::{ToClient, ToEngine};

/// Keys that an engine holds for one client.
const MAXIMUM_KEYS: usize = 1024;

/// The keys that have been sent over a connection, by [address](address).
#[derive(Default)]
pub(super) struct RegisteredKeys {
    keys: HashMap<usize, RegisteredKey>,
    /// Keys that have been sent and not been answered, in order.
    registering: VecDeque<usize>,
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
    /// Returns true if answers are still to come.
    pub(super) fn is_registering(&self) -> bool {
        !self.registering.is_empty()
    }

    /// Returns true if the engine has the key of `operation`. A key that the engine does not know
    /// is sent to it, and until that is answered, software computes.
    pub(super) fn has(&mut self, connection: &Connection, operation: &Operation) -> bool {
        let Some(key) = key(operation) else {
            return false;
        };
        let address = address(&key);
        if let Some(key) = self.keys.get(&address) {
            return matches!(key.state, Registration::Done(_));
        }
        if self.keys.len() >= MAXIMUM_KEYS {
            // Keys that have no other owner any more are dropped: a server may read one for each
            // connection.
            let registering = &self.registering;
            self.keys
                .retain(|address, key| is_shared(&key.key) || registering.contains(address));
        }
        if self.keys.len() < MAXIMUM_KEYS
            && connection.send(&ToEngine::Register(key.parts())).is_ok()
        {
            let state = Registration::Sent;
            self.keys.insert(address, RegisteredKey { key, state });
            self.registering.push_back(address);
        }
        false
    }

    /// The engine's name for the key of `operation`; `None` if it does not have it.
    pub(super) fn handle(&self, operation: &Operation) -> Option<Handle> {
        match self.keys.get(&address(&key(operation)?))?.state {
            Registration::Done(handle) => Some(handle),
            Registration::Sent | Registration::Refused => None,
        }
    }

    /// Takes the engine's answer to the oldest key that it has not answered yet.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn answered(&mut self, message: &ToClient) -> io::Result<()> {
        let address = self.registering.pop_front();
        let Some(key) = address.and_then(|address| self.keys.get_mut(&address)) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "an answer without a question",
            ));
        };
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
