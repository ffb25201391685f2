//! Keys that have a handle in place of their private key.

use std::ffi::c_void;

use slipstream_keys::Handle;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;

use super::handle::PARAMETER;
use super::original::Original;
use crate::failure::Failure;
use crate::loaded;
use crate::param::Lent;

/// Makes a key with the public half of `original`, an `EVP_PKEY`, and a handle in place of the
/// private half. The result is a new `EVP_PKEY` of this provider in the default library context,
/// and belongs to the caller.
///
/// The result is null if the provider is not loaded, does not offer keys of this type (keys on
/// curves without an accelerator for curves), or a device does not hold such keys. OpenSSL's error
/// queue has the reason.
///
/// # Safety
/// `original` must be a key of the libcrypto that has loaded this provider, and the provider must
/// not be unloaded meanwhile.
#[must_use = "the caller has to free the key"]
pub unsafe fn key_with_handle(original: *mut c_void, handle: Handle) -> *mut c_void {
    let make = || {
        let loaded = loaded::last_loaded()?;
        // SAFETY: the caller's promise.
        let original = unsafe { Original::new(&loaded.default.libcrypto, original.cast()) };
        match original.kind() {
            Some(Kind::Rsa(size)) => rsa_with_handle(&original, size, handle),
            Some(Kind::Ecdsa(curve)) => ec_with_handle(&original, curve, handle),
            _ => {
                loaded.errors.raise(Failure::NotHeld);
                None
            }
        }
    };
    make().unwrap_or(std::ptr::null_mut())
}

fn rsa_with_handle(original: &Original<'_>, size: Size, handle: Handle) -> Option<*mut c_void> {
    let number = |name| {
        let mut number = original.number(name, size.bytes())?;
        number.reverse();
        Some(number)
    };
    let (mut modulus, mut exponent) = (number(c"n")?, number(c"e")?);
    let mut handle = handle.0.to_ne_bytes();
    let mut params = [
        Lent::big_number(c"n", &mut modulus),
        Lent::big_number(c"e", &mut exponent),
        Lent::big_number(PARAMETER, &mut handle),
        Lent::END,
    ];
    original.make(c"RSA", &mut params)
}

fn ec_with_handle(original: &Original<'_>, curve: Curve, handle: Handle) -> Option<*mut c_void> {
    let mut public = original.octets(c"pub", 1 + 2 * curve.bytes())?;
    let mut group = match curve {
        Curve::P256 => *b"prime256v1\0",
        Curve::P384 => *b"secp384r1\0\0",
    };
    let mut handle = handle.0.to_ne_bytes();
    let mut params = [
        Lent::text(c"group", &mut group),
        Lent::octets(c"pub", &mut public),
        Lent::big_number(PARAMETER, &mut handle),
        Lent::END,
    ];
    original.make(c"EC", &mut params)
}
