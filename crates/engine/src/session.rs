//! Private keys, and who may use them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use slipstream_lanes::ec::SigningKey;
use slipstream_lanes::rsa::PrivateKey;
use slipstream_lanes::{Backend, ec};
use slipstream_offload::Handle;
use slipstream_offload::device::message::{self, Token};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::counters::Counters;

/// Keys that a session can have.
pub(crate) const MAXIMUM_KEYS: usize = 1024;

/// The keys of one client: of a connection, and of those that joined it. They are wiped with the last of these.
pub(crate) struct Session {
    keys: RwLock<HashMap<u64, Key>>,
    token: OnceLock<Zeroizing<Token>>,
    counters: Arc<Counters>,
}

/// A private key, ready to compute with.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    /// RSA.
    Rsa(Arc<PrivateKey>),
    /// ECDSA.
    Ec(Arc<SigningKey>),
}

impl Session {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        counters.sessions.fetch_add(1, Ordering::Relaxed);
        Self {
            keys: RwLock::default(),
            token: OnceLock::new(),
            counters,
        }
    }

    /// Takes a key over. One that is here already keeps its handle.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(crate) fn register(
        &self,
        backend: Backend,
        key: message::Key<'_>,
    ) -> Result<Handle, String> {
        let key = prepare(backend, key)?;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let known = keys.iter().find(|(_, known)| known.is_same(&key));
        if let Some((handle, _)) = known {
            return Ok(Handle(*handle));
        }
        if keys.len() >= MAXIMUM_KEYS {
            return Err(format!(
                "the engine holds {MAXIMUM_KEYS} keys for this client, its limit"
            ));
        }
        loop {
            // Unguessable, so that a client that confuses sessions never uses the wrong key.
            let handle = getrandom::u64().map_err(|error| error.to_string())?;
            if handle != 0 && !keys.contains_key(&handle) {
                keys.insert(handle, key);
                self.counters.keys.fetch_add(1, Ordering::Relaxed);
                return Ok(Handle(handle));
            }
        }
    }

    /// The key of that name.
    pub(crate) fn find(&self, handle: Handle) -> Option<Key> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&handle.0).cloned()
    }

    /// The token with which other connections join, always the same.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn token(&self) -> Result<Token, String> {
        if let Some(token) = self.token.get() {
            return Ok(**token);
        }
        let mut token = Zeroizing::new([0; size_of::<Token>()]);
        getrandom::fill(&mut *token).map_err(|error| error.to_string())?;
        Ok(**self.token.get_or_init(|| token))
    }

    /// Whether that is its token, in constant time.
    pub(crate) fn is_joined_with(&self, token: &Token) -> bool {
        self.token.get().is_some_and(|own| own.ct_eq(token).into())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let keys = self.keys.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.counters
            .keys
            .fetch_sub(keys.len() as u64, Ordering::Relaxed);
        self.counters.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Key {
    /// Of an ECDSA key nothing public is known here to tell it by; the private keys are compared in constant time.
    fn is_same(&self, other: &Key) -> bool {
        match (self, other) {
            (Key::Rsa(one), Key::Rsa(other)) => one.modulus_bytes() == other.modulus_bytes(),
            (Key::Ec(one), Key::Ec(other)) => {
                one.curve() == other.curve() && one.private().ct_eq(&other.private()).into()
            }
            _ => false,
        }
    }
}

fn prepare(backend: Backend, key: message::Key<'_>) -> Result<Key, String> {
    match key {
        message::Key::Rsa(components) => PrivateKey::new(backend, &components)
            .map(|key| Key::Rsa(Arc::new(key)))
            .map_err(|error| error.to_string()),
        message::Key::Ec { .. } if !ec::offered(backend) => {
            Err(format!("{} lanes do not compute on curves", backend.name()))
        }
        message::Key::Ec { curve, private } => SigningKey::new(curve, private)
            .map(|key| Key::Ec(Arc::new(key)))
            .map_err(|error| error.to_string()),
    }
}
