//! Functions and macros of OpenSSL that nginx's headers do not bring with them.

use std::ffi::{c_char, c_int, c_long, c_void};

use nginx_sys::{
    ERR_clear_error, EVP_PKEY, SSL_CERT_SET_FIRST, SSL_CERT_SET_NEXT, SSL_CTRL_SET_CURRENT_CERT,
    SSL_CTX, SSL_CTX_ctrl, SSL_CTX_get0_privatekey,
};

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
unsafe fn set_current_cert(context: *mut SSL_CTX, which: u32) -> c_long {
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

/// Calls `f` with the private key of each certificate of `context`, until it fails. The key's
/// certificate is the current one meanwhile; afterwards the first one is again.
///
/// # Errors
/// That of `f`.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn each_private_key<E>(
    context: *mut SSL_CTX,
    mut f: impl FnMut(*mut EVP_PKEY) -> Result<(), E>,
) -> Result<(), E> {
    let mut result = Ok(());
    // SAFETY: by the caller's promise; a certificate is made the current one before its key is
    // asked for.
    unsafe {
        let mut more = set_current_cert(context, SSL_CERT_SET_FIRST);
        while more == 1 && result.is_ok() {
            let key = SSL_CTX_get0_privatekey(context);
            if !key.is_null() {
                result = f(key);
            }
            more = set_current_cert(context, SSL_CERT_SET_NEXT);
        }
        set_current_cert(context, SSL_CERT_SET_FIRST);
        ERR_clear_error();
    }
    result
}
