//! The key derivation functions that are computed here.

use std::ffi::CStr;

/// A key derivation function of OpenSSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Tls13,
    Hkdf,
    Tls1Prf,
}

impl Function {
    /// The name of the function in OpenSSL; it has no other.
    pub(super) const fn name(self) -> &'static CStr {
        match self {
            Self::Tls13 => c"TLS13-KDF",
            Self::Hkdf => c"HKDF",
            Self::Tls1Prf => c"TLS1-PRF",
        }
    }
}

/// A [`Function`] as a type, for functions that OpenSSL calls without a context.
pub(super) trait Kind {
    const FUNCTION: Function;
}

pub(super) struct Tls13;
pub(super) struct Hkdf;
pub(super) struct Tls1Prf;

impl Kind for Tls13 {
    const FUNCTION: Function = Function::Tls13;
}

impl Kind for Hkdf {
    const FUNCTION: Function = Function::Hkdf;
}

impl Kind for Tls1Prf {
    const FUNCTION: Function = Function::Tls1Prf;
}
