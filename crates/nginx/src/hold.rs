//! A timer that keeps a worker from exiting while an operation is in flight.

use std::ffi::c_void;

use nginx_sys::{
    ngx_add_timer, ngx_connection_t, ngx_del_timer, ngx_event_t, ngx_log_t, ngx_msec_t,
};

/// The timer. A connection that has timed out while it was paused has no timer of its own, and a
/// worker that shuts down gracefully exits when no timer is left.
pub(crate) struct Hold(*mut HoldEvent);

struct HoldEvent {
    event: ngx_event_t,
    /// The connection of the event, for nginx's debug log.
    connection: ngx_connection_t,
}

const HOLD_MS: ngx_msec_t = 60_000;

impl Hold {
    pub(crate) fn new(log: *mut ngx_log_t) -> Self {
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

    pub(crate) fn begin(&self) {
        // SAFETY: allocated in `new` and never freed; no reference into it exists, and nginx's tree
        // of timers is only touched by this thread.
        unsafe {
            if (*self.0).event.timer_set() == 0 {
                ngx_add_timer(&raw mut (*self.0).event, HOLD_MS);
            }
        }
    }

    /// Returns true if there was a timer to remove.
    pub(crate) fn end(&self) -> bool {
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
