//! The instance of an event loop: its accelerators, the requests in flight, and the queue of jobs
//! that can go on.
//!
//! One event loop is one thread is one instance, so nothing here is locked or atomic. An instance
//! is made after fork, in the process that uses it. In a child of that process there is none.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use slipstream_keys::pages::ForkMark;

use crate::accelerator::{Accelerator, Moment, Work};
use crate::costs::FAILOVER;
use crate::counters::Counters;
use crate::operation::{Class, Kind, Operation};
use crate::pause::{JobToken, Notification, Pause};
use crate::request::{Answer, Output, Reason, Request, Response};
use crate::scheduler::{Route, Scheduler};
use crate::slots::{Delivery, RequestId, Slots};

mod run;
#[cfg(test)]
mod tests;

pub use run::{admit, compute_at_once, refuse, run, submit};

/// The mode in which operations are offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// The job is paused until the answer is there (QTLS, section 3).
    #[default]
    Asynchronous,
    /// The thread blocks until each answer is there: the straight offload of QTLS, section 2.4.
    Synchronous(Waiting),
}

/// The way in which a thread blocks until an answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It polls in a loop, and yields the CPU in between.
    Spinning,
    /// It sleeps until the accelerator wakes it.
    Sleeping,
}

/// The accelerators of an event loop, with the requests that are in flight at them.
pub struct Instance {
    accelerators: Vec<Box<dyn Accelerator>>,
    scheduler: Scheduler,
    mode: Mode,
    serves_others: bool,
    slots: Slots,
    /// For each accelerator, the requests for which it had no room (QTLS, section 3.2).
    backlogs: Vec<Backlog>,
    ready: VecDeque<JobToken>,
    /// Jobs whose event descriptor has been made readable.
    signalled: HashSet<JobToken>,
    responses: Vec<Response>,
    pub(crate) counters: Counters,
    /// Readable when the descriptor of one of several accelerators is.
    watch: Option<OwnedFd>,
    process: ForkMark,
}

/// Requests that wait for room, the oldest first. By class, since content may have to wait for a
/// buffer while there is room for everything else.
type Backlog = [VecDeque<Request>; Class::ALL.len()];

impl Instance {
    /// An instance for the calling process with room for `requests` in flight. Its accelerators
    /// stand in the order of preference.
    ///
    /// # Errors
    /// If the system has no memory for the page that detects a fork, or no descriptor to watch
    /// several accelerators.
    pub fn new(
        accelerators: Vec<Box<dyn Accelerator>>,
        scheduler: Scheduler,
        requests: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            watch: watch(&accelerators)?,
            backlogs: accelerators.iter().map(|_| Backlog::default()).collect(),
            accelerators,
            scheduler,
            mode: Mode::default(),
            serves_others: false,
            slots: Slots::new(requests),
            ready: VecDeque::new(),
            signalled: HashSet::new(),
            responses: Vec::new(),
            counters: Counters::default(),
            process: ForkMark::new()?,
        })
    }

    /// Sets how operations are offloaded.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Has operations of callers that are no jobs computed at once, where that is cheaper than
    /// software.
    pub fn serve_others(&mut self) {
        self.serves_others = true;
    }

    /// Returns true after [`serve_others`](Self::serve_others).
    pub fn serves_others(&self) -> bool {
        self.serves_others
    }

    /// Called when nothing is in flight and the event loop is about to sleep: accelerators may
    /// precompute.
    pub fn precompute(&mut self) {
        for accelerator in &mut self.accelerators {
            accelerator.precompute();
        }
    }

    /// Called when the event loop is about to sleep: accelerators wipe precomputed secrets that are
    /// too old. Returns the longest time to sleep before the next call; `None` if there are none.
    pub fn expire(&mut self) -> Option<Duration> {
        let accelerators = self.accelerators.iter_mut();
        accelerators.filter_map(|one| one.expire()).min()
    }

    /// The counts since the instance was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The accelerators, in the order of preference.
    pub fn accelerators(&self) -> impl Iterator<Item = &dyn Accelerator> {
        self.accelerators.iter().map(|accelerator| &**accelerator)
    }

    /// The number of requests of `class` that have been submitted and not been answered.
    pub fn in_flight(&self, class: Class) -> usize {
        self.slots.in_flight(class)
    }

    /// The number of requests that wait for the next [`poll`](Self::poll).
    pub fn waiting(&self) -> usize {
        let at_accelerators: usize = self.accelerators.iter().map(|one| one.waiting()).sum();
        let backlogs = self.backlogs.iter().flatten();
        at_accelerators + backlogs.map(VecDeque::len).sum::<usize>()
    }

    /// Returns a descriptor that becomes readable when there is something to [`poll`](Self::poll)
    /// for, after [`arm`](Self::arm); `None` if accelerators only compute when they are polled.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.watch {
            Some(watch) => Some(watch.as_fd()),
            None => self.accelerators.iter().find_map(|one| one.descriptor()),
        }
    }

    /// Called when the event loop is about to sleep, and wants the descriptor to wake it. Returns
    /// true if it may sleep; otherwise there is something to poll for.
    pub fn arm(&mut self) -> bool {
        // All are armed, also after one that has something to poll for: the next call may sleep.
        let is_quiet = |is_quiet, one: &mut Box<dyn Accelerator>| one.arm() && is_quiet;
        let is_quiet = self.accelerators.iter_mut().fold(true, is_quiet);
        self.ready.is_empty() && is_quiet
    }

    /// Lets the accelerators compute the requests that are due at `moment`, and notifies jobs whose
    /// answer is there. Returns the number of answers.
    pub fn poll(&mut self, moment: Moment) -> usize {
        let mut responses = std::mem::take(&mut self.responses);
        let is_in_flight = self.accelerators.iter().any(|one| one.waiting() > 0);
        for accelerator in &mut self.accelerators {
            accelerator.poll(moment, &mut responses, &mut self.counters);
        }
        let answers = responses.len();
        self.counters.polls += 1;
        self.counters.ineffective_polls += u64::from(is_in_flight && answers == 0);
        if answers > 0 {
            // One look at the clock for all answers of a poll.
            let now = Instant::now();
            for response in responses.drain(..) {
                self.deliver(response, now);
            }
        }
        self.responses = responses;
        self.retry();
        answers
    }

    /// Returns true if the event descriptor of `job` has been made readable since the last call for
    /// it.
    pub fn take_signalled(&mut self, job: JobToken) -> bool {
        self.signalled.remove(&job)
    }

    /// Returns true if a job can go on.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the next job that can go on. The event loop resumes it at once.
    pub fn next_ready(&mut self) -> Option<JobToken> {
        self.ready.pop_front()
    }

    /// Returns the route of an operation of `kind` of a job that may pause if `jobs` is given, the
    /// number of concurrent jobs.
    fn route(&self, kind: Kind, jobs: Option<usize>) -> Result<Route, Reason> {
        let jobs = match self.mode {
            Mode::Asynchronous => jobs,
            // Straight offload does not ask if it pays.
            Mode::Synchronous(_) => jobs.map(|_| usize::MAX),
        };
        let route = self.scheduler.route(kind, &self.accelerators, jobs);
        route.ok_or_else(|| match self.computes(kind) {
            true => Reason::Cheaper,
            false => Reason::NotOffered,
        })
    }

    /// Returns true if an accelerator computes operations of `kind`.
    fn computes(&self, kind: Kind) -> bool {
        let work = Work {
            kind,
            count: 1,
            bytes: 0,
        };
        let mut accelerators = self.accelerators.iter();
        accelerators.any(|accelerator| accelerator.estimate(&work).is_some())
    }

    fn compute_at_once(&mut self, operation: &Operation) -> Result<Output, Reason> {
        let mut answer = Err(Reason::NotOffered);
        for accelerator in &mut self.accelerators {
            answer = accelerator.compute_at_once(operation);
            match answer {
                Err(Reason::NotOffered) => {}
                Ok(_) | Err(_) => break,
            }
        }
        if answer.is_ok() {
            self.counters.at_once[operation.kind().index()] += 1;
        }
        answer
    }

    fn submit(
        &mut self,
        operation: Operation,
        pauser: &dyn Pause,
        now: Instant,
    ) -> Result<RequestId, Reason> {
        let (kind, class) = (operation.kind(), operation.class());
        let place = self
            .scheduler
            .choose(&operation, &mut self.accelerators)
            .ok_or(Reason::NotOffered)?;
        let accelerator = &mut self.accelerators[place];
        // Content joins no other operation.
        if class != Class::Compression {
            accelerator.expect(pauser.concurrency());
        }
        let notification = pauser.notification();
        self.counters.orphans += self.slots.expire(now) as u64;
        let id = self.slots.open(class, notification).ok_or(Reason::Full)?;
        self.slots.note_submission(id, kind, now);
        let request = Request {
            id,
            operation,
            notification,
            deadline: None,
        };
        let backlog = &mut self.backlogs[place][class.index()];
        if !backlog.is_empty() {
            self.counters.retried += 1;
            backlog.push_back(request);
        } else if let Err(request) = accelerator.submit(request) {
            self.counters.retried += 1;
            backlog.push_back(request);
        }
        self.counters.submitted[kind.index()] += 1;
        Ok(id)
    }

    fn deliver(&mut self, response: Response, now: Instant) {
        if let Some((kind, submitted)) = self.slots.take_submission(response.id) {
            let duration = now.saturating_duration_since(submitted);
            self.counters.durations[kind.index()].observe(duration);
        }
        match self.slots.answer(response.id, response.answer, now) {
            Delivery::Notify(Notification::ReadyQueue(job)) => self.ready.push_back(job),
            Delivery::Notify(Notification::Descriptor(job, event)) => {
                self.signalled.insert(job);
                if !response.is_notified {
                    event.signal();
                }
            }
            Delivery::Notify(Notification::ByPauser) | Delivery::Orphan => {}
        }
    }

    /// Submits the requests for which there was no room.
    fn retry(&mut self) {
        for place in 0..self.accelerators.len() {
            for class in Class::ALL {
                while let Some(request) = self.backlogs[place][class.index()].pop_front() {
                    let accelerator = &mut self.accelerators[place];
                    if !accelerator.accepts(&request.operation) {
                        let answer = Answer::Software(Reason::Lost);
                        self.deliver(Response::new(request.id, answer), Instant::now());
                    } else if let Err(request) = accelerator.submit(request) {
                        self.backlogs[place][class.index()].push_front(request);
                        break;
                    }
                }
            }
        }
    }

    /// Notes that no job waits for the answer any more.
    fn abandon(&mut self, id: RequestId) {
        if self.slots.abandon(id) {
            self.counters.orphans += 1;
            for accelerator in &mut self.accelerators {
                accelerator.cancel(id);
            }
        }
    }

    /// Sleeps until an accelerator has something to poll for, if it can tell.
    fn sleep(&mut self) {
        if !self.arm() {
            return;
        }
        let Some(descriptor) = self.descriptor() else {
            return;
        };
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: FAILOVER.subsec_nanos().into(),
        };
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        // An interruption does not matter: the caller polls next.
        let _ = rustix::event::poll(&mut descriptors, Some(&timeout));
    }
}

thread_local! {
    static INSTANCE: RefCell<Option<Instance>> = const { RefCell::new(None) };
}

/// Makes `instance` the one of this thread.
pub fn install(instance: Instance) {
    INSTANCE.with_borrow_mut(|slot| *slot = Some(instance));
}

/// Ends this thread's instance. Jobs that still wait for it must not be resumed any more.
pub fn uninstall() {
    INSTANCE.with_borrow_mut(|slot| *slot = None);
}

/// Calls `f` with this thread's instance; `None` if there is none in this process.
pub fn with<R>(f: impl FnOnce(&mut Instance) -> R) -> Option<R> {
    let access = INSTANCE.try_with(|slot| {
        let mut slot = slot.borrow_mut();
        if slot
            .as_ref()
            .is_some_and(|instance| instance.process.is_forked())
        {
            *slot = None;
        }
        slot.as_mut().map(f)
    });
    access.ok().flatten()
}

/// A request, seen from the job that waits for it. If it is dropped before the answer was read, the
/// request becomes an orphan: it finishes, its result is wiped, and its slot is counted back.
#[derive(Debug)]
#[must_use = "a request whose ticket is dropped becomes an orphan"]
pub struct Ticket {
    id: RequestId,
}

impl Ticket {
    /// Takes the answer, once it is there.
    pub fn take(&self) -> Option<Answer> {
        with(|instance| instance.slots.take(self.id)).flatten()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        with(|instance| instance.abandon(self.id));
    }
}

/// Makes a descriptor that is readable when that of one of the accelerators is; `None` if at most
/// one of them has any.
fn watch(accelerators: &[Box<dyn Accelerator>]) -> io::Result<Option<OwnedFd>> {
    let descriptors = || accelerators.iter().filter_map(|one| one.descriptor());
    if descriptors().count() < 2 {
        return Ok(None);
    }
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for descriptor in descriptors() {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&watch, descriptor, data, epoll::EventFlags::IN)?;
    }
    Ok(Some(watch))
}
