//! RSA: the default provider's, with offloaded private operations. A private operation goes to an
//! accelerator if the caller can be paused, and always to the device that holds the key.

mod asym_cipher;
mod encoding;
mod key;
mod keymgmt;
mod premaster;
mod signature;

use std::ffi::CStr;

pub(crate) use asym_cipher::FUNCTIONS as ASYM_CIPHER;
pub(crate) use keymgmt::FUNCTIONS as KEYMGMT;
pub(crate) use signature::FUNCTIONS as SIGNATURE;

/// The names of the algorithm in OpenSSL.
pub(crate) const NAMES: &CStr = c"RSA:rsaEncryption:1.2.840.113549.1.1.1";
