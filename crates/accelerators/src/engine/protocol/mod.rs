//! The protocol between an engine and its clients.
//!
//! Neither side trusts the other. Everything that comes out of a ring, a buffer or the socket is
//! copied, then checked ([`wire`], [`message`]).

pub mod buffers;
pub mod layout;
pub mod message;
mod packet;
pub mod policy;
pub mod socket;
pub mod wire;
