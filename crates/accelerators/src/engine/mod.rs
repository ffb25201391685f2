//! An engine: a process with cores of its own that computes requests, over rings in shared memory
//! (QTLS, section 2.3).
//!
//! `slipstream engine` listens on a Unix socket. A client connects, and
//! [opens](protocol::message::ToEngine::Open) an instance on the connection: a pair of
//! [rings](protocol::layout) in memory that both map, with a descriptor each to wake the other
//! side, and [buffers](protocol::buffers) for content that is to be compressed. Private keys are
//! [registered](protocol::message::ToEngine::Register) on the connection, and named by handles in
//! requests.
//!
//! [`Device`] is the client's side, as the accelerator of an event loop. The engine itself shares
//! the [`protocol`] with it.

mod connection;
mod device;
mod flights;
mod keys;
mod peer;
mod probe;
pub mod protocol;

pub use connection::{Connection, Instance, Options};
pub use device::{Device, NAME};
pub use peer::EngineUser;
