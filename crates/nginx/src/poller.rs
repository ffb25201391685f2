//! The poller: a wrapper round the function in which nginx waits for events.
//!
//! That is where nginx would go to sleep, hence where every active connection is known to wait for
//! an operation or for the network: the moment that QTLS section 3.3 approximates by counting.

use std::cell::Cell;

use nginx_sys::{
    ngx_current_msec, ngx_cycle_t, ngx_event_actions, ngx_event_t, ngx_int_t, ngx_log_t,
    ngx_msec_t, ngx_uint_t,
};
use slipstream_offload::accelerator::Moment;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::polling::{FAILOVER, Load, Scheme};
use slipstream_offload::{Class, JobToken};

use crate::directives::Notify;
use crate::gzip;
use crate::handshake;
use crate::hold::Hold;
use crate::watch::{Edge, Watch};
use crate::worker::{Worker, worker};

/// The state of the wrapper.
pub(crate) struct Poller {
    scheme: Scheme,
    notify: Notify,
    /// The worker's progress when it was last about to sleep.
    progress_seen: Cell<u64>,
    /// The worker's progress when keys were last made ahead.
    progress_topped_up: Cell<u64>,
    /// nginx's time when the accelerator was last polled.
    polled_at: Cell<ngx_msec_t>,
    /// The accelerator wakes the worker when it has an answer.
    is_armed: Cell<bool>,
    hold: Hold,
}

impl Poller {
    pub(crate) fn new(scheme: Scheme, notify: Notify, log: *mut ngx_log_t) -> Self {
        Self {
            scheme,
            notify,
            progress_seen: Cell::new(0),
            progress_topped_up: Cell::new(0),
            polled_at: Cell::new(0),
            is_armed: Cell::new(false),
            hold: Hold::new(log),
        }
    }

    /// To be called when a handshake has paused, or a response waits: before nginx looks whether any timer is left, and where the number of
    /// requests in flight has grown.
    pub(crate) fn paused(&self, worker: &Worker) {
        self.hold.begin();
        if let Scheme::Heuristic(_) = self.scheme {
            self.poll_if_due(worker);
        }
    }

    /// The accelerator has been polled elsewhere, so it does not wake the worker any more.
    pub(crate) fn disarm(&self) {
        self.is_armed.set(false);
    }

    /// One turn of the event loop while requests are in flight. Returns whether nginx may sleep.
    fn turn(&self, worker: &'static Worker) -> bool {
        let progress = worker.progress();
        let moment = if self.progress_seen.replace(progress) == progress {
            Moment::Idle
        } else {
            Moment::Busy
        };
        let answers = match self.scheme {
            Scheme::Idle | Scheme::Hybrid | Scheme::Timer(_) => self.poll(moment),
            Scheme::Interrupt if self.is_armed.get() && !self.is_overdue() => 0,
            Scheme::Interrupt => self.poll(Moment::Idle),
            Scheme::Heuristic(_) => self.poll_if_due(worker),
        };
        let mut has_resumed = false;
        while let Some(job) = instance::with(Instance::next_ready).flatten() {
            if !gzip::resume(job) {
                handshake::resume(worker, job);
            }
            has_resumed = true;
        }
        if answers > 0 {
            worker.publish();
        }
        // Resumed handshakes may have set timers or posted events, which nginx has looked for before.
        if has_resumed || answers > 0 {
            return false;
        }
        let is_told = self.notify == Notify::Descriptor && gzip::waiting() == 0;
        match self.scheme {
            Scheme::Idle => false,
            Scheme::Hybrid => moment == Moment::Idle && arm(),
            Scheme::Interrupt => {
                let is_armed = self.is_armed.get() || arm();
                self.is_armed.set(is_armed);
                is_armed
            }
            Scheme::Timer(_) => is_told,
            // As long as it is time to poll, nothing else can be waited for.
            Scheme::Heuristic(heuristic) => is_told && heuristic.due(load(worker)).is_none(),
        }
    }

    fn poll(&self, moment: Moment) -> usize {
        self.polled_at.set(now());
        self.is_armed.set(false);
        instance::with(|instance| instance.poll(moment)).unwrap_or(0)
    }

    /// Polls until it is not time any more (QTLS section 4.3).
    fn poll_if_due(&self, worker: &Worker) -> usize {
        let Scheme::Heuristic(heuristic) = self.scheme else {
            return 0;
        };
        let mut total = 0;
        loop {
            let due = heuristic.due(load(worker));
            let Some(moment) = due.or(self.is_overdue().then_some(Moment::Idle)) else {
                return total;
            };
            match self.poll(moment) {
                0 => return total,
                answers => total += answers,
            }
        }
    }

    fn is_overdue(&self) -> bool {
        let since = now().wrapping_sub(self.polled_at.get());
        since >= FAILOVER.as_millis() as ngx_msec_t && in_flight() > 0
    }
}

fn load(worker: &Worker) -> Load {
    let of_class = |class| instance::with(|instance| instance.in_flight(class)).unwrap_or(0);
    Load {
        asymmetric: of_class(Class::Asymmetric),
        otherwise: of_class(Class::Cipher) + of_class(Class::Prf) + of_class(Class::Compression),
        active: worker.active.get() + gzip::waiting(),
    }
}

fn in_flight() -> usize {
    instance::with(|instance| instance.waiting()).unwrap_or(0)
}

fn arm() -> bool {
    instance::with(Instance::arm).unwrap_or(true)
}

fn now() -> ngx_msec_t {
    // SAFETY: nginx's cached time, written by this thread only.
    unsafe { (&raw const ngx_current_msec).read_volatile() }
}

type ProcessEvents = unsafe extern "C" fn(*mut ngx_cycle_t, ngx_msec_t, ngx_uint_t) -> ngx_int_t;

thread_local! {
    static ORIGINAL: Cell<Option<ProcessEvents>> = const { Cell::new(None) };
}

/// Wraps nginx's wait for events in this process, and has it wait for the accelerator too. Returns whether it does.
///
/// # Safety
/// Called once, in the worker, after its event module has been initialised.
pub(crate) unsafe fn install(log: *mut ngx_log_t) -> bool {
    // SAFETY: by the caller's promise nobody else reads or writes the table now.
    unsafe {
        let slot = &raw mut ngx_event_actions.process_events;
        ORIGINAL.set(*slot);
        *slot = Some(process_events);
    }
    let descriptor = instance::with(|instance| {
        let descriptor = instance.descriptor()?;
        descriptor.try_clone_to_owned().ok()
    });
    match descriptor.flatten() {
        Some(descriptor) => {
            let descriptor = Box::leak(Box::new(descriptor));
            Watch::add(descriptor, Edge::Level, Some(on_answers), 0, log).is_some()
        }
        None => true,
    }
}

unsafe extern "C" fn process_events(
    cycle: *mut ngx_cycle_t,
    timer: ngx_msec_t,
    flags: ngx_uint_t,
) -> ngx_int_t {
    let original = ORIGINAL.get().expect("installed before nginx calls it");
    let worker = worker().expect("installed after the worker is made");
    let timer = prepare_to_sleep(worker, timer);
    gzip::begin_turn();
    // SAFETY: nginx's own function with nginx's own arguments.
    unsafe { original(cycle, timer, flags) }
}

/// How long nginx may sleep, which would have slept for `timer`.
fn prepare_to_sleep(worker: &'static Worker, timer: ngx_msec_t) -> ngx_msec_t {
    let poller = &worker.poller;
    if in_flight() == 0 && !has_ready() {
        let progress = worker.progress();
        if timer != 0 && poller.progress_topped_up.replace(progress) != progress {
            instance::with(Instance::top_up);
        }
        return if poller.hold.end() { 0 } else { timer };
    }
    let may_sleep = poller.turn(worker);
    if in_flight() == 0 {
        poller.hold.end();
    }
    if may_sleep {
        timer.min(FAILOVER.as_millis() as ngx_msec_t)
    } else {
        0
    }
}

fn has_ready() -> bool {
    instance::with(|instance| instance.has_ready()).unwrap_or(false)
}

/// The accelerator has answers, or the device has gone.
unsafe extern "C" fn on_answers(_event: *mut ngx_event_t) {
    let Some(worker) = worker() else { return };
    worker.poller.is_armed.set(false);
    if in_flight() == 0 {
        worker.poller.poll(Moment::Idle);
    }
}

/// The event descriptor of a connection has become readable.
pub(crate) unsafe extern "C" fn on_job(event: *mut ngx_event_t) {
    let Some(worker) = worker() else { return };
    // SAFETY: nginx passes the event of a watch.
    let job = JobToken(unsafe { Watch::tag(event) });
    let is_answered = instance::with(|instance| {
        // A thread that polls notifies the connection before this one has seen the answer.
        instance.take_signalled(job) || {
            worker.poller.is_armed.set(false);
            instance.poll(Moment::Busy);
            instance.take_signalled(job)
        }
    });
    if is_answered == Some(true) {
        handshake::resume(worker, job);
    }
}
