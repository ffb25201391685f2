//! `keys isolated`: private keys that a device holds, and workers do not have.
//!
//! The master reads the keys, registers them at the device, and puts a key with a handle in the
//! place of each. That is done when the configuration has been read and before it is used, since a
//! reload that fails there leaves the old workers serving. A worker then wipes the keys that it has
//! inherited from the master's memory, before it serves any client.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use nginx_sys::{EVP_PKEY, EVP_PKEY_free, SSL_CTX, SSL_CTX_use_PrivateKey};
use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::{Connection, EngineUser};
use slipstream_keys::scrub::Scrubber;
use slipstream_offload::costs::MESSAGE_PATIENCE;
use slipstream_openssl::held::{self, PrivateParts};

use crate::openssl::{each_private_key, enables_rsa_key_exchange};

/// The keys of a configuration, at the device.
struct Isolated {
    /// As long as it is open, the device keeps the keys. It belongs to the master: workers use the
    /// keys, and cannot bring any.
    _connection: Connection,
    token: Token,
}

struct State {
    /// The keys of the configuration that is being read.
    read: Option<Isolated>,
    /// The keys of the configuration that is in use.
    used: Option<Isolated>,
    /// Every key that this process has isolated. A key that is no longer in use may still be valid,
    /// and there may be copies of it.
    known: Vec<PrivateParts>,
}

static STATE: Mutex<State> = Mutex::new(State {
    read: None,
    used: None,
    known: Vec::new(),
});

/// Forgets the keys of a configuration that was read and not used: another one is being read.
pub(crate) fn begin() {
    state().read = None;
}

/// Registers the private keys of `contexts` at the device at `path`, which may run as `user`, and puts keys with handles in
/// their places.
///
/// # Errors
/// The reason why it is not possible. Then some keys may have been replaced.
///
/// # Safety
/// In the master, with valid contexts, after the provider has been loaded.
pub(crate) unsafe fn isolate(
    path: &Path,
    user: &EngineUser,
    contexts: &[*mut SSL_CTX],
) -> Result<(), String> {
    let device = path.display();
    if slipstream_openssl::keys_with_lanes() > 0 {
        // nginx 1.28 keeps keys over a reload, and with them their forms for lanes, of which
        // copies cannot be told from other data.
        return Err(
            "the keys are in the memory of this nginx, which has computed with them: restart it, or \
             start its executable anew (SIGUSR2)"
                .into(),
        );
    }
    let connection = Connection::new(path, user).map_err(|error| match error.kind() {
        // It names the path and the cure.
        io::ErrorKind::PermissionDenied => error.to_string(),
        _ => format!("no engine at {device} to hold the keys ({error}): start it"),
    })?;
    // The list of ciphers of a connection is that of its address's default server, whatever server
    // it turns out to be for: so one server with RSA key exchange decides for the keys of all.
    // SAFETY: by the caller's promise.
    let decrypts = contexts
        .iter()
        .any(|&context| unsafe { enables_rsa_key_exchange(context) });
    let policy = match decrypts {
        true => Policy::ANYTHING,
        false => Policy::SIGNATURES,
    };
    for &context in contexts {
        // SAFETY: by the caller's promise; the key is that of the current certificate.
        unsafe { each_private_key(context, |key| replace(&connection, policy, context, key)) }?;
    }
    let token = connection
        .grant(MESSAGE_PATIENCE)
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
    policy: Policy,
    context: *mut SSL_CTX,
    key: *mut EVP_PKEY,
) -> Result<(), String> {
    // SAFETY: a valid key.
    let parts = unsafe { held::private_parts(key.cast()) }.ok_or(
        "a private key of a kind that no device holds: RSA keys of 2048, 3072 or 4096 bits with \
         two primes, and EC keys on P-256 or P-384 can be isolated",
    )?;
    let registered = connection.register(parts.parts(), policy, MESSAGE_PATIENCE);
    remember(parts);
    let handle = registered.map_err(|error| format!("the engine does not take a key: {error}"))?;
    // SAFETY: a valid key; the new one is given to the context, which takes a reference of its own.
    unsafe {
        let held = held::key_with_handle(key.cast(), handle).cast::<EVP_PKEY>();
        if held.is_null() {
            return Err(
                "OpenSSL makes no key with a handle: if this nginx was started without a \
                 \"device\", restart it"
                    .into(),
            );
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

/// Notes that the configuration that was read last is in use from now on. If its keys are isolated,
/// returns the token with which workers may use them.
pub(crate) fn adopt() -> Option<Token> {
    let mut state = state();
    // The old connection is closed; its keys stay for a while, for old workers that drain.
    state.used = state.read.take();
    state.used.as_ref().map(|isolated| isolated.token)
}

/// Wipes the keys that this process has inherited. Returns the number of wiped words.
///
/// # Errors
/// If the system has no memory for the search, or does not let this process read its own.
///
/// # Safety
/// In a worker that has just been forked, whose other threads, if another module has started any,
/// do not unmap memory meanwhile.
pub(crate) unsafe fn wipe() -> io::Result<usize> {
    let mut state = state();
    let known = std::mem::take(&mut state.known);
    // The connections are the master's.
    state.read = None;
    if state.used.take().is_none() {
        // Workers of this configuration have their keys.
        return Ok(0);
    }
    let secrets: Vec<&[u8]> = known.iter().flat_map(PrivateParts::secrets).collect();
    let scrubber = Scrubber::new(secrets.iter().copied())?;
    drop(secrets);
    drop(known);
    // SAFETY: handles have taken the place of the keys; for the rest by the caller's promise.
    unsafe { scrubber.wipe() }
}

fn state() -> std::sync::MutexGuard<'static, State> {
    STATE.lock().expect("no panic while it is locked")
}
