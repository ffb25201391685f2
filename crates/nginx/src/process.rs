//! Set-up of a worker process, after fork: nginx calls it, and nothing else does.

use std::io;

use nginx_sys::{
    NGX_ERROR, NGX_OK, NGX_PROCESS_SINGLE, NGX_PROCESS_WORKER, NGX_USE_CLEAR_EVENT, ngx_cycle_t,
    ngx_event_flags, ngx_http_in_addr_t, ngx_http_in6_addr_t, ngx_http_init_connection,
    ngx_http_port_t, ngx_int_t, ngx_listening_t, ngx_process,
};
use slipstream_accelerators::engine::{self, Device};
use slipstream_accelerators::lanes::{self, Lanes};
use slipstream_accelerators::threaded::{Threaded, Trigger};
use slipstream_offload::Accelerator;
use slipstream_offload::costs::START_PATIENCE;
use slipstream_offload::fiber::{self, Rules};
use slipstream_offload::instance::{self, Instance, Mode, Waiting};
use slipstream_offload::polling::Scheme;
use slipstream_offload::scheduler::Scheduler;

use crate::assumptions;
use crate::config;
use crate::directives::{CoreConf, Notify, Offload};
use crate::gate;
use crate::gzip::{self, Needs};
use crate::handshake;
use crate::isolation;
#[cfg(stream)]
use crate::keys::Stream;
use crate::keys::{self, Prepared};
use crate::log::{self, Level};
use crate::metrics;
use crate::notify;
use crate::poller;
#[cfg(stream)]
use crate::stream;
use crate::worker::{self, Worker, worker};

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
        metrics::name_master();
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
                metrics::note(&format!("{reason}{cure}"));
                log::write(
                    (*cycle).log,
                    Level::Warning,
                    format_args!("{reason}, {outcome}{cure}"),
                );
                return NGX_OK as ngx_int_t;
            }
        }
        let has_device = conf.device.is_some() && needs.device_chunk > 0;
        let mut serves_tls = tls;
        if serves_tls.is_some() || has_device {
            let distrusts = |reason: &io::Error| {
                let outcome = "software computes until the engine's user listens there";
                log::write(
                    (*cycle).log,
                    Level::Warning,
                    format_args!("{reason}; {outcome}"),
                );
            };
            if let Err(error) = make_instance(tls.as_ref(), &conf, needs, distrusts) {
                let isolated = tls.is_some_and(|prepared| prepared.token.is_some());
                let (level, outcome) = match isolated {
                    false => (Level::Warning, "the worker goes on as without the module"),
                    true => (
                        Level::Emergency,
                        "without its keys this worker serves no handshakes",
                    ),
                };
                metrics::note(&error.to_string());
                log::write((*cycle).log, level, format_args!("{error}, {outcome}"));
                serves_tls = None;
            } else if serves_tls.is_some() {
                fiber::set_rules(Rules {
                    admits: handshake::admits,
                    concurrency: handshake::concurrency,
                    notification: notify::notification,
                });
            }
        }
        gzip::make_context(needs, has_device, (*cycle).connection_n);
        take_over(cycle, &conf, serves_tls);
    }
    NGX_OK as ngx_int_t
}

/// Checks that this process takes part.
///
/// # Errors
/// The reason why it does not, and the cure. nginx's helper processes have no reason to report.
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

/// Makes this thread's instance. `distrusts` is told why a process that listens at the device's path
/// is given no request.
fn make_instance(
    tls: Option<&Prepared>,
    conf: &CoreConf,
    needs: Needs,
    distrusts: impl FnOnce(&io::Error),
) -> io::Result<()> {
    let requests = conf.fibers + needs.requests();
    let scheduler = Scheduler {
        flush: conf.flush,
        // A worker that only compresses asks for no operation that has costs.
        software: tls.map_or_else(Default::default, |prepared| prepared.measured.software),
    };
    let accelerators = accelerators(tls, conf, needs, &scheduler, distrusts)?;
    let mut instance = Instance::new(accelerators, scheduler, requests)?;
    let waiting = match (conf.device, conf.scheme()) {
        (Some(_), Scheme::Hybrid | Scheme::Interrupt) => Waiting::Sleeping,
        _ => Waiting::Spinning,
    };
    instance.set_mode(match conf.offload {
        Offload::Synchronous => Mode::Synchronous(waiting),
        Offload::Asynchronous | Offload::Software => Mode::Asynchronous,
    });
    // Connections to upstreams, QUIC and mail are not on fibers.
    instance.serve_others();
    instance::install(instance);
    Ok(())
}

/// The accelerators of a worker, the preferred first: a device or lanes compute requests, and lanes
/// on the worker's own thread precompute in any case.
fn accelerators(
    tls: Option<&Prepared>,
    conf: &CoreConf,
    needs: Needs,
    scheduler: &Scheduler,
    distrusts: impl FnOnce(&io::Error),
) -> io::Result<Vec<Box<dyn Accelerator>>> {
    let trigger = match (conf.scheme(), conf.device) {
        (Scheme::Timer(interval), _) => Some(Trigger::Timer(interval)),
        // Lanes on the worker's own thread cannot interrupt it.
        (Scheme::Interrupt, None) => Some(Trigger::Requests),
        _ => None,
    };
    let lanes = |has_batches, key_pairs, nonces| {
        let prepared = tls?;
        Some(Lanes::new(lanes::Options {
            backend: prepared.backend?,
            costs: prepared.measured.lanes,
            scheduler: scheduler.clone(),
            has_batches,
            key_pairs,
            nonces,
        }))
    };
    let mut accelerators: Vec<Box<dyn Accelerator>> = Vec::new();
    if let Some(path) = conf.device {
        let layout = conf.layout();
        let options = engine::Options {
            layout: match needs.requests() {
                0 => layout,
                requests => layout
                    .with_buffers(requests, needs.device_chunk)
                    .expect("chunk sizes are checked when they are read"),
            },
            weight: conf.weight,
            aggregation: conf.interrupts,
            token: tls.and_then(|prepared| prepared.token),
            user: conf.engine_user(),
        };
        let device = Device::new(path.into(), options, START_PATIENCE)?;
        if let Some(reason) = device.distrust() {
            distrusts(reason);
        }
        accelerators.push(threaded(Box::new(device), trigger)?);
    } else if trigger.is_some()
        && let Some(lanes) = lanes(true, 0, 0)
    {
        accelerators.push(threaded(Box::new(lanes), trigger)?);
    }
    let has_batches = accelerators.is_empty();
    let lanes = lanes(has_batches, conf.ahead, conf.nonces_ahead);
    accelerators.extend(lanes.map(|lanes| Box::new(lanes) as _));
    Ok(accelerators)
}

/// Puts `accelerator` behind a thread that polls it, if there is a `trigger`.
fn threaded(
    accelerator: Box<dyn Accelerator>,
    trigger: Option<Trigger>,
) -> io::Result<Box<dyn Accelerator>> {
    Ok(match trigger {
        Some(trigger) => Box::new(Threaded::new(accelerator, trigger)?),
        None => accelerator,
    })
}

pub(crate) unsafe extern "C" fn exit_process(_cycle: *mut ngx_cycle_t) {
    if let Some(worker) = worker() {
        worker.publish();
        worker.metrics.retire();
    }
}

pub(crate) unsafe extern "C" fn exit_master(_cycle: *mut ngx_cycle_t) {
    metrics::withdraw();
}

/// Makes the state of this worker and installs the handlers.
///
/// # Safety
/// `cycle` is this worker's, and no connection has been accepted yet.
unsafe fn take_over(cycle: *mut ngx_cycle_t, conf: &CoreConf, tls: Option<Prepared>) {
    // SAFETY: by the caller's promise; listening sockets are an array of `ngx_listening_t`.
    unsafe {
        gate::install((*cycle).connection_n);
        handshake::install((*cycle).connection_n);
        if conf.notify == Notify::Descriptor {
            notify::install_descriptors((*cycle).connection_n, (*cycle).log);
        }
        worker::install(Worker::new(conf, (*cycle).log));
        if let Some(prepared) = tls {
            take_over_listeners(cycle, prepared.has_http);
        }
        #[cfg(stream)]
        if let Some(prepared) = tls.filter(|prepared| prepared.stream != Stream::Absent)
            && let Err(reason) = stream::install(cycle)
        {
            let reason = format!(
                "this nginx is not as expected ({reason}), handshakes of stream are served as \
                 without the module"
            );
            let level = match prepared.stream {
                Stream::Enabled => {
                    metrics::note(&reason);
                    Level::Warning
                }
                _ => Level::Notice,
            };
            log::write((*cycle).log, level, format_args!("{reason}"));
        }
        if !poller::install(conf.notify, (*cycle).log) {
            log::write(
                (*cycle).log,
                Level::Warning,
                "epoll does not take the accelerator's event, it is polled every 5 ms instead",
            );
        }
    }
}

/// Installs the handler of http's listening sockets with TLS. Sockets with another handler than
/// nginx's are left alone; if all are, the log says so.
///
/// # Safety
/// As [`take_over`].
unsafe fn take_over_listeners(cycle: *mut ngx_cycle_t, has_http: bool) {
    let mut are_known = false;
    // SAFETY: by the caller's promise.
    unsafe {
        for listening in (*cycle).listening.as_slice_mut::<ngx_listening_t>() {
            let handler = listening.handler.map(|handler| handler as *const ());
            if handler != Some(ngx_http_init_connection as *const ()) {
                continue;
            }
            are_known = true;
            if serves_tls(listening) {
                listening.handler = Some(handshake::init_connection);
            }
        }
        if has_http && !are_known {
            let differs = assumptions::differs("the handler of http's listening sockets");
            let reason = format!("{differs}, handshakes of http are served as without the module");
            metrics::note(&reason);
            log::write((*cycle).log, Level::Warning, format_args!("{reason}"));
        }
    }
}

/// Returns true if any address of a listening socket of http takes TLS over TCP. A QUIC socket has
/// the same handler, and so have its streams; both are left alone.
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
