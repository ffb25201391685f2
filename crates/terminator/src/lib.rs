//! TLS terminator for servers whose own TLS cannot be made asynchronous.
//!
//! One event loop per core accepts connections, completes TLS handshakes with rustls, and passes
//! each connection to `slipstream_http`, which forwards bytes or HTTP requests to a backend, or
//! serves files. rustls calls its signer and its key exchange synchronously. Here both submit their
//! operations to the offload framework ([`crypto`]), and each step of a handshake runs on a fiber
//! (`event_loop::jobs`) that pauses while its operation is in flight. So the operations of all
//! handshakes of a loop are computed together, as those of an nginx worker are.
//!
//! The crate knows rustls and tokio. It uses neither OpenSSL nor a web server.

pub mod configuration;
pub mod crypto;
mod event_loop;
mod listeners;
pub mod operations;
mod site;
mod terminator;
mod tls;

pub use configuration::Configuration;
pub use site::SiteError;
pub use terminator::{IsolatedKeys, ReloadError, Terminator};
pub use tls::error::{PrivateKeyError, TlsError};
