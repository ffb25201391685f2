//! Notification of paused jobs: through the ready queue, or with `notify fd` through a descriptor
//! for each connection (QTLS section 4.4).

use std::cell::Cell;
use std::os::fd::OwnedFd;

use nginx_sys::{ngx_event_t, ngx_log_t};
use slipstream_offload::accelerator::Moment;
use slipstream_offload::{JobEvent, JobToken, Notification, event, instance};

use crate::handshake;
use crate::watch::{Edge, Watch};
use crate::worker::worker;

/// The event descriptors of this worker.
struct Descriptors {
    /// One for each connection that has ever paused, for all its jobs and for those of the
    /// connections that have its place later.
    events: Box<[Cell<Option<JobEvent>>]>,
    /// Epoll does not take more of them.
    is_exhausted: Cell<bool>,
    log: *mut ngx_log_t,
}

thread_local! {
    /// `None` without `notify fd`.
    static DESCRIPTORS: Cell<Option<&'static Descriptors>> = const { Cell::new(None) };
}

/// Has the jobs of `connections` notified through descriptors.
pub(crate) fn install_descriptors(connections: usize, log: *mut ngx_log_t) {
    DESCRIPTORS.set(Some(Box::leak(Box::new(Descriptors {
        events: vec![Cell::new(None); connections].into_boxed_slice(),
        is_exhausted: Cell::new(false),
        log,
    }))));
}

/// Returns the way in which `job` is notified. Without a descriptor left, it is the ready queue.
pub(crate) fn notification(job: JobToken) -> Notification {
    DESCRIPTORS
        .get()
        .and_then(|descriptors| descriptors.event(job))
        .map_or(Notification::ReadyQueue(job), |event| {
            Notification::Descriptor(job, event)
        })
}

impl Descriptors {
    fn event(&self, job: JobToken) -> Option<JobEvent> {
        let place = &self.events[job.0];
        if place.get().is_none() && !self.is_exhausted.get() {
            // Kept, also if it cannot be watched: then no more are asked for.
            let descriptor: &'static OwnedFd = Box::leak(Box::new(event::new().ok()?));
            match Watch::add(descriptor, Edge::Clear, Some(on_job), job.0, self.log) {
                Some(()) => place.set(Some(JobEvent(descriptor))),
                None => self.is_exhausted.set(true),
            }
        }
        place.get()
    }
}

/// The event descriptor of a connection has become readable.
unsafe extern "C" fn on_job(event: *mut ngx_event_t) {
    let Some(worker) = worker() else { return };
    // SAFETY: nginx passes the event of a watch.
    let job = JobToken(unsafe { Watch::tag(event) });
    let is_answered = instance::with(|instance| {
        // A thread that polls notifies the connection before this one has seen the answer.
        instance.take_signalled(job) || {
            worker.retrieval.disarm();
            instance.poll(Moment::Busy);
            instance.take_signalled(job)
        }
    });
    if is_answered == Some(true) {
        handshake::resume(worker, job);
    }
}
