//! Accelerators for [`slipstream_offload`]:
//!
//! - [`lanes`]: the vector lanes of this CPU, on the event loop's own thread;
//! - [`engine`]: a process with cores of its own, over rings in shared memory;
//! - [`threaded`]: any accelerator, polled by a thread of its own.
//!
//! Each prepares its own form of a key, keeps its own costs and decides about its own health. The
//! crate knows no TLS library and no server, and of the engine it has the client's side and the
//! protocol only. It is the only crate that computes with [`slipstream_lanes`], beside benches of
//! its kernels.

pub mod engine;
pub mod lanes;
pub mod threaded;
