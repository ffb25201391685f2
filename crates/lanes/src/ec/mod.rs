//! The NIST curves P-256 and P-384 (SP 800-186, section 3.2.1), one to eight operations at once: key pairs and shared
//! secrets for ECDH (SP 800-56A), and signatures of ECDSA (FIPS 186-5, section 6).
//!
//! A call costs the same with one operation as with eight. Everything runs in constant time with respect to private
//! keys, nonces and results, except that whether an operation fails is public, and secret memory is wiped. The stack use
//! is below 80 KiB.
//!
//! ```
//! # use slipstream_lanes::Backend;
//! # use slipstream_lanes::ec::{Curve, OperationError, SharedSecret, shared_secrets};
//! # fn agree(backend: Backend, private: &[u8], peer: &[u8]) -> Result<[u8; 32], OperationError> {
//! let mut secret = [0; 32];
//! let outcomes = shared_secrets(
//!     backend,
//!     Curve::P256,
//!     &mut [SharedSecret { private, peer, secret: &mut secret }], // up to eight
//! );
//! outcomes[0].map(|()| secret)
//! # }
//! ```

#[macro_use]
mod field;

mod agreement;
mod arithmetic;
mod base_table;
mod curve;
mod ecdsa;
mod integers;
mod inversion;
mod kernels;
mod moduli;
mod multiplication;
mod point;
#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{Ordering, compiler_fence};

pub use agreement::{PublicKey, SharedSecret, check_point, public_keys, shared_secrets};
pub use ecdsa::{Nonce, Sign, SigningKey, nonces, sign, sign_batch};

use crate::digits::splat;
use crate::vector::Vector;
use crate::{Backend, LANES};

/// A curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Curve {
    /// NIST P-256, secp256r1, prime256v1.
    P256,
    /// NIST P-384, secp384r1.
    P384,
}

impl Curve {
    /// All curves; [`Curve::index`] is the position here.
    pub const ALL: [Curve; 2] = [Curve::P256, Curve::P384];

    /// Length of a coordinate and of a scalar in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
        }
    }

    /// Length of an uncompressed point in bytes.
    pub const fn point_bytes(self) -> usize {
        1 + 2 * self.bytes()
    }

    /// Position in [`Curve::ALL`], for tables by curve.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Why there is no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum OperationError {
    /// An input or an output does not have the length that the curve asks for.
    Length,
    /// The private key is not between 1 and n - 1, where n is the order of the base point.
    PrivateKeyOutOfRange,
    /// The peer's public key is not an uncompressed point of the curve.
    InvalidPoint,
    /// The random number for a nonce is not between 1 and n - 1.
    NonceOutOfRange,
    /// One half of the signature would be zero: another nonce is needed (FIPS 186-5, section 6.4.1, step 11).
    Retry,
}

impl fmt::Display for OperationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            OperationError::Length => "a length that does not fit the curve",
            OperationError::PrivateKeyOutOfRange => "the private key is out of range",
            OperationError::InvalidPoint => "the public key is not a point of the curve",
            OperationError::NonceOutOfRange => "the nonce is out of range",
            OperationError::Retry => "the signature needs another nonce",
        })
    }
}

impl std::error::Error for OperationError {}

/// The outcome of each operation of a call, in order: a slice as long as the operations were.
#[derive(Clone, Copy, Debug)]
pub struct Outcomes {
    outcomes: [Result<(), OperationError>; LANES],
    count: usize,
}

impl Outcomes {
    fn new(count: usize) -> Self {
        Outcomes {
            outcomes: [Ok(()); LANES],
            count,
        }
    }
}

impl Deref for Outcomes {
    type Target = [Result<(), OperationError>];

    fn deref(&self) -> &Self::Target {
        &self.outcomes[..self.count]
    }
}

/// Whether the backend computes on these curves: not with plain AVX-512F.
pub fn offered(backend: Backend) -> bool {
    match backend {
        Backend::Ifma | Backend::Portable => true,
        Backend::Avx512 => false,
    }
}

/// Limbs of 64 bits of the longest integer.
const MAXIMUM_LIMBS: usize = 6;

fn check_call(backend: Backend, operations: usize) {
    assert!((1..=LANES).contains(&operations), "one to eight operations");
    assert!(
        offered(backend) && backend.is_available(),
        "{} cannot compute on these curves here",
        backend.name()
    );
}

/// Calls a function for the parameters of a curve.
macro_rules! with_parameters {
    ($curve:expr, $function:ident, $($argument:expr),*) => {
        match $curve {
            $crate::ec::Curve::P256 => $function::<$crate::ec::curve::P256, 4, 5>($($argument),*),
            $crate::ec::Curve::P384 => $function::<$crate::ec::curve::P384, 6, 8>($($argument),*),
        }
    };
}

use with_parameters;

/// Overwrites `vectors` with zeros that the optimizer does not remove.
#[inline(always)]
fn wipe<V: Vector>(vectors: &mut [V]) {
    for vector in vectors {
        let zero = splat(*vector, 0);
        // SAFETY: the reference is valid for writing.
        unsafe { core::ptr::write_volatile(vector, zero) };
    }
    compiler_fence(Ordering::SeqCst);
}
