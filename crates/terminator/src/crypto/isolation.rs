//! Private keys that an engine holds, and this process does not.
//!
//! Messages are encoded here; what is computed with the key, is computed there. There is no software behind it: without an
//! answer from the engine, the handshake fails.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use slipstream_lanes::rsa::Size;
use slipstream_offload::device::Connection;
use slipstream_offload::device::message::{Key, Token};
use slipstream_offload::pause::Never;
use slipstream_offload::request::Operand;
use slipstream_offload::{Answer, Handle, Kind, Operation, Pause, fiber};

use super::encoding::{self, RsaEncoding};
use super::private_key;

/// How long the engine may take to answer a message.
const PATIENCE: Duration = Duration::from_secs(5);

/// Private keys that an engine holds, and this process does not.
///
/// The engine keeps them as long as this, or an instance that was opened with the [token](Self::token), is connected. A key
/// that is handed over later can be used by instances that have been opened before with the same token: the engine looks keys
/// up, by their handles, when they are used. So certificates can be replaced while event loops run.
///
/// An engine that is started anew has none of the keys, and does not know the token: then another `Isolation` has to be made
/// from the key files, and instances opened with its token.
pub struct Isolation {
    socket: Arc<PathBuf>,
    /// Answers come in order, so there is one question at a time.
    connection: Mutex<Connection>,
}

impl Isolation {
    /// Connects to the engine that listens at `socket`.
    ///
    /// # Errors
    /// If nobody does. Says what to do.
    pub fn new(socket: &Path) -> io::Result<Self> {
        let connection = Connection::new(socket).map_err(|error| {
            let socket = socket.display();
            let message = format!(
                "no engine at {socket} to hold the private keys ({error}): start it with \"slipstream engine\""
            );
            io::Error::new(error.kind(), message)
        })?;
        Ok(Self {
            socket: Arc::new(socket.to_owned()),
            connection: Mutex::new(connection),
        })
    }

    /// Hands `key` over, and returns what signs with it there. What this function makes of it is wiped; `key` itself is the
    /// caller's to wipe.
    ///
    /// # Errors
    /// If the engine takes no such key, or does not answer.
    pub fn signing_key(&self, key: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, String> {
        // It knows whether the numbers belong together, and the public key, which the file need not have.
        let software = any_supported_type(key)
            .map_err(|error| format!("the private key cannot be read ({error})"))?;
        let parts = private_key::read(key);
        let (Some((key, kind)), Some(public_key)) =
            (parts.and_then(with_kind), software.public_key())
        else {
            return Err(
                "an engine does not hold private keys of this kind: RSA keys of 2048, 3072 or 4096 bits with two primes, \
                 and EC keys on P-256 or P-384 can be isolated"
                    .into(),
            );
        };
        let connection = self.connection();
        let handle = connection.register(key, PATIENCE).map_err(|error| {
            let socket = self.socket.display();
            format!("the engine at {socket} does not take the private key: {error}")
        })?;
        Ok(Arc::new(HeldKey {
            held: Held {
                kind,
                handle,
                socket: self.socket.clone(),
            },
            public_key: public_key.into_owned(),
        }))
    }

    /// With which the event loops' instances may use the keys, those that are handed over later too. Always the same.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub fn token(&self) -> io::Result<Token> {
        self.connection().grant(PATIENCE).map_err(|error| {
            let socket = self.socket.display();
            let message =
                format!("the engine at {socket} does not share the private keys: {error}");
            io::Error::new(error.kind(), message)
        })
    }

    /// Whether the engine that has the keys is still there. What it held is lost with it.
    pub fn is_alive(&self) -> bool {
        match self.connection().receive() {
            // Nothing has been asked, so there is nothing to be received.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isolation")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// The kind of operation that a signature with `key` takes; `None` if engines do not hold such keys.
fn with_kind(key: Key<'_>) -> Option<(Key<'_>, Kind)> {
    let kind = match &key {
        Key::Rsa(components) => {
            let leading = components.modulus.first()?.leading_zeros() as usize;
            Kind::Rsa(Size::from_bits(8 * components.modulus.len() - leading)?)
        }
        Key::Ec { curve, .. } => Kind::Ecdsa(*curve),
    };
    Some((key, kind))
}

/// What stands in place of a private key.
#[derive(Clone, Debug)]
struct Held {
    kind: Kind,
    handle: Handle,
    /// For errors.
    socket: Arc<PathBuf>,
}

#[derive(Debug)]
struct HeldKey {
    held: Held,
    public_key: SubjectPublicKeyInfoDer<'static>,
}

impl SigningKey for HeldKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = match self.held.kind {
            Kind::Ecdsa(curve) => {
                Some(encoding::ecdsa_scheme(curve)).filter(|scheme| offered.contains(scheme))
            }
            _ => encoding::RSA_SCHEMES
                .into_iter()
                .find(|scheme| offered.contains(scheme)),
        }?;
        let held = self.held.clone();
        Some(Box::new(HeldSigner { held, scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public_key.clone())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.held.kind {
            Kind::Ecdsa(_) => SignatureAlgorithm::ECDSA,
            _ => SignatureAlgorithm::RSA,
        }
    }
}

#[derive(Debug)]
struct HeldSigner {
    held: Held,
    scheme: SignatureScheme,
}

impl Signer for HeldSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let input = match self.held.kind {
            Kind::Ecdsa(curve) => Operand::new(encoding::ecdsa_digest(curve, message).as_ref()),
            kind => RsaEncoding::of(self.scheme)
                .and_then(|encoding| encoding.encode(message, kind.output_bytes()))
                .ok_or_else(|| Error::General("a message cannot be encoded for RSA".into()))?,
        };
        let output = self.held.ask(input)?;
        Ok(match self.held.kind {
            Kind::Ecdsa(_) => encoding::ecdsa_signature(output.as_slice()),
            _ => output.as_slice().to_vec(),
        })
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

impl Held {
    /// Who may not be paused waits here.
    fn ask(&self, input: Operand) -> Result<Operand, Error> {
        let operation = Operation::Held {
            kind: self.kind,
            key: self.handle,
            input,
        };
        let answer = match fiber::current().filter(|fiber| fiber.admits().is_ok()) {
            Some(fiber) => slipstream_offload::run(operation, &fiber),
            None => slipstream_offload::run(operation, &Never),
        };
        match answer {
            Answer::Computed(output) if output.as_slice().len() == self.kind.output_bytes() => {
                Ok(output)
            }
            Answer::Computed(_) | Answer::Software(_) => Err(Error::General(format!(
                "the engine at {} does not answer for a private key that it holds: start it",
                self.socket.display()
            ))),
        }
    }
}
