//! Properties of groups.

use std::ffi::{CStr, c_int};

use slipstream_keys::Group;
use slipstream_keys::ec::Curve;

use crate::default_provider::Family;

/// The properties that OpenSSL gives a group, and the lengths of its keys in bytes.
pub(crate) struct Facts {
    pub(crate) family: Family,
    /// `None` for X25519.
    pub(crate) curve: Option<Curve>,
    /// The name that OpenSSL reports, then the other names that it accepts.
    pub(crate) names: &'static [&'static CStr],
    pub(crate) bits: c_int,
    pub(crate) security_bits: c_int,
    /// The length of an ECDSA signature, or, for a group without signatures, of a secret.
    pub(crate) max_size: c_int,
    pub(crate) private_bytes: usize,
    pub(crate) public_bytes: usize,
    pub(crate) secret_bytes: usize,
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

/// The properties of `group`.
pub(crate) fn facts(group: Group) -> &'static Facts {
    match group {
        Group::X25519 => &X25519,
        Group::P256 => &P256,
        Group::P384 => &P384,
    }
}

/// The group of `family` that has `name` in OpenSSL; case does not matter.
pub(crate) fn from_name(family: Family, name: &[u8]) -> Option<Group> {
    [Group::X25519, Group::P256, Group::P384]
        .into_iter()
        .find(|&group| {
            let facts = facts(group);
            let mut names = facts.names.iter();
            facts.family == family && names.any(|known| known.to_bytes().eq_ignore_ascii_case(name))
        })
}
