//! The default provider's functions, by algorithm.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use crate::ffi::{self, Algorithm};
use crate::libcrypto::{Libcrypto, LoadedProvider};

/// The functions of RSA.
pub(crate) struct RsaFunctions {
    pub(crate) keymgmt: ffi::Keymgmt,
    pub(crate) signature: ffi::Signature,
    pub(crate) asym_cipher: ffi::AsymCipher,
}

/// The functions of key exchange and of signatures on curves.
pub(crate) struct CurveFunctions {
    pub(crate) x25519: ExchangeFunctions,
    pub(crate) ec: ExchangeFunctions,
    pub(crate) ecdsa: ffi::Signature,
}

impl CurveFunctions {
    /// The functions for the keys of `family`.
    pub(crate) fn exchange(&self, family: Family) -> &ExchangeFunctions {
        match family {
            Family::X25519 => &self.x25519,
            Family::Ec => &self.ec,
        }
    }
}

/// The functions for the keys of one [`Family`], and for their exchange.
pub(crate) struct ExchangeFunctions {
    pub(crate) keymgmt: ffi::Keymgmt,
    pub(crate) keyexch: ffi::Keyexch,
}

/// A key type of OpenSSL for keys on curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    X25519,
    Ec,
}

/// The key derivation functions of TLS.
pub(crate) struct KdfFunctions {
    pub(crate) tls13: ffi::Kdf,
    pub(crate) hkdf: ffi::Kdf,
    pub(crate) tls1_prf: ffi::Kdf,
}

/// The algorithms of a loaded provider.
pub(super) struct Algorithms<'a> {
    pub(super) libcrypto: &'a Libcrypto,
    pub(super) loaded: NonNull<LoadedProvider>,
}

impl Algorithms<'_> {
    pub(super) fn rsa(&self) -> Option<RsaFunctions> {
        // SAFETY: each table is read as one of its operation.
        unsafe {
            Some(RsaFunctions {
                keymgmt: self.find(ffi::OP_KEYMGMT, c"RSA", ffi::Keymgmt::read)?,
                signature: self.find(ffi::OP_SIGNATURE, c"RSA", ffi::Signature::read)?,
                asym_cipher: self.find(ffi::OP_ASYM_CIPHER, c"RSA", ffi::AsymCipher::read)?,
            })
        }
    }

    pub(super) fn curves(&self) -> Option<CurveFunctions> {
        // SAFETY: as above.
        unsafe {
            Some(CurveFunctions {
                x25519: ExchangeFunctions {
                    keymgmt: self.find(ffi::OP_KEYMGMT, c"X25519", ffi::Keymgmt::read)?,
                    keyexch: self.find(ffi::OP_KEYEXCH, c"X25519", ffi::Keyexch::read)?,
                },
                ec: ExchangeFunctions {
                    keymgmt: self.find(ffi::OP_KEYMGMT, c"EC", ffi::Keymgmt::read)?,
                    keyexch: self.find(ffi::OP_KEYEXCH, c"ECDH", ffi::Keyexch::read)?,
                },
                ecdsa: self.find(ffi::OP_SIGNATURE, c"ECDSA", ffi::Signature::read)?,
            })
        }
    }

    pub(super) fn kdfs(&self) -> Option<KdfFunctions> {
        // SAFETY: as above.
        unsafe {
            Some(KdfFunctions {
                tls13: self.find(ffi::OP_KDF, c"TLS13-KDF", ffi::Kdf::read)?,
                hkdf: self.find(ffi::OP_KDF, c"HKDF", ffi::Kdf::read)?,
                tls1_prf: self.find(ffi::OP_KDF, c"TLS1-PRF", ffi::Kdf::read)?,
            })
        }
    }

    /// The functions of the algorithm `name` for `operation`.
    ///
    /// # Safety
    /// `read` must be for tables of `operation`.
    unsafe fn find<T>(
        &self,
        operation: c_int,
        name: &CStr,
        read: unsafe fn(*const ffi::Dispatch) -> Option<T>,
    ) -> Option<T> {
        let mut no_cache = 0;
        let query = self.libcrypto.provider_query_operation;
        // SAFETY: a loaded provider and room for the answer.
        let mut algorithm = unsafe { query(self.loaded.as_ptr(), operation, &mut no_cache) };
        if algorithm.is_null() {
            return None;
        }
        loop {
            // SAFETY: tables of algorithms are read up to the entry with null names.
            let Algorithm {
                names,
                implementation,
                ..
            } = unsafe { &*algorithm };
            if names.is_null() {
                return None;
            }
            // SAFETY: names are a text that ends with NUL.
            if contains(unsafe { CStr::from_ptr(*names) }, name) {
                // SAFETY: the caller's promise.
                return unsafe { read(*implementation) };
            }
            // SAFETY: not the last entry.
            algorithm = unsafe { algorithm.add(1) };
        }
    }
}

fn contains(names: &CStr, name: &CStr) -> bool {
    names
        .to_bytes()
        .split(|&byte| byte == b':')
        .any(|known| known.eq_ignore_ascii_case(name.to_bytes()))
}
