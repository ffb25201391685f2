//! What computes requests: the CPU's own lanes on the worker's thread ([`WorkerLanes`]), a [`Device`](crate::device::Device), or
//! either of them behind a [thread](Threaded) that polls it.

use std::os::fd::BorrowedFd;

use crate::counters::Counters;
use crate::pause::Notification;
use crate::request::{Answer, Kind, Operation};
use crate::slots::RequestId;

pub use crate::threaded::{Threaded, Trigger};
pub use crate::worker_lanes::WorkerLanes;

/// When an accelerator is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The event loop has other work; more requests may come before it sleeps.
    Busy,
    /// The event loop would sleep: every connection waits for the accelerator or for the network.
    Idle,
}

/// A request on its way to an accelerator.
#[derive(Debug)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What is to be computed.
    pub operation: Operation,
    /// How its job learns of the answer. For accelerators that notify by themselves.
    pub notification: Notification,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Response {
    /// The request.
    pub id: RequestId,
    /// Its answer.
    pub answer: Answer,
    /// The accelerator has notified the job itself.
    pub is_notified: bool,
}

/// Computes requests. Calls never block on anything but computation.
pub trait Accelerator: Send {
    /// Whether `operation` is worth submitting here at all.
    fn accepts(&mut self, operation: &Operation) -> bool;

    /// The smallest number of jobs under way from which it is worth while to wait for others with an operation of
    /// `kind`; `None` if it never is.
    fn company(&self, kind: Kind) -> Option<usize>;

    /// Takes a request over.
    ///
    /// # Errors
    /// Gives the request back if there is no room for it now.
    fn submit(&mut self, request: Request) -> Result<(), Request>;

    /// How many requests have been taken over and not been answered.
    fn waiting(&self) -> usize;

    /// Adds the answers that are ready to `responses`, after computing what is due at `moment`.
    fn poll(&mut self, moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters);

    /// The event loop has `jobs` under way, so many requests can come to wait together.
    fn expect(&mut self, _jobs: usize) {}

    /// What becomes readable when there is something to poll for, if the accelerator can tell.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The event loop is about to sleep, and wants the [descriptor](Self::descriptor) to wake it. Returns whether it may
    /// sleep; otherwise it has to poll first, or nothing would ever wake it.
    fn arm(&mut self) -> bool {
        self.waiting() == 0
    }
}

/// The answers to requests, without notifying anybody.
pub(crate) fn answered(id: RequestId, answer: Answer) -> Response {
    Response {
        id,
        answer,
        is_notified: false,
    }
}
