//! Compression of HTTP responses, as Li et al. describe it for an accelerator card in "QWEB" (2020),
//! sections 3.3 and 4.2.
//!
//! A [`Session`] is one response. Content goes in as it comes, and blocks of a response in a content
//! coding come out in order. If a device takes part, a session splits content into chunks that are
//! compressed concurrently. Otherwise, and if the response is short, it is one [`Stream`] on the
//! caller's core, which compresses a little better, since it may refer back to all of its content.
//! The sessions of a thread share a [`Context`].
//!
//! [`Compressor`] compresses single chunks: an engine runs nothing else. [`negotiation`] chooses a
//! codec for a client.
//!
//! The crate does not decompress, does no input or output, and knows no server: nginx's filter is in
//! `slipstream-nginx`. It submits chunks to whatever device the thread's instance of
//! `slipstream-offload` has.
//!
//! ```
//! use slipstream_compress::{CODECS, Context, Method, Mode, Offload, Session, Settings, negotiation};
//! use slipstream_offload::pause::Never;
//!
//! let codec = negotiation::choose(b"gzip, br;q=0.5", CODECS).expect("the client accepts gzip");
//! let settings = Settings {
//!     method: Method::new(codec, codec.default_level()).expect("a level of the codec"),
//!     chunk_bytes: 64 << 10,
//!     stream_bytes: 256 << 10,
//!     threshold: 4 << 10,
//!     block_bytes: 16 << 10,
//!     offload: Offload::Failover,
//!     mode: Mode::Asynchronous,
//! };
//!
//! // This thread has no device. With one, `set_device` says so, a job that can be notified takes the
//! // place of `Never`, and the session is resumed when chunks have been answered.
//! let mut context = Context::new(16, 64 << 10);
//! let content = b"content ".repeat(10_000);
//! let mut session = Session::new(settings, Some(content.len() as u64), &mut context);
//! let mut left = &content[..];
//! let mut response = Vec::new();
//! while !session.is_complete() {
//!     let taken = session.write(&mut context, &Never, left);
//!     left = &left[taken..];
//!     if left.is_empty() {
//!         session.finish(&mut context, &Never);
//!     }
//!     while let Some(block) = session.next_block() {
//!         response.extend(block);
//!     }
//! }
//! assert!(response.starts_with(&[0x1f, 0x8b]), "gzip's magic number");
//! assert!(response.len() < content.len() / 50);
//! ```
//!
//! # Adding a codec
//!
//! A codec is one file and one line: a file in `src/codec/` with an implementation of [`Codec`], which
//! `src/codec.rs` declares as a module, and its line in the table [`CODECS`] beside it. Sessions,
//! chunks, streams, negotiation and the engine ask the trait and match on no codec.
//! `tests/third_codec.rs` is an example. Two things outside this crate make it of more use:
//!
//! - A coding in `slipstream_offload::Coding`, by which [`Codec::wire_coding`] names it to devices.
//!   Without one, responses are compressed on the caller's core.
//! - A directive for its level in `slipstream-nginx`. Without one, nginx uses
//!   [`Codec::default_level`].
//!
//! # Features
//!
//! `igzip`: gzip at levels 1 to 3 by igzip of Intel's ISA-L, on x86-64. Its build wants nasm and
//! autotools, so it is off unless the product is built. Without it, zlib-rs takes all levels.

mod chunk;
pub mod codec;
mod context;
mod method;
pub mod negotiation;
mod policy;
mod session;
mod stream;

pub use chunk::Compressor;
pub use codec::{CODECS, Codec, GZIP, ZSTD};
pub use context::Context;
pub use method::Method;
pub use session::{Mode, Offload, Session, Settings, Totals};
pub use stream::{Flush, Progress, Stream};
