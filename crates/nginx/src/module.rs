//! The symbols that nginx looks up in the shared object: its modules, their names and their order.
//!
//! `slipstream` is a block in the main context, for settings of the worker, and a flag in http,
//! stream and their servers, so it takes a core module, an http module and a stream module. The
//! filter is a module of its own, since it has a place among filters.
//!
//! An nginx without stream lists the module for it, and never asks it for anything: it looks for
//! modules of a type only when it reads that type's block.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use nginx_sys::{
    NGX_CORE_MODULE, NGX_HTTP_MODULE, ngx_core_module_t, ngx_http_module_t, ngx_module_t,
    ngx_uint_t,
};

use crate::nginx::static_str;
use crate::{config, gzip, keys, process};

/// The names of exported symbols are looked up by `ngx_load_module`.
#[unsafe(no_mangle)]
pub static mut ngx_modules: [*const ngx_module_t; MODULES + 1] = [
    &raw const ngx_slipstream_module,
    &raw const ngx_http_slipstream_module,
    &raw const ngx_http_slipstream_gzip_filter_module,
    #[cfg(stream)]
    &raw const ngx_stream_slipstream_module,
    ptr::null(),
];

/// Names for messages, in the order of [`ngx_modules`].
#[unsafe(no_mangle)]
pub static mut ngx_module_names: [*const c_char; MODULES + 1] = [
    c"ngx_slipstream_module".as_ptr(),
    c"ngx_http_slipstream_module".as_ptr(),
    FILTER_NAME.as_ptr(),
    #[cfg(stream)]
    c"ngx_stream_slipstream_module".as_ptr(),
    ptr::null(),
];

/// The filter's place is before the first of these that nginx has, which is right behind nginx's
/// own gzip filter. Filters are called from the last to the first, so nginx's filter finds
/// responses compressed that this one has compressed. The other modules ask for no place.
#[unsafe(no_mangle)]
pub static mut ngx_module_order: [*const c_char; 13] = [
    FILTER_NAME.as_ptr(),
    c"ngx_http_postpone_filter_module".as_ptr(),
    c"ngx_http_ssi_filter_module".as_ptr(),
    c"ngx_http_charset_filter_module".as_ptr(),
    c"ngx_http_xslt_filter_module".as_ptr(),
    c"ngx_http_image_filter_module".as_ptr(),
    c"ngx_http_sub_filter_module".as_ptr(),
    c"ngx_http_addition_filter_module".as_ptr(),
    c"ngx_http_gunzip_filter_module".as_ptr(),
    c"ngx_http_userid_filter_module".as_ptr(),
    c"ngx_http_headers_filter_module".as_ptr(),
    c"ngx_http_copy_filter_module".as_ptr(),
    ptr::null(),
];

/// The number of modules.
const MODULES: usize = if cfg!(stream) { 4 } else { 3 };

const FILTER_NAME: &CStr = c"ngx_http_slipstream_gzip_filter_module";

/// The worker's side: provider, fibers, lanes.
#[unsafe(no_mangle)]
pub static mut ngx_slipstream_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const CORE_CONTEXT).cast_mut().cast::<c_void>(),
    commands: (&raw mut config::CORE_COMMANDS).cast(),
    type_: NGX_CORE_MODULE as ngx_uint_t,
    init_module: Some(keys::init_module),
    init_process: Some(process::init_process),
    exit_process: Some(process::exit_process),
    exit_master: Some(process::exit_master),
    ..ngx_module_t::default()
};

/// The http side: which servers take part, and the status page.
#[unsafe(no_mangle)]
pub static mut ngx_http_slipstream_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const HTTP_CONTEXT).cast_mut().cast::<c_void>(),
    commands: (&raw mut config::HTTP_COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

/// The filter that compresses responses.
#[unsafe(no_mangle)]
pub static mut ngx_http_slipstream_gzip_filter_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const FILTER_CONTEXT).cast_mut().cast::<c_void>(),
    commands: (&raw mut gzip::COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

/// The stream side: which servers take part.
#[cfg(stream)]
#[unsafe(no_mangle)]
pub static mut ngx_stream_slipstream_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const STREAM_CONTEXT).cast_mut().cast::<c_void>(),
    commands: (&raw mut config::STREAM_COMMANDS).cast(),
    type_: nginx_sys::NGX_STREAM_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

#[repr(transparent)]
struct Shared<T>(T);

// SAFETY: nginx reads the tables from one thread; they hold only function pointers and names.
unsafe impl<T> Sync for Shared<T> {}

static CORE_CONTEXT: Shared<ngx_core_module_t> = Shared(ngx_core_module_t {
    name: static_str("slipstream\0"),
    create_conf: Some(config::create_core_conf),
    init_conf: Some(keys::init_conf),
});

static HTTP_CONTEXT: Shared<ngx_http_module_t> = Shared(ngx_http_module_t {
    preconfiguration: None,
    postconfiguration: None,
    create_main_conf: None,
    init_main_conf: None,
    create_srv_conf: Some(config::create_server_conf),
    merge_srv_conf: Some(config::merge_server_conf),
    create_loc_conf: None,
    merge_loc_conf: None,
});

#[cfg(stream)]
static STREAM_CONTEXT: Shared<nginx_sys::ngx_stream_module_t> =
    Shared(nginx_sys::ngx_stream_module_t {
        preconfiguration: None,
        postconfiguration: None,
        create_main_conf: None,
        init_main_conf: None,
        create_srv_conf: Some(config::create_server_conf),
        merge_srv_conf: Some(config::merge_server_conf),
    });

static FILTER_CONTEXT: Shared<ngx_http_module_t> = Shared(ngx_http_module_t {
    preconfiguration: Some(gzip::add_variables),
    postconfiguration: Some(gzip::install),
    create_main_conf: Some(gzip::create_main),
    init_main_conf: None,
    create_srv_conf: None,
    merge_srv_conf: None,
    create_loc_conf: Some(gzip::create_location),
    merge_loc_conf: Some(gzip::merge_location),
});
