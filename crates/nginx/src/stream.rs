//! Handshakes of stream's servers.
//!
//! Stream may be part of nginx, or a dynamic module that is loaded before this one, after it, or
//! not at all. So nothing of it is linked: its modules are found by their names, and its functions
//! are looked up when a worker starts.
//!
//! The handshake is one phase of a session. In a worker, [`tls_phase`] takes the place of that
//! phase's handler, and runs nginx's own on a fiber. The phases before and behind it run on the
//! main stack as ever, so that no gate is needed: a handshake may end in its first call.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::mem::offset_of;

use nginx_sys::{
    NGX_STREAM_MODULE, ngx_connection_t, ngx_cycle, ngx_cycle_t, ngx_int_t, ngx_module_t,
    ngx_ssl_t, ngx_stream_conf_ctx_t, ngx_stream_core_main_conf_t, ngx_stream_core_srv_conf_t,
    ngx_stream_handler_pt, ngx_stream_phases_NGX_STREAM_SSL_PHASE, ngx_stream_session_t,
};

#[cfg(not(stream_ssl_srv_conf))]
use nginx_sys::ngx_stream_ssl_conf_t as SslConf;
#[cfg(stream_ssl_srv_conf)]
use nginx_sys::ngx_stream_ssl_srv_conf_t as SslConf;

use crate::assumptions::{self, differs};
use crate::config::ServerConf;
use crate::connection::Connection;
use crate::handshake::{self, Phases};
use crate::index;
use crate::log::{self, Level};
use crate::servers::Group;

/// Returns the servers of stream in `cycle`.
///
/// # Safety
/// `cycle` is a cycle whose configuration has been read, and the one before it is still there.
pub(crate) unsafe fn servers(cycle: *const ngx_cycle_t) -> Group {
    let mut group = Group::default();
    // SAFETY: by the caller's promise the tree of stream's configuration is complete; each level is
    // indexed with the module's own index, as in `servers::http`.
    unsafe {
        let Some(stream) = Stream::find(cycle) else {
            return group;
        };
        let Some(ssl_module) = module(cycle, c"ngx_stream_ssl_module") else {
            return group;
        };
        for &server in (*stream.main_conf)
            .servers
            .as_slice::<*mut ngx_stream_core_srv_conf_t>()
        {
            let confs = (*(*server).ctx).srv_conf;
            let ours = *confs.add(index::stream_context_index());
            let ssl = *confs.add((*ssl_module).ctx_index);
            let ssl = ssl.byte_add(offset_of!(SslConf, ssl)).cast::<ngx_ssl_t>();
            group.any_enabled |= (*ours.cast::<ServerConf>()).is_enabled();
            if !assumptions::is_tls(cycle, ssl) {
                group.differs = Some(differs("the layout of stream's TLS servers"));
            } else if !(*ssl).ctx.is_null() {
                group.contexts.push((*ssl).ctx);
            }
        }
    }
    if group.differs.is_some() {
        group.contexts.clear();
    }
    group
}

/// Has the handshakes of stream's servers run on fibers in this worker.
///
/// # Errors
/// The part of nginx that is missing, or that is not as it is expected.
///
/// # Safety
/// Called in a worker with its cycle, before it accepts connections.
pub(crate) unsafe fn install(cycle: *const ngx_cycle_t) -> Result<(), &'static str> {
    // SAFETY: by the caller's promise the configuration is complete, and nothing else reads it now.
    unsafe {
        let stream = Stream::find(cycle).ok_or("there is no module ngx_stream_core_module")?;
        let generic_phase = function(c"ngx_stream_core_generic_phase")
            .ok_or("there is no function ngx_stream_core_generic_phase")?;
        let run_phases = function(c"ngx_stream_core_run_phases")
            .ok_or("there is no function ngx_stream_core_run_phases")?;
        let phases = &(*stream.main_conf).phases;
        let [handler] = *phases[ngx_stream_phases_NGX_STREAM_SSL_PHASE as usize]
            .handlers
            .as_slice::<ngx_stream_handler_pt>()
        else {
            return Err("the TLS phase has not one handler");
        };
        let handler = handler.ok_or("the TLS phase has no handler")?;
        let mut places = Vec::new();
        let mut place = (*stream.main_conf).phase_engine.handlers;
        while let Some(checker) = (*place).checker {
            if (*place)
                .handler
                .is_some_and(|known| known as usize == handler as usize)
            {
                if checker as usize != generic_phase as usize {
                    return Err("the TLS phase is not run by ngx_stream_core_generic_phase");
                }
                places.push(place);
            }
            place = place.add(1);
        }
        let [place] = *places else {
            return Err("the handler of the TLS phase is not called once");
        };
        PHASE.set(Some(Phase {
            handler,
            // The symbol is nginx's own function of this type in every version with stream.
            run_phases: std::mem::transmute::<*mut c_void, RunPhases>(run_phases),
        }));
        (*place).handler = Some(tls_phase);
    }
    Ok(())
}

/// nginx's own functions.
#[derive(Clone, Copy)]
struct Phase {
    /// The handler of the TLS phase.
    handler: Handler,
    /// `ngx_stream_core_run_phases`.
    run_phases: RunPhases,
}

type Handler = unsafe extern "C" fn(*mut ngx_stream_session_t) -> ngx_int_t;
type RunPhases = unsafe extern "C" fn(*mut ngx_stream_session_t);

thread_local! {
    /// `None` where handshakes of stream are left to nginx.
    static PHASE: Cell<Option<Phase>> = const { Cell::new(None) };
    /// A session was not what the headers say.
    static IS_ODD: Cell<bool> = const { Cell::new(false) };
}

/// In place of `ngx_stream_ssl_handler`.
unsafe extern "C" fn tls_phase(session: *mut ngx_stream_session_t) -> ngx_int_t {
    let phase = PHASE
        .get()
        .expect("it is set before this handler is installed");
    // SAFETY: as nginx would call it.
    let run = move || unsafe { (phase.handler)(session) };
    // SAFETY: nginx passes a session.
    let (is_known, takes_tls) = unsafe { (is_known(session), (*session).ssl() != 0) };
    if !is_known {
        complain();
    }
    if !is_known || !takes_tls {
        return run();
    }
    // SAFETY: the connection of a session that is as expected.
    let c = unsafe { Connection::new((*session).connection) };
    handshake::run_phase(c, &PHASES, run)
}

static PHASES: Phases = Phases {
    takes_part,
    go_on: run_phases,
};

fn takes_part(c: Connection) -> bool {
    // SAFETY: as long as its handshake is ours the connection has a session, which has the
    // configuration of the server chosen so far.
    unsafe {
        let conf = *(*session_of(c)).srv_conf.add(index::stream_context_index());
        (*conf.cast::<ServerConf>()).is_enabled()
    }
}

fn run_phases(c: Connection) {
    let phase = PHASE.get().expect("a phase of a session has been run");
    // SAFETY: nginx's own function, with the session that has waited for its TLS phase.
    unsafe { (phase.run_phases)(session_of(c)) };
}

fn session_of(c: Connection) -> *mut ngx_stream_session_t {
    c.data().cast()
}

/// Checks the fields of a session that are relied on, as far as their values are known.
///
/// # Safety
/// `session` is a session of stream.
unsafe fn is_known(session: *mut ngx_stream_session_t) -> bool {
    // SAFETY: by the caller's promise; the connection is read only if the beginning of the session
    // is what it should be.
    unsafe {
        (*session).signature == NGX_STREAM_MODULE
            && is_connection((*session).connection)
            && Connection::new((*session).connection).data() == session.cast()
    }
}

/// Returns true if `connection` is an element of the array of connections.
fn is_connection(connection: *const ngx_connection_t) -> bool {
    // SAFETY: the worker's cycle.
    let (first, number) = unsafe { ((*ngx_cycle).connections, (*ngx_cycle).connection_n) };
    let all = (first as usize)..(first as usize + number * size_of::<ngx_connection_t>());
    all.contains(&(connection as usize))
}

fn complain() {
    if !IS_ODD.replace(true) {
        // SAFETY: the worker's cycle and its log.
        unsafe {
            log::write(
                (*ngx_cycle).log,
                Level::Warning,
                "a session of stream is not as the headers of this nginx say, handshakes of stream \
                 are served as without the module",
            );
        }
    }
}

/// Stream's configuration.
struct Stream {
    main_conf: *mut ngx_stream_core_main_conf_t,
}

impl Stream {
    /// Returns `None` if stream is not there, or has no block in the configuration.
    ///
    /// # Safety
    /// `cycle` is a cycle whose configuration has been read.
    unsafe fn find(cycle: *const ngx_cycle_t) -> Option<Self> {
        // SAFETY: by the caller's promise; a module's index is its place in `conf_ctx`, or that in
        // its kind's `main_conf`.
        unsafe {
            let block = *(*cycle)
                .conf_ctx
                .add((*module(cycle, c"ngx_stream_module")?).index);
            if block.is_null() {
                return None;
            }
            let core = module(cycle, c"ngx_stream_core_module")?;
            let main = (*block.cast::<ngx_stream_conf_ctx_t>()).main_conf;
            Some(Self {
                main_conf: (*main.add((*core).ctx_index)).cast(),
            })
        }
    }
}

/// Returns the module of `cycle` with this name.
///
/// # Safety
/// `cycle` is a cycle whose modules are loaded.
unsafe fn module(cycle: *const ngx_cycle_t, name: &CStr) -> Option<*const ngx_module_t> {
    // SAFETY: by the caller's promise `modules` is an array that ends with null, and nginx has
    // given each of them its name.
    unsafe {
        let mut place = (*cycle).modules;
        while !(*place).is_null() {
            if CStr::from_ptr((**place).name) == name {
                return Some(*place);
            }
            place = place.add(1);
        }
    }
    None
}

/// Returns a function of nginx, or of a module that it has loaded: it makes their symbols known to
/// all.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!function.is_null()).then_some(function)
}
