//! RSA: the default provider's, with the private operation in lanes where it can be paused, or at the device that holds
//! the key.

mod asym_cipher;
mod encoding;
mod key;
mod keymgmt;
mod premaster;
mod signature;

use std::ffi::CStr;
use std::time::Duration;

use slipstream_lanes::rsa::Size;
use slipstream_offload::calibration;

use crate::default_provider::DefaultProvider;
use crate::ffi;
use crate::object::DefaultObject;

pub(crate) use asym_cipher::FUNCTIONS as ASYM_CIPHER;
pub(crate) use keymgmt::FUNCTIONS as KEYMGMT;

/// The functions of `OSSL_OP_SIGNATURE`.
pub(crate) static SIGNATURE: crate::signature::FunctionTable =
    crate::signature::functions::<signature::Rsa>();

/// As OpenSSL calls it.
pub(crate) const NAMES: &CStr = c"RSA:rsaEncryption:1.2.840.113549.1.1.1";

/// The default provider's functions.
pub(crate) struct Functions {
    pub(crate) keymgmt: ffi::Keymgmt,
    pub(crate) signature: ffi::Signature,
    pub(crate) asym_cipher: ffi::AsymCipher,
}

/// What one private operation with a key of `size` takes in the default provider, the least of a few measurements.
pub(crate) fn software_cost(default: &DefaultProvider, size: Size) -> Option<Duration> {
    let key = key::example(default, size)?;
    let functions = &default.rsa.signature;
    // SAFETY: the default provider's own context; no properties. It is ours.
    let context = unsafe {
        let context = (functions.newctx)(default.context, std::ptr::null());
        DefaultObject::own(context, functions.freectx)
    }?;
    let mut output = vec![0; size.bytes()];
    let input = [1; 36];
    // SAFETY: a context and a key of the default provider; no parameters.
    let mut succeeded =
        unsafe { (functions.sign_init)(context.as_ptr(), key.as_ptr(), std::ptr::null()) } == 1;
    let cost = calibration::least(|| {
        let mut length = 0;
        // SAFETY: an initialised context; the buffers are as long as said.
        succeeded &= unsafe {
            (functions.sign)(
                context.as_ptr(),
                output.as_mut_ptr(),
                &mut length,
                output.len(),
                input.as_ptr(),
                input.len(),
            )
        } == 1;
    });
    succeeded.then_some(cost)
}
