//! What one worker process has, made after fork and never shared.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nginx_sys::{
    NGX_ERROR, NGX_OK, NGX_PROCESS_SINGLE, NGX_PROCESS_WORKER, NGX_USE_CLEAR_EVENT, ngx_cycle_t,
    ngx_event_flags, ngx_http_in_addr_t, ngx_http_in6_addr_t, ngx_http_init_connection,
    ngx_http_port_t, ngx_int_t, ngx_listening_t, ngx_log_t, ngx_process,
};
use slipstream_offload::accelerator::{Accelerator, Threaded, Trigger, WorkerLanes};
use slipstream_offload::ahead::Ahead;
use slipstream_offload::device::{Device, Options};
use slipstream_offload::fiber::{self, Fibers, Rules};
use slipstream_offload::instance::{self, Instance, Mode, Waiting};
use slipstream_offload::policy::Costs;
use slipstream_offload::polling::Scheme;
use slipstream_offload::{JobEvent, JobToken, Notification, event};

use crate::config;
use crate::directives::{CoreConf, Notify, Offload};
use crate::gzip::{self, Needs};
use crate::handshake::{self, Handshake};
use crate::isolation;
use crate::keys::{self, Prepared};
use crate::log::{self, Level};
use crate::metrics::{Event, Metrics};
use crate::poller::{self, Poller};
use crate::watch::{Edge, Watch};

/// The state of this worker. All of it belongs to its one thread.
pub(crate) struct Worker {
    handshakes: RefCell<Vec<Handshake>>,
    pub(crate) fibers: RefCell<Fibers>,
    pub(crate) poller: Poller,
    pub(crate) metrics: Metrics,
    progress: Cell<u64>,
    /// How many handshakes are under way.
    pub(crate) active: Cell<usize>,
    /// The event descriptor of each connection that has ever waited, with `notify fd`.
    events: RefCell<Vec<Option<JobEvent>>>,
    /// Epoll does not take more of them.
    is_out_of_events: Cell<bool>,
    notify: Notify,
    log: *mut ngx_log_t,
}

impl Worker {
    /// Accesses the state of one connection. `f` must not call nginx, which may come back here.
    pub(crate) fn with_handshake<R>(
        &self,
        job: JobToken,
        f: impl FnOnce(&mut Handshake) -> R,
    ) -> R {
        f(&mut self.handshakes.borrow_mut()[job.0])
    }

    /// Notes that a handshake has gone on, so more operations may come before the loop is idle.
    pub(crate) fn note_progress(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }

    /// Changes whenever a handshake has gone on.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.get()
    }

    /// Counts an event; returns whether it is the first of its kind in this worker.
    pub(crate) fn count(&self, event: Event) -> bool {
        self.metrics.count(event)
    }
}

/// This worker's state; `None` in the master, and where handshakes are left to nginx.
pub(crate) fn worker() -> Option<&'static Worker> {
    WORKER.with(|cell| cell.get().copied())
}

thread_local! {
    static WORKER: OnceCell<&'static Worker> = const { OnceCell::new() };
}

pub(crate) unsafe extern "C" fn init_process(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    // SAFETY: nginx passes the worker's cycle; its globals are written by this thread only.
    unsafe {
        // Before anything else, and in helper processes of nginx too.
        if let Err(error) = isolation::wipe() {
            log::write(
                (*cycle).log,
                Level::Emergency,
                format_args!("isolated keys cannot be wiped from this process: {error}"),
            );
            return NGX_ERROR as ngx_int_t;
        }
        let tls = keys::prepared();
        let needs = gzip::needs(cycle);
        if tls.is_none() && !needs.compresses {
            return NGX_OK as ngx_int_t;
        }
        let conf = config::core_conf(cycle);
        match left_to_nginx() {
            Ok(()) => {}
            Err(None) => return NGX_OK as ngx_int_t,
            Err(Some((reason, cure))) => {
                let outcome = match tls {
                    Some(_) => "handshakes are served as without the module",
                    None => "responses are compressed without a device",
                };
                log::write(
                    (*cycle).log,
                    Level::Warning,
                    format_args!("{reason}, {outcome}{cure}"),
                );
                return NGX_OK as ngx_int_t;
            }
        }
        let has_device = conf.device.is_some() && needs.device_chunk > 0;
        let mut serves_tls = tls.is_some();
        if serves_tls || has_device {
            if let Err(error) = make_instance(tls.as_ref(), &conf, needs) {
                let isolated = tls.is_some_and(|prepared| prepared.token.is_some());
                let (level, outcome) = match isolated {
                    false => (Level::Warning, "the worker goes on as without the module"),
                    true => (
                        Level::Emergency,
                        "without its keys this worker serves no handshakes",
                    ),
                };
                log::write((*cycle).log, level, format_args!("{error}, {outcome}"));
                serves_tls = false;
            } else if serves_tls {
                fiber::set_rules(Rules {
                    admits: handshake::admits,
                    company: handshake::company,
                    notification,
                });
            }
        }
        gzip::make_context(needs, has_device, (*cycle).connection_n);
        take_over(cycle, &conf, serves_tls);
    }
    NGX_OK as ngx_int_t
}

/// Whether this process takes part.
///
/// # Errors
/// The reason why it does not, with what to do about it. Of nginx's helper processes there is nothing to be said.
fn left_to_nginx() -> Result<(), Option<(&'static str, &'static str)>> {
    // SAFETY: nginx's globals, written by its one thread.
    let (process, flags) = unsafe { (ngx_process, ngx_event_flags) };
    if process == NGX_PROCESS_SINGLE as usize {
        return Err(Some(("\"master_process off\"", "")));
    }
    if process != NGX_PROCESS_WORKER as usize {
        return Err(None);
    }
    match flags & NGX_USE_CLEAR_EVENT as usize {
        0 => Err(Some((
            "no edge-triggered epoll",
            ": remove \"use\" from the events block",
        ))),
        _ => Ok(()),
    }
}

/// How long a worker waits for its device when it starts. Without it, software does.
const PATIENCE: Duration = Duration::from_millis(500);

fn make_instance(tls: Option<&Prepared>, conf: &CoreConf, needs: Needs) -> io::Result<()> {
    let requests = conf.fibers + needs.requests();
    let mut instance = Instance::new(accelerator(tls, conf, needs)?, requests)?;
    let waiting = match (conf.device, conf.scheme()) {
        (Some(_), Scheme::Hybrid | Scheme::Interrupt) => Waiting::Sleeping,
        _ => Waiting::Spinning,
    };
    instance.set_mode(match conf.offload {
        Offload::Synchronous => Mode::Synchronous(waiting),
        Offload::Asynchronous | Offload::Software => Mode::Asynchronous,
    });
    if let Some(ahead) = tls.and_then(|prepared| Ahead::new(prepared.backend, conf.ahead)) {
        instance.make_ahead(ahead);
    }
    instance::install(instance);
    Ok(())
}

fn accelerator(
    tls: Option<&Prepared>,
    conf: &CoreConf,
    needs: Needs,
) -> io::Result<Box<dyn Accelerator>> {
    // What only compresses asks for no operation that has costs.
    let costs = tls.map_or(Costs::default(), |prepared| prepared.costs);
    let accelerator: Box<dyn Accelerator> = match (conf.device, tls) {
        (Some(path), _) => {
            let layout = conf.layout();
            let options = Options {
                layout: match needs.requests() {
                    0 => layout,
                    requests => layout
                        .with_buffers(requests, needs.device_chunk)
                        .expect("chunk sizes are checked when they are read"),
                },
                weight: conf.weight,
                aggregation: conf.interrupts,
                token: tls.and_then(|prepared| prepared.token),
            };
            Box::new(Device::new(
                path.into(),
                options,
                conf.policy,
                costs,
                PATIENCE,
            )?)
        }
        (None, Some(prepared)) => Box::new(WorkerLanes::new(prepared.backend, conf.policy, costs)),
        (None, None) => unreachable!("an instance is made for TLS or for a device"),
    };
    let trigger = match (conf.scheme(), conf.device) {
        (Scheme::Timer(interval), _) => Trigger::Timer(interval),
        // Lanes on the worker's own thread cannot interrupt it.
        (Scheme::Interrupt, None) => Trigger::Requests,
        _ => return Ok(accelerator),
    };
    Ok(Box::new(Threaded::new(accelerator, trigger)?))
}

/// How `job` learns that it can go on.
fn notification(job: JobToken) -> Notification {
    let worker = worker().expect("fibers run after the worker is made");
    match worker.notify {
        Notify::Queue => None,
        // Without a descriptor left, the queue does.
        Notify::Descriptor => worker.event(job),
    }
    .map_or(Notification::ReadyQueue(job), |event| {
        Notification::Descriptor(job, event)
    })
}

pub(crate) unsafe extern "C" fn exit_process(_cycle: *mut ngx_cycle_t) {
    if let Some(worker) = worker() {
        worker.publish();
        worker.metrics.retire();
    }
}

impl Worker {
    /// The event descriptor of a connection: one for all its jobs (QTLS section 4.4), and for those of the connections that
    /// have its place later.
    fn event(&self, job: JobToken) -> Option<JobEvent> {
        let mut events = self.events.borrow_mut();
        if events[job.0].is_none() && !self.is_out_of_events.get() {
            // Kept, also if it cannot be watched: then no more are asked for.
            let descriptor: &'static OwnedFd = Box::leak(Box::new(event::new().ok()?));
            let handler = Some(poller::on_job as _);
            match Watch::add(descriptor, Edge::Clear, handler, job.0, self.log) {
                Some(()) => events[job.0] = Some(JobEvent(descriptor)),
                None => self.is_out_of_events.set(true),
            }
        }
        events[job.0]
    }

    /// Writes what has been done so far where the status page of any worker finds it.
    pub(crate) fn publish(&self) {
        // A request that came to run on a fiber, which is rare, may ask for the status page.
        if let Ok(fibers) = self.fibers.try_borrow() {
            instance::with(|instance| self.metrics.publish(instance, &fibers));
        }
    }
}

/// # Safety
/// `cycle` is this worker's, and no connection has been accepted yet.
unsafe fn take_over(cycle: *mut ngx_cycle_t, conf: &CoreConf, serves_handshakes: bool) {
    // SAFETY: by the caller's promise; listening sockets are an array of `ngx_listening_t`.
    unsafe {
        let mut handshakes = Vec::new();
        handshakes.resize_with((*cycle).connection_n, Handshake::default);
        let worker = Box::leak(Box::new(Worker {
            handshakes: RefCell::new(handshakes),
            fibers: RefCell::new(Fibers::new(conf.fibers, conf.stack_bytes)),
            poller: Poller::new(conf.scheme(), conf.notify, (*cycle).log),
            metrics: Metrics::claim(),
            progress: Cell::new(0),
            active: Cell::new(0),
            events: RefCell::new(vec![None; (*cycle).connection_n]),
            is_out_of_events: Cell::new(false),
            notify: conf.notify,
            log: (*cycle).log,
        }));
        WORKER.with(|cell| {
            cell.get_or_init(|| worker);
        });
        for listening in (*cycle).listening.as_slice_mut::<ngx_listening_t>() {
            let handler = listening.handler.map(|handler| handler as *const ());
            if serves_handshakes
                && handler == Some(ngx_http_init_connection as *const ())
                && serves_tls(listening)
            {
                listening.handler = Some(handshake::init_connection);
            }
        }
        if !poller::install((*cycle).log) {
            log::write(
                (*cycle).log,
                Level::Warning,
                "epoll does not take the accelerator's event, it is polled every 5 ms instead",
            );
        }
    }
}

/// Whether any address of a listening socket of http takes TLS over TCP. A QUIC socket has the same
/// handler, and so have its streams; both are left alone.
///
/// # Safety
/// `listening` is a listening socket of the http module.
unsafe fn serves_tls(listening: &ngx_listening_t) -> bool {
    if listening.type_ != libc::SOCK_STREAM || listening.servers.is_null() {
        return false;
    }
    // SAFETY: for http sockets `servers` is an ngx_http_port_t, whose `addrs` is an array of the
    // kind that the address family says, as ngx_http_init_connection reads it.
    unsafe {
        let port = &*listening.servers.cast::<ngx_http_port_t>();
        if i32::from((*listening.sockaddr).sa_family) == libc::AF_INET6 {
            let addresses = port.addrs.cast::<ngx_http_in6_addr_t>();
            (0..port.naddrs).any(|index| (*addresses.add(index)).conf.ssl() != 0)
        } else {
            let addresses = port.addrs.cast::<ngx_http_in_addr_t>();
            (0..port.naddrs).any(|index| (*addresses.add(index)).conf.ssl() != 0)
        }
    }
}
