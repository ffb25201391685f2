//! The experiments: TLS handshakes of real servers, and kernels against libcrypto.
//!
//! Every figure is taken the same way: the two systems run in turn inside one round (A B, then B A), each
//! pinned to a core of its own, and what counts is the median over the rounds of the paired ratios. On a shared
//! machine absolute numbers drift by tens of per cent within minutes; the ratio of two neighbouring
//! measurements does not.
//!
//! - [`handshake`]: a stock nginx against one with the Slipstream module.
//! - [`qtls`]: the experiments of the QTLS paper, with an engine in the place of its card.
//! - [`kernels`]: RSA, X25519, ECDH and ECDSA in AVX-512 lanes against libcrypto on one core.
//! - [`load`]: the load generator behind them, usable against any TLS server.
//! - [`nginx`]: finding, configuring, starting and stopping nginx.

mod child;
pub mod cleanup;
pub mod credentials;
pub mod error;
pub mod handshake;
pub mod kernels;
pub mod load;
pub mod machine;
pub mod nginx;
pub mod processor;
pub mod qtls;
pub mod scratch;
pub mod statistics;
pub mod suite;

pub use error::Error;
pub use slipstream_lanes as lanes;
