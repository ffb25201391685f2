//! The cryptography of rustls: aws-lc's, except for private-key operations and key exchange, which ask the offload framework
//! first.
//!
//! What a handshake asks for on a fiber is computed together with what others ask for, where `slipstream_offload` finds that
//! worth while; a handshake that is alone, or not on a fiber, has what is faster at once. Whatever fails is done again by aws-lc,
//! so errors are its own.

mod cost;
mod encoding;
mod exchange;
mod hybrid;
mod isolation;
mod job;
mod private_key;
mod signing;
#[cfg(test)]
mod tests;

use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use slipstream_lanes::Backend;
use slipstream_offload::ahead;
use slipstream_offload::policy::Costs;

use crate::configuration::{Crypto, Group};

pub use isolation::Isolation;

/// The least stack of a fiber on which a handshake runs, in bytes. Lanes take up to 80 KiB where the handshake calls them itself:
/// alone, or to fill a pool of what is made ahead.
pub const STACK_BYTES: usize = 256 * 1024;

/// A provider with these groups, the preferred first. Its `key_provider` loads private keys.
pub fn provider(crypto: Crypto, groups: &[Group]) -> CryptoProvider {
    let software = default_provider();
    match crypto {
        Crypto::AwsLc => CryptoProvider {
            kx_groups: groups.iter().copied().map(software_group).collect(),
            ..software
        },
        Crypto::Slipstream => CryptoProvider {
            kx_groups: groups.iter().copied().map(offloaded_group).collect(),
            key_provider: &signing::Keys,
            ..software
        },
    }
}

/// The lanes that this CPU has; `None` if it has none that are worth while.
pub fn backend() -> Option<Backend> {
    Backend::detect()
}

/// What lanes cost against aws-lc on this machine: measured, so to be called once, before event loops start. A handshake that is
/// alone goes by it, too; until then it is left to aws-lc.
pub fn costs(backend: Backend) -> Costs {
    ahead::prepare(backend);
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
