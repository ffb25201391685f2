//! What nginx looks up in the shared object: its modules, their names and their order.
//!
//! `slipstream` is a block in the main context, for what concerns the worker, and a flag in http
//! and server, so it takes a core module and an http module. The filter is a third one, since it has a place among filters.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use nginx_sys::{
    NGX_CORE_MODULE, NGX_HTTP_MODULE, ngx_core_module_t, ngx_http_module_t, ngx_module_t,
    ngx_pool_cleanup_add, ngx_pool_t, ngx_str_t, ngx_uint_t,
};

use crate::{config, gzip, keys, worker};

/// The names of exported symbols are looked up by `ngx_load_module`.
#[unsafe(no_mangle)]
pub static mut ngx_modules: [*const ngx_module_t; 4] = [
    &raw const ngx_slipstream_module,
    &raw const ngx_http_slipstream_module,
    &raw const ngx_http_slipstream_gzip_filter_module,
    ptr::null(),
];

/// Names for messages, in the order of [`ngx_modules`].
#[unsafe(no_mangle)]
pub static mut ngx_module_names: [*const c_char; 4] = [
    c"ngx_slipstream_module".as_ptr(),
    c"ngx_http_slipstream_module".as_ptr(),
    FILTER_NAME.as_ptr(),
    ptr::null(),
];

/// The filter stands before the first of those behind it that is there, which is right behind nginx's own gzip filter. Filters are
/// called from the last to the first: what is compressed here, that one finds compressed. The other modules ask for no place.
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

const FILTER_NAME: &CStr = c"ngx_http_slipstream_gzip_filter_module";

/// The worker's side: provider, fibers, lanes.
#[unsafe(no_mangle)]
pub static mut ngx_slipstream_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const CORE_CONTEXT).cast_mut().cast::<c_void>(),
    commands: (&raw mut config::CORE_COMMANDS).cast(),
    type_: NGX_CORE_MODULE as ngx_uint_t,
    init_module: Some(keys::init_module),
    init_process: Some(worker::init_process),
    exit_process: Some(worker::exit_process),
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

/// Index of the http module's entry in an http context's `srv_conf`.
pub(crate) fn http_context_index() -> usize {
    // SAFETY: nginx writes the index while it loads the module, before any of our code can ask,
    // and in a single thread.
    unsafe { (&raw const ngx_http_slipstream_module.ctx_index).read() }
}

/// Index of the filter's entry in an http context's `main_conf` and `loc_conf`, and in a request's `ctx`.
pub(crate) fn gzip_context_index() -> usize {
    // SAFETY: as above.
    unsafe { (&raw const ngx_http_slipstream_gzip_filter_module.ctx_index).read() }
}

/// Index of the core module's entry in a cycle's `conf_ctx`.
pub(crate) fn core_index() -> usize {
    // SAFETY: as above.
    unsafe { (&raw const ngx_slipstream_module.index).read() }
}

/// Has the modules' indices given back when the last cycle that uses them is gone. nginx relies on
/// unloading for that, but this library stays loaded; with its old indices it could later be given
/// the place of another module.
///
/// # Safety
/// `pool` is that of a cycle which is loading the modules.
pub(crate) unsafe fn count_cycle(pool: *mut ngx_pool_t) -> Result<(), OutOfMemory> {
    // SAFETY: by the caller's promise; the handler takes no data.
    unsafe {
        let cleanup = ngx_pool_cleanup_add(pool, 0);
        if cleanup.is_null() {
            return Err(OutOfMemory);
        }
        (*cleanup).handler = Some(forget_cycle);
    }
    CYCLES.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// A pool of nginx has no memory left.
pub(crate) struct OutOfMemory;

static CYCLES: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn forget_cycle(_data: *mut c_void) {
    if CYCLES.fetch_sub(1, Ordering::Relaxed) == 1 {
        const UNSET: ngx_uint_t = ngx_uint_t::MAX;
        // SAFETY: nginx's one thread; no cycle is left whose configuration these would index.
        unsafe {
            for module in [
                &raw mut ngx_slipstream_module,
                &raw mut ngx_http_slipstream_module,
                &raw mut ngx_http_slipstream_gzip_filter_module,
            ] {
                (*module).index = UNSET;
                (*module).ctx_index = UNSET;
            }
        }
    }
}

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
