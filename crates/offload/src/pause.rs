//! Pausing: the way in which a computation gives its thread back while its operation is in flight.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::event;
use crate::request::Reason;

/// Identifies a paused job to the event loop that has to resume it. The event loop chooses the
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobToken(pub usize);

/// The way in which the event loop learns that a job can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// The token is put on the instance's ready queue (the kernel-bypass notification of QTLS
    /// section 3.4).
    ReadyQueue(JobToken),
    /// The descriptor is made readable (the FD-based notification of QTLS section 4.4).
    Descriptor(JobToken, JobEvent),
    /// The pauser itself makes sure that the event loop comes back to the job; if that is before
    /// the operation has been computed, waiting operations are computed then.
    ByPauser,
}

/// An [event descriptor](crate::event) that the event loop watches for a job. The loop never closes
/// it, since an answer may come at any time.
#[derive(Clone, Copy, Debug)]
pub struct JobEvent(pub &'static OwnedFd);

impl JobEvent {
    /// Makes the descriptor readable: the job can go on.
    pub fn signal(self) {
        event::signal(self.0.as_fd());
    }
}

impl PartialEq for JobEvent {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_raw_fd() == other.0.as_raw_fd()
    }
}

impl Eq for JobEvent {}

/// A job that can be paused: a [fiber](crate::fiber), or a job of the TLS library's own.
pub trait Pause {
    /// Asks if the job may pause at this point.
    ///
    /// # Errors
    /// The reason why its operation is left to software. [`Reason::NotAdmitted`] means that the
    /// job's server does not take part at all.
    fn admits(&self) -> Result<(), Reason> {
        Ok(())
    }

    /// The number of concurrent jobs of the event loop, this one included: up to as many operations
    /// can come to wait together.
    fn concurrency(&self) -> usize {
        usize::MAX
    }

    /// The way to tell the event loop that the job can go on.
    fn notification(&self) -> Notification;

    /// Gives the thread back to the event loop; returns after the event loop has resumed the job.
    ///
    /// Returns false if the job could not be paused: the caller then still has the thread.
    fn pause(&self) -> bool;
}

/// A caller that is no job. Its operations are computed at once where that is cheaper, and left to
/// software otherwise, which is not counted.
#[derive(Clone, Copy, Debug)]
pub struct Outside;

impl Pause for Outside {
    fn admits(&self) -> Result<(), Reason> {
        Err(Reason::NotOffered)
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn notification(&self) -> Notification {
        Notification::ByPauser
    }

    fn pause(&self) -> bool {
        false
    }
}

/// A job that cannot be paused. It blocks until an accelerator has computed what software cannot.
#[derive(Clone, Copy, Debug)]
pub struct Never;

impl Pause for Never {
    fn concurrency(&self) -> usize {
        // No other operation joins it while it blocks.
        1
    }

    fn notification(&self) -> Notification {
        Notification::ByPauser
    }

    fn pause(&self) -> bool {
        false
    }
}
