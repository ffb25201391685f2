//! The cost of operations in software, which is the default provider.

mod curve;
mod ecdsa;
mod rsa;

use std::time::Duration;

use slipstream_keys::Group;
use slipstream_keys::ec::Curve;
use slipstream_offload::Kind;

use crate::default_provider::DefaultProvider;

/// Measures one operation of `kind` a few times, and returns the least cost. `None` if operations
/// of this kind are not measured, or the default provider fails.
pub(crate) fn measure_software(default: &DefaultProvider, kind: Kind) -> Option<Duration> {
    match kind {
        Kind::Rsa(size) => rsa::software_cost(default, size),
        Kind::X25519 => curve::software_cost(default, Group::X25519),
        Kind::Ecdh(Curve::P256) => curve::software_cost(default, Group::P256),
        Kind::Ecdh(Curve::P384) => curve::software_cost(default, Group::P384),
        Kind::Ecdsa(curve) => ecdsa::software_cost(default, curve),
        // Lanes take precomputed key pairs, which is assumed to be cheaper than software.
        // Compression has no software here.
        Kind::KeyPair(_) | Kind::Compress(_) => None,
    }
}
