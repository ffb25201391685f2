//! This worker's sessions: their shared context, and the requests to resume when the device has
//! answered.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;

use slipstream_compress::Context;
use slipstream_offload::{JobToken, Notification, Pause};

use super::needs::Needs;
use crate::worker::worker;

thread_local! {
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
    /// The response of each job, null if it has none.
    static RESPONSES: RefCell<Vec<*mut c_void>> = const { RefCell::new(Vec::new()) };
    static FREE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// The number of the first job that is a response's and not a handshake's.
    static FIRST: Cell<usize> = const { Cell::new(0) };
}

/// Makes the context of this worker's sessions. Jobs from number `first` on are theirs.
pub(crate) fn make_context(needs: Needs, has_device: bool, first: usize) {
    FIRST.set(first);
    let mut context = Context::new(needs.requests(), needs.device_chunk);
    context.set_device(has_device && needs.device_chunk > 0);
    CONTEXT.with_borrow_mut(|slot| *slot = Some(context));
}

/// Calls `f` with the context of sessions. `f` must not call nginx, which may call this again.
pub(super) fn with_context<R>(f: impl FnOnce(&mut Context) -> R) -> R {
    CONTEXT.with_borrow_mut(|slot| {
        // Without workers (`master_process off`) there is no device.
        f(slot.get_or_insert_with(|| Context::new(0, 0)))
    })
}

/// The response that [`Job::new`] was given for `job`; null if it is gone. `None` if `job` is a
/// handshake's.
pub(super) fn response(job: JobToken) -> Option<*mut c_void> {
    let index = job.0.checked_sub(FIRST.get())?;
    let response = RESPONSES.with_borrow(|responses| responses.get(index).copied());
    Some(response.unwrap_or(ptr::null_mut()))
}

/// Begins a turn of the event loop.
pub(crate) fn begin_turn() {
    CONTEXT.with_borrow_mut(|slot| {
        if let Some(context) = slot {
            context.begin_turn();
        }
    });
}

/// The job of a response, by which the instance notifies it.
pub(super) struct Job {
    index: usize,
    is_waiting: bool,
}

impl Job {
    /// Makes a job for `response`, which must not move until the job is dropped.
    pub(super) fn new(response: *mut c_void) -> Self {
        let index = FREE.with_borrow_mut(Vec::pop);
        let index = RESPONSES.with_borrow_mut(|responses| {
            let index = index.unwrap_or_else(|| {
                responses.push(ptr::null_mut());
                responses.len() - 1
            });
            responses[index] = response;
            index
        });
        Self {
            index,
            is_waiting: false,
        }
    }

    /// Notes that the response waits for the device, or does not.
    pub(super) fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting != is_waiting {
            self.is_waiting = is_waiting;
            // Without a worker's state there is no device to wait for.
            if let Some(worker) = worker() {
                let waiting = worker.responses.get();
                let waiting = if is_waiting { waiting + 1 } else { waiting - 1 };
                worker.responses.set(waiting);
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.set_waiting(false);
        RESPONSES.with_borrow_mut(|responses| responses[self.index] = ptr::null_mut());
        FREE.with_borrow_mut(|free| free.push(self.index));
    }
}

impl Pause for Job {
    fn notification(&self) -> Notification {
        Notification::ReadyQueue(JobToken(FIRST.get() + self.index))
    }

    /// Never called: a response waits without a stack of its own.
    fn pause(&self) -> bool {
        false
    }
}
