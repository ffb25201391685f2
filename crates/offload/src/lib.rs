//! Asynchronous offload of crypto operations, and of compression, to accelerators.
//!
//! A server's event loop has one [`Instance`](instance::Instance), owned by its thread, with a list
//! of [accelerators](accelerator::Accelerator) and one [scheduler](scheduler::Scheduler). Code deep
//! inside a TLS library asks [`admit`] how an operation is to be computed. If it pays to pause, the
//! code calls [`run`]: the [`Operation`] becomes a request that owns its bytes, the running
//! [job](pause) is paused, and the event loop serves other connections. When the loop
//! [polls](instance::Instance::poll), waiting requests are computed together and the paused jobs
//! are put on the ready queue, without a system call. The event loop resumes them.
//!
//! The caller always gets an [`Answer`]: the result, or [`Answer::Software`], which asks the caller
//! to compute the operation with its own means, now.
//!
//! The phases are those of QTLS (PPoPP 2019), section 3: pre-processing, response retrieval,
//! notification, post-processing. The crate knows no accelerator, no TLS library and no server; it
//! depends on [`slipstream_keys`] only.

pub mod accelerator;
pub mod costs;
pub mod counters;
pub mod event;
pub mod fiber;
pub mod instance;
pub mod operation;
pub mod pause;
pub mod polling;
pub mod request;
pub mod scheduler;
mod slots;

pub use accelerator::Accelerator;
pub use instance::{Ticket, admit, compute_at_once, refuse, run, submit};
pub use operation::{Class, Coding, Compression, Kind, Operation, PerKind};
pub use pause::{JobEvent, JobToken, Notification, Pause};
pub use request::{Answer, Output, Reason, RequestId};
pub use scheduler::Route;
