//! The state of one worker process, made after fork and never shared.

use std::cell::{Cell, OnceCell, RefCell};

use nginx_sys::ngx_log_t;
use slipstream_offload::fiber::Fibers;
use slipstream_offload::instance;

use crate::directives::CoreConf;
use crate::metrics::{Event, Metrics};
use crate::retrieval::{Active, Retrieval};

/// The state of this worker. All of it belongs to its one thread.
pub(crate) struct Worker {
    pub(crate) fibers: RefCell<Fibers>,
    pub(crate) retrieval: Retrieval,
    pub(crate) metrics: Metrics,
    progress: Cell<u64>,
    /// Handshakes that have begun and not ended.
    pub(crate) handshakes: Cell<usize>,
    /// Responses that wait for the device.
    pub(crate) responses: Cell<usize>,
}

impl Worker {
    pub(crate) fn new(conf: &CoreConf, log: *mut ngx_log_t) -> Self {
        Self {
            fibers: RefCell::new(Fibers::new(conf.fibers, conf.stack_bytes)),
            retrieval: Retrieval::new(conf.scheme(), log),
            metrics: Metrics::claim(),
            progress: Cell::new(0),
            handshakes: Cell::new(0),
            responses: Cell::new(0),
        }
    }

    /// Notes that a handshake has gone on, so more operations may come before the loop is idle.
    pub(crate) fn note_progress(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }

    /// Returns a number that changes whenever a handshake has gone on.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.get()
    }

    /// Returns the load, as thresholds of polling count it.
    pub(crate) fn active(&self) -> Active {
        Active(self.handshakes.get() + self.responses.get())
    }

    /// Counts an event. Returns true if it is the first of its kind in this worker.
    pub(crate) fn count(&self, event: Event) -> bool {
        self.metrics.count(event)
    }

    /// Copies the counters to shared memory, where the status page of any worker finds them.
    pub(crate) fn publish(&self) {
        // A request that came to run on a fiber, which is rare, may ask for the status page.
        if let Ok(fibers) = self.fibers.try_borrow() {
            instance::with(|instance| self.metrics.publish(instance, &fibers));
        }
    }
}

/// This worker's state; `None` in the master, and where handshakes are left to nginx.
pub(crate) fn worker() -> Option<&'static Worker> {
    WORKER.with(|cell| cell.get().copied())
}

/// Makes `worker` the state of this process, once.
pub(crate) fn install(worker: Worker) {
    let worker = Box::leak(Box::new(worker));
    WORKER.with(|cell| {
        cell.get_or_init(|| worker);
    });
}

thread_local! {
    static WORKER: OnceCell<&'static Worker> = const { OnceCell::new() };
}
