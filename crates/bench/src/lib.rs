//! Benches: TLS handshakes and transfers of real servers, compression, kernels against libcrypto.
//!
//! Every figure is taken the same way: the two systems run in turn inside one round (A B, then B
//! A), each pinned to a core of its own, and the result is the median over the rounds of the paired
//! ratios. On a shared machine absolute numbers drift by tens of per cent within minutes; the ratio
//! of two neighbouring measurements does not.
//!
//! - [`load`]: the load generator, usable against any TLS server.
//! - [`handshake`]: full handshakes of nginx, stock and with the Slipstream module, and of other
//!   servers.
//! - [`transfers`]: compressed pages of nginx, stock and with the module.
//! - [`compress`]: the compression library against zlib, on a core and over an engine.
//! - [`kernels`]: RSA, X25519, ECDH and ECDSA in AVX-512 lanes against libcrypto on one core.
//! - [`corpus`]: the pages that are compressed.
//! - [`statistics`], [`table`], [`chart`], [`report`]: the results.
//! - [`command`]: options and output that commands share.
//!
//! The servers are started by `slipstream-testbed`. The reproductions of papers are in
//! `slipstream-papers`.

pub mod chart;
pub mod command;
pub mod compress;
pub mod corpus;
pub mod error;
pub mod handshake;
pub mod kernels;
pub mod load;
pub mod report;
pub mod statistics;
pub mod table;
pub mod transfers;
mod zlib;

pub use error::Error;
