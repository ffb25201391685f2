//! The configuration of a location, and how it is inherited.

use std::ffi::{c_char, c_void};
use std::ptr;

use nginx_sys::{
    NGX_HTTP_GZIP_PROXIED_OFF, NGX_HTTP_VERSION_11, ngx_array_t, ngx_bufs_t, ngx_conf_t,
    ngx_cycle_t, ngx_flag_t, ngx_hash_t, ngx_http_conf_ctx_t, ngx_http_html_default_types,
    ngx_http_merge_types, ngx_http_module, ngx_int_t, ngx_pcalloc, ngx_uint_t,
};
use slipstream_deflate::{Coding, Method, Mode, Place, Settings};

use super::Needs;
use super::directives::{ASYNCHRONOUS, DEVICE, FAILOVER, PIPELINED, SOFTWARE};
use crate::config::CONF_ERROR;
use crate::{log, module};

/// What the directives of a location set. nginx's own functions write to most of it.
#[repr(C)]
pub(crate) struct Location {
    pub(super) enabled: ngx_flag_t,
    pub(super) vary: ngx_flag_t,
    pub(super) buffers: ngx_bufs_t,
    pub(super) types: ngx_hash_t,
    pub(super) types_keys: *mut ngx_array_t,
    pub(super) min_length: usize,
    pub(super) level: ngx_int_t,
    pub(super) zstd_level: ngx_int_t,
    pub(super) http_version: ngx_uint_t,
    pub(super) proxied: ngx_uint_t,
    /// Regular expressions for `User-Agent`.
    pub(super) disable: *mut ngx_array_t,
    pub(super) disable_msie6: ngx_flag_t,
    pub(super) chunk_size: usize,
    pub(super) stream_size: usize,
    pub(super) threshold: usize,
    pub(super) offload: ngx_uint_t,
    pub(super) mode: ngx_uint_t,
    pub(super) codings: Codings,
}

/// Content codings that are offered, the preferred first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codings {
    list: [Coding; Coding::ALL.len()],
    count: usize,
}

impl Codings {
    const UNSET: Codings = Codings {
        list: [Coding::Deflate; Coding::ALL.len()],
        count: 0,
    };

    pub(super) fn as_slice(&self) -> &[Coding] {
        &self.list[..self.count]
    }

    /// Returns false if it is there already.
    pub(super) fn add(&mut self, coding: Coding) -> bool {
        let is_new = !self.as_slice().contains(&coding);
        if is_new {
            self.list[self.count] = coding;
            self.count += 1;
        }
        is_new
    }
}

impl Location {
    /// How responses of this location are compressed with `coding`.
    pub(super) fn settings(&self, coding: Coding) -> Settings {
        let level = match coding {
            Coding::Deflate => self.level,
            Coding::Zstd => self.zstd_level,
        };
        Settings {
            method: Method::new(coding, level as u8)
                .expect("levels are checked when they are read"),
            chunk_bytes: self.chunk_size,
            stream_bytes: self.stream_size,
            threshold: self.threshold,
            block_bytes: self.buffers.size,
            place: match self.offload {
                SOFTWARE => Place::Software,
                DEVICE => Place::Device,
                _ => Place::Failover,
            },
            mode: match self.mode {
                PIPELINED => Mode::Pipelined,
                _ => Mode::Asynchronous,
            },
        }
    }
}

/// What is known of all locations together.
#[derive(Default)]
pub(crate) struct Main {
    pub(super) needs: Needs,
}

impl Main {
    /// # Safety
    /// As for [`super::needs`].
    pub(super) unsafe fn of_cycle<'a>(cycle: *const ngx_cycle_t) -> Option<&'a Main> {
        // SAFETY: by the caller's promise; a configuration without an http block has no http context, and with one the
        // context has an entry for each http module.
        unsafe {
            let http = *(*cycle)
                .conf_ctx
                .add((&raw const ngx_http_module.index).read());
            let http = http.cast::<ngx_http_conf_ctx_t>().as_ref()?;
            let main = *http.main_conf.add(module::gzip_context_index());
            main.cast::<Main>().as_ref()
        }
    }
}

const UNSET: ngx_flag_t = -1;
const UNSET_SIZE: usize = usize::MAX;
const UNSET_POINTER: *mut ngx_array_t = usize::MAX as *mut ngx_array_t;

pub(crate) unsafe extern "C" fn create_main(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: nginx passes the configuration being read, with a pool.
    unsafe {
        let main = ngx_pcalloc((*cf).pool, size_of::<Main>()).cast::<Main>();
        if !main.is_null() {
            main.write(Main::default());
        }
        main.cast()
    }
}

pub(crate) unsafe extern "C" fn create_location(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: as above. What a pool gives is aligned for any of nginx's own types, of which this is made.
    unsafe {
        let location = ngx_pcalloc((*cf).pool, size_of::<Location>()).cast::<Location>();
        if !location.is_null() {
            location.write(Location {
                enabled: UNSET,
                vary: UNSET,
                buffers: ngx_bufs_t { num: 0, size: 0 },
                types: ngx_hash_t {
                    buckets: ptr::null_mut(),
                    size: 0,
                },
                types_keys: ptr::null_mut(),
                min_length: UNSET_SIZE,
                level: UNSET,
                zstd_level: UNSET,
                http_version: UNSET_SIZE,
                proxied: 0,
                disable: UNSET_POINTER,
                disable_msie6: UNSET,
                chunk_size: UNSET_SIZE,
                stream_size: UNSET_SIZE,
                threshold: UNSET_SIZE,
                offload: UNSET_SIZE,
                mode: UNSET_SIZE,
                codings: Codings::UNSET,
            });
        }
        location.cast()
    }
}

pub(crate) unsafe extern "C" fn merge_location(
    cf: *mut ngx_conf_t,
    parent: *mut c_void,
    child: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes two configurations made by `create_location`.
    let (parent, child) = unsafe {
        (
            &mut *parent.cast::<Location>(),
            &mut *child.cast::<Location>(),
        )
    };
    let default = Coding::Deflate;
    inherit(&mut child.enabled, parent.enabled, UNSET, 0);
    inherit(&mut child.vary, parent.vary, UNSET, 0);
    if child.buffers.num == 0 {
        child.buffers = parent.buffers;
    }
    if child.buffers.num == 0 {
        child.buffers = ngx_bufs_t {
            num: 4,
            size: 16 * 1024,
        };
    }
    inherit(&mut child.min_length, parent.min_length, UNSET_SIZE, 20);
    inherit(&mut child.level, parent.level, UNSET, 1);
    inherit(&mut child.zstd_level, parent.zstd_level, UNSET, 1);
    inherit(
        &mut child.http_version,
        parent.http_version,
        UNSET_SIZE,
        NGX_HTTP_VERSION_11 as ngx_uint_t,
    );
    inherit(
        &mut child.proxied,
        parent.proxied,
        0,
        NGX_HTTP_GZIP_PROXIED_OFF as ngx_uint_t,
    );
    inherit(
        &mut child.disable,
        parent.disable,
        UNSET_POINTER,
        ptr::null_mut(),
    );
    inherit(&mut child.disable_msie6, parent.disable_msie6, UNSET, 0);
    inherit(&mut child.chunk_size, parent.chunk_size, UNSET_SIZE, CHUNK);
    inherit(
        &mut child.stream_size,
        parent.stream_size,
        UNSET_SIZE,
        STREAM,
    );
    inherit(
        &mut child.threshold,
        parent.threshold,
        UNSET_SIZE,
        THRESHOLD,
    );
    inherit(&mut child.offload, parent.offload, UNSET_SIZE, FAILOVER);
    inherit(&mut child.mode, parent.mode, UNSET_SIZE, ASYNCHRONOUS);
    if child.codings.count == 0 {
        child.codings = parent.codings;
    }
    if child.codings.count == 0 {
        child.codings.add(default);
    }
    // SAFETY: the fields are those that `ngx_http_types_slot` has written to, as in nginx's own modules.
    let merged = unsafe {
        ngx_http_merge_types(
            cf,
            &raw mut child.types_keys,
            &raw mut child.types,
            &raw mut parent.types_keys,
            &raw mut parent.types,
            (&raw mut ngx_http_html_default_types).cast(),
        )
    };
    if !merged.is_null() {
        return merged;
    }
    if child.stream_size < child.chunk_size {
        let (stream, chunk) = (child.stream_size, child.chunk_size);
        // SAFETY: nginx passes the configuration being read.
        unsafe {
            log::configuration_error(
                cf,
                format_args!(
                    "\"slipstream_gzip_stream_size\" ({stream} bytes) must not be less than \
                     \"slipstream_gzip_chunk_size\" ({chunk} bytes)"
                ),
            );
        }
        return CONF_ERROR;
    }
    if child.enabled == 1 {
        // SAFETY: nginx passes a configuration with the http context that it is part of.
        let main = unsafe { main_of(cf) };
        main.needs.compresses = true;
        if child.offload != SOFTWARE {
            main.needs.device_chunk = main.needs.device_chunk.max(child.chunk_size);
            main.needs.asks_for_device |= child.offload == DEVICE;
        }
    }
    ptr::null_mut()
}

/// QWEB section 5.3.1 finds these the best for a card; so do we for an engine.
const CHUNK: usize = 64 * 1024;
const STREAM: usize = 256 * 1024;

/// Handing a chunk over costs the worker less than compressing it from 512 bytes on (`slipstream bench compress --engine`), but there
/// is little to be gained by content of so few packets. Under load pages of 5 KB are served 1.6 times as fast with it at 4 KB.
const THRESHOLD: usize = 4 * 1024;

fn inherit<T: Copy + PartialEq>(child: &mut T, parent: T, unset: T, default: T) {
    if *child == unset {
        *child = if parent == unset { default } else { parent };
    }
}

/// # Safety
/// `cf` is a configuration being read, in an http context.
unsafe fn main_of<'a>(cf: *mut ngx_conf_t) -> &'a mut Main {
    // SAFETY: by the caller's promise the context has an entry for each http module; ours was made by `create_main`.
    unsafe {
        let http = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        &mut *(*(*http).main_conf.add(module::gzip_context_index())).cast::<Main>()
    }
}
