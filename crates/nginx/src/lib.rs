//! Dynamic module for a stock nginx: TLS handshakes of http and stream run on fibers, so that one
//! worker has many private-key operations in flight, which are computed in lanes together. It
//! compresses responses, too, in parallel pipelines.
//!
//! Nothing of nginx is patched, and the module is no TLS stack: nginx and OpenSSL do everything but
//! the computation. In each worker the module replaces the handlers of http listening sockets and of
//! stream's TLS phase, and wraps the function that waits for events; see [`handshake`], `stream` and
//! [`poller`]. The OpenSSL provider that finds the fiber is embedded, and loaded when a configuration
//! has been read; see [`keys`].
//!
//! nginx finds the module's tables in [`module`], which uses everything else. [`process`] sets up a
//! worker and installs the handlers; the state that they share is in [`worker`], which knows none
//! of them. [`assumptions`] has what is taken for granted about nginx beyond its headers.

#![cfg_attr(not(stream), allow(dead_code))] // code that stream alone uses

mod assumptions;
mod bits;
mod config;
mod connection;
mod directives;
mod gate;
mod gzip;
mod handshake;
mod hold;
mod index;
mod isolation;
mod keys;
mod log;
mod metrics;
mod module;
mod nginx;
mod notify;
mod openssl;
mod poller;
mod process;
mod retrieval;
mod servers;
mod status;
#[cfg(stream)]
mod stream;
mod watch;
mod worker;
