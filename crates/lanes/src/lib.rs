//! Multi-buffer kernels: up to eight operations of one kind at once, one per 64-bit lane of AVX-512 vectors: RSA
//! private-key operations ([`rsa`]), [`x25519`], and P-256 and P-384 ([`ec`]).
//!
//! Pure computation: no I/O, no clock, no allocation while operations run. Everything runs in constant time with
//! respect to private keys and results, and secret memory is wiped. No RSA result is released before it has been checked
//! with the public exponent; results of curves are not checked.
//!
//! ```
//! # use slipstream_lanes::Backend;
//! # use slipstream_lanes::rsa::{Operation, OperationError, PrivateKey, Workspace, private_operation};
//! # fn sign(key: &PrivateKey, padded: &[u8], signature: &mut [u8]) -> Result<(), OperationError> {
//! let mut workspace = Workspace::new();
//! let outcomes = private_operation(
//!     &mut workspace,
//!     &mut [Operation { key, input: padded, output: signature }], // up to eight
//! );
//! outcomes[0]
//! # }
//! ```

mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod backend;
mod digits;
pub mod ec;
mod radix52;
pub mod rsa;
mod vector;
pub mod x25519;

pub use backend::Backend;

#[doc(hidden)]
pub use backend::assume_available;

/// Operations that one call computes at once.
pub const LANES: usize = 8;
