//! What computes requests. The first accelerator is the CPU's own lanes, on the worker's thread: [`WorkerLanes`].

use crate::counters::Counters;
use crate::request::{Answer, Kind, Operation};
use crate::slots::RequestId;

pub use crate::worker_lanes::WorkerLanes;

/// When an accelerator is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The event loop has other work; more requests may come before it sleeps.
    Busy,
    /// The event loop would sleep: every connection waits for the accelerator or for the network.
    Idle,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Response {
    /// The request.
    pub id: RequestId,
    /// Its answer.
    pub answer: Answer,
}

/// Computes requests. Calls never block on anything but computation.
pub trait Accelerator {
    /// Whether `operation` is worth submitting here at all.
    fn accepts(&self, operation: &Operation) -> bool;

    /// The smallest number of jobs under way from which it is worth while to wait for others with an operation of
    /// `kind`; `None` if it never is.
    fn company(&self, kind: Kind) -> Option<usize>;

    /// Takes a request over.
    ///
    /// # Errors
    /// Gives the operation back if there is no room for it.
    fn submit(&mut self, id: RequestId, operation: Operation) -> Result<(), Operation>;

    /// How many requests have been taken over and not been answered.
    fn waiting(&self) -> usize;

    /// Adds the answers that are ready to `responses`, after computing what is due at `moment`.
    fn poll(&mut self, moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters);
}
