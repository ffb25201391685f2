//! The configuration of a location, and its inheritance.

use std::ffi::{c_char, c_void};
use std::ptr;

use nginx_sys::{
    NGX_HTTP_GZIP_PROXIED_OFF, NGX_HTTP_VERSION_11, ngx_array_t, ngx_bufs_t, ngx_conf_t,
    ngx_cycle_t, ngx_flag_t, ngx_hash_t, ngx_http_conf_ctx_t, ngx_http_html_default_types,
    ngx_http_merge_types, ngx_http_module, ngx_int_t, ngx_pcalloc, ngx_uint_t,
};
use slipstream_compress::{CODECS, Codec, GZIP, Method, Mode, Offload, Settings};

use super::needs::Needs;
use crate::nginx::CONF_ERROR;
use crate::{index, log};

/// The settings of a location. nginx's own functions write most of them.
#[repr(C)]
pub(crate) struct Location {
    pub(super) enabled: ngx_flag_t,
    pub(super) vary: ngx_flag_t,
    pub(super) buffers: ngx_bufs_t,
    pub(super) types: ngx_hash_t,
    pub(super) types_keys: *mut ngx_array_t,
    pub(super) min_length: usize,
    /// The level of each codec, in the order of [`CODECS`].
    pub(super) levels: [ngx_int_t; CODECS.len()],
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
    pub(super) codecs: Offered,
}

/// Values of `slipstream_gzip_offload`.
pub(super) const SOFTWARE: ngx_uint_t = 0;
pub(super) const FAILOVER: ngx_uint_t = 1;
pub(super) const DEVICE: ngx_uint_t = 2;

/// Values of `slipstream_gzip_mode`.
pub(super) const ASYNCHRONOUS: ngx_uint_t = 0;
pub(super) const PIPELINED: ngx_uint_t = 1;

/// Codecs that are offered to clients, the preferred first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    list: [&'static dyn Codec; CODECS.len()],
    count: usize,
}

impl Offered {
    const UNSET: Offered = Offered {
        list: [GZIP; CODECS.len()],
        count: 0,
    };

    pub(super) fn as_slice(&self) -> &[&'static dyn Codec] {
        &self.list[..self.count]
    }

    /// Adds a codec. Returns false if it was offered already.
    pub(super) fn add(&mut self, codec: &'static dyn Codec) -> bool {
        let is_new = !self.as_slice().contains(&codec);
        if is_new {
            self.list[self.count] = codec;
            self.count += 1;
        }
        is_new
    }
}

impl Location {
    /// The settings of sessions of this location that compress by `codec`.
    pub(super) fn settings(&self, codec: &'static dyn Codec) -> Settings {
        let index = index_of(codec);
        Settings {
            method: Method::new(codec, self.levels[index] as u8)
                .expect("levels are checked when they are read"),
            chunk_bytes: self.chunk_size,
            stream_bytes: self.stream_size,
            threshold: self.threshold,
            block_bytes: self.buffers.size,
            offload: match self.offload {
                SOFTWARE => Offload::Software,
                DEVICE => Offload::Device,
                _ => Offload::Failover,
            },
            mode: match self.mode {
                PIPELINED => Mode::Pipelined,
                _ => Mode::Asynchronous,
            },
        }
    }
}

/// The index of `codec` in [`CODECS`].
pub(super) fn index_of(codec: &'static dyn Codec) -> usize {
    let index = CODECS.iter().position(|known| *known == codec);
    index.expect("only codecs of the table are configured")
}

/// The needs of the configuration of `cycle`.
///
/// # Safety
/// `cycle` is a cycle of nginx whose configuration has been read.
pub(crate) unsafe fn needs(cycle: *const ngx_cycle_t) -> Needs {
    // SAFETY: by the caller's promise.
    unsafe { Main::of_cycle(cycle) }.map_or(Needs::default(), |main| main.needs)
}

/// The needs of all locations together.
#[derive(Default)]
struct Main {
    needs: Needs,
}

impl Main {
    /// # Safety
    /// As for [`needs`].
    unsafe fn of_cycle<'a>(cycle: *const ngx_cycle_t) -> Option<&'a Main> {
        // SAFETY: by the caller's promise; a configuration without an http block has no http
        // context, and with one the context has an entry for each http module.
        unsafe {
            let http = *(*cycle)
                .conf_ctx
                .add((&raw const ngx_http_module.index).read());
            let http = http.cast::<ngx_http_conf_ctx_t>().as_ref()?;
            let main = *http.main_conf.add(index::gzip_context_index());
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
    // SAFETY: as above. Memory from a pool is aligned for any of nginx's own types, of which this
    // is made.
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
                levels: [UNSET; CODECS.len()],
                http_version: UNSET_SIZE,
                proxied: 0,
                disable: UNSET_POINTER,
                disable_msie6: UNSET,
                chunk_size: UNSET_SIZE,
                stream_size: UNSET_SIZE,
                threshold: UNSET_SIZE,
                offload: UNSET_SIZE,
                mode: UNSET_SIZE,
                codecs: Offered::UNSET,
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
    for (index, codec) in CODECS.iter().enumerate() {
        inherit(
            &mut child.levels[index],
            parent.levels[index],
            UNSET,
            codec.default_level().into(),
        );
    }
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
    if child.codecs.count == 0 {
        child.codecs = parent.codecs;
    }
    if child.codecs.count == 0 {
        child.codecs.add(GZIP);
    }
    // SAFETY: the fields are those that `ngx_http_types_slot` has written to, as in nginx's own
    // modules.
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

/// Lengths of chunks and streams, in bytes. They are the best for a card (QWEB, section 5.3.1), and
/// for an engine.
const CHUNK: usize = 64 * 1024;
const STREAM: usize = 256 * 1024;

/// Shorter responses are compressed by the worker, in bytes. From 512 bytes on, submitting a chunk
/// costs the worker less than compressing it (`slipstream bench compress --engine`), but content of
/// so few packets gains little. Under load pages of 5 KB are served 1.6 times as fast with a
/// threshold of 4 KB.
const THRESHOLD: usize = 4 * 1024;

fn inherit<T: Copy + PartialEq>(child: &mut T, parent: T, unset: T, default: T) {
    if *child == unset {
        *child = if parent == unset { default } else { parent };
    }
}

/// # Safety
/// `cf` is a configuration being read, in an http context.
unsafe fn main_of<'a>(cf: *mut ngx_conf_t) -> &'a mut Main {
    // SAFETY: by the caller's promise the context has an entry for each http module; ours was made
    // by `create_main`.
    unsafe {
        let http = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        &mut *(*(*http).main_conf.add(index::gzip_context_index())).cast::<Main>()
    }
}
