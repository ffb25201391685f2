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

/// A stack, here of `SSL_CIPHER`.
#[repr(C)]
struct Stack {
    opaque: [u8; 0],
}

// <openssl/ssl.h>, <openssl/stack.h>.
unsafe extern "C" {
    fn SSL_CTX_get_ciphers(context: *const SSL_CTX) -> *const Stack;
    fn SSL_CTX_get_options(context: *const SSL_CTX) -> u64;
    fn SSL_CIPHER_get_kx_nid(cipher: *const c_void) -> c_int;
    fn OPENSSL_sk_num(stack: *const Stack) -> c_int;
    fn OPENSSL_sk_value(stack: *const Stack, index: c_int) -> *const c_void;
}

/// NID_kx_rsa of <openssl/obj_mac.h>.
const RSA_KEY_EXCHANGE: c_int = 1037;

/// SSL_OP_NO_TLSv1, SSL_OP_NO_TLSv1_1 and SSL_OP_NO_TLSv1_2 of <openssl/ssl.h>.
const WITHOUT_OLD_VERSIONS: u64 = 1 << 26 | 1 << 28 | 1 << 27;

/// Returns true if `context` lets a client encrypt its secret with an RSA key (RFC 5246, section
/// 7.4.7.1): one of its cipher suites does, and TLS 1.2 or an older version is enabled.
///
/// # Safety
/// `context` is valid.
pub(crate) unsafe fn enables_rsa_key_exchange(context: *const SSL_CTX) -> bool {
    // SAFETY: by the caller's promise; the stack belongs to the context, and an index below its
    // length is that of a cipher. The length of a null stack is -1.
    unsafe {
        if SSL_CTX_get_options(context) & WITHOUT_OLD_VERSIONS == WITHOUT_OLD_VERSIONS {
            return false;
        }
        let ciphers = SSL_CTX_get_ciphers(context);
        (0..OPENSSL_sk_num(ciphers)).any(|index| {
            SSL_CIPHER_get_kx_nid(OPENSSL_sk_value(ciphers, index)) == RSA_KEY_EXCHANGE
        })
    }
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
