//! The instance of an event loop: submit, poll, and the queue of jobs that can go on.
//!
//! One event loop is one thread is one instance, so nothing here is locked or atomic. An instance
//! is made after fork, in the process that uses it; one that finds itself in a child is gone.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::accelerator::{Accelerator, Moment, Response};
use crate::ahead::Ahead;
use crate::counters::Counters;
use crate::pause::{JobToken, Notification, Pause};
use crate::request::{Answer, Class, Kind, Operation, Reason};
use crate::slots::{Delivery, RequestId, Slots};

mod fork;

/// Computes `operation` on this thread's instance while the calling job is paused.
///
/// Every answer is final: [`Answer::Software`] asks the caller to compute it with its own means.
pub fn run(operation: Operation, pauser: &dyn Pause) -> Answer {
    let answer = admits(operation.kind(), pauser)
        .and_then(|()| submit(operation, pauser.notification()))
        .and_then(|ticket| wait(ticket, pauser))
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
    match with(|instance| instance.accelerator.company(kind)) {
        Some(company) if company.is_none_or(|company| pauser.company() < company) => {
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

/// An accelerator with the requests that are in flight at it.
pub struct Instance {
    accelerator: Box<dyn Accelerator>,
    slots: Slots,
    ready: VecDeque<JobToken>,
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
            slots: Slots::new(requests),
            ready: VecDeque::new(),
            responses: Vec::new(),
            counters: Counters::default(),
            ahead: None,
            process: fork::Mark::new()?,
        })
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
        self.accelerator.waiting()
    }

    /// Lets the accelerator compute what is due at `moment`; jobs whose answer is there are put on
    /// the ready queue. Returns the number of answers.
    pub fn poll(&mut self, moment: Moment) -> usize {
        let mut responses = std::mem::take(&mut self.responses);
        self.accelerator
            .poll(moment, &mut responses, &mut self.counters);
        let answers = responses.len();
        for Response { id, answer } in responses.drain(..) {
            match self.slots.answer(id, answer) {
                Delivery::Notify(Notification::ReadyQueue(job)) => self.ready.push_back(job),
                Delivery::Notify(Notification::ByPauser) | Delivery::Orphan => {}
            }
        }
        self.responses = responses;
        answers
    }

    /// The next job that can go on. The event loop resumes it at once.
    pub fn next_ready(&mut self) -> Option<JobToken> {
        self.ready.pop_front()
    }

    fn submit(
        &mut self,
        operation: Operation,
        notification: Notification,
    ) -> Result<RequestId, Reason> {
        if !self.accelerator.accepts(&operation) {
            return Err(Reason::NotOffered);
        }
        let kind = operation.kind();
        let id = self
            .slots
            .open(operation.class(), notification)
            .ok_or(Reason::Full)?;
        if self.accelerator.submit(id, operation).is_err() {
            self.slots.answer(id, Answer::Software(Reason::Full));
            self.slots.take(id);
            return Err(Reason::Full);
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
struct Ticket {
    id: RequestId,
}

impl Ticket {
    fn take(&self) -> Option<Answer> {
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

fn submit(operation: Operation, notification: Notification) -> Result<Ticket, Reason> {
    let id = with(|instance| instance.submit(operation, notification))
        .unwrap_or(Err(Reason::NotOffered))?;
    Ok(Ticket { id })
}

fn wait(ticket: Ticket, pauser: &dyn Pause) -> Result<Answer, Reason> {
    let paused = pauser.pause();
    if let Some(answer) = ticket.take() {
        return Ok(answer);
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
