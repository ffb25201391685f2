//! Private keys that a [device](slipstream_offload::device) holds.
//!
//! Such a key of OpenSSL has its public half and a [`Handle`], and is a key pair to whoever asks. It is made with
//! `EVP_PKEY_fromdata`, as a key of this provider (`provider=slipstream`), from the public parameters of an RSA or EC
//! key and the unsigned integer `slipstream-handle`; [`key_with_handle`] does that. What it signs and decrypts is
//! computed by the accelerator of the thread's [instance](slipstream_offload::instance), while the caller is paused if
//! it is a fiber that may be. There is no software behind it: without an answer from the device, the operation fails.

use std::ffi::{CStr, c_int, c_void};

use slipstream_lanes::ec::Curve;
use slipstream_lanes::rsa::Size;
use slipstream_offload::{Handle, Kind};

use crate::failure::Failure;
use crate::ffi::{Param, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY};
use crate::param::{Lent, find};
use crate::provider;
use original::Original;

mod original;
mod parts;

pub use parts::{PrivateParts, private_parts};

/// The key `original`, an `EVP_PKEY`, with a handle in place of its private key: a new `EVP_PKEY` of this provider in
/// the default library context, which belongs to the caller. Null if the provider is not loaded, offers no keys of this
/// type (on curves, for want of lanes for them), or a device does not hold such keys; OpenSSL's error queue then says
/// which.
///
/// # Safety
/// `original` must be a key of the libcrypto that has loaded this provider, and the provider must not be unloaded
/// meanwhile.
pub unsafe fn key_with_handle(original: *mut c_void, handle: Handle) -> *mut c_void {
    let make = || {
        let loaded = provider::last_loaded()?;
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

/// The parameter of a key with its handle.
pub(crate) const PARAMETER: &CStr = c"slipstream-handle";

/// What stands in place of a private key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// What is computed with it.
    pub(crate) kind: Kind,
    pub(crate) handle: Handle,
}

/// The handle in the parameters of a key that is imported with its private half, if they have one.
///
/// # Errors
/// If it is no such number.
///
/// # Safety
/// `params` must be null or an array that ends with a null key.
pub(crate) unsafe fn handle(
    selection: c_int,
    params: *const Param,
) -> Result<Option<Handle>, Failure> {
    // SAFETY: the caller's promise.
    let Some(param) = (unsafe { find(params, PARAMETER) }) else {
        return Ok(None);
    };
    if selection & SELECT_PRIVATE_KEY == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { param.unsigned_bytes() }.ok_or(Failure::BadHandle)?;
    let (number, rest) = bytes.split_at(bytes.len().min(size_of::<u64>()));
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::BadHandle);
    }
    let mut handle = [0; size_of::<u64>()];
    handle[..number.len()].copy_from_slice(number);
    Ok(Some(Handle(u64::from_ne_bytes(handle))))
}

/// `selection` as the default provider's key is asked for it, which has only the public half: that one stands for both.
pub(crate) fn public_half(selection: c_int) -> c_int {
    if selection & SELECT_PRIVATE_KEY == 0 {
        return selection;
    }
    selection & !SELECT_PRIVATE_KEY | SELECT_PUBLIC_KEY
}
