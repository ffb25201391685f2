//! Key exchange and ECDSA with X25519, P-256 and P-384.
//!
//! A key of this provider is either bytes or a key of the default provider. Each form is made from
//! the other when it is needed. A TLS key share in a job whose operations may be offloaded needs no
//! key of the default provider: the own key pair comes from an accelerator and the public key from
//! the peer, both as bytes, and an accelerator computes the exchange. All other keys are keys of
//! the default provider from the beginning, and it does everything with them: other curves,
//! compressed points, explicit parameters, export.

mod capability;
mod exchange;
mod generation;
mod key;
mod key_type;
mod keymgmt;
mod material;
mod signature;
mod types;

pub(crate) use capability::get_capabilities;
pub(crate) use exchange::{ECDH, X25519_KEYEXCH};
pub(crate) use key_type::{EC_NAMES, ECDH_NAME, ECDSA_NAME, X25519_NAMES};
pub(crate) use keymgmt::{EC_KEYMGMT, X25519_KEYMGMT};
pub(crate) use signature::FUNCTIONS as ECDSA;
