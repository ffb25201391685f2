//! The groups of TLS. libssl learns of a group from the provider whose key management it would use.
//! So this provider, when it is preferred, has to name all groups of its key types, other curves
//! included.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::ffi::{Callback, Param};
use crate::loaded::LoadedRef;
use crate::param::find;

/// Passes the default provider's capabilities for the key types of this provider to `callback`.
/// Returns OpenSSL's result.
///
/// # Safety
/// `capability` must be a text that ends with NUL, and `argument` the argument that `callback`
/// expects.
pub(crate) unsafe fn get_capabilities(
    loaded: LoadedRef,
    capability: *const c_char,
    callback: Callback,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(capability) };
    if !name.to_bytes().eq_ignore_ascii_case(b"TLS-GROUP") {
        return 0;
    }
    if !loaded.offers_curves() {
        return 1;
    }
    let mut filter = Filter { callback, argument };
    let filter = (&raw mut filter).cast();
    // SAFETY: the default provider, and the argument that `pass` expects.
    unsafe { loaded.default.get_capabilities(capability, pass, filter) }
}

struct Filter {
    callback: Callback,
    argument: *mut c_void,
}

unsafe extern "C" fn pass(params: *const Param, argument: *mut c_void) -> c_int {
    // SAFETY: the argument that is passed above.
    let filter = unsafe { &*argument.cast::<Filter>() };
    // SAFETY: an array that ends with a null key.
    let algorithm = unsafe { find(params, c"tls-group-alg").and_then(|param| param.utf8()) };
    if algorithm != Some(c"EC") && algorithm != Some(c"X25519") {
        return 1;
    }
    // SAFETY: the callback's own argument, and the default provider's array.
    unsafe { (filter.callback)(params, filter.argument) }
}
