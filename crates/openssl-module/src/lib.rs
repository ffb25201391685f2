//! The OpenSSL provider as a loadable module.
//!
//! A crate of its own: a symbol that the library exported would be exported by everything that
//! embeds the library.

use std::ffi::{c_int, c_void};

use slipstream_openssl::ffi::{CoreHandle, Dispatch};

/// The entry point by which OpenSSL knows a provider; see `provider(7)`.
///
/// # Safety
/// To be called by OpenSSL's core; see [`slipstream_openssl::provider_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OSSL_provider_init(
    handle: *const CoreHandle,
    core: *const Dispatch,
    out: *mut *const Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { slipstream_openssl::provider_init(handle, core, out, context) }
}
