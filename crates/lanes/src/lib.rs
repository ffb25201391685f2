//! Kernels that compute one to eight private-key operations at once, one in each 64-bit lane of
//! AVX-512 vectors: RSA ([`rsa`]), X25519 ([`x25519`]), and ECDH and ECDSA on P-256 and P-384
//! ([`ec`]).
//!
//! The crate is pure computation: it does no I/O, reads no clock, draws no random numbers, and
//! allocates nothing while operations run, except for tables that the first call for a curve
//! computes. It is not a complete cryptographic library: it does not hash, pad or verify, it knows
//! no protocol, and it does not decide when a batch is worth running.
//!
//! # Calling convention
//!
//! Every free function that takes operations is a kernel, and all kernels are called alike: with a
//! [`Backend`], which is the instruction set to compute with (RSA also takes the memory to compute
//! in), with the parameter that all lanes share, and with one to eight operations. Each operation
//! borrows its inputs and its output. The kernel returns [`Outcomes`]: one `Result` for each
//! operation, in their order.
//!
//! | kernel | arguments | operation |
//! |---|---|---|
//! | [`rsa::private_operations`] | backend, workspace, size | [`rsa::PrivateOperation`] |
//! | [`x25519::public_keys`] | backend | [`x25519::PublicKey`] |
//! | [`x25519::shared_secrets`] | backend | [`x25519::SharedSecret`] |
//! | [`ec::public_keys`] | backend, curve | [`ec::PublicKey`] |
//! | [`ec::shared_secrets`] | backend, curve | [`ec::SharedSecret`] |
//! | [`ec::nonces`] | backend, curve | [`ec::Nonce`] |
//! | [`ec::signatures`] | backend, curve | [`ec::Signature`] |
//!
//! A call costs the same with one operation as with eight, except that RSA takes half the time for
//! up to four.
//!
//! An operation that fails has an output of zeros (`None` for a nonce) and does not affect the
//! others. [`OperationError`] names the reasons.
//!
//! A kernel panics if there is no operation or more than [`LANES`], if the module's `offered`
//! returns false for the backend, if the backend is not [available](Backend::is_available), or if a
//! key was prepared for another backend, size or curve.
//!
//! The time that a call takes does not depend on private keys, nonces, secret inputs or results,
//! except that the success of each operation and the public exponents of RSA are public. Memory
//! that held secrets is wiped.
//!
//! Results are checked before they are released: those of RSA with the public exponent, points of
//! P-256 and P-384, the point of a nonce among them, with the equation of the curve. Results of
//! X25519 are not checked.
//!
//! ```
//! # use slipstream_lanes::{Backend, OperationError};
//! # use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Workspace, private_operations};
//! # fn sign(
//! #     key: &PreparedKey,
//! #     padded: &[u8],
//! #     signature: &mut [u8],
//! # ) -> Result<(), OperationError> {
//! let mut workspace = Workspace::new();
//! let outcomes = private_operations(
//!     key.backend(),
//!     &mut workspace,
//!     key.size(),
//!     &mut [PrivateOperation { key, input: padded, output: signature }], // up to eight
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
#[cfg(any(test, feature = "fault-test"))]
pub mod fault_test;
mod outcome;
mod radix52;
pub mod rsa;
mod stack;
mod vector;
pub mod x25519;

pub use backend::Backend;
pub use outcome::{OperationError, Outcomes};

#[doc(hidden)]
pub use backend::assume_available;

/// The most operations that one call computes.
pub const LANES: usize = 8;

/// Makes the checks that all kernels have in common.
///
/// # Panics
/// See the documentation of this crate.
fn check_call(backend: Backend, offered: fn(Backend) -> bool, operations: usize) {
    assert!((1..=LANES).contains(&operations), "one to eight operations");
    assert!(
        offered(backend) && backend.is_available(),
        "the backend {} is not offered here",
        backend.name()
    );
}
