//! Dynamic module for a stock nginx: TLS handshakes of http listeners run on fibers, so that one
//! worker has many private-key operations in flight, which are computed in lanes together.
//!
//! Nothing of nginx is patched. In each worker the module replaces the handler of http listening
//! sockets and wraps the function that waits for events; see [`handshake`] and [`poller`].
//! The OpenSSL provider that finds the fiber is embedded and loaded before nginx reads its
//! certificates; see [`keys`].

mod config;
mod connection;
mod directives;
mod gate;
mod gzip;
mod handshake;
mod hold;
mod isolation;
mod keys;
mod log;
mod metrics;
mod module;
mod openssl;
mod poller;
mod status;
mod watch;
mod worker;
