//! The experiments: TLS handshakes and compressed pages of real servers, kernels against libcrypto and zlib.
//!
//! Every figure is taken the same way: the two systems run in turn inside one round (A B, then B A), each
//! pinned to a core of its own, and what counts is the median over the rounds of the paired ratios. On a shared
//! machine absolute numbers drift by tens of per cent within minutes; the ratio of two neighbouring
//! measurements does not.
//!
//! - [`handshake`]: a stock nginx against one with the Slipstream module, and against other servers ([`peers`]).
//! - [`squid`]: Squid's own TLS against `slipstream serve` in front of it.
//! - [`qtls`]: the experiments of the QTLS paper, with an engine in the place of its card.
//! - [`pages`]: the experiments of the QWEB paper about compressed responses.
//! - [`compress`]: the compression library against zlib, on a core and over an engine.
//! - [`kernels`]: RSA, X25519, ECDH and ECDSA in AVX-512 lanes against libcrypto on one core.
//! - [`load`]: the load generator behind them, usable against any TLS server.
//! - [`nginx`]: finding, configuring, starting and stopping nginx.

mod chart;
mod child;
pub mod cleanup;
pub mod compress;
pub mod credentials;
mod engine;
pub mod error;
pub mod handshake;
mod html;
pub mod kernels;
pub mod load;
pub mod machine;
pub mod nginx;
pub mod pages;
pub mod peers;
pub mod processor;
pub mod qtls;
mod report;
pub mod scratch;
pub mod squid;
pub mod statistics;
mod status;
pub mod suite;
mod table;
mod zlib;

pub use error::Error;
pub use slipstream_lanes as lanes;
