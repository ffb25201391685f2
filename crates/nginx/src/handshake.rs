//! Handshakes on fibers.
//!
//! While a connection's handshake is ours, its event handlers are [`on_event`] (which runs nginx's
//! own handler on a fiber) or, while that fiber is paused, [`on_event_while_paused`] (the event
//! disorder of QTLS section 4.2). The callback that ends the handshake is [`on_handshaked`], so
//! that nginx's own, which starts the HTTP request or goes on with stream's phases, runs on the main
//! stack.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use nginx_sys::{
    ERR_clear_error, NGX_AGAIN, ngx_connection_handler_pt, ngx_connection_t, ngx_event_handler_pt,
    ngx_event_t, ngx_http_init_connection, ngx_int_t,
};
use slipstream_offload::fiber::{self, Fiber, OutOfFibers, Progress};
use slipstream_offload::{JobToken, Reason};

use crate::connection::{Connection, Handlers, Peek};
use crate::gate::{self, Gate};
use crate::log;
use crate::metrics::Event;
use crate::worker::{Worker, worker};

thread_local! {
    /// One for each connection in nginx's array.
    static HANDSHAKES: Cell<&'static [RefCell<Handshake>]> = const { Cell::new(&[]) };
}

/// Makes the state of the handshakes of `connections`.
pub(crate) fn install(connections: usize) {
    let mut handshakes = Vec::new();
    handshakes.resize_with(connections, RefCell::default);
    HANDSHAKES.set(handshakes.leak());
}

/// The state of a connection while its handshake is ours.
#[derive(Default)]
struct Handshake {
    /// The connection's number; 0 while the handshake is not ours.
    number: u64,
    /// The paused fiber, if there is one.
    fiber: Option<Fiber>,
    /// The call that entered the running or paused fiber.
    entry: Entry,
    /// The phases of a session that the handshake is one of; `None` in http.
    phases: Option<&'static Phases>,
    /// The result of the handler of a phase that has returned: nginx has still to get it.
    returned: Option<ngx_int_t>,
    /// nginx's own event handlers.
    handlers: Handlers,
    /// nginx's own `c->ssl->handler`.
    ssl_handler: ngx_connection_handler_pt,
    /// The handshake has ended on the fiber; nginx's handler is still to be called.
    finished: bool,
    /// The connection was to be closed while its fiber was paused.
    late: bool,
    /// The time at which the handshake was taken over.
    began: Option<Instant>,
}

/// The call of nginx that runs on the fiber.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Entry {
    /// The handler of an event.
    #[default]
    Event,
    /// `ngx_http_init_connection`: with deferred accept, the handshake starts inside.
    Accept,
    /// The handler of stream's TLS phase.
    Phase,
}

/// The phases of sessions, for which nginx has stream.
pub(crate) struct Phases {
    /// Returns true if the server that has been chosen so far takes part.
    pub(crate) takes_part: fn(Connection) -> bool,
    /// Goes on with the phases, first with that of the handshake, which calls [`run_phase`] again.
    pub(crate) go_on: fn(Connection),
}

/// Replaces `ngx_http_init_connection` as the handler of listening sockets.
pub(crate) unsafe extern "C" fn init_connection(connection: *mut ngx_connection_t) {
    const TLS_HANDSHAKE_RECORD: u8 = 0x16;
    // SAFETY: nginx passes the connection it has accepted.
    let c = unsafe { Connection::new(connection) };
    let worker = worker().expect("listening sockets are taken over after the worker is made");
    worker.note_progress();
    forget(worker, c);
    let deferred = c.is_readable();
    if deferred && c.peek() == Peek::Byte(TLS_HANDSHAKE_RECORD) {
        adopt(worker, c);
        // SAFETY: as nginx would call it; the array of connections outlives the fiber.
        let accept = move || unsafe { ngx_http_init_connection(c.as_ptr()) };
        if start(worker, c, Entry::Accept, accept).is_ok() {
            return;
        }
        forget(worker, c);
    }
    // SAFETY: as nginx would call it.
    unsafe { ngx_http_init_connection(connection) };
    if c.is_closed() || c.handlers().read.is_none() || c.is_handshaked() {
        return;
    }
    // With deferred accept a request may have begun, and the http state may have become that
    // request; a TLS state shows that it has not.
    // SAFETY: without deferred accept nothing has happened but that the http state was made.
    if c.ssl().is_some() || !deferred && unsafe { (*c.http()).ssl() } != 0 {
        intercept(worker, c);
    }
}

/// Runs the handler of the phase in which the handshake of `c` begins, on a fiber, and returns its
/// result: NGX_AGAIN if it is paused. Called again when it has returned, this returns its result.
pub(crate) fn run_phase(
    c: Connection,
    phases: &'static Phases,
    handler: impl Fn() -> ngx_int_t + Copy + 'static,
) -> ngx_int_t {
    let worker = worker().expect("phases are taken over after the worker is made");
    let job = c.job();
    if let Some(result) = with_handshake(job, |handshake| handshake.returned.take()) {
        return result;
    }
    // The handshake has ended, and nginx looks at the client's certificate.
    if c.ssl().is_some() {
        return handler();
    }
    if fiber::current().is_some() {
        worker.count(Event::Nested);
        return handler();
    }
    worker.note_progress();
    forget(worker, c);
    adopt(worker, c);
    with_handshake(job, |handshake| handshake.phases = Some(phases));
    let phase = move || {
        let result = handler();
        with_handshake(job, |handshake| handshake.returned = Some(result));
    };
    if start(worker, c, Entry::Phase, phase).is_err() {
        forget(worker, c);
        return handler();
    }
    with_handshake(job, |handshake| handshake.returned.take()).unwrap_or(NGX_AGAIN as ngx_int_t)
}

/// Resumes the handshake that `job` names, for which an answer has arrived.
pub(crate) fn resume(worker: &'static Worker, job: JobToken) {
    let c = Connection::of_job(job);
    let paused = with_handshake(job, |handshake| {
        handshake
            .fiber
            .take()
            .map(|fiber| (fiber, handshake.handlers, handshake.phases))
    });
    let (fiber, handlers, phases) = paused.expect("only paused handshakes are on the ready queue");
    c.set_handlers(handlers);
    // Other handshakes have run meanwhile; `SSL_get_error` reads the thread's error queue.
    // SAFETY: no preconditions.
    unsafe { ERR_clear_error() };
    let progress = worker.fibers.borrow_mut().resume(fiber);
    after(worker, c, progress);
    if let Some(phases) = phases
        && with_handshake(job, |handshake| handshake.returned.is_some())
    {
        (phases.go_on)(c);
    }
}

/// Returns `Ok` if an operation of this connection may pause: its handshake has not ended, and the
/// server that was chosen for it, by name if the client gave one, takes part.
pub(crate) fn admits(job: JobToken) -> Result<(), Reason> {
    let c = Connection::of_job(job);
    if c.is_closed() || c.ssl().is_none() || c.is_handshaked() {
        return Err(Reason::NotAdmitted);
    }
    let takes_part = match with_handshake(job, |handshake| handshake.phases) {
        Some(phases) => (phases.takes_part)(c),
        // SAFETY: during the handshake nginx's http state is there, and with it the configuration
        // of the server chosen so far.
        None => unsafe {
            let servers = (*(*c.http()).conf_ctx).srv_conf;
            let conf = *servers.add(crate::index::http_context_index());
            (*conf.cast::<crate::config::ServerConf>()).is_enabled()
        },
    };
    if !takes_part {
        return Err(Reason::NotAdmitted);
    }
    Ok(())
}

/// The number of concurrent handshakes.
pub(crate) fn concurrency() -> usize {
    worker().map_or(0, |worker| worker.handshakes.get())
}

/// Accesses the state of one connection. `f` must not call nginx, which may come back here.
fn with_handshake<R>(job: JobToken, f: impl FnOnce(&mut Handshake) -> R) -> R {
    f(&mut HANDSHAKES.get()[job.0].borrow_mut())
}

/// Runs a handler of nginx on a fiber. On error it has not been run.
fn start(
    worker: &'static Worker,
    c: Connection,
    entry: Entry,
    handler: impl FnOnce() + 'static,
) -> Result<(), ()> {
    with_handshake(c.job(), |handshake| handshake.entry = entry);
    gate::reset(c.job());
    let started = worker.fibers.borrow_mut().start(c.job(), handler);
    match started {
        Ok(progress) => {
            after(worker, c, progress);
            Ok(())
        }
        Err(reason) => {
            count_out_of_fibers(worker, c, reason);
            Err(())
        }
    }
}

/// Continues on the main stack, after the fiber has paused or has returned.
fn after(worker: &'static Worker, c: Connection, progress: Progress) {
    if let Progress::Paused(fiber) = progress {
        // What this handshake has left in the thread's error queue belongs to no other connection;
        // it is not missed, since `resume` starts with an empty queue too.
        // SAFETY: no preconditions.
        unsafe { ERR_clear_error() };
        let handlers = c.handlers();
        with_handshake(c.job(), |handshake| {
            handshake.fiber = Some(fiber);
            handshake.handlers = handlers;
        });
        c.set_handlers(Handlers {
            read: Some(on_event_while_paused),
            write: Some(on_event_while_paused),
        });
        worker.retrieval.paused(worker.active());
        return;
    }
    let number = with_handshake(c.job(), |handshake| handshake.number);
    if c.is_closed() || c.number() != number {
        worker.count(Event::Closed);
        forget(worker, c);
        return;
    }
    if let Some(result) = with_handshake(c.job(), |handshake| handshake.returned.take())
        && result != NGX_AGAIN as ngx_int_t
    {
        count_end(worker, c);
        release(worker, c);
        return with_handshake(c.job(), |handshake| handshake.returned = Some(result));
    }
    let gate = gate::reset(c.job());
    let (entry, finished, handlers, ssl_handler) = with_handshake(c.job(), |handshake| {
        let Handshake {
            entry,
            finished,
            handlers,
            ssl_handler,
            ..
        } = *handshake;
        (entry, finished, handlers, ssl_handler)
    });
    if let (Some(ssl), true) = (c.ssl(), gate != Gate::Open) {
        gate::open(ssl);
    }
    if finished {
        count_end(worker, c);
        release(worker, c);
        return call(ssl_handler, c);
    }
    let became_plain_http = c.ssl().is_none()
        && (entry == Entry::Accept || address(c.handlers().read) != address(handlers.read));
    if became_plain_http || c.is_handshaked() {
        return release(worker, c);
    }
    intercept(worker, c);
    if gate == Gate::Touched {
        c.post_read();
    }
    let late = with_handshake(c.job(), |handshake| std::mem::take(&mut handshake.late));
    if late {
        // SAFETY: the read event of a connection whose handshake is ours.
        unsafe { on_event(c.read_event()) };
    }
}

/// Puts our handlers in front of nginx's.
fn intercept(worker: &Worker, c: Connection) {
    let handlers = c.handlers();
    adopt(worker, c);
    with_handshake(c.job(), |handshake| handshake.handlers = handlers);
    c.set_handlers(Handlers {
        read: Some(on_event),
        write: Some(on_event),
    });
    if let Some(ssl) = c.ssl() {
        let handler = ssl.handler();
        if handler.is_some() && !is_ours(handler) {
            with_handshake(c.job(), |handshake| handshake.ssl_handler = handler);
            ssl.set_handler(Some(on_handshaked));
        }
    }
}

/// Gives the handshake back to nginx. Event handlers that are still ours, and the end-of-handshake
/// handler, become nginx's own.
fn release(worker: &Worker, c: Connection) {
    let ssl_handler = forget(worker, c).ssl_handler;
    if let Some(ssl) = c.ssl().filter(|ssl| is_ours(ssl.handler())) {
        ssl.set_handler(ssl_handler);
    }
}

/// Takes the connection's handshake over.
fn adopt(worker: &Worker, c: Connection) {
    let before = with_handshake(c.job(), |handshake| {
        let before = std::mem::replace(&mut handshake.number, c.number());
        if before == 0 {
            handshake.began = Some(Instant::now());
        }
        before
    });
    if before == 0 {
        worker.handshakes.set(worker.handshakes.get() + 1);
    }
}

fn forget(worker: &Worker, c: Connection) -> Handshake {
    gate::reset(c.job());
    let handshake = with_handshake(c.job(), std::mem::take);
    if handshake.number != 0 {
        worker.handshakes.set(worker.handshakes.get() - 1);
    }
    handshake
}

/// The event handler of a connection whose handshake is ours and not paused.
#[inline(never)]
unsafe extern "C" fn on_event(event: *mut ngx_event_t) {
    // SAFETY: installed on connections' events only.
    let c = unsafe { Connection::of_event(event) };
    let worker = worker().expect("handlers are installed after the worker is made");
    worker.note_progress();
    let Some(handlers) = with_handshake(c.job(), |handshake| {
        (handshake.number == c.number()).then_some(handshake.handlers)
    }) else {
        // SAFETY: a connection's log is valid as long as its slot is in use.
        return unsafe {
            log::write(
                c.log(),
                log::Level::Alert,
                "event of a connection that has been reused",
            );
        };
    };
    restore_handlers(c, handlers);
    // SAFETY: nginx passes a valid event; its handler is nginx's own again.
    let run = move || unsafe { call_event((*event).handler, event) };
    if c.ssl().is_none() && !goes_on_with_tls(c, event) {
        release(worker, c);
        return run();
    }
    // Inside another fiber (draining connections for an OCSP query), as without a fiber left, the
    // handler runs to its end where it is.
    if fiber::current().is_some() {
        worker.count(Event::Nested);
        release(worker, c);
        return run();
    }
    if start(worker, c, Entry::Event, run).is_err() {
        release(worker, c);
        run();
    }
}

/// The event handler of a connection whose fiber is paused. Readiness needs no replay: epoll is
/// edge-triggered, and OpenSSL reads until the socket is empty once it goes on.
#[inline(never)]
unsafe extern "C" fn on_event_while_paused(event: *mut ngx_event_t) {
    // SAFETY: installed on connections' events only.
    let c = unsafe { Connection::of_event(event) };
    let worker = worker().expect("handlers are installed after the worker is made");
    // SAFETY: nginx passes a valid event.
    if unsafe { (*event).timedout() } != 0 || c.is_to_be_closed() {
        let was_late = with_handshake(c.job(), |handshake| {
            std::mem::replace(&mut handshake.late, true)
        });
        if !was_late {
            worker.count(Event::Late);
        }
    }
}

/// `c->ssl->handler` while the handshake is ours.
#[inline(never)]
unsafe extern "C" fn on_handshaked(connection: *mut ngx_connection_t) {
    // SAFETY: nginx passes the connection whose handshake has ended.
    let c = unsafe { Connection::new(connection) };
    let worker = worker().expect("handlers are installed after the worker is made");
    if fiber::current().is_some_and(|fiber| fiber.job() == c.job()) {
        with_handshake(c.job(), |handshake| handshake.finished = true);
        return;
    }
    // Called from elsewhere, on the main stack: an OCSP answer about the client's certificate.
    let (handlers, ssl_handler) = with_handshake(c.job(), |handshake| {
        (handshake.handlers, handshake.ssl_handler)
    });
    restore_handlers(c, handlers);
    count_end(worker, c);
    release(worker, c);
    call(ssl_handler, c);
}

/// Counts the end of a handshake. nginx calls its end-of-handshake handler for failed handshakes
/// too, to close the connection.
fn count_end(worker: &Worker, c: Connection) {
    if !c.is_handshaked() {
        worker.count(Event::Closed);
        return;
    }
    worker.count(Event::Handshake);
    if let Some(began) = with_handshake(c.job(), |handshake| handshake.began) {
        worker.metrics.count_handshake(began.elapsed());
    }
}

/// Returns true if nginx is going to read a ClientHello, or to wait for more bytes. Otherwise the
/// connection is closed or turns out to be plain HTTP, which belongs on the main stack.
fn goes_on_with_tls(c: Connection, event: *const ngx_event_t) -> bool {
    const SSL2_RECORD: u8 = 0x80;
    const TLS_HANDSHAKE_RECORD: u8 = 0x16;
    // SAFETY: `event` is the connection's. Its handshake was taken over when its http state had
    // just been made, and no handler has run on it that would have made it a request.
    let (timed_out, proxy_protocol) =
        unsafe { ((*event).timedout() != 0, (*c.http()).proxy_protocol() != 0) };
    if timed_out || c.is_to_be_closed() {
        return false;
    }
    match c.peek() {
        Peek::Byte(byte) => {
            proxy_protocol || byte == TLS_HANDSHAKE_RECORD || byte & SSL2_RECORD != 0
        }
        Peek::Nothing => true,
        Peek::Ended => false,
    }
}

fn restore_handlers(c: Connection, original: Handlers) {
    let ours: ngx_event_handler_pt = Some(on_event);
    let mut handlers = c.handlers();
    if address(handlers.read) == address(ours) {
        handlers.read = original.read;
    }
    if address(handlers.write) == address(ours) {
        handlers.write = original.write;
    }
    c.set_handlers(handlers);
}

fn count_out_of_fibers(worker: &Worker, c: Connection, reason: OutOfFibers) {
    let first = worker.count(Event::OutOfFibers);
    if first {
        let cure = match reason {
            OutOfFibers::Limit => "raise \"fibers\" in the slipstream block",
            OutOfFibers::Memory => "no memory for another stack",
        };
        // SAFETY: the log of an open connection.
        unsafe {
            log::write(
                c.log(),
                log::Level::Warning,
                format_args!("out of fibers, handshakes are served one at a time: {cure}"),
            );
        }
    }
}

fn call(handler: ngx_connection_handler_pt, c: Connection) {
    let handler = handler.expect("nginx sets a handler before it waits for a handshake");
    // SAFETY: nginx's own handler, called with its connection as nginx would.
    unsafe { handler(c.as_ptr()) }
}

/// # Safety
/// `handler` is the handler of `event`.
unsafe fn call_event(handler: ngx_event_handler_pt, event: *mut ngx_event_t) {
    let handler = handler.expect("nginx sets a handler before it waits for an event");
    // SAFETY: by the caller's promise.
    unsafe { handler(event) }
}

fn is_ours(handler: ngx_connection_handler_pt) -> bool {
    let ours: unsafe extern "C" fn(*mut ngx_connection_t) = on_handshaked;
    handler.map(|handler| handler as *const ()) == Some(ours as *const ())
}

fn address(handler: ngx_event_handler_pt) -> Option<*const ()> {
    handler.map(|handler| handler as *const ())
}
