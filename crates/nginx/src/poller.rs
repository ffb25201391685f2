//! The poller: a wrapper round the function in which nginx waits for events.
//!
//! That is where nginx would go to sleep, hence where every active connection is known to wait for
//! an operation or for the network: the moment that QTLS section 3.3 approximates by counting.

use std::cell::Cell;

use nginx_sys::{
    ngx_cycle_t, ngx_event_actions, ngx_event_t, ngx_int_t, ngx_log_t, ngx_msec_t, ngx_uint_t,
};
use slipstream_offload::accelerator::Moment;
use slipstream_offload::costs::{FAILOVER, NONCE_REST};
use slipstream_offload::instance::{self, Instance};

use crate::directives::Notify;
use crate::gzip;
use crate::handshake;
use crate::retrieval::{in_flight, now};
use crate::watch::{Edge, Watch};
use crate::worker::{Worker, worker};

/// The state of the wrapper.
struct Poller {
    /// nginx's own function.
    original: ProcessEvents,
    notify: Notify,
    /// The worker's progress when it was last about to sleep.
    progress_seen: Cell<u64>,
    /// The worker's progress when values were last precomputed.
    progress_precomputed: Cell<u64>,
    /// The worker's progress when its counters were last published although no answer had come.
    progress_published: Cell<u64>,
    /// The time at which precomputed secrets were last asked for their age.
    expired_at: Cell<ngx_msec_t>,
}

/// Milliseconds between two looks at the age of precomputed secrets: a look reads three clocks,
/// and a worker that goes to sleep wakes up for one.
const EXPIRY: ngx_msec_t = NONCE_REST.as_millis() as ngx_msec_t / 2;

type ProcessEvents = unsafe extern "C" fn(*mut ngx_cycle_t, ngx_msec_t, ngx_uint_t) -> ngx_int_t;

thread_local! {
    static POLLER: Cell<Option<&'static Poller>> = const { Cell::new(None) };
}

/// Wraps nginx's wait for events in this process, and has it wait for the accelerator too. Returns
/// false if it cannot.
///
/// # Safety
/// Called once, in the worker, after its event module has been initialised.
pub(crate) unsafe fn install(notify: Notify, log: *mut ngx_log_t) -> bool {
    // SAFETY: by the caller's promise no other code reads or writes the table now.
    unsafe {
        let slot = &raw mut ngx_event_actions.process_events;
        POLLER.set(Some(Box::leak(Box::new(Poller {
            original: (*slot).expect("nginx's event module has a wait"),
            notify,
            progress_seen: Cell::new(0),
            progress_precomputed: Cell::new(0),
            progress_published: Cell::new(0),
            expired_at: Cell::new(0),
        }))));
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
    let poller = POLLER.get().expect("installed before nginx calls it");
    let worker = worker().expect("installed after the worker is made");
    let timer = poller.prepare_to_sleep(worker, timer);
    let timer = poller.expire(timer);
    gzip::begin_turn();
    // SAFETY: nginx's own function with nginx's own arguments.
    unsafe { (poller.original)(cycle, timer, flags) }
}

impl Poller {
    /// Returns the time for which nginx may sleep. It would have slept for `timer`.
    fn prepare_to_sleep(&self, worker: &'static Worker, timer: ngx_msec_t) -> ngx_msec_t {
        if in_flight() == 0 && !has_ready() {
            let progress = worker.progress();
            // Software may have computed everything.
            if self.progress_published.replace(progress) != progress {
                worker.publish();
            }
            if timer != 0 && self.progress_precomputed.replace(progress) != progress {
                instance::with(Instance::precompute);
            }
            return if worker.retrieval.end() { 0 } else { timer };
        }
        let may_sleep = self.turn(worker);
        if in_flight() == 0 {
            worker.retrieval.end();
        }
        if may_sleep {
            timer.min(FAILOVER.as_millis() as ngx_msec_t)
        } else {
            0
        }
    }

    /// Has old secrets wiped now and then, and before nginx sleeps for long. Returns the time after
    /// which it has to wake up for the next.
    fn expire(&self, timer: ngx_msec_t) -> ngx_msec_t {
        let now = now();
        let since = now.wrapping_sub(self.expired_at.get());
        if since < EXPIRY {
            return timer.min(EXPIRY - since);
        }
        self.expired_at.set(now);
        match instance::with(Instance::expire).flatten() {
            Some(wait) => timer.min(wait.as_micros().div_ceil(1000) as ngx_msec_t),
            None => timer,
        }
    }

    /// One turn of the event loop while requests are in flight. Returns true if nginx may sleep.
    fn turn(&self, worker: &'static Worker) -> bool {
        let progress = worker.progress();
        let moment = if self.progress_seen.replace(progress) == progress {
            Moment::Idle
        } else {
            Moment::Busy
        };
        let answers = worker.retrieval.retrieve(moment, worker.active());
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
        // Resumed handshakes may have set timers or posted events, which nginx has looked for
        // before.
        if has_resumed || answers > 0 {
            return false;
        }
        let is_told = self.notify == Notify::Descriptor && worker.responses.get() == 0;
        worker.retrieval.may_sleep(moment, worker.active(), is_told)
    }
}

fn has_ready() -> bool {
    instance::with(|instance| instance.has_ready()).unwrap_or(false)
}

/// The accelerator has answers, or the device has gone.
unsafe extern "C" fn on_answers(_event: *mut ngx_event_t) {
    let Some(worker) = worker() else { return };
    worker.retrieval.disarm();
    if in_flight() == 0 {
        worker.retrieval.poll(Moment::Idle);
    }
}
