//! Assumptions about nginx that its headers do not state, and the checks of them.
//!
//! The module is built against the headers of one version, and nginx refuses it in another. What
//! the headers do not show is assumed to be as in the versions that have been tested. Each
//! assumption is checked before it is relied on: where one does not hold, its servers are left to
//! nginx, and the log says which one it was.

use std::ffi::c_void;

use nginx_sys::{
    SSL_CTX, SSL_CTX_get_ex_data, nginx_version, ngx_cycle_t, ngx_flag_t,
    ngx_ssl_server_conf_index, ngx_ssl_t,
};

/// The TLS context in `conf`, the `ngx_http_ssl_srv_conf_t` of a server; `None` if the server has
/// no TLS.
///
/// # Errors
/// If the structure is not laid out as assumed.
///
/// # Safety
/// `cycle` is a cycle whose configuration has been read, `conf` is of a server of it, and the cycle
/// before is still there.
pub(crate) unsafe fn tls_context(
    cycle: *const ngx_cycle_t,
    conf: *mut c_void,
) -> Result<Option<*mut SSL_CTX>, String> {
    // SAFETY: by the caller's promise; the structure is longer than what is read of it. The context
    // is only used once the log beside it has shown that it is one.
    unsafe {
        let ssl = conf.byte_add(SSL_OFFSET).cast::<ngx_ssl_t>();
        if !is_tls(cycle, ssl) {
            return Err(differs("the layout of ngx_http_ssl_srv_conf_t"));
        }
        let context = (*ssl).ctx;
        if context.is_null() {
            return Ok(None);
        }
        match SSL_CTX_get_ex_data(context, ngx_ssl_server_conf_index) == conf {
            true => Ok(Some(context)),
            false => Err(differs("the configuration that a TLS context names")),
        }
    }
}

/// Returns true if `ssl` is the TLS of a server. nginx sets its log while it reads the
/// configuration, with TLS or without.
///
/// # Safety
/// As [`tls_context`], where `ssl` can be read.
pub(crate) unsafe fn is_tls(cycle: *const ngx_cycle_t, ssl: *const ngx_ssl_t) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { (*ssl).log == (*(*cycle).old_cycle).log }
}

/// Describes what is not as assumed.
pub(crate) fn differs(assumption: &str) -> String {
    format!(
        "{assumption} is not as this module assumes it of nginx {}",
        Version(nginx_version)
    )
}

/// A notice if this nginx is newer than those that the module has been tested with.
pub(crate) fn untested() -> Option<String> {
    (nginx_version >= UNTESTED).then(|| {
        format!(
            "nginx {} is newer than those that this module has been tested with (1.22 to 1.30)",
            Version(nginx_version)
        )
    })
}

/// The first version that no test has run with.
const UNTESTED: u32 = 1_031_000;

/// Offset of `ssl` in `ngx_http_ssl_srv_conf_t`, whose header nginx-sys does not read. It was the
/// second field, behind the flag of the `ssl` directive, until that was removed in 1.25.1.
const SSL_OFFSET: usize = if nginx_version < 1_025_001 {
    size_of::<ngx_flag_t>()
} else {
    0
};

/// A version as nginx's headers number it: 1022001 is 1.22.1.
struct Version(u32);

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = (self.0 / 1_000_000, self.0 / 1000 % 1000, self.0 % 1000);
        write!(formatter, "{major}.{minor}.{patch}")
    }
}
