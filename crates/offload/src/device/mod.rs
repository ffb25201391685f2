//! A device: somebody else who computes requests, over rings in shared memory (QTLS section 2.3).
//!
//! A device is a process (`slipstream engine`) that listens on a Unix socket. A client connects, and
//! [opens](message::ToEngine::Open) an instance on the connection: a pair of [rings](layout) in memory that both map,
//! with a descriptor each to wake the other side, and [buffers] for content that is to be compressed. Private keys are [registered](message::ToEngine::Register) on the
//! connection, and named by handles in requests.
//!
//! Neither side trusts the other. What comes out of a ring, a buffer or the socket is copied, then checked ([`wire`],
//! [`message`]).

mod accelerator;
pub mod buffers;
mod connection;
mod flights;
mod keys;
pub mod layout;
pub mod message;
mod probe;
pub mod socket;
pub mod wire;

pub use accelerator::Device;
pub use connection::{Connection, Instance, Options};
