//! The OpenSSL provider as a loadable module, `slipstream.so`.
//!
//! The crate has the entry point that OpenSSL looks up, and nothing else: the provider is the
//! library [`slipstream_openssl`]. Programs that embed the provider use that library, not this
//! crate. The entry point is in a crate of its own, since every shared object that links the
//! library would export it, too.

use std::ffi::{c_int, c_void};

use slipstream_openssl::ffi::{CoreHandle, Dispatch};

/// The entry point that OpenSSL looks up in a provider module: see `provider(7)`.
///
/// # Safety
/// The caller must be OpenSSL's core: see [`slipstream_openssl::provider_init`].
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
