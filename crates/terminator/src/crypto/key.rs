//! Private keys that accelerators sign with, and the operations that do.

use rustls::SignatureScheme;
use slipstream_keys::{Key, Operand, PrivateKey, ec, rsa};
use slipstream_offload::{Kind, Operation, Output};

use super::encoding::{self, RsaEncoding};

/// A private key of any type: a value, or a reference to one that an accelerator holds.
#[derive(Clone, Debug)]
pub(super) enum OffloadKey {
    /// RSA.
    Rsa(Key<rsa::PrivateKey>),
    /// ECDSA.
    Ec(Key<ec::PrivateKey>),
}

impl OffloadKey {
    /// The kind of the operation that signs with the key.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Rsa(key) => Kind::Rsa(key.parameters()),
            Self::Ec(key) => Kind::Ecdsa(key.parameters()),
        }
    }

    /// The schemes in which an accelerator signs with the key, the preferred first.
    pub(super) fn schemes(&self) -> Vec<SignatureScheme> {
        match self {
            Self::Rsa(_) => encoding::RSA_SCHEMES.to_vec(),
            Self::Ec(key) => vec![encoding::ecdsa_scheme(key.parameters())],
        }
    }

    /// The operation that signs `message` in `scheme`, one of the key's [schemes](Self::schemes).
    /// `None` if the message cannot be encoded.
    pub(super) fn operation(&self, scheme: SignatureScheme, message: &[u8]) -> Option<Operation> {
        Some(match self {
            Self::Rsa(key) => Operation::Rsa {
                key: key.clone(),
                input: RsaEncoding::of(scheme)?.encode(message, key.parameters().bytes())?,
            },
            Self::Ec(key) => Operation::Ecdsa {
                key: key.clone(),
                digest: Operand::new(encoding::ecdsa_digest(key.parameters(), message).as_ref()),
            },
        })
    }

    /// The signature that is the `output` of the operation.
    pub(super) fn signature(&self, output: &Output) -> Vec<u8> {
        match self {
            Self::Rsa(_) => output.as_slice().to_vec(),
            Self::Ec(_) => encoding::ecdsa_signature(output.as_slice()),
        }
    }
}

impl From<PrivateKey> for OffloadKey {
    fn from(key: PrivateKey) -> Self {
        match key {
            PrivateKey::Rsa(key) => Self::Rsa(Key::Value(key)),
            PrivateKey::Ec(key) => Self::Ec(Key::Value(key)),
        }
    }
}
