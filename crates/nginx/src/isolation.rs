//! `keys isolated`: private keys that a device holds, and workers do not have.
//!
//! The master reads the keys, brings them to the device, and puts a key with a handle in the place of each. That is done while
//! the configuration is read, since a reload that fails there leaves the old workers serving. A worker then wipes what it
//! has inherited of the keys from the master's memory, before it serves anybody.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use nginx_sys::{
    ERR_clear_error, EVP_PKEY, EVP_PKEY_free, SSL_CERT_SET_FIRST, SSL_CERT_SET_NEXT, SSL_CTX,
    SSL_CTX_get0_privatekey, SSL_CTX_use_PrivateKey,
};
use slipstream_offload::device::Connection;
use slipstream_offload::device::message::Token;
use slipstream_offload::remains::Remains;
use slipstream_openssl::held::{self, PrivateParts};

use crate::openssl::set_current_cert;

/// How long the device may take to answer the master.
const PATIENCE: Duration = Duration::from_secs(5);

/// The keys of a configuration, at the device.
struct Isolated {
    /// As long as it is open, the device keeps the keys.
    _connection: Connection,
    token: Token,
    keys: Vec<PrivateParts>,
}

/// Of the configuration that is being read.
static READ: Mutex<Option<Isolated>> = Mutex::new(None);

/// Of the configuration that is in use.
static USED: Mutex<Option<Isolated>> = Mutex::new(None);

/// Brings the private keys of `contexts` to the device at `path`, and puts keys with handles in their places.
///
/// # Errors
/// Says what prevents it; then some keys may have been replaced.
///
/// # Safety
/// In the master, with valid contexts, after the provider has been loaded.
pub(crate) unsafe fn isolate(path: &Path, contexts: &[*mut SSL_CTX]) -> Result<(), String> {
    let device = path.display();
    let connection = Connection::new(path)
        .map_err(|error| format!("no engine at {device} to hold the keys ({error}): start it"))?;
    let mut keys = Vec::new();
    for &context in contexts {
        // SAFETY: by the caller's promise; a certificate is made the current one before its key is asked for.
        unsafe {
            let mut more = set_current_cert(context, SSL_CERT_SET_FIRST);
            while more == 1 {
                let key = SSL_CTX_get0_privatekey(context);
                if !key.is_null() {
                    keys.push(replace(&connection, context, key)?);
                }
                more = set_current_cert(context, SSL_CERT_SET_NEXT);
            }
            set_current_cert(context, SSL_CERT_SET_FIRST);
            ERR_clear_error();
        }
    }
    let token = connection
        .grant(PATIENCE)
        .map_err(|error| format!("the engine at {device} does not share the keys: {error}"))?;
    *lock(&READ) = Some(Isolated {
        _connection: connection,
        token,
        keys,
    });
    Ok(())
}

/// # Safety
/// `key` is the key of the current certificate of `context`; the provider has been loaded.
unsafe fn replace(
    connection: &Connection,
    context: *mut SSL_CTX,
    key: *mut EVP_PKEY,
) -> Result<PrivateParts, String> {
    // SAFETY: a valid key.
    let parts = unsafe { held::private_parts(key.cast()) }.ok_or(
        "a private key of a kind that no device holds: RSA keys of 2048, 3072 or 4096 bits with two primes, and EC keys on \
         P-256 or P-384 can be isolated",
    )?;
    let handle = connection
        .register(parts.as_message(), PATIENCE)
        .map_err(|error| format!("the engine does not take a key: {error}"))?;
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
    Ok(parts)
}

/// The configuration that was read last is in use from now on. Returns with what workers may use its keys.
pub(crate) fn adopt() -> Option<Token> {
    let mut used = lock(&USED);
    // The old connection is closed; its keys stay as long as old workers are connected.
    *used = lock(&READ).take();
    used.as_ref().map(|isolated| isolated.token)
}

/// Wipes what this process has inherited of the keys. Returns how many words were.
///
/// # Errors
/// If the system has no memory for the search.
///
/// # Safety
/// In a worker that has just been forked, and has one thread.
pub(crate) unsafe fn wipe() -> std::io::Result<usize> {
    let Some(isolated) = lock(&USED).take() else {
        return Ok(0);
    };
    let secrets: Vec<&[u8]> = isolated
        .keys
        .iter()
        .flat_map(PrivateParts::secrets)
        .collect();
    let remains = Remains::of(secrets.iter().copied())?;
    drop(isolated);
    // SAFETY: by the caller's promise; handles have taken the place of the keys.
    unsafe { remains.wipe() }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is locked")
}
