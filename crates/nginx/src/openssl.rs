//! Functions and macros of OpenSSL that nginx's headers do not bring with them.

use std::ffi::{c_char, c_int, c_long, c_void};

use nginx_sys::{SSL_CTRL_SET_CURRENT_CERT, SSL_CTX, SSL_CTX_ctrl};

/// A library context; null stands for the default one.
#[repr(C)]
pub(crate) struct LibraryContext {
    opaque: [u8; 0],
}

/// A loaded provider.
#[repr(C)]
pub(crate) struct Provider {
    opaque: [u8; 0],
}

// <openssl/provider.h>. `init` is an OSSL_provider_init_fn.
unsafe extern "C" {
    pub(crate) fn OSSL_PROVIDER_add_builtin(
        context: *mut LibraryContext,
        name: *const c_char,
        init: *const c_void,
    ) -> c_int;
    pub(crate) fn OSSL_PROVIDER_load(
        context: *mut LibraryContext,
        name: *const c_char,
    ) -> *mut Provider;
}

/// The macro SSL_CTX_set_current_cert: makes the first or the next certificate the current one.
///
/// # Safety
/// `context` is valid; `which` is SSL_CERT_SET_FIRST or SSL_CERT_SET_NEXT.
pub(crate) unsafe fn set_current_cert(context: *mut SSL_CTX, which: u32) -> c_long {
    // SAFETY: by the caller's promise.
    unsafe {
        SSL_CTX_ctrl(
            context,
            SSL_CTRL_SET_CURRENT_CERT as c_int,
            c_long::from(which),
            std::ptr::null_mut(),
        )
    }
}
