//! The handle among the parameters of a key.

use std::ffi::{CStr, c_int};

use slipstream_accelerators::engine;
use slipstream_keys::{Handle, Reference};

use crate::failure::Failure;
use crate::ffi::{Param, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY};
use crate::param::find;

/// The name of the parameter with the handle.
pub(crate) const PARAMETER: &CStr = c"slipstream-handle";

/// Reads the reference from the parameters of a key that is imported. `None` without a handle, or
/// if the private half is not imported.
///
/// # Errors
/// If the handle is not an unsigned integer of at most 64 bits.
///
/// # Safety
/// `params` must be null or an array that ends with a null key.
pub(crate) unsafe fn reference(
    selection: c_int,
    params: *const Param,
) -> Result<Option<Reference>, Failure> {
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
    let handle = Handle(u64::from_ne_bytes(handle));
    Ok(Some(Reference::new(engine::NAME, handle)))
}

/// Replaces the private half in `selection` by the public half, for a function of the default
/// provider, whose key has the public half only.
pub(crate) fn public_half(selection: c_int) -> c_int {
    if selection & SELECT_PRIVATE_KEY == 0 {
        return selection;
    }
    selection & !SELECT_PRIVATE_KEY | SELECT_PUBLIC_KEY
}
