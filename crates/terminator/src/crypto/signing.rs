//! Signing: by an accelerator, or by aws-lc where that is cheaper. aws-lc has the key in any case.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::KeyProvider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use slipstream_accelerators::lanes::{self, Backend};
use slipstream_keys::PrivateKey;
use zeroize::Zeroizing;

use super::key::OffloadKey;
use super::{backend, job, private_key};

/// Loads keys, and prepares them for the lanes of this CPU if handshakes use them.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) has_lanes: bool,
}

impl KeyProvider for Keys {
    fn load_private_key(&self, der: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        let backend = self.has_lanes.then(backend).flatten();
        load(&Zeroizing::new(der), backend)
    }
}

/// The key in `der`, prepared for lanes of `backend` if there are any.
///
/// # Errors
/// As aws-lc's.
pub(super) fn load(
    der: &PrivateKeyDer<'_>,
    backend: Option<Backend>,
) -> Result<Arc<dyn SigningKey>, Error> {
    let software = any_supported_type(der)?;
    // aws-lc has accepted the key. One that accelerators cannot use is left to aws-lc.
    let private = private_key::read(der).and_then(|parts| PrivateKey::new(&parts).ok());
    let Some(private) = private else {
        return Ok(software);
    };
    if let Some(backend) = backend {
        lanes::prepare(backend, &private);
    }
    Ok(Arc::new(Key {
        software,
        private: private.into(),
    }))
}

struct Key {
    software: Arc<dyn SigningKey>,
    private: OffloadKey,
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let software = self.software.choose_scheme(offered)?;
        if !self.private.schemes().contains(&software.scheme()) {
            return Some(software);
        }
        Some(Box::new(OffloadedSigner {
            key: self.private.clone(),
            software,
        }))
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
struct OffloadedSigner {
    key: OffloadKey,
    software: Box<dyn Signer>,
}

impl Signer for OffloadedSigner {
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

impl OffloadedSigner {
    /// `None` if software has to do it.
    fn offloaded(&self, message: &[u8]) -> Option<Vec<u8>> {
        let route = job::admit(self.key.kind()).map_err(job::refuse).ok()?;
        let operation = self.key.operation(self.software.scheme(), message)?;
        let output = job::compute(route, operation)?;
        Some(self.key.signature(&output))
    }
}
