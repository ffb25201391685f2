//! Private keys that an engine holds, and this process does not.
//!
//! Messages are encoded here; operations with the key are computed there. No software can stand in
//! for the engine: without an answer from the engine, the handshake fails.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::{self, Connection, EngineUser};
use slipstream_keys::rsa::Size;
use slipstream_keys::{Handle, Key, KeyParts, Reference};
use slipstream_offload::costs::MESSAGE_PATIENCE;

use super::key::OffloadKey;
use super::{job, private_key};

/// Private keys that an engine holds, and this process does not.
///
/// The engine keeps them as long as this is connected, and instances that were opened with the
/// [token](Self::token) use them. A key that nothing here uses any more, as after a certificate has
/// been renewed, is taken back the next time that the engine is asked for something. A key that is handed over later can be used by instances
/// that have been opened before with the same token: the engine looks keys up, by their handles,
/// when they are used. So certificates can be replaced while event loops run.
///
/// An engine that is started anew has none of the keys, and does not know the token: then another
/// `Isolation` has to be made from the key files, and instances opened with its token.
pub struct Isolation {
    socket: Arc<PathBuf>,
    /// Answers come in order, so there is one question at a time.
    connection: Mutex<Connection>,
    uses: Arc<Uses>,
}

/// The number of keys in use here for each handle. With 0, the engine's key can be taken back.
/// Locked for a moment only: event loops drop keys.
#[derive(Debug, Default)]
struct Uses(Mutex<HashMap<Handle, usize>>);

/// A use of a key that the engine holds.
#[derive(Debug)]
struct Use {
    handle: Handle,
    uses: Arc<Uses>,
}

impl Isolation {
    /// Connects to the engine that listens at `socket` and runs as `user`, as root or as the user of
    /// this process.
    ///
    /// # Errors
    /// If no engine listens there, or another user does. The error names the cure.
    pub fn new(socket: &Path, user: &EngineUser) -> io::Result<Self> {
        let connection = Connection::new(socket, user).map_err(|error| {
            if error.kind() == io::ErrorKind::PermissionDenied {
                return error;
            }
            let socket = socket.display();
            let message = format!(
                "no engine at {socket} to hold the private keys ({error}): start it with \"slipstream engine\""
            );
            io::Error::new(error.kind(), message)
        })?;
        Ok(Self {
            socket: Arc::new(socket.to_owned()),
            connection: Mutex::new(connection),
            uses: Arc::default(),
        })
    }

    /// Hands `key` over, and returns a key that signs with it there. Everything that this function
    /// makes of it is wiped; `key` itself is the caller's to wipe.
    ///
    /// # Errors
    /// If the engine takes no such key, or does not answer.
    pub fn signing_key(
        &self,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Arc<dyn SigningKey>, IsolationError> {
        // aws-lc knows if the numbers belong together, and the public key, which the file need not
        // have.
        let software = any_supported_type(key).map_err(IsolationError::Unreadable)?;
        let parts = private_key::read(key).ok_or(IsolationError::Unsupported)?;
        let public_key = software.public_key().ok_or(IsolationError::Unsupported)?;
        // The key is not sent before it is known that the engine can hold it.
        held(&parts, Handle(0)).ok_or(IsolationError::Unsupported)?;
        let connection = self.connection();
        self.take_back(&connection);
        // TLS here has no RSA key exchange, so the key signs and does nothing else.
        let handle = connection
            .register(parts, Policy::SIGNATURES, MESSAGE_PATIENCE)
            .map_err(|source| IsolationError::Refused {
                socket: self.socket.to_path_buf(),
                source,
            })?;
        let used = Uses::begin(&self.uses, handle);
        drop(connection);
        Ok(Arc::new(HeldKey {
            key: held(&parts, handle).ok_or(IsolationError::Unsupported)?,
            _used: used,
            socket: self.socket.clone(),
            public_key: public_key.into_owned(),
        }))
    }

    /// The token with which the event loops' instances may use the keys, those that are handed over
    /// later too. It is always the same.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub fn token(&self) -> io::Result<Token> {
        self.connection().grant(MESSAGE_PATIENCE).map_err(|error| {
            let socket = self.socket.display();
            let message =
                format!("the engine at {socket} does not share the private keys: {error}");
            io::Error::new(error.kind(), message)
        })
    }

    /// Returns true if the engine that has the keys is still there. Its keys are lost with it.
    pub fn is_alive(&self) -> bool {
        let connection = self.connection();
        self.take_back(&connection);
        match connection.receive() {
            // Nothing has been asked, so there is nothing to be received.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }

    /// Takes back the keys that nothing here uses any more.
    fn take_back(&self, connection: &Connection) {
        for handle in self.uses.take_idle() {
            // An engine that has gone does not have the keys either.
            if connection.revoke(handle, MESSAGE_PATIENCE).is_err() {
                return;
            }
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uses {
    /// Counts a use. The caller holds the lock of the connection, so the key is not taken back
    /// meanwhile.
    fn begin(uses: &Arc<Self>, handle: Handle) -> Use {
        *uses.lock().entry(handle).or_default() += 1;
        Use {
            handle,
            uses: uses.clone(),
        }
    }

    /// Removes and returns the keys that are not used.
    fn take_idle(&self) -> Vec<Handle> {
        let mut uses = self.lock();
        let idle = uses.extract_if(|_, uses| *uses == 0);
        idle.map(|(handle, _)| handle).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Handle, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if let Some(uses) = self.uses.lock().get_mut(&self.handle) {
            *uses -= 1;
        }
    }
}

impl fmt::Debug for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolation")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// The reason why a private key cannot be isolated.
#[derive(Debug)]
#[non_exhaustive]
pub enum IsolationError {
    /// aws-lc does not accept the key.
    Unreadable(Error),
    /// Engines do not hold keys of this kind.
    Unsupported,
    /// The engine does not take the key, or does not answer.
    Refused {
        /// The engine's socket.
        socket: PathBuf,
        /// The engine's answer.
        source: io::Error,
    },
}

impl fmt::Display for IsolationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "the private key cannot be read ({error})"),
            Self::Unsupported => f.write_str(
                "an engine does not hold private keys of this kind: RSA keys of 2048, 3072 or 4096 \
                 bits with two primes, and EC keys on P-256 or P-384 can be isolated",
            ),
            Self::Refused { socket, source } => {
                let socket = socket.display();
                write!(
                    f,
                    "the engine at {socket} does not take the private key: {source}"
                )
            }
        }
    }
}

impl std::error::Error for IsolationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(source) => Some(source),
            Self::Unsupported => None,
            Self::Refused { source, .. } => Some(source),
        }
    }
}

/// The key with these numbers as an engine holds it; `None` if engines do not hold such keys.
fn held(parts: &KeyParts<'_>, handle: Handle) -> Option<OffloadKey> {
    let reference = Reference::new(engine::NAME, handle);
    Some(match parts {
        KeyParts::Rsa(components) => OffloadKey::Rsa(Key::Held {
            parameters: Size::of_modulus(components.modulus)?,
            reference,
        }),
        KeyParts::Ec { curve, .. } => OffloadKey::Ec(Key::Held {
            parameters: *curve,
            reference,
        }),
    })
}

#[derive(Debug)]
struct HeldKey {
    key: OffloadKey,
    _used: Use,
    /// For errors.
    socket: Arc<PathBuf>,
    public_key: SubjectPublicKeyInfoDer<'static>,
}

impl SigningKey for HeldKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut schemes = self.key.schemes().into_iter();
        let scheme = schemes.find(|scheme| offered.contains(scheme))?;
        Some(Box::new(HeldSigner {
            key: self.key.clone(),
            socket: self.socket.clone(),
            scheme,
        }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public_key.clone())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.key {
            OffloadKey::Rsa(_) => SignatureAlgorithm::RSA,
            OffloadKey::Ec(_) => SignatureAlgorithm::ECDSA,
        }
    }
}

#[derive(Debug)]
struct HeldSigner {
    key: OffloadKey,
    socket: Arc<PathBuf>,
    scheme: SignatureScheme,
}

impl Signer for HeldSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let operation = self
            .key
            .operation(self.scheme, message)
            .ok_or_else(|| Error::General("a message cannot be encoded for RSA".into()))?;
        let output = job::compute_held(operation).ok_or_else(|| {
            let socket = self.socket.display();
            Error::General(format!(
                "the engine at {socket} does not answer for a private key that it holds: start it"
            ))
        })?;
        Ok(self.key.signature(&output))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}
