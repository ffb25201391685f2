//! `keys isolated`: private keys that a device holds, and workers do not have.
//!
//! The master reads the keys, brings them to the device, and puts a key with a handle in the place of each. That is done when
//! the configuration has been read and before it is used, since a reload that fails there leaves the old workers serving. A worker then wipes what it
//! has inherited of the keys from the master's memory, before it serves anybody.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use nginx_sys::{EVP_PKEY, EVP_PKEY_free, SSL_CTX, SSL_CTX_use_PrivateKey};
use slipstream_offload::device::Connection;
use slipstream_offload::device::message::Token;
use slipstream_offload::remains::Remains;
use slipstream_openssl::held::{self, PrivateParts};

use crate::openssl::each_private_key;

/// How long the device may take to answer the master.
const PATIENCE: Duration = Duration::from_secs(5);

/// The keys of a configuration, at the device.
struct Isolated {
    /// As long as it is open, the device keeps the keys.
    _connection: Connection,
    token: Token,
}

struct State {
    /// Of the configuration that is being read.
    read: Option<Isolated>,
    /// Of the configuration that is in use.
    used: Option<Isolated>,
    /// Every key that this process has isolated. One that is not in use any more may be as valid as ever, and remains of it
    /// may be anywhere.
    known: Vec<PrivateParts>,
}

static STATE: Mutex<State> = Mutex::new(State {
    read: None,
    used: None,
    known: Vec::new(),
});

/// A configuration is being read anew.
pub(crate) fn begin() {
    state().read = None;
}

/// Brings the private keys of `contexts` to the device at `path`, and puts keys with handles in their places.
///
/// # Errors
/// Says what prevents it; then some keys may have been replaced.
///
/// # Safety
/// In the master, with valid contexts, after the provider has been loaded.
pub(crate) unsafe fn isolate(path: &Path, contexts: &[*mut SSL_CTX]) -> Result<(), String> {
    let device = path.display();
    if slipstream_openssl::keys_with_lanes() > 0 {
        // nginx 1.28 keeps keys over a reload, and with them their forms for lanes, of which remains cannot be told from
        // other data.
        return Err(
            "the keys are in the memory of this nginx, which has used them itself: restart it, or start its \
             executable anew (SIGUSR2)"
                .into(),
        );
    }
    let connection = Connection::new(path)
        .map_err(|error| format!("no engine at {device} to hold the keys ({error}): start it"))?;
    for &context in contexts {
        // SAFETY: by the caller's promise; the key is that of the current certificate.
        unsafe { each_private_key(context, |key| replace(&connection, context, key)) }?;
    }
    let token = connection
        .grant(PATIENCE)
        .map_err(|error| format!("the engine at {device} does not share the keys: {error}"))?;
    state().read = Some(Isolated {
        _connection: connection,
        token,
    });
    Ok(())
}

/// # Safety
/// `key` is the key of the current certificate of `context`; the provider has been loaded.
unsafe fn replace(
    connection: &Connection,
    context: *mut SSL_CTX,
    key: *mut EVP_PKEY,
) -> Result<(), String> {
    // SAFETY: a valid key.
    let parts = unsafe { held::private_parts(key.cast()) }.ok_or(
        "a private key of a kind that no device holds: RSA keys of 2048, 3072 or 4096 bits with two primes, and EC keys on \
         P-256 or P-384 can be isolated",
    )?;
    let registered = connection.register(parts.as_message(), PATIENCE);
    remember(parts);
    let handle = registered.map_err(|error| format!("the engine does not take a key: {error}"))?;
    // SAFETY: a valid key; what is made is given to the context, which has a reference of its own then.
    unsafe {
        let held = held::key_with_handle(key.cast(), handle).cast::<EVP_PKEY>();
        if held.is_null() {
            return Err("OpenSSL has no key with a handle for want of lanes or memory".into());
        }
        let is_used = SSL_CTX_use_PrivateKey(context, held) == 1;
        EVP_PKEY_free(held);
        if !is_used {
            return Err("OpenSSL refuses a key that a device holds".into());
        }
    }
    Ok(())
}

fn remember(parts: PrivateParts) {
    let known = &mut state().known;
    if !known
        .iter()
        .any(|known| known.secrets().eq(parts.secrets()))
    {
        known.push(parts);
    }
}

/// The configuration that was read last is in use from now on. Returns with what workers may use its keys, if it has them
/// isolated.
pub(crate) fn adopt() -> Option<Token> {
    let mut state = state();
    // The old connection is closed; its keys stay as long as old workers are connected.
    state.used = state.read.take();
    state.used.as_ref().map(|isolated| isolated.token)
}

/// Wipes what this process has inherited of the keys. Returns how many words were.
///
/// # Errors
/// If the system has no memory for the search, or does not let this process read its own.
///
/// # Safety
/// In a worker that has just been forked, whose other threads, if another module has started any, do not unmap memory
/// meanwhile.
pub(crate) unsafe fn wipe() -> std::io::Result<usize> {
    let mut state = state();
    let known = std::mem::take(&mut state.known);
    // Connections are the master's.
    state.read = None;
    if state.used.take().is_none() {
        // The configuration is one whose workers have their keys.
        return Ok(0);
    }
    let secrets: Vec<&[u8]> = known.iter().flat_map(PrivateParts::secrets).collect();
    let remains = Remains::of(secrets.iter().copied())?;
    drop(secrets);
    drop(known);
    // SAFETY: handles have taken the place of the keys; for the rest by the caller's promise.
    unsafe { remains.wipe() }
}

fn state() -> std::sync::MutexGuard<'static, State> {
    STATE.lock().expect("no panic while it is locked")
}
