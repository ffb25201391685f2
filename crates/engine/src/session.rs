//! Private keys, and the connections that may use them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_accelerators::lanes::{self, Backend};
use slipstream_keys::{Handle, KeyParts, PrivateKey};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::counters::Counters;

/// The most keys of a session.
pub(crate) const MAXIMUM_KEYS: usize = 1024;

/// The keys of one connection and of those that have joined it. They are wiped when the last of
/// these is closed.
pub(crate) struct Session {
    keys: RwLock<HashMap<u64, PrivateKey>>,
    token: OnceLock<Zeroizing<Token>>,
    counters: Arc<Counters>,
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

    /// Takes over a key. A key that is registered already keeps its handle.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub(crate) fn register(&self, backend: Backend, key: KeyParts<'_>) -> Result<Handle, String> {
        let key = prepare(backend, key)?;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let known = keys.iter().find(|(_, known)| is_same(known, &key));
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

    /// Returns the key with this handle.
    pub(crate) fn find(&self, handle: Handle) -> Option<PrivateKey> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(&handle.0).cloned()
    }

    /// Returns the token with which other connections join. It never changes.
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

    /// Returns true if this is the session's token. The comparison takes constant time.
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

/// Returns true if both are the same key. No public key of an ECDSA key is known here, so private
/// keys are compared, in constant time.
fn is_same(one: &PrivateKey, other: &PrivateKey) -> bool {
    match (one, other) {
        (PrivateKey::Rsa(one), PrivateKey::Rsa(other)) => one.modulus() == other.modulus(),
        (PrivateKey::Ec(one), PrivateKey::Ec(other)) => {
            one.curve() == other.curve() && one.scalar().ct_eq(other.scalar()).into()
        }
        _ => false,
    }
}

/// Checks the key and prepares it for lanes of `backend`.
fn prepare(backend: Backend, parts: KeyParts<'_>) -> Result<PrivateKey, String> {
    let key = PrivateKey::new(&parts).map_err(|error| error.to_string())?;
    if !lanes::prepare(backend, &key) {
        let name = backend.name();
        return Err(format!("{name} lanes do not compute with such keys"));
    }
    Ok(key)
}
