//! The cryptography of rustls: aws-lc's, except for private-key operations and key exchange, which
//! are offered to the accelerators of the event loop first.
//!
//! Operations of handshakes on fibers are computed together, where the scheduler of
//! [`slipstream_offload`] finds that cheaper. A handshake that is alone, or not on a fiber, takes
//! the faster way at once. Operations that fail are computed again by aws-lc, so errors are its
//! own.

mod cost;
mod encoding;
mod exchange;
mod hybrid;
mod isolation;
mod job;
mod key;
mod private_key;
mod signing;
#[cfg(all(test, feature = "system-openssl"))]
mod tests;

use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, KeyProvider, SupportedKxGroup};
use slipstream_accelerators::lanes::{Backend, Measured, precomputed, prove};

use crate::configuration::{Configuration, Crypto, Group, Lanes};

pub use isolation::{Isolation, IsolationError};

/// The least stack of a fiber on which a handshake runs, in bytes. Lanes take up to 80 KiB where
/// the handshake calls them itself: alone, or to fill a pool of precomputed values.
pub const STACK_BYTES: usize = 256 * 1024;

/// The accelerators that a terminator has, besides the software of aws-lc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computation {
    /// None. Private keys are aws-lc's only: there is no second copy of them in memory.
    AwsLc,
    /// An engine. Keys are not prepared for lanes.
    Engine,
    /// Lanes, and an engine if one is configured.
    Lanes,
}

impl Computation {
    /// Returns the accelerators that `configuration` asks for and this machine has.
    pub fn new(configuration: &Configuration) -> Self {
        match configuration.crypto {
            Crypto::AwsLc => Self::AwsLc,
            Crypto::Slipstream => match configuration.lanes {
                Lanes::Auto if backend().is_some() => Self::Lanes,
                _ if configuration.engine.is_some() => Self::Engine,
                _ => Self::AwsLc,
            },
        }
    }
}

/// A provider with these groups, the preferred first. Its `key_provider` loads private keys.
pub fn provider(computation: Computation, groups: &[Group]) -> CryptoProvider {
    let software = default_provider();
    let key_provider: &dyn KeyProvider = match computation {
        Computation::AwsLc => {
            return CryptoProvider {
                kx_groups: groups.iter().copied().map(software_group).collect(),
                ..software
            };
        }
        Computation::Engine => &signing::Keys { has_lanes: false },
        Computation::Lanes => &signing::Keys { has_lanes: true },
    };
    CryptoProvider {
        kx_groups: groups.iter().copied().map(offloaded_group).collect(),
        key_provider,
        ..software
    }
}

/// The lanes that this CPU has; `None` if it has none that are fast enough.
pub fn backend() -> Option<Backend> {
    Backend::detect()
}

/// Tests and measures lanes, if there are any, and measures aws-lc. To be called once, before event
/// loops start.
pub fn measure(backend: Option<Backend>) -> Measured {
    if let Some(backend) = backend {
        if let Some(complaint) = prove(backend) {
            eprintln!("slipstream serve: {complaint}");
        }
        precomputed::prepare_tables(backend);
    }
    cost::measure(backend)
}

fn software_group(group: Group) -> &'static dyn SupportedKxGroup {
    match group {
        Group::X25519MlKem768 => kx_group::X25519MLKEM768,
        Group::X25519 => kx_group::X25519,
        Group::P256 => kx_group::SECP256R1,
        Group::P384 => kx_group::SECP384R1,
    }
}

fn offloaded_group(group: Group) -> &'static dyn SupportedKxGroup {
    match group {
        Group::X25519MlKem768 => &hybrid::X25519_ML_KEM_768,
        Group::X25519 => &exchange::X25519,
        Group::P256 => &exchange::P256,
        Group::P384 => &exchange::P384,
    }
}
