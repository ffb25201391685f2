//! Compression of HTTP responses, as QWEB sections 3.3 and 4.2 describe it.
//!
//! A [`Session`] is one response. Content goes in as it comes, blocks of a valid gzip member or Zstandard stream come out
//! in order. Where a device takes part, content is split into chunks that are compressed concurrently; otherwise, and
//! for what is small, it is one [`Stream`] on the caller's core, which compresses a little better since it may refer
//! back across chunks. What the sessions of a thread share is a [`Context`].
//!
//! [`Compressor`] compresses a single chunk; it is also what the engine runs.
//! [`negotiation`] reads what clients and servers say about codings.

mod chunk;
mod context;
mod gzip;
#[cfg(target_arch = "x86_64")]
mod igzip;
mod method;
pub mod negotiation;
mod policy;
mod session;
mod stream;
mod zlib;
mod zstd;

pub use chunk::{Compressor, bound};
pub use context::Context;
pub use method::{Coding, Method};
pub use session::{Mode, Place, Session, Settings, Totals};
pub use stream::{Flush, Progress, Stream};
