//! Key derivation for TLS: TLS13-KDF, HKDF and TLS1-PRF, without a fetch, an allocation or a lock
//! per derivation.
//!
//! The default provider's functions fetch HMAC and a hash function by name for each derivation and
//! make a context for each, which takes longer than the hashing. Here a context copies its
//! parameters into a buffer of its own and hashes from there.
//!
//! Derivations with SHA-256, SHA-384 or SHA-512, and with parameters that all versions of OpenSSL
//! treat alike, are computed here. For anything else, errors included, a context of the default
//! provider gets the parameters that have been set, and does everything from then on. So
//! parameters, errors and corner cases are those of OpenSSL.

mod context;
mod default;
mod derivation;
mod function;
mod functions;
mod settings;

pub(crate) use derivation::prepare;
pub(crate) use functions::ALGORITHMS;
