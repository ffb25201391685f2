//! The directives. A directive that nginx's own gzip filter has as well means the same.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use nginx_sys::{
    NGX_CONF_1MORE, NGX_CONF_FLAG, NGX_CONF_TAKE1, NGX_CONF_TAKE2, NGX_HTTP_GZIP_PROXIED_ANY,
    NGX_HTTP_GZIP_PROXIED_AUTH, NGX_HTTP_GZIP_PROXIED_EXPIRED, NGX_HTTP_GZIP_PROXIED_NO_CACHE,
    NGX_HTTP_GZIP_PROXIED_NO_ETAG, NGX_HTTP_GZIP_PROXIED_NO_LM, NGX_HTTP_GZIP_PROXIED_NO_STORE,
    NGX_HTTP_GZIP_PROXIED_OFF, NGX_HTTP_GZIP_PROXIED_PRIVATE, NGX_HTTP_LIF_CONF, NGX_HTTP_LOC_CONF,
    NGX_HTTP_LOC_CONF_OFFSET, NGX_HTTP_MAIN_CONF, NGX_HTTP_SRV_CONF, NGX_HTTP_VERSION_10,
    NGX_HTTP_VERSION_11, NGX_OK, NGX_REGEX_CASELESS, ngx_array_create, ngx_array_push,
    ngx_command_t, ngx_conf_bitmask_t, ngx_conf_check_num_bounds, ngx_conf_enum_t,
    ngx_conf_num_bounds_t, ngx_conf_post_t, ngx_conf_set_bitmask_slot, ngx_conf_set_bufs_slot,
    ngx_conf_set_enum_slot, ngx_conf_set_flag_slot, ngx_conf_set_num_slot, ngx_conf_set_size_slot,
    ngx_conf_t, ngx_http_html_default_types, ngx_http_types_slot, ngx_int_t, ngx_regex_compile,
    ngx_regex_compile_t, ngx_regex_elt_t, ngx_str_t, ngx_uint_t,
};
use slipstream_compress::{CODECS, codec};

use super::configuration::{
    ASYNCHRONOUS, DEVICE, FAILOVER, Location, PIPELINED, SOFTWARE, index_of,
};
use crate::log;
use crate::nginx::{CONF_ERROR, static_str};

pub(crate) static mut COMMANDS: [ngx_command_t; 17] = [
    ngx_command_t {
        type_: (ANYWHERE | NGX_HTTP_LIF_CONF | NGX_CONF_FLAG) as ngx_uint_t,
        set: Some(ngx_conf_set_flag_slot),
        offset: offset_of!(Location, enabled),
        ..named("slipstream_gzip\0")
    },
    ngx_command_t {
        type_: (ANYWHERE | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(ngx_http_types_slot),
        offset: offset_of!(Location, types_keys),
        post: (&raw mut ngx_http_html_default_types).cast(),
        ..named("slipstream_gzip_types\0")
    },
    ngx_command_t {
        set: Some(ngx_conf_set_size_slot),
        offset: offset_of!(Location, min_length),
        ..named("slipstream_gzip_min_length\0")
    },
    ngx_command_t {
        set: Some(set_level),
        ..named("slipstream_gzip_comp_level\0")
    },
    ngx_command_t {
        set: Some(set_level),
        ..named("slipstream_zstd_comp_level\0")
    },
    ngx_command_t {
        type_: (ANYWHERE | NGX_CONF_TAKE2) as ngx_uint_t,
        set: Some(set_buffers),
        offset: offset_of!(Location, buffers),
        ..named("slipstream_gzip_buffers\0")
    },
    ngx_command_t {
        set: Some(ngx_conf_set_enum_slot),
        offset: offset_of!(Location, http_version),
        post: (&raw mut HTTP_VERSIONS).cast(),
        ..named("slipstream_gzip_http_version\0")
    },
    ngx_command_t {
        type_: (ANYWHERE | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(ngx_conf_set_bitmask_slot),
        offset: offset_of!(Location, proxied),
        post: (&raw mut PROXIED).cast(),
        ..named("slipstream_gzip_proxied\0")
    },
    ngx_command_t {
        type_: (ANYWHERE | NGX_CONF_FLAG) as ngx_uint_t,
        set: Some(ngx_conf_set_flag_slot),
        offset: offset_of!(Location, vary),
        ..named("slipstream_gzip_vary\0")
    },
    ngx_command_t {
        type_: (ANYWHERE | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(add_disabled),
        ..named("slipstream_gzip_disable\0")
    },
    ngx_command_t {
        set: Some(ngx_conf_set_size_slot),
        offset: offset_of!(Location, chunk_size),
        post: (&raw mut CHUNK_SIZES).cast(),
        ..named("slipstream_gzip_chunk_size\0")
    },
    ngx_command_t {
        set: Some(ngx_conf_set_size_slot),
        offset: offset_of!(Location, stream_size),
        post: (&raw mut STREAM_SIZES).cast(),
        ..named("slipstream_gzip_stream_size\0")
    },
    ngx_command_t {
        set: Some(ngx_conf_set_size_slot),
        offset: offset_of!(Location, threshold),
        ..named("slipstream_gzip_sw_threshold\0")
    },
    ngx_command_t {
        set: Some(ngx_conf_set_enum_slot),
        offset: offset_of!(Location, offload),
        post: (&raw mut OFFLOADS).cast(),
        ..named("slipstream_gzip_offload\0")
    },
    ngx_command_t {
        set: Some(ngx_conf_set_enum_slot),
        offset: offset_of!(Location, mode),
        post: (&raw mut MODES).cast(),
        ..named("slipstream_gzip_mode\0")
    },
    ngx_command_t {
        type_: (ANYWHERE | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(set_codings),
        ..named("slipstream_gzip_codings\0")
    },
    ngx_command_t::empty(),
];

const ANYWHERE: u32 = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF;

/// A directive with one value, in any http context.
const fn named(name: &'static str) -> ngx_command_t {
    ngx_command_t {
        name: static_str(name),
        type_: (ANYWHERE | NGX_CONF_TAKE1) as ngx_uint_t,
        set: None,
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: ptr::null_mut(),
    }
}

/// Bounds for a size, which nginx has only for numbers.
#[repr(C)]
struct SizeBounds {
    post: ngx_conf_post_t,
    least: usize,
    most: usize,
}

// The limits of a device's buffers.
static mut CHUNK_SIZES: SizeBounds = SizeBounds {
    post: ngx_conf_post_t {
        post_handler: Some(check_size),
    },
    least: 4 * 1024,
    most: 1024 * 1024,
};

static mut STREAM_SIZES: SizeBounds = SizeBounds {
    post: ngx_conf_post_t {
        post_handler: Some(check_size),
    },
    least: 4 * 1024,
    most: 16 * 1024 * 1024,
};

static mut HTTP_VERSIONS: [ngx_conf_enum_t; 3] = [
    choice("1.0\0", NGX_HTTP_VERSION_10 as ngx_uint_t),
    choice("1.1\0", NGX_HTTP_VERSION_11 as ngx_uint_t),
    NO_CHOICE,
];

static mut OFFLOADS: [ngx_conf_enum_t; 4] = [
    choice("software\0", SOFTWARE),
    choice("failover\0", FAILOVER),
    choice("device\0", DEVICE),
    NO_CHOICE,
];

static mut MODES: [ngx_conf_enum_t; 3] = [
    choice("asynchronous\0", ASYNCHRONOUS),
    choice("pipelined\0", PIPELINED),
    NO_CHOICE,
];

static mut PROXIED: [ngx_conf_bitmask_t; 10] = [
    bit("off\0", NGX_HTTP_GZIP_PROXIED_OFF),
    bit("expired\0", NGX_HTTP_GZIP_PROXIED_EXPIRED),
    bit("no-cache\0", NGX_HTTP_GZIP_PROXIED_NO_CACHE),
    bit("no-store\0", NGX_HTTP_GZIP_PROXIED_NO_STORE),
    bit("private\0", NGX_HTTP_GZIP_PROXIED_PRIVATE),
    bit("no_last_modified\0", NGX_HTTP_GZIP_PROXIED_NO_LM),
    bit("no_etag\0", NGX_HTTP_GZIP_PROXIED_NO_ETAG),
    bit("auth\0", NGX_HTTP_GZIP_PROXIED_AUTH),
    bit("any\0", NGX_HTTP_GZIP_PROXIED_ANY),
    ngx_conf_bitmask_t {
        name: NO_NAME,
        mask: 0,
    },
];

const NO_NAME: ngx_str_t = ngx_str_t {
    len: 0,
    data: ptr::null_mut(),
};

const NO_CHOICE: ngx_conf_enum_t = ngx_conf_enum_t {
    name: NO_NAME,
    value: 0,
};

const fn choice(name: &'static str, value: ngx_uint_t) -> ngx_conf_enum_t {
    ngx_conf_enum_t {
        name: static_str(name),
        value,
    }
}

const fn bit(name: &'static str, mask: u32) -> ngx_conf_bitmask_t {
    ngx_conf_bitmask_t {
        name: static_str(name),
        mask: mask as ngx_uint_t,
    }
}

unsafe extern "C" fn check_size(
    cf: *mut ngx_conf_t,
    post: *mut c_void,
    data: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes the `post` of the directive, and the size that it has read.
    unsafe {
        let bounds = &*post.cast::<SizeBounds>();
        let size = *data.cast::<usize>();
        if (bounds.least..=bounds.most).contains(&size) {
            return ptr::null_mut();
        }
        log::configuration_error(
            cf,
            format_args!(
                "\"{}\" must be between {}k and {}k",
                directive(cf),
                bounds.least / 1024,
                bounds.most / 1024
            ),
        );
    }
    CONF_ERROR
}

/// Sets the level of the codec that the directive names: `slipstream_CODEC_comp_level`.
unsafe extern "C" fn set_level(
    cf: *mut ngx_conf_t,
    command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes a directive of `COMMANDS`, whose name is a string.
    let name = unsafe { (*command).name.as_bytes() };
    let codec = name
        .strip_prefix(b"slipstream_")
        .and_then(|name| name.strip_suffix(b"_comp_level"))
        .and_then(codec::with_name)
        .expect("a directive for levels names a codec");
    let offset = index_of(codec) * size_of::<ngx_int_t>();
    let levels = codec.levels();
    let mut bounds = ngx_conf_num_bounds_t {
        post_handler: Some(ngx_conf_check_num_bounds),
        low: (*levels.start()).into(),
        high: (*levels.end()).into(),
    };
    // SAFETY: nginx passes what `create_location` has made, with a level for each codec. nginx's
    // function reads its directive and the bounds during the call.
    unsafe {
        let mut command = ngx_command_t {
            offset: offset_of!(Location, levels) + offset,
            post: (&raw mut bounds).cast(),
            ..*command
        };
        ngx_conf_set_num_slot(cf, &raw mut command, conf)
    }
}

unsafe extern "C" fn set_buffers(
    cf: *mut ngx_conf_t,
    command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes what `create_location` has made; the directive's offset is that of its
    // buffers.
    unsafe {
        let result = ngx_conf_set_bufs_slot(cf, command, conf);
        let buffers = &(*conf.cast::<Location>()).buffers;
        let all = buffers.num.unsigned_abs().saturating_mul(buffers.size);
        if result.is_null() && (buffers.size < 1024 || all > MOST_BUFFERED) {
            log::configuration_error(
                cf,
                "\"slipstream_gzip_buffers\" must be of 1k at least, and of 16m together at most",
            );
            return CONF_ERROR;
        }
        result
    }
}

const MOST_BUFFERED: usize = 16 * 1024 * 1024;

unsafe extern "C" fn set_codings(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes what `create_location` has made.
    let offered = unsafe { &mut (*conf.cast::<Location>()).codecs };
    if !offered.as_slice().is_empty() {
        return c"is duplicate".as_ptr().cast_mut();
    }
    // SAFETY: nginx passes the words of the directive in `args`.
    for word in unsafe { values(cf) } {
        let codec = codec::with_name(word.as_bytes());
        if !codec.is_some_and(|codec| offered.add(codec)) {
            let word = String::from_utf8_lossy(word.as_bytes());
            let names: Vec<_> = CODECS
                .iter()
                .map(|codec| format!("\"{}\"", codec.name()))
                .collect();
            let names = names.join(" or ");
            // SAFETY: nginx passes the configuration being read.
            unsafe {
                log::configuration_error(
                    cf,
                    format_args!(
                        "invalid or repeated coding \"{word}\" in \"slipstream_gzip_codings\", it \
                         must be {names}"
                    ),
                );
            }
            return CONF_ERROR;
        }
    }
    ptr::null_mut()
}

/// Adds regular expressions, as nginx's `gzip_disable` does.
unsafe extern "C" fn add_disabled(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes what `create_location` has made, and a configuration with a pool, from
    // which everything that is kept is allocated.
    unsafe {
        let location = &mut *conf.cast::<Location>();
        if location.disable.addr() == usize::MAX {
            location.disable = ngx_array_create((*cf).pool, 2, size_of::<ngx_regex_elt_t>());
            if location.disable.is_null() {
                return CONF_ERROR;
            }
        }
        for word in values(cf) {
            if word.as_bytes() == b"msie6" {
                location.disable_msie6 = 1;
                continue;
            }
            let mut message = [0; 256];
            let mut compile: ngx_regex_compile_t = std::mem::zeroed();
            compile.pattern = *word;
            compile.pool = (*cf).pool;
            compile.options = NGX_REGEX_CASELESS as ngx_uint_t;
            compile.err = ngx_str_t {
                len: message.len(),
                data: message.as_mut_ptr(),
            };
            if ngx_regex_compile(&raw mut compile) != NGX_OK as ngx_int_t {
                let message = String::from_utf8_lossy(compile.err.as_bytes());
                log::configuration_error(cf, message);
                return CONF_ERROR;
            }
            let place = ngx_array_push(location.disable).cast::<ngx_regex_elt_t>();
            if place.is_null() {
                return CONF_ERROR;
            }
            place.write(ngx_regex_elt_t {
                regex: compile.regex,
                name: word.data,
            });
        }
    }
    ptr::null_mut()
}

/// The name of the directive that is being read.
///
/// # Safety
/// `cf` is a configuration that nginx is reading a directive of.
unsafe fn directive(cf: *mut ngx_conf_t) -> String {
    // SAFETY: by the caller's promise the first word is the name.
    let words = unsafe { (*(*cf).args).as_slice::<ngx_str_t>() };
    String::from_utf8_lossy(words[0].as_bytes()).into_owned()
}

/// The values of the directive that is being read.
///
/// # Safety
/// As for [`directive`].
unsafe fn values<'a>(cf: *mut ngx_conf_t) -> &'a [ngx_str_t] {
    // SAFETY: by the caller's promise; the first word is the name.
    unsafe { &(*(*cf).args).as_slice::<ngx_str_t>()[1..] }
}
