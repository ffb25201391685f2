//! Writing to nginx's logs.

use std::fmt::Display;

use nginx_sys::{
    NGX_LOG_ALERT, NGX_LOG_EMERG, NGX_LOG_NOTICE, NGX_LOG_WARN, ngx_conf_log_error, ngx_conf_t,
    ngx_log_error_core, ngx_log_stderr, ngx_log_t, ngx_quiet_mode, ngx_uint_t,
};

/// nginx's log levels that the module uses.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Level {
    Emergency = NGX_LOG_EMERG,
    Alert = NGX_LOG_ALERT,
    Warning = NGX_LOG_WARN,
    Notice = NGX_LOG_NOTICE,
}

/// Writes one line, prefixed with the module's name.
///
/// # Safety
/// `log` is a valid log of nginx.
pub(crate) unsafe fn write(log: *mut ngx_log_t, level: Level, message: impl Display) {
    // SAFETY: by the caller's promise.
    if unsafe { (*log).log_level } < level as ngx_uint_t {
        return;
    }
    let line = format!("slipstream: {message}");
    // SAFETY: the log is valid; "%*s" takes a length and as many bytes.
    unsafe {
        ngx_log_error_core(
            level as ngx_uint_t,
            log,
            0,
            c"%*s".as_ptr(),
            line.len(),
            line.as_ptr(),
        );
    }
}

/// Writes one line for a person who tests a configuration, as nginx writes that its syntax is ok.
pub(crate) fn tell(message: impl Display) {
    // SAFETY: nginx's global, written by its one thread.
    if unsafe { ngx_quiet_mode } != 0 {
        return;
    }
    let line = format!("slipstream: {message}");
    // SAFETY: "%*s" takes a length and as many bytes.
    unsafe { ngx_log_stderr(0, c"%*s".as_ptr(), line.len(), line.as_ptr()) };
}

/// Reports an error in the configuration; nginx adds the file and the line.
///
/// # Safety
/// `cf` is the configuration that nginx is parsing.
pub(crate) unsafe fn configuration_error(cf: *mut ngx_conf_t, message: impl Display) {
    let line = message.to_string();
    // SAFETY: as in `write`.
    unsafe {
        ngx_conf_log_error(
            Level::Emergency as ngx_uint_t,
            cf,
            0,
            c"%*s".as_ptr(),
            line.len(),
            line.as_ptr(),
        );
    }
}
