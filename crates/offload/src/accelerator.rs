//! The contract between the framework and the accelerators that compute its requests.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::costs::Cost;
use crate::counters::Counters;
use crate::operation::{Kind, Operation};
use crate::request::{Output, Reason, Request, RequestId, Response};

/// Computes requests: the CPU's vector lanes, an engine, a card, a token, a remote pool.
///
/// An instance owns its accelerators and calls them from its thread. No call blocks on anything but
/// computation. Each request that was [submitted](Self::submit) is answered exactly once, within a
/// bounded time, by a later [`poll`](Self::poll): a request that cannot be computed is answered
/// with the reason why it is left to software.
pub trait Accelerator: Send {
    /// The name for people, and the holder's name in a [`Reference`](slipstream_keys::Reference) to
    /// a key.
    fn name(&self) -> &str;

    /// Returns true if `operation` can be submitted now: the accelerator computes its kind, has its
    /// key or can get it, and is healthy.
    fn accepts(&mut self, operation: &Operation) -> bool;

    /// Estimates what `work` costs; `None` if the accelerator does not compute its kind.
    fn estimate(&self, work: &Work) -> Option<Estimate>;

    /// The number of operations of `kind` that one computation takes at most. An accelerator that
    /// computes each request by itself answers 1.
    fn batch_size(&self, _kind: Kind) -> usize {
        1
    }

    /// Says when [`compute_at_once`](Self::compute_at_once) is cheaper than pausing.
    fn at_once(&self, _kind: Kind) -> AtOnce {
        AtOnce::Never
    }

    /// Computes `operation` on the calling thread, without a pause. It may need 80 KiB of stack.
    ///
    /// # Errors
    /// The reason why it is left to software: [`Reason::NotOffered`] if it cannot be computed now.
    fn compute_at_once(&mut self, _operation: &Operation) -> Result<Output, Reason> {
        Err(Reason::NotOffered)
    }

    /// Takes over a request that the accelerator [accepts](Self::accepts).
    ///
    /// # Errors
    /// Gives the request back if there is no room for it now. The instance keeps it and tries again
    /// after a poll.
    fn submit(&mut self, request: Request) -> Result<(), Request>;

    /// The number of requests that have been taken over and not been answered.
    fn waiting(&self) -> usize;

    /// Adds the answers that are ready to `responses`, after computing what is due at `moment`.
    fn poll(&mut self, moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters);

    /// Notes that the answer to a request is no longer wanted. The request has to be answered all
    /// the same.
    fn cancel(&mut self, _id: RequestId) {}

    /// Notes that the event loop has `jobs` concurrent jobs, so up to as many requests can come to
    /// wait together.
    fn expect(&mut self, _jobs: usize) {}

    /// Called when the event loop is about to sleep and nothing is in flight: the accelerator may
    /// precompute what it computes [at once](Self::at_once).
    fn precompute(&mut self) {}

    /// Called when the event loop is about to sleep: wipes precomputed secrets that are too old.
    /// Returns the time after which it wants to be called again, although nothing has happened;
    /// `None` if there are none.
    fn expire(&mut self) -> Option<Duration> {
        None
    }

    /// The state of the accelerator.
    fn health(&self) -> Health {
        Health::Ready
    }

    /// Returns a descriptor that becomes readable when there is something to poll for, if the
    /// accelerator can tell.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Called when the event loop is about to sleep, and wants the [descriptor](Self::descriptor)
    /// to wake it. Returns true if it may sleep; otherwise it has to poll first, or nothing would
    /// wake it.
    fn arm(&mut self) -> bool {
        self.waiting() == 0
    }
}

/// Operations whose cost is to be estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The kind of all of them.
    pub kind: Kind,
    /// The number of operations, from 1 to [`Accelerator::batch_size`], which are computed
    /// together.
    pub count: usize,
    /// Bytes of content or of records, summed up; 0 where operands are short.
    pub bytes: usize,
}

/// The costs of some [`Work`] at an accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// Time of the calling thread's processor.
    pub cost: Cost,
    /// Time from submission until the answers are there.
    pub latency: Cost,
}

impl Estimate {
    /// Returns the estimate of an accelerator that computes on the calling thread: the latency is
    /// the cost.
    pub fn here(cost: Cost) -> Self {
        Self {
            cost,
            latency: cost,
        }
    }

    /// The time that decides if waiting for the accelerator pays: the latency, or the cost if
    /// only that is known.
    pub fn time(&self) -> Cost {
        match self.latency {
            Cost::Known(_) => self.latency,
            Cost::Unknown => self.cost,
        }
    }
}

/// When an operation is computed on the calling thread, without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// Never.
    Never,
    /// When too few jobs are concurrent to fill a batch: alone it costs no more than software.
    WhenAlone,
    /// Always: what is left to do takes less time than a pause, since the rest has been
    /// precomputed.
    Always,
}

/// The state of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It computes.
    Ready,
    /// It is being connected to or probed.
    Starting,
    /// It has failed, and is tried again later.
    Failed,
}

/// When an accelerator is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The event loop has other work; more requests may come before it sleeps.
    Busy,
    /// The event loop would sleep: every connection waits for the accelerator or for the network.
    Idle,
}
