//! Macros and conventions of nginx that nginx-sys does not have.

use std::ffi::c_char;

use nginx_sys::ngx_str_t;

/// nginx's NGX_CONF_ERROR.
pub(crate) const CONF_ERROR: *mut c_char = usize::MAX as *mut c_char;

/// A pool of nginx has no memory left.
pub(crate) struct OutOfMemory;

/// An `ngx_str_t` over static text that ends in NUL: nginx compares names with `strcmp`.
pub(crate) const fn static_str(text: &'static str) -> ngx_str_t {
    assert!(
        text.as_bytes()[text.len() - 1] == 0,
        "nginx expects a NUL behind names"
    );
    ngx_str_t {
        len: text.len() - 1,
        data: text.as_ptr().cast_mut(),
    }
}
