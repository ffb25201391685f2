//! An accelerator behind a thread that polls it, as QAT Engine does by default (QTLS, sections 3.3
//! and 5.6).

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use slipstream_keys::pages::ForkMark;
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::event;
use slipstream_offload::request::{Request, Response};
use slipstream_offload::{
    Answer, Class, JobEvent, Kind, Notification, Operation, PerKind, Reason, RequestId,
};

/// The moments at which the thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At this interval, while a request is in flight.
    Timer(Duration),
    /// When there are requests: the answers that one poll finds are announced with one event.
    Requests,
}

/// An accelerator that another thread polls: the event loop's side.
pub struct Threaded {
    shared: Arc<Shared>,
    name: String,
    batch_sizes: PerKind<usize>,
    /// The estimates for one operation and for a full batch, as they were when the thread started.
    estimates: PerKind<Option<[Estimate; 2]>>,
    waiting: usize,
    thread: Option<JoinHandle<()>>,
    process: ForkMark,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when there is a request, or when the thread has to stop.
    wake: Condvar,
    /// Readable after answers have come while the event loop slept.
    event: OwnedFd,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    responses: Vec<Response>,
    counters: Counters,
    jobs: usize,
    is_armed: bool,
    is_ending: bool,
}

impl Threaded {
    /// Starts the thread, which takes `accelerator` over. It has the priority and the cores of the
    /// calling thread, and no signal reaches it.
    ///
    /// # Errors
    /// If the system has no thread, no descriptor, or no memory that is wiped on fork for it.
    pub fn new(accelerator: Box<dyn Accelerator>, trigger: Trigger) -> io::Result<Self> {
        let event = event::new()?;
        let process = ForkMark::new()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
            event,
        });
        let name = accelerator.name().to_owned();
        let batch_sizes = PerKind::new(|kind| accelerator.batch_size(kind));
        let estimates = PerKind::new(|kind| {
            let estimate = |count| {
                accelerator.estimate(&Work {
                    kind,
                    count,
                    bytes: 0,
                })
            };
            Some([estimate(1)?, estimate(batch_sizes[kind])?])
        });
        let poller = Poller {
            shared: shared.clone(),
            accelerator,
            backlog: Vec::new(),
            notifications: HashMap::new(),
            trigger,
        };
        let thread = without_signals(|| {
            std::thread::Builder::new()
                .name("slipstream poll".into())
                .spawn(move || poller.run())
        })?;
        Ok(Self {
            shared,
            name,
            batch_sizes,
            estimates,
            waiting: 0,
            thread: Some(thread),
            process,
        })
    }
}

impl Accelerator for Threaded {
    fn name(&self) -> &str {
        &self.name
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        // The thread hands back operations that its accelerator does not take.
        self.estimates[operation.kind()].is_some()
    }

    fn estimate(&self, work: &Work) -> Option<Estimate> {
        let [half, full] = self.estimates[work.kind]?;
        // The batch of RSA takes half the time with half of its lanes.
        Some(match work.count > self.batch_sizes[work.kind] / 2 {
            true => full,
            false => half,
        })
    }

    fn batch_size(&self, kind: Kind) -> usize {
        self.batch_sizes[kind]
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.waiting += 1;
        self.shared.lock().requests.push(request);
        self.shared.wake.notify_one();
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn poll(&mut self, _moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters) {
        let mut state = self.shared.lock();
        self.waiting -= state.responses.len();
        responses.append(&mut state.responses);
        counters.add(&std::mem::take(&mut state.counters));
        if std::mem::take(&mut state.is_armed) || self.waiting == 0 {
            drop(state);
            event::drain(self.shared.event.as_fd());
        }
    }

    fn expect(&mut self, jobs: usize) {
        self.shared.lock().jobs = jobs;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.event.as_fd())
    }

    fn arm(&mut self) -> bool {
        let mut state = self.shared.lock();
        state.is_armed = true;
        state.responses.is_empty()
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        if self.process.is_forked() {
            // A child has no such thread, and nobody there unlocks what the thread has locked.
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.lock().is_ending = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is locked")
    }
}

/// The thread's side.
struct Poller {
    shared: Arc<Shared>,
    accelerator: Box<dyn Accelerator>,
    /// Requests for which there was no room, the oldest first.
    backlog: Vec<Request>,
    notifications: HashMap<RequestId, Notification>,
    trigger: Trigger,
}

impl Poller {
    fn run(mut self) {
        if let Trigger::Timer(_) = self.trigger {
            // The default rounds a wait of 10 us up to 60.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        let mut responses = Vec::new();
        let mut counters = Counters::default();
        while self.take_requests(&mut responses) {
            if let Trigger::Timer(interval) = self.trigger {
                std::thread::sleep(interval);
            }
            self.accelerator
                .poll(Moment::Idle, &mut responses, &mut counters);
            self.deliver(&mut responses, &mut counters);
        }
    }

    /// Submits the requests that have come, after waiting for one if nothing is in flight. Returns
    /// false when the thread has to stop.
    fn take_requests(&mut self, responses: &mut Vec<Response>) -> bool {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        while state.requests.is_empty()
            && self.backlog.is_empty()
            && self.accelerator.waiting() == 0
            && !state.is_ending
        {
            state = shared
                .wake
                .wait(state)
                .expect("no panic while it is locked");
        }
        if state.is_ending {
            return false;
        }
        let requests = std::mem::take(&mut state.requests);
        let jobs = state.jobs;
        drop(state);
        let notifications = requests
            .iter()
            .map(|request| (request.id, request.notification));
        self.notifications.extend(notifications);
        self.backlog.extend(requests);
        self.accelerator.expect(jobs);
        let mut has_room = [true; Class::ALL.len()];
        for request in std::mem::take(&mut self.backlog) {
            let has_room = &mut has_room[request.operation.class().index()];
            if !*has_room {
                self.backlog.push(request);
            } else if !self.accelerator.accepts(&request.operation) {
                let answer = Answer::Software(Reason::NotOffered);
                responses.push(Response::new(request.id, answer));
            } else if let Err(request) = self.accelerator.submit(request) {
                *has_room = false;
                self.backlog.push(request);
            }
        }
        true
    }

    fn deliver(&mut self, responses: &mut Vec<Response>, counters: &mut Counters) {
        if responses.is_empty() {
            return;
        }
        let mut jobs = Vec::new();
        for response in responses.iter_mut() {
            if let Some(Notification::Descriptor(_, event)) =
                self.notifications.remove(&response.id)
            {
                response.is_notified = true;
                jobs.push(event);
            }
        }
        let mut state = self.shared.lock();
        state.responses.append(responses);
        state.counters.add(&std::mem::take(counters));
        let is_armed = state.is_armed;
        drop(state);
        // The event loop may look at once, so the answers have to be there.
        jobs.into_iter().for_each(JobEvent::signal);
        if is_armed {
            event::signal(self.shared.event.as_fd());
        }
    }
}

/// Calls `f` with all signals blocked, as a thread started in it keeps them.
fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: sets of signals on the stack, filled before they are read; the mask of this thread is
    // put back.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use slipstream_keys::fork_test::in_child;
    use slipstream_offload::scheduler::Scheduler;

    use super::*;
    use crate::lanes::{Backend, LaneCosts, Lanes, Options};

    #[test]
    fn a_child_that_drops_it_does_not_wait_for_the_thread() {
        let lanes = Lanes::new(Options {
            backend: Backend::Portable,
            costs: LaneCosts::unknown(Backend::Portable),
            scheduler: Scheduler::default(),
            has_batches: true,
            key_pairs: 0,
            nonces: 0,
        });
        let mut threaded = Threaded::new(Box::new(lanes), Trigger::Requests).ok();
        let ended = in_child(|| {
            // A child that waits is killed.
            // SAFETY: no preconditions.
            unsafe { libc::alarm(60) };
            drop(threaded.take());
            1
        });
        assert_eq!(ended, 1);
        assert!(threaded.is_some());
    }
}
