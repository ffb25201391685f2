//! Directives and what they set.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use nginx_sys::{
    NGX_CONF_BLOCK, NGX_CONF_FLAG, NGX_CONF_NOARGS, NGX_DIRECT_CONF, NGX_HTTP_LOC_CONF,
    NGX_HTTP_MAIN_CONF, NGX_HTTP_SRV_CONF, NGX_HTTP_SRV_CONF_OFFSET, NGX_MAIN_CONF, ngx_command_t,
    ngx_conf_parse, ngx_conf_set_flag_slot, ngx_conf_t, ngx_cycle_t, ngx_flag_t, ngx_pcalloc,
    ngx_str_t, ngx_uint_t,
};
use slipstream_lanes::{Backend, LANES};
use slipstream_offload::fiber::LEAST_STACK_BYTES;
use slipstream_offload::policy::Policy;

use crate::module::{self, static_str};
use crate::{log, status};

/// The `slipstream { ... }` block of the main context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreConf {
    /// `fibers`: the most handshakes of one worker that run on fibers at a time.
    pub(crate) fibers: usize,
    /// `fiber_stack`: bytes for each.
    pub(crate) stack_bytes: usize,
    /// `flush`: when a batch that is not full is run.
    pub(crate) policy: Policy,
    /// `lanes`: which backend.
    pub(crate) lanes: Lanes,
    /// `ahead`: how many key pairs, and how many nonces, of each kind may wait to be used; 0 for none.
    pub(crate) ahead: usize,
    given: Given,
}

/// Which directives the configuration has given, to refuse a second one.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    block: bool,
    fibers: bool,
    fiber_stack: bool,
    flush: bool,
    lanes: bool,
    ahead: bool,
}

/// The `lanes` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// The best that this CPU has, if any.
    Auto,
    /// None: everything is served as without the module.
    Off,
    /// This one.
    Only(Backend),
}

/// Each stack is two mappings, and by default Linux allows a process 65,530.
const MOST_FIBERS: usize = 30_000;

/// Three kinds of key pairs and two of nonces wait in locked memory, of which a process has 8 MiB by default.
const MOST_AHEAD: usize = 4096;

const DEFAULT: CoreConf = CoreConf {
    fibers: 4096,
    stack_bytes: 128 * 1024,
    policy: Policy::Cheapest,
    lanes: Lanes::Auto,
    ahead: 64,
    given: Given {
        block: false,
        fibers: false,
        fiber_stack: false,
        flush: false,
        lanes: false,
        ahead: false,
    },
};

/// `slipstream on | off` of a server.
#[repr(C)]
pub(crate) struct ServerConf {
    enabled: ngx_flag_t,
}

impl ServerConf {
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled == 1
    }
}

/// The core configuration of `cycle`.
///
/// # Safety
/// `cycle` is a cycle of nginx whose configuration has been read.
pub(crate) unsafe fn core_conf(cycle: *const ngx_cycle_t) -> CoreConf {
    // SAFETY: `conf_ctx` has an entry for each module, made by `create_core_conf` for ours.
    unsafe { *(*(*cycle).conf_ctx.add(module::core_index())).cast::<CoreConf>() }
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

pub(crate) unsafe extern "C" fn create_core_conf(cycle: *mut ngx_cycle_t) -> *mut c_void {
    // SAFETY: nginx passes a cycle with a pool.
    unsafe {
        let conf = ngx_pcalloc((*cycle).pool, size_of::<CoreConf>()).cast::<CoreConf>();
        if conf.is_null() || module::count_cycle((*cycle).pool).is_err() {
            return ptr::null_mut();
        }
        conf.write(DEFAULT);
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

/// nginx's NGX_CONF_ERROR.
const CONF_ERROR: *mut c_char = usize::MAX as *mut c_char;

unsafe extern "C" fn read_block(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx passes the configuration being read and, for a direct directive of the main
    // context, what `create_core_conf` has made.
    unsafe {
        let core = conf.cast::<CoreConf>();
        if std::mem::replace(&mut (*core).given.block, true) {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let outer = *cf;
        (*cf).handler = Some(read_directive);
        (*cf).handler_conf = core.cast();
        let result = ngx_conf_parse(cf, ptr::null_mut());
        *cf = outer;
        result
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
    match set(core, &words) {
        Ok(()) => ptr::null_mut(),
        Err(message) => {
            // SAFETY: `cf` is the configuration being parsed.
            unsafe { log::configuration_error(cf, message) };
            CONF_ERROR
        }
    }
}

fn set(core: &mut CoreConf, words: &[String]) -> Result<(), String> {
    let [name, value] = words else {
        let name = words.first().map_or("", String::as_str);
        return Err(format!(
            "invalid number of arguments in \"{name}\" directive: give one value"
        ));
    };
    let invalid = |cure: &str| format!("invalid value \"{value}\" in \"{name}\" directive: {cure}");
    let given = match name.as_str() {
        "fibers" => &mut core.given.fibers,
        "fiber_stack" => &mut core.given.fiber_stack,
        "flush" => &mut core.given.flush,
        "lanes" => &mut core.given.lanes,
        "ahead" => &mut core.given.ahead,
        _ => {
            return Err(format!(
                "unknown directive \"{name}\" in slipstream block: fibers, fiber_stack, flush, \
                 lanes and ahead are known"
            ));
        }
    };
    if std::mem::replace(given, true) {
        return Err(format!("\"{name}\" directive is duplicate"));
    }
    match name.as_str() {
        "fibers" => {
            core.fibers = match value.parse() {
                Ok(fibers @ 1..=MOST_FIBERS) => fibers,
                _ => return Err(invalid("give a number from 1 to 30000")),
            };
        }
        "fiber_stack" => {
            core.stack_bytes = match parse_size(value) {
                Some(bytes) if (LEAST_STACK_BYTES..=64 << 20).contains(&bytes) => bytes,
                _ => return Err(invalid("give a size from 64k to 64m, such as 128k")),
            };
        }
        "flush" => {
            core.policy = match (value.as_str(), value.parse()) {
                ("auto", _) => Policy::Cheapest,
                (_, Ok(least @ 1..=LANES)) => Policy::AtLeast(least),
                _ => {
                    return Err(invalid(
                        "give auto, or the number of waiting operations, 1 to 8, from which a \
                         batch is run when the worker is idle",
                    ));
                }
            };
        }
        "lanes" => {
            core.lanes = match value.as_str() {
                "auto" => Lanes::Auto,
                "off" => Lanes::Off,
                "ifma" => Lanes::Only(Backend::Ifma),
                "avx512" => Lanes::Only(Backend::Avx512),
                "portable" => Lanes::Only(Backend::Portable),
                _ => return Err(invalid("give auto, off, ifma, avx512 or portable")),
            };
        }
        // "ahead": other names have been refused above.
        _ => {
            core.ahead = match (value.as_str(), value.parse()) {
                ("off", _) => 0,
                (_, Ok(entries @ LANES..=MOST_AHEAD)) => entries,
                _ => {
                    return Err(invalid(
                        "give off, or the number of key pairs and nonces of each kind, 8 to 4096, \
                         that may be made ahead",
                    ));
                }
            };
        }
    }
    Ok(())
}

/// nginx's notation: a number with an optional k or m.
fn parse_size(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}
