//! The poller: a wrapper round the function in which nginx waits for events.
//!
//! That is where nginx would go to sleep, hence where every active connection is known to wait for
//! an operation or for the network: the moment that QTLS section 3.3 approximates by counting.

use std::cell::Cell;
use std::ffi::c_void;

use nginx_sys::{
    ngx_add_timer, ngx_connection_t, ngx_cycle_t, ngx_del_timer, ngx_event_actions, ngx_event_t,
    ngx_int_t, ngx_log_t, ngx_msec_t, ngx_uint_t,
};
use slipstream_offload::accelerator::Moment;
use slipstream_offload::instance::{self, Instance};

use crate::handshake;
use crate::worker::{Worker, worker};

/// The state of the wrapper.
pub(crate) struct Poller {
    /// The worker's progress when it was last about to sleep.
    progress_seen: Cell<u64>,
    /// The worker's progress when keys were last made ahead.
    progress_topped_up: Cell<u64>,
    hold: Hold,
}

impl Poller {
    pub(crate) fn new(log: *mut ngx_log_t) -> Self {
        Self {
            progress_seen: Cell::new(0),
            progress_topped_up: Cell::new(0),
            hold: Hold::new(log),
        }
    }

    /// To be called when a handshake has paused, before nginx looks whether any timer is left.
    pub(crate) fn hold(&self) {
        self.hold.begin();
    }
}

type ProcessEvents = unsafe extern "C" fn(*mut ngx_cycle_t, ngx_msec_t, ngx_uint_t) -> ngx_int_t;

thread_local! {
    static ORIGINAL: Cell<Option<ProcessEvents>> = const { Cell::new(None) };
}

/// Wraps nginx's wait for events in this process.
///
/// # Safety
/// Called once, in the worker, after its event module has been initialised.
pub(crate) unsafe fn install() {
    // SAFETY: by the caller's promise nobody else reads or writes the table now.
    unsafe {
        let slot = &raw mut ngx_event_actions.process_events;
        ORIGINAL.set(*slot);
        *slot = Some(process_events);
    }
}

unsafe extern "C" fn process_events(
    cycle: *mut ngx_cycle_t,
    timer: ngx_msec_t,
    flags: ngx_uint_t,
) -> ngx_int_t {
    let original = ORIGINAL.get().expect("installed before nginx calls it");
    let worker = worker().expect("installed after the worker is made");
    // Resumed handshakes may have set timers or posted events, and while an operation waits the
    // loop must come back: then `timer` is stale, and the loop must not sleep.
    let timer = if poll(worker, timer) { 0 } else { timer };
    // SAFETY: nginx's own function with nginx's own arguments.
    unsafe { original(cycle, timer, flags) }
}

/// Returns whether nginx has to come back without sleeping.
fn poll(worker: &'static Worker, timer: ngx_msec_t) -> bool {
    if waiting() == 0 {
        let progress = worker.progress();
        if timer != 0 && worker.poller.progress_topped_up.replace(progress) != progress {
            instance::with(Instance::top_up);
        }
        return worker.poller.hold.end();
    }
    let progress = worker.progress();
    let idle = worker.poller.progress_seen.replace(progress) == progress;
    let moment = if idle { Moment::Idle } else { Moment::Busy };
    let answers = instance::with(|instance| instance.poll(moment)).unwrap_or(0);
    while let Some(job) = instance::with(|instance| instance.next_ready()).flatten() {
        handshake::resume(worker, job);
    }
    if answers > 0 {
        worker.publish();
    }
    if waiting() == 0 {
        worker.poller.hold.end();
    }
    true
}

fn waiting() -> usize {
    instance::with(|instance| instance.waiting()).unwrap_or(0)
}

/// A timer that keeps a worker from exiting while an operation is in flight: a connection that has
/// timed out while it was paused has no timer of its own, and a worker that shuts down gracefully
/// exits when no timer is left.
struct Hold(*mut HoldEvent);

struct HoldEvent {
    event: ngx_event_t,
    /// What the event belongs to, for nginx's debug log.
    connection: ngx_connection_t,
}

const HOLD_MS: ngx_msec_t = 60_000;

impl Hold {
    fn new(log: *mut ngx_log_t) -> Self {
        // SAFETY: both are structures of C for which nginx itself starts with all zero bits.
        let zeroed: HoldEvent = unsafe { std::mem::zeroed() };
        // Never freed: nginx's timers refer to it as long as the worker lives.
        let hold = Box::into_raw(Box::new(zeroed));
        // SAFETY: just allocated, and only this pointer refers to it.
        unsafe {
            (*hold).connection.fd = -1;
            (*hold).event.data = (&raw mut (*hold).connection).cast::<c_void>();
            (*hold).event.handler = Some(on_hold);
            (*hold).event.log = log;
        }
        Self(hold)
    }

    fn begin(&self) {
        // SAFETY: allocated in `new` and never freed; nobody holds a reference into it, and nginx's
        // tree of timers is only touched by this thread.
        unsafe {
            if (*self.0).event.timer_set() == 0 {
                ngx_add_timer(&raw mut (*self.0).event, HOLD_MS);
            }
        }
    }

    /// Returns whether there was a timer to remove.
    fn end(&self) -> bool {
        // SAFETY: as above.
        unsafe {
            let was_set = (*self.0).event.timer_set() != 0;
            if was_set {
                ngx_del_timer(&raw mut (*self.0).event);
            }
            was_set
        }
    }
}

unsafe extern "C" fn on_hold(event: *mut ngx_event_t) {
    // SAFETY: nginx passes the event whose timer has expired.
    unsafe { ngx_add_timer(event, HOLD_MS) };
}
