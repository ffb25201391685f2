//! The modules as the rest of the code sees them, as in a C header: their indices, and the number
//! of cycles that use them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use nginx_sys::{ngx_buf_tag_t, ngx_module_t, ngx_pool_cleanup_add, ngx_pool_t, ngx_uint_t};

use crate::nginx::OutOfMemory;

// Defined in `module`, with handlers that use this file.
unsafe extern "C" {
    static mut ngx_slipstream_module: ngx_module_t;
    static mut ngx_http_slipstream_module: ngx_module_t;
    static mut ngx_http_slipstream_gzip_filter_module: ngx_module_t;
    #[cfg(stream)]
    static mut ngx_stream_slipstream_module: ngx_module_t;
}

/// Index of the http module's entry in an http context's `srv_conf`.
pub(crate) fn http_context_index() -> usize {
    // SAFETY: nginx writes the index while it loads the module, before any of our code can ask,
    // and in a single thread.
    unsafe { (&raw const ngx_http_slipstream_module.ctx_index).read() }
}

/// Index of the filter's entry in an http context's `main_conf` and `loc_conf`, and in a request's
/// `ctx`.
pub(crate) fn gzip_context_index() -> usize {
    // SAFETY: as above.
    unsafe { (&raw const ngx_http_slipstream_gzip_filter_module.ctx_index).read() }
}

/// Index of the stream module's entry in a stream context's `srv_conf`.
#[cfg(stream)]
pub(crate) fn stream_context_index() -> usize {
    // SAFETY: nginx writes the index before it reads a block of stream, in a single thread.
    unsafe { (&raw const ngx_stream_slipstream_module.ctx_index).read() }
}

/// Index of the core module's entry in a cycle's `conf_ctx`.
pub(crate) fn core_index() -> usize {
    // SAFETY: as above.
    unsafe { (&raw const ngx_slipstream_module.index).read() }
}

/// The tag of the filter's buffers.
pub(crate) fn gzip_tag() -> ngx_buf_tag_t {
    (&raw mut ngx_http_slipstream_gzip_filter_module).cast()
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
                #[cfg(stream)]
                &raw mut ngx_stream_slipstream_module,
            ] {
                (*module).index = UNSET;
                (*module).ctx_index = UNSET;
            }
        }
    }
}
