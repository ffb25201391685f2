//! Asynchronous offload of crypto operations, and of compression.
//!
//! A server's event loop has one [`Instance`](instance::Instance), owned by its thread. Code deep
//! inside a TLS library calls [`run`] with an [`Operation`]; the operation becomes a request that
//! owns its bytes, the running [job](pause) is paused, and the event loop serves other
//! connections. When the loop [polls](instance::poll), waiting requests are computed together and
//! the paused jobs are put on the ready queue, without a system call. The event loop resumes them.
//!
//! Whoever asks always gets an [`Answer`]: either the result, or [`Answer::Software`], which means
//! "compute it yourself, now": the flush policy found that cheaper, or nothing here can do it.
//!
//! The phases are those of QTLS section 3 (pre-processing, response retrieval, notification,
//! post-processing). The crate knows no TLS library and no server.

pub mod accelerator;
pub mod ahead;
pub mod batch;
pub mod calibration;
pub mod counters;
pub mod device;
pub mod encoding;
pub mod event;
pub mod fiber;
#[cfg(test)]
mod fork_test;
pub mod instance;
mod key_pair;
mod pages;
pub mod pause;
pub mod policy;
pub mod polling;
pub mod remains;
pub mod request;
mod slots;
mod threaded;
mod worker_lanes;

pub use instance::{Ticket, admits, count_refusal, run, submit};
pub use pause::{JobEvent, JobToken, Notification, Pause};
pub use request::{Answer, Class, Coding, Compression, Handle, Kind, Operation, Output, Reason};
pub use slots::RequestId;
