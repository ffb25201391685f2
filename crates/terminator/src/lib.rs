//! A TLS terminator for servers whose own TLS cannot be made asynchronous.
//!
//! One event loop per core accepts connections, completes TLS handshakes with rustls, and hands each connection to
//! what [forwards](forward) it: bytes or HTTP requests to a backend, or files of a directory. rustls calls its
//! signer and its key exchange synchronously; here both ask the offload framework ([`crypto`]), and each step of a
//! handshake runs on a fiber (`event_loop::jobs`), which pauses while its operation is in flight. So the operations of
//! all handshakes of a loop are computed together, as those of nginx's workers are.
//!
//! The crate knows rustls, tokio and hyper. What the offload framework is, it takes from `slipstream_offload`; OpenSSL is
//! not in it.

pub mod configuration;
pub mod crypto;
mod event_loop;
pub mod forward;
mod keepalive;
mod listeners;
pub mod operations;
mod site;
mod terminator;
mod tls;

pub use configuration::Configuration;
pub use terminator::{IsolatedKeys, Terminator};
