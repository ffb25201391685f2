//! Key types of OpenSSL for keys on curves, and the names of their algorithms.

use std::ffi::CStr;

use crate::default_provider::Family;

/// The names of the key management and of the exchange of X25519 in OpenSSL.
pub(crate) const X25519_NAMES: &CStr = c"X25519:1.3.101.110";
/// The names of the key management of all curves of X9.62 in OpenSSL.
pub(crate) const EC_NAMES: &CStr = c"EC:id-ecPublicKey:1.2.840.10045.2.1";
/// The name of the exchange with these curves in OpenSSL.
pub(crate) const ECDH_NAME: &CStr = c"ECDH";
/// The name of signatures with these curves in OpenSSL.
pub(crate) const ECDSA_NAME: &CStr = c"ECDSA";

/// A [`Family`] as a type, for functions that OpenSSL calls without an object.
pub(super) trait KeyType: 'static {
    const FAMILY: Family;
}

pub(super) struct X25519;
pub(super) struct Ec;

impl KeyType for X25519 {
    const FAMILY: Family = Family::X25519;
}

impl KeyType for Ec {
    const FAMILY: Family = Family::Ec;
}
