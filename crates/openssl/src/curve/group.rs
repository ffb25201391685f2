//! What is known of each group.

use std::ffi::{CStr, c_int};

use slipstream_lanes::ec::Curve;
use slipstream_offload::ahead::Group;

use super::Family;

/// What OpenSSL says of a group, and the lengths of its keys in bytes.
pub(super) struct Facts {
    pub(super) family: Family,
    /// `None` for X25519.
    pub(super) curve: Option<Curve>,
    /// As OpenSSL calls it, and as it also knows it.
    pub(super) names: &'static [&'static CStr],
    pub(super) bits: c_int,
    pub(super) security_bits: c_int,
    /// Of an ECDSA signature; of a secret where there are none.
    pub(super) max_size: c_int,
    pub(super) private_bytes: usize,
    pub(super) public_bytes: usize,
    pub(super) secret_bytes: usize,
}

static X25519: Facts = Facts {
    family: Family::X25519,
    curve: None,
    names: &[c"x25519"],
    bits: 253,
    security_bits: 128,
    max_size: 32,
    private_bytes: 32,
    public_bytes: 32,
    secret_bytes: 32,
};

static P256: Facts = Facts {
    family: Family::Ec,
    curve: Some(Curve::P256),
    names: &[c"prime256v1", c"P-256"],
    bits: 256,
    security_bits: 128,
    max_size: 72,
    private_bytes: 32,
    public_bytes: 65,
    secret_bytes: 32,
};

static P384: Facts = Facts {
    family: Family::Ec,
    curve: Some(Curve::P384),
    names: &[c"secp384r1", c"P-384"],
    bits: 384,
    security_bits: 192,
    max_size: 104,
    private_bytes: 48,
    public_bytes: 97,
    secret_bytes: 48,
};

/// What is known of `group`.
pub(super) fn facts(group: Group) -> &'static Facts {
    match group {
        Group::X25519 => &X25519,
        Group::P256 => &P256,
        Group::P384 => &P384,
    }
}

/// The group of `family` that OpenSSL knows by `name`, in any case.
pub(super) fn from_name(family: Family, name: &[u8]) -> Option<Group> {
    [Group::X25519, Group::P256, Group::P384]
        .into_iter()
        .find(|&group| {
            let facts = facts(group);
            let mut names = facts.names.iter();
            facts.family == family && names.any(|known| known.to_bytes().eq_ignore_ascii_case(name))
        })
}
