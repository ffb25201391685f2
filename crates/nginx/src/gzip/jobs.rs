//! This worker's sessions: what they share, and whose request is to go on when the device has answered.

use std::cell::{Cell, RefCell};

use slipstream_deflate::Context;
use slipstream_offload::{JobToken, Notification, Pause};

use super::Needs;
use super::filter::{self, Response};

thread_local! {
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
    static RESPONSES: RefCell<Vec<Option<*mut Response>>> = const { RefCell::new(Vec::new()) };
    static FREE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// The number of the first job that is not a handshake's.
    static FIRST: Cell<usize> = const { Cell::new(0) };
    static WAITING: Cell<usize> = const { Cell::new(0) };
}

/// Makes what this worker's sessions share. Jobs from number `first` on are theirs.
pub(crate) fn make_context(needs: Needs, has_device: bool, first: usize) {
    FIRST.set(first);
    let mut context = Context::new(needs.requests(), needs.device_chunk);
    context.set_device(has_device && needs.device_chunk > 0);
    CONTEXT.with_borrow_mut(|slot| *slot = Some(context));
}

/// Calls `f` with what sessions share. `f` must not call nginx, which may come back here.
pub(super) fn with_context<R>(f: impl FnOnce(&mut Context) -> R) -> R {
    CONTEXT.with_borrow_mut(|slot| {
        // Without a worker of its own (`master_process off`) everything is done in place.
        f(slot.get_or_insert_with(|| Context::new(0, 0)))
    })
}

/// nginx looks for events.
pub(crate) fn begin_turn() {
    CONTEXT.with_borrow_mut(|slot| {
        if let Some(context) = slot {
            context.begin_turn();
        }
    });
}

/// How many responses wait for the device.
pub(crate) fn waiting() -> usize {
    WAITING.get()
}

/// A response's name to the instance, as long as it is compressed.
pub(super) struct Job {
    index: usize,
    is_waiting: bool,
}

impl Job {
    /// A name for `response`, which stays where it is until the name is dropped.
    pub(super) fn new(response: *mut Response) -> Self {
        let index = FREE.with_borrow_mut(Vec::pop);
        let index = RESPONSES.with_borrow_mut(|responses| {
            let index = index.unwrap_or_else(|| {
                responses.push(None);
                responses.len() - 1
            });
            responses[index] = Some(response);
            index
        });
        Self {
            index,
            is_waiting: false,
        }
    }

    /// Notes whether the response waits for the device.
    pub(super) fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting != is_waiting {
            self.is_waiting = is_waiting;
            let waiting = WAITING.get();
            WAITING.set(if is_waiting { waiting + 1 } else { waiting - 1 });
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.set_waiting(false);
        RESPONSES.with_borrow_mut(|responses| responses[self.index] = None);
        FREE.with_borrow_mut(|free| free.push(self.index));
    }
}

impl Pause for Job {
    fn notification(&self) -> Notification {
        Notification::ReadyQueue(JobToken(FIRST.get() + self.index))
    }

    /// It is never asked to: a response waits without a stack of its own.
    fn pause(&self) -> bool {
        false
    }
}

/// Goes on with the response that `job` names. Returns false if it is no response's, but a handshake's.
///
/// Its response may be gone, and its name another's: one that is told for nothing finds nothing.
pub(crate) fn resume(job: JobToken) -> bool {
    let Some(index) = job.0.checked_sub(FIRST.get()) else {
        return false;
    };
    let response = RESPONSES.with_borrow(|responses| responses.get(index).copied().flatten());
    if let Some(response) = response {
        // SAFETY: a response that has a name is there; nobody else refers to it between calls of nginx.
        let request = unsafe { filter::resume(response) };
        let connection = request.connection();
        // SAFETY: the request's connection. Its handler goes on with whatever the request has been waiting with: the rest
        // of its content, or its end. Either may free the request, which is not touched any more.
        unsafe {
            let write = (*connection).write;
            if let Some(handler) = (*write).handler {
                handler(write);
            }
        }
    }
    true
}
