//! The instance of an event loop: submit, poll, and the queue of jobs that can go on.
//!
//! One event loop is one thread is one instance, so nothing here is locked or atomic. An instance
//! is made after fork, in the process that uses it; one that finds itself in a child is gone.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::accelerator::{Accelerator, Moment, Request, Response, answered};
use crate::ahead::Ahead;
use crate::counters::Counters;
use crate::pause::{JobToken, Never, Notification, Pause};
use crate::polling::FAILOVER;
use crate::request::{Answer, Class, Kind, Operation, Reason};
use crate::slots::{Delivery, RequestId, Slots};

mod fork;

/// Computes `operation` on this thread's instance while the calling job is paused.
///
/// Every answer is final: [`Answer::Software`] asks the caller to compute it with its own means.
///
/// An operation with a key that a device holds, for which the caller has no means, is submitted whether or not the job
/// may pause.
pub fn run(operation: Operation, pauser: &dyn Pause) -> Answer {
    let is_held = matches!(operation, Operation::Held { .. });
    let admitted = admits(operation.kind(), pauser);
    let here = match mode() {
        Mode::Synchronous(waiting) => Some(waiting),
        // Who may not pause waits where he is.
        Mode::Asynchronous if is_held && pauser.admits().is_err() => Some(Waiting::Spinning),
        Mode::Asynchronous => None,
    };
    let answer = if is_held { Ok(()) } else { admitted }
        .and_then(|()| match here {
            Some(waiting) => wait_synchronously(&submit(operation, &Never)?, waiting),
            None => wait(&submit(operation, pauser)?, pauser, is_held),
        })
        .unwrap_or_else(Answer::Software);
    if let Answer::Software(reason) = answer {
        count_software(reason);
    }
    answer
}

/// Whether an operation of `kind` would be taken over now: a caller can ask before it prepares one.
///
/// # Errors
/// The reason why it is left to software.
pub fn admits(kind: Kind, pauser: &dyn Pause) -> Result<(), Reason> {
    pauser.admits()?;
    match with(|instance| (instance.mode, instance.accelerator.company(kind))) {
        Some((Mode::Synchronous(_), Some(_))) => Ok(()),
        Some((_, company)) if company.is_none_or(|company| pauser.company() < company) => {
            Err(Reason::Cheaper)
        }
        // Without an instance nothing is known yet.
        _ => Ok(()),
    }
}

/// Counts an operation of `kind` that the caller computes in software without having prepared it, since it is not
/// [admitted](admits).
pub fn count_refusal(kind: Kind, pauser: &dyn Pause) {
    if let Err(reason) = admits(kind, pauser) {
        count_software(reason);
    }
}

fn count_software(reason: Reason) {
    with(|instance| instance.counters.count_software(reason));
}

/// How operations are offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// The job is paused until the answer is there (QTLS section 3).
    #[default]
    Asynchronous,
    /// The thread waits for each answer: the straight offload of QTLS section 2.4.
    Synchronous(Waiting),
}

/// How a thread waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It polls, and lets others run meanwhile.
    Spinning,
    /// It sleeps until the accelerator wakes it.
    Sleeping,
}

/// An accelerator with the requests that are in flight at it.
pub struct Instance {
    accelerator: Box<dyn Accelerator>,
    mode: Mode,
    slots: Slots,
    /// Requests for which the accelerator had no room (QTLS section 3.2), the oldest first. By class, since content may have to
    /// wait for a buffer while there is room for everything else.
    backlogs: [VecDeque<Request>; Class::ALL.len()],
    ready: VecDeque<JobToken>,
    /// Jobs whose event descriptor has been made readable.
    signalled: HashSet<JobToken>,
    responses: Vec<Response>,
    pub(crate) counters: Counters,
    pub(crate) ahead: Option<Ahead>,
    process: fork::Mark,
}

impl Instance {
    /// An instance for the calling process with room for `requests` in flight.
    ///
    /// # Errors
    /// If the system has no memory for the page that detects a fork.
    pub fn new(accelerator: Box<dyn Accelerator>, requests: usize) -> std::io::Result<Self> {
        Ok(Self {
            accelerator,
            mode: Mode::default(),
            slots: Slots::new(requests),
            backlogs: Default::default(),
            ready: VecDeque::new(),
            signalled: HashSet::new(),
            responses: Vec::new(),
            counters: Counters::default(),
            ahead: None,
            process: fork::Mark::new()?,
        })
    }

    /// Sets how operations are offloaded.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Has [keys and nonces made ahead](crate::ahead) for this instance's thread.
    pub fn make_ahead(&mut self, ahead: Ahead) {
        self.ahead = Some(ahead);
    }

    /// Nobody waits for anything now: makes keys and nonces of which some have been used.
    pub fn top_up(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.top_up();
        }
    }

    /// What has been done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many requests of `class` have been submitted and not been answered.
    pub fn in_flight(&self, class: Class) -> usize {
        self.slots.in_flight(class)
    }

    /// How many requests wait for the next [`poll`](Self::poll).
    pub fn waiting(&self) -> usize {
        let backlog: usize = self.backlogs.iter().map(VecDeque::len).sum();
        self.accelerator.waiting() + backlog
    }

    /// What becomes readable when there is something to [`poll`](Self::poll) for, after [`arm`](Self::arm); `None` if
    /// the accelerator only computes when it is polled.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.accelerator.descriptor()
    }

    /// The event loop is about to sleep, and wants the descriptor to wake it. Returns whether it may sleep; otherwise
    /// there is something to poll for.
    pub fn arm(&mut self) -> bool {
        self.ready.is_empty() && self.accelerator.arm()
    }

    /// Lets the accelerator compute what is due at `moment`; jobs whose answer is there are notified. Returns the number
    /// of answers.
    pub fn poll(&mut self, moment: Moment) -> usize {
        let mut responses = std::mem::take(&mut self.responses);
        let is_in_flight = self.accelerator.waiting() > 0;
        self.accelerator
            .poll(moment, &mut responses, &mut self.counters);
        let answers = responses.len();
        self.counters.polls += 1;
        self.counters.ineffective_polls += u64::from(is_in_flight && answers == 0);
        for response in responses.drain(..) {
            self.deliver(response);
        }
        self.responses = responses;
        self.retry();
        answers
    }

    /// Whether the event descriptor of `job` has been made readable since this was last asked.
    pub fn take_signalled(&mut self, job: JobToken) -> bool {
        self.signalled.remove(&job)
    }

    fn deliver(&mut self, response: Response) {
        match self.slots.answer(response.id, response.answer) {
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

    /// Submits what there was no room for.
    fn retry(&mut self) {
        for class in Class::ALL {
            while let Some(request) = self.backlogs[class.index()].pop_front() {
                if !self.accelerator.accepts(&request.operation) {
                    let answer = Answer::Software(Reason::Lost);
                    self.deliver(answered(request.id, answer));
                } else if let Err(request) = self.accelerator.submit(request) {
                    self.backlogs[class.index()].push_front(request);
                    break;
                }
            }
        }
    }

    /// Whether a job can go on.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next job that can go on. The event loop resumes it at once.
    pub fn next_ready(&mut self) -> Option<JobToken> {
        self.ready.pop_front()
    }

    fn submit(&mut self, operation: Operation, pauser: &dyn Pause) -> Result<RequestId, Reason> {
        // Content joins no operation in lanes.
        if operation.class() != Class::Compression {
            self.accelerator.expect(pauser.company());
        }
        if !self.accelerator.accepts(&operation) {
            return Err(Reason::NotOffered);
        }
        let (kind, class) = (operation.kind(), operation.class());
        let notification = pauser.notification();
        let id = self.slots.open(class, notification).ok_or(Reason::Full)?;
        let request = Request {
            id,
            operation,
            notification,
        };
        let backlog = &mut self.backlogs[class.index()];
        if !backlog.is_empty() {
            self.counters.retried += 1;
            backlog.push_back(request);
        } else if let Err(request) = self.accelerator.submit(request) {
            self.counters.retried += 1;
            backlog.push_back(request);
        }
        self.counters.submitted[kind.index()] += 1;
        Ok(id)
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

/// A request as the job sees it that waits for it. Dropped before the answer was read, it makes
/// the request an orphan: that one finishes, its result is wiped, and its slot is counted back.
#[derive(Debug)]
pub struct Ticket {
    id: RequestId,
}

impl Ticket {
    /// The answer, once it is there. It can be taken once.
    pub fn take(&self) -> Option<Answer> {
        with(|instance| instance.slots.take(self.id)).flatten()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        with(|instance| {
            if instance.slots.abandon(self.id) {
                instance.counters.orphans += 1;
            }
        });
    }
}

fn mode() -> Mode {
    with(|instance| instance.mode).unwrap_or_default()
}

/// Submits `operation` to this thread's instance for a job that looks after its answers itself: it is
/// [notified](Pause::notification) of each, and not [paused](Pause::pause). [`run`] does it all for a job that waits for one.
///
/// # Errors
/// The reason why it is left to software.
pub fn submit(operation: Operation, pauser: &dyn Pause) -> Result<Ticket, Reason> {
    let id =
        with(|instance| instance.submit(operation, pauser)).unwrap_or(Err(Reason::NotOffered))?;
    Ok(Ticket { id })
}

fn wait(ticket: &Ticket, pauser: &dyn Pause, is_held: bool) -> Result<Answer, Reason> {
    let paused = pauser.pause();
    if let Some(answer) = ticket.take() {
        return Ok(answer);
    }
    if is_held && !paused {
        return wait_synchronously(ticket, Waiting::Spinning);
    }
    // Who pauses by itself has had everything computed that waited, if it could be computed at all; and its stack may be
    // too small for a batch. Where there is no event loop, what waits is computed here.
    if paused || pauser.notification() == Notification::ByPauser {
        return Err(Reason::Cancelled);
    }
    while with(|instance| instance.poll(Moment::Idle)).is_some_and(|answers| answers > 0) {
        if let Some(answer) = ticket.take() {
            return Ok(answer);
        }
    }
    Err(Reason::Cancelled)
}

/// Waits for the answer where the caller is. An accelerator answers every request within a bounded time.
fn wait_synchronously(ticket: &Ticket, waiting: Waiting) -> Result<Answer, Reason> {
    loop {
        with(|instance| {
            instance.poll(Moment::Idle);
        })
        .ok_or(Reason::Cancelled)?;
        if let Some(answer) = ticket.take() {
            return Ok(answer);
        }
        match waiting {
            Waiting::Spinning => std::thread::yield_now(),
            Waiting::Sleeping => {
                with(Instance::sleep);
            }
        }
    }
}

impl Instance {
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
        // Interrupted or not, the caller polls next.
        let _ = rustix::event::poll(&mut descriptors, Some(&timeout));
    }
}
