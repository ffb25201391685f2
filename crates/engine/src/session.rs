//! Private keys, and the connections that may use them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::lanes::{self, Backend};
use slipstream_keys::{Handle, KeyParts, PrivateKey};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::counters::{Counters, uncount};
use crate::quotas::Share;

/// The most keys of a session.
pub(crate) const MAXIMUM_KEYS: usize = 1024;

/// The keys of one connection, its owner, which others may have joined. They are wiped when the
/// session [ends](Self::end), some time after its owner has gone, or with the last connection.
pub(crate) struct Session {
    /// `None` when the session has ended.
    keys: RwLock<Option<HashMap<u64, Entry>>>,
    token: OnceLock<Zeroizing<Token>>,
    counters: Arc<Counters>,
}

/// A key that is held.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) key: PrivateKey,
    pub(crate) policy: Policy,
}

struct Entry {
    held: Held,
    /// Its place among those of its user.
    _share: Share,
}

impl Session {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        counters.sessions.fetch_add(1, Ordering::Relaxed);
        Self {
            keys: RwLock::new(Some(HashMap::new())),
            token: OnceLock::new(),
            counters,
        }
    }

    /// Takes over a key for these uses, if there is a `share` for one more. A key that is registered
    /// already keeps its handle and its uses.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub(crate) fn register(
        &self,
        backend: Backend,
        key: KeyParts<'_>,
        policy: Policy,
        share: impl FnOnce() -> Result<Share, String>,
    ) -> Result<Handle, String> {
        let key = prepare(backend, key)?;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let keys = keys.as_mut().ok_or("the session has ended")?;
        let mut known = keys.iter_mut();
        if let Some((handle, known)) = known.find(|(_, known)| is_same(&known.held.key, &key)) {
            known.held.policy = known.held.policy | policy;
            return Ok(Handle(*handle));
        }
        if keys.len() >= MAXIMUM_KEYS {
            return Err(format!(
                "the engine holds {MAXIMUM_KEYS} keys for this client, its limit"
            ));
        }
        let _share = share()?;
        loop {
            // Unguessable, so that a client that confuses sessions never uses the wrong key.
            let handle = getrandom::u64().map_err(|error| error.to_string())?;
            if handle != 0 && !keys.contains_key(&handle) {
                let held = Held { key, policy };
                keys.insert(handle, Entry { held, _share });
                self.counters.keys.fetch_add(1, Ordering::Relaxed);
                return Ok(Handle(handle));
            }
        }
    }

    /// Forgets a key. Requests for it that have been taken already are computed.
    ///
    /// # Errors
    /// If the session has no such key.
    pub(crate) fn revoke(&self, handle: Handle) -> Result<(), String> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let key = keys.as_mut().and_then(|keys| keys.remove(&handle.0));
        key.ok_or("the engine holds no such key for this client")?;
        uncount(self.counters.keys);
        Ok(())
    }

    /// Returns the key with this handle.
    pub(crate) fn find(&self, handle: Handle) -> Option<Held> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let entry = keys.as_ref()?.get(&handle.0)?;
        Some(entry.held.clone())
    }

    /// Ends the session: its keys are forgotten, and nobody can join it any more.
    pub(crate) fn end(&self) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = keys.take() {
            let count = keys.len() as u64;
            self.counters.keys.fetch_sub(count, Ordering::Relaxed);
            uncount(self.counters.sessions);
        }
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

    /// Returns true if this is the session's token, and the session has not ended. The comparison
    /// takes constant time.
    pub(crate) fn is_joined_with(&self, token: &Token) -> bool {
        let is_own = self.token.get().is_some_and(|own| own.ct_eq(token).into());
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        is_own && keys.is_some()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
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
