//! Requests on their way to an accelerator, and its answers.

use std::time::Instant;

use slipstream_keys::Operand;

use crate::operation::Operation;
use crate::pause::Notification;
pub use crate::slots::RequestId;

/// A request on its way to an accelerator.
#[derive(Debug)]
pub struct Request {
    /// Identifies the request within its instance.
    pub id: RequestId,
    /// The operation.
    pub operation: Operation,
    /// The way in which the waiting job learns of the answer. For accelerators that notify by
    /// themselves.
    pub notification: Notification,
    /// The moment from which the answer is of no use, if there is one. An accelerator that can tell
    /// answers [`Reason::Lost`] then; another may ignore it.
    pub deadline: Option<Instant>,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Response {
    /// The request.
    pub id: RequestId,
    /// Its answer.
    pub answer: Answer,
    /// True if the accelerator has notified the job itself.
    pub is_notified: bool,
}

impl Response {
    /// Makes an answer of which the instance notifies the job.
    pub fn new(id: RequestId, answer: Answer) -> Self {
        Self {
            id,
            answer,
            is_notified: false,
        }
    }
}

/// The result of a computed [`Operation`].
pub type Output = Operand;

/// The answer to an operation. Every answer is final.
#[derive(Debug)]
#[must_use = "an operation that is left to software has to be computed by the caller"]
pub enum Answer {
    /// Computed by an accelerator and verified.
    Computed(Output),
    /// To be computed by the caller with its own software, at once.
    Software(Reason),
}

/// The reason why an operation is left to the caller's software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no instance on this thread, or none of its accelerators computes the operation.
    NotOffered,
    /// The job must not pause where it is: the server it belongs to does not take part.
    NotAdmitted,
    /// Software is cheaper for the number of operations that were waiting, or that can be waiting.
    Cheaper,
    /// No room for another request.
    Full,
    /// The accelerator's result failed its check and was discarded.
    Fault,
    /// The job was resumed although its operation had not finished; the operation is orphaned.
    Cancelled,
    /// The accelerator has failed, or has not answered in time.
    Lost,
}

impl Reason {
    /// Every reason, in the order of [`Reason::index`].
    pub const ALL: [Reason; 7] = [
        Reason::NotOffered,
        Reason::NotAdmitted,
        Reason::Cheaper,
        Reason::Full,
        Reason::Fault,
        Reason::Cancelled,
        Reason::Lost,
    ];

    /// Position in tables that hold one entry per reason.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word used for this reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::NotOffered => "not_offered",
            Reason::NotAdmitted => "not_admitted",
            Reason::Cheaper => "cheaper",
            Reason::Full => "full",
            Reason::Fault => "fault",
            Reason::Cancelled => "cancelled",
            Reason::Lost => "lost",
        }
    }
}
