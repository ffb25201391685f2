//! Signing: RSA together with other handshakes, ECDSA with a nonce that has been made ahead, and either with aws-lc where that
//! is not worth while. aws-lc has the key in any case.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::KeyProvider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use slipstream_lanes::ec::{self, Nonce};
use slipstream_lanes::{Backend, rsa};
use slipstream_offload::device::message;
use slipstream_offload::request::Operand;
use slipstream_offload::{Kind, Operation, ahead};
use zeroize::Zeroizing;

use super::encoding::{self, RsaEncoding};
use super::{backend, cost, job, private_key};

/// Loads keys for the lanes of this CPU.
#[derive(Debug)]
pub(super) struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, der: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        load(&Zeroizing::new(der), backend())
    }
}

/// The key in `der`: for lanes of `backend` too, if they can use it.
///
/// # Errors
/// As aws-lc's.
pub(super) fn load(
    der: &PrivateKeyDer<'_>,
    backend: Option<Backend>,
) -> Result<Arc<dyn SigningKey>, Error> {
    let software = any_supported_type(der)?;
    let private = backend.and_then(|backend| Private::new(backend, private_key::read(der)?));
    Ok(match private {
        Some(private) => Arc::new(Key { software, private }),
        None => software,
    })
}

/// r and s in DER, of the digest that goes with the key's curve. `None` if another nonce is needed, all but never.
///
/// # Panics
/// If key and nonce are of different curves.
pub(super) fn sign_with(nonce: Nonce, key: &ec::SigningKey, message: &[u8]) -> Option<Vec<u8>> {
    let curve = key.curve();
    let digest = encoding::ecdsa_digest(curve, message);
    let mut numbers = vec![0; 2 * curve.bytes()];
    ec::sign(key, digest.as_ref(), nonce, &mut numbers).ok()?;
    Some(encoding::ecdsa_signature(&numbers))
}

struct Key {
    software: Arc<dyn SigningKey>,
    private: Private,
}

/// The form for lanes.
enum Private {
    Rsa(Arc<rsa::PrivateKey>),
    Ec(Arc<ec::SigningKey>),
}

impl Private {
    /// `None` if lanes of `backend` cannot use it.
    fn new(backend: Backend, key: message::Key<'_>) -> Option<Self> {
        match key {
            message::Key::Rsa(components) => {
                let key = rsa::PrivateKey::new(backend, &components).ok()?;
                Some(Self::Rsa(Arc::new(key)))
            }
            message::Key::Ec { curve, private } if ec::offered(backend) => {
                let key = ec::SigningKey::new(curve, private).ok()?;
                Some(Self::Ec(Arc::new(key)))
            }
            message::Key::Ec { .. } => None,
        }
    }
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let software = self.software.choose_scheme(offered)?;
        let scheme = software.scheme();
        match &self.private {
            Private::Rsa(key) => {
                let key = key.clone();
                let Some(encoding) = RsaEncoding::of(scheme) else {
                    return Some(software);
                };
                Some(Box::new(RsaSigner {
                    key,
                    encoding,
                    software,
                }))
            }
            Private::Ec(key) if scheme == encoding::ecdsa_scheme(key.curve()) => {
                let key = key.clone();
                Some(Box::new(EcdsaSigner { key, software }))
            }
            Private::Ec(_) => Some(software),
        }
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.software.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.software.algorithm()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.software).finish()
    }
}

#[derive(Debug)]
struct RsaSigner {
    key: Arc<rsa::PrivateKey>,
    encoding: RsaEncoding,
    software: Box<dyn Signer>,
}

impl Signer for RsaSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        match self.offloaded(message) {
            Some(signature) => Ok(signature),
            None => self.software.sign(message),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.software.scheme()
    }
}

impl RsaSigner {
    /// `None` if software has to do it.
    fn offloaded(&self, message: &[u8]) -> Option<Vec<u8>> {
        let kind = Kind::Rsa(self.key.size());
        let Some(fiber) = job::admits(kind) else {
            job::count_refusal(kind);
            return None;
        };
        let operation = Operation::RsaPrivate {
            key: self.key.clone(),
            input: self.encoding.encode(message, self.key.size().bytes())?,
        };
        let output = job::compute(operation, &fiber)?;
        Some(output.as_slice().to_vec())
    }
}

#[derive(Debug)]
struct EcdsaSigner {
    key: Arc<ec::SigningKey>,
    software: Box<dyn Signer>,
}

impl Signer for EcdsaSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature = self.with_nonce(message);
        match signature.or_else(|| self.offloaded(message)) {
            Some(signature) => Ok(signature),
            None => self.software.sign(message),
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.software.scheme()
    }
}

impl EcdsaSigner {
    /// What is left to do takes less time than a pause. `None` if nothing is made ahead, or aws-lc is faster.
    fn with_nonce(&self, message: &[u8]) -> Option<Vec<u8>> {
        let curve = self.key.curve();
        if !job::takes_part() || !cost::signs_with_nonces(curve) {
            return None;
        }
        sign_with(ahead::nonce(curve)?, &self.key, message)
    }

    /// By a device, while the caller is paused. `None` if software has to do it: most accelerators make no signatures, and then
    /// nothing has been refused.
    fn offloaded(&self, message: &[u8]) -> Option<Vec<u8>> {
        let curve = self.key.curve();
        let fiber = job::admits(Kind::Ecdsa(curve))?;
        let operation = Operation::Ecdsa {
            key: self.key.clone(),
            digest: Operand::new(encoding::ecdsa_digest(curve, message).as_ref()),
        };
        let output = job::compute(operation, &fiber)?;
        Some(encoding::ecdsa_signature(output.as_slice()))
    }
}
