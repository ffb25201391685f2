//! One operation, from the question if it pays to pause to the answer.

use std::time::Instant;

use crate::accelerator::Moment;
use crate::operation::{Kind, Operation};
use crate::pause::{Never, Notification, Pause};
use crate::request::{Answer, Output, Reason};
use crate::scheduler::Route;

use super::{Instance, Mode, Ticket, Waiting, with};

/// Decides how an operation of `kind` is to be computed. A caller asks once, before it prepares the
/// operation.
///
/// # Errors
/// The reason why the operation is left to software. The caller counts it with [`refuse`] when it
/// computes the operation.
pub fn admit(kind: Kind, pauser: &dyn Pause) -> Result<Route, Reason> {
    let may_pause = pauser.admits();
    if let Err(Reason::NotAdmitted) = may_pause {
        return Err(Reason::NotAdmitted);
    }
    let jobs = may_pause.is_ok().then(|| pauser.concurrency());
    let route = with(|instance| instance.route(kind, jobs)).unwrap_or(Err(Reason::NotOffered));
    route.map_err(|reason| may_pause.err().unwrap_or(reason))
}

/// Counts an operation that [`admit`] has left to software. If no accelerator computes such
/// operations, nothing has been refused.
pub fn refuse(reason: Reason) {
    if reason != Reason::NotOffered {
        count_software(reason);
    }
}

/// Computes `operation` on this thread without a pause, after [`admit`] has said
/// [`Route::AtOnce`]. `None` if software has to compute it. Needs 80 KiB of stack.
pub fn compute_at_once(operation: &Operation) -> Option<Output> {
    let answer = with(|instance| instance.compute_at_once(operation))?;
    answer.inspect_err(|reason| count_software(*reason)).ok()
}

/// Computes `operation` on this thread's instance while the calling job is paused.
///
/// Every answer is final: [`Answer::Software`] asks the caller to compute the operation with its
/// own means.
///
/// An operation with a key that only accelerators hold, for which the caller has no means, is
/// submitted even if the job must not pause.
pub fn run(operation: Operation, pauser: &dyn Pause) -> Answer {
    let is_held = operation.is_held();
    let blocking = match with(|instance| instance.mode).unwrap_or_default() {
        Mode::Synchronous(waiting) => Some(waiting),
        // A caller that must not yield blocks until the answer arrives.
        Mode::Asynchronous if is_held && pauser.admits().is_err() => Some(Waiting::Spinning),
        Mode::Asynchronous => None,
    };
    let answer = match blocking {
        Some(waiting) => submit(operation, &Never).and_then(|ticket| block(&ticket, waiting)),
        None => submit(operation, pauser).and_then(|ticket| wait(&ticket, pauser, is_held)),
    };
    let answer = answer.unwrap_or_else(Answer::Software);
    if let Answer::Software(reason) = answer {
        count_software(reason);
    }
    answer
}

/// Submits `operation` to this thread's instance for a job that reads its answers itself: it is
/// [notified](Pause::notification) of each, and not [paused](Pause::pause). [`run`] submits, pauses
/// and reads for a job that waits for one answer.
///
/// # Errors
/// The reason why the operation is left to software.
pub fn submit(operation: Operation, pauser: &dyn Pause) -> Result<Ticket, Reason> {
    let submit = |instance: &mut Instance| instance.submit(operation, pauser, Instant::now());
    let id = with(submit).unwrap_or(Err(Reason::NotOffered))?;
    Ok(Ticket { id })
}

fn count_software(reason: Reason) {
    with(|instance| instance.counters.count_software(reason));
}

fn wait(ticket: &Ticket, pauser: &dyn Pause, is_held: bool) -> Result<Answer, Reason> {
    let paused = pauser.pause();
    if let Some(answer) = ticket.take() {
        return Ok(answer);
    }
    if is_held && !paused {
        return block(ticket, Waiting::Spinning);
    }
    // When a job that pauses by itself is resumed, the waiting operations have been computed if
    // they could be; and its stack may be too small for a batch. Without an event loop, waiting
    // operations are computed here.
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

/// Blocks until the answer is there. An accelerator answers every request within a bounded time.
fn block(ticket: &Ticket, waiting: Waiting) -> Result<Answer, Reason> {
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
