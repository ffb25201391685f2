//! The modules' directives, and the configuration that they set.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use nginx_sys::{
    NGX_CONF_BLOCK, NGX_CONF_FLAG, NGX_CONF_NOARGS, NGX_DIRECT_CONF, NGX_HTTP_LOC_CONF,
    NGX_HTTP_MAIN_CONF, NGX_HTTP_SRV_CONF, NGX_HTTP_SRV_CONF_OFFSET, NGX_MAIN_CONF, ngx_command_t,
    ngx_conf_parse, ngx_conf_set_flag_slot, ngx_conf_t, ngx_cycle_t, ngx_flag_t, ngx_pcalloc,
    ngx_str_t, ngx_uint_t,
};

use crate::directives::{CoreConf, DEFAULT};
use crate::nginx::{CONF_ERROR, static_str};
use crate::{index, isolation, log, status};

/// `slipstream on | off` of a server, of http or stream.
#[repr(C)]
pub(crate) struct ServerConf {
    enabled: ngx_flag_t,
}

impl ServerConf {
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled == 1
    }
}

/// Returns the core configuration of `cycle`.
///
/// # Safety
/// `cycle` is a cycle of nginx whose configuration has been read.
pub(crate) unsafe fn core_conf(cycle: *const ngx_cycle_t) -> CoreConf {
    // SAFETY: `conf_ctx` has an entry for each module, made by `create_core_conf` for ours.
    unsafe { *(*(*cycle).conf_ctx.add(index::core_index())).cast::<CoreConf>() }
}

pub(crate) static mut CORE_COMMANDS: [ngx_command_t; 2] = [
    ngx_command_t {
        name: static_str("slipstream\0"),
        type_: (NGX_MAIN_CONF | NGX_DIRECT_CONF | NGX_CONF_BLOCK | NGX_CONF_NOARGS) as ngx_uint_t,
        set: Some(read_block),
        conf: 0,
        offset: 0,
        post: ptr::null_mut(),
    },
    ngx_command_t::empty(),
];

pub(crate) static mut HTTP_COMMANDS: [ngx_command_t; 3] = [
    ngx_command_t {
        name: static_str("slipstream\0"),
        type_: (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_CONF_FLAG) as ngx_uint_t,
        set: Some(ngx_conf_set_flag_slot),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: offset_of!(ServerConf, enabled),
        post: ptr::null_mut(),
    },
    ngx_command_t {
        name: static_str("slipstream_status\0"),
        type_: (NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS) as ngx_uint_t,
        set: Some(status::set_handler),
        conf: 0,
        offset: 0,
        post: ptr::null_mut(),
    },
    ngx_command_t::empty(),
];

#[cfg(stream)]
pub(crate) static mut STREAM_COMMANDS: [ngx_command_t; 2] = [
    ngx_command_t {
        name: static_str("slipstream\0"),
        type_: (nginx_sys::NGX_STREAM_MAIN_CONF | nginx_sys::NGX_STREAM_SRV_CONF | NGX_CONF_FLAG)
            as ngx_uint_t,
        set: Some(ngx_conf_set_flag_slot),
        conf: nginx_sys::NGX_STREAM_SRV_CONF_OFFSET,
        offset: offset_of!(ServerConf, enabled),
        post: ptr::null_mut(),
    },
    ngx_command_t::empty(),
];

pub(crate) unsafe extern "C" fn create_core_conf(cycle: *mut ngx_cycle_t) -> *mut c_void {
    // SAFETY: nginx passes a cycle with a pool.
    unsafe {
        let conf = ngx_pcalloc((*cycle).pool, size_of::<CoreConf>()).cast::<CoreConf>();
        if conf.is_null() || index::count_cycle((*cycle).pool).is_err() {
            return ptr::null_mut();
        }
        conf.write(DEFAULT);
        isolation::begin();
        conf.cast()
    }
}

pub(crate) unsafe extern "C" fn create_server_conf(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: nginx passes the configuration being read, with a pool.
    unsafe {
        let conf = ngx_pcalloc((*cf).pool, size_of::<ServerConf>()).cast::<ServerConf>();
        if !conf.is_null() {
            conf.write(ServerConf { enabled: UNSET });
        }
        conf.cast()
    }
}

pub(crate) unsafe extern "C" fn merge_server_conf(
    _cf: *mut ngx_conf_t,
    parent: *mut c_void,
    child: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes two configurations made by `create_server_conf`.
    let (parent, child) = unsafe {
        (
            &*parent.cast::<ServerConf>(),
            &mut *child.cast::<ServerConf>(),
        )
    };
    if child.enabled == UNSET {
        child.enabled = if parent.enabled == UNSET {
            0
        } else {
            parent.enabled
        };
    }
    ptr::null_mut()
}

const UNSET: ngx_flag_t = -1;

unsafe extern "C" fn read_block(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes the configuration being read and, for a direct directive of the main
    // context, what `create_core_conf` has made.
    unsafe {
        let core = conf.cast::<CoreConf>();
        if std::mem::replace(&mut (*core).has_block, true) {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let outer = *cf;
        (*cf).handler = Some(read_directive);
        (*cf).handler_conf = core.cast();
        let result = ngx_conf_parse(cf, ptr::null_mut());
        *cf = outer;
        if !result.is_null() {
            return result;
        }
        match (*core).check() {
            Ok(()) => ptr::null_mut(),
            Err(message) => {
                log::configuration_error(cf, message);
                CONF_ERROR
            }
        }
    }
}

unsafe extern "C" fn read_directive(
    cf: *mut ngx_conf_t,
    _dummy: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes the words of the directive in `args`; `conf` is the handler_conf set in
    // `read_block`.
    let (words, core) = unsafe {
        let words: Vec<String> = (*(*cf).args)
            .as_slice::<ngx_str_t>()
            .iter()
            .map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned())
            .collect();
        (words, &mut *conf.cast::<CoreConf>())
    };
    match core.set(&words) {
        Ok(()) => ptr::null_mut(),
        Err(message) => {
            // SAFETY: `cf` is the configuration being parsed.
            unsafe { log::configuration_error(cf, message) };
            CONF_ERROR
        }
    }
}
