//! The NIST curves P-256 and P-384 (SP 800-186, section 3.2.1), one to eight operations at once:
//! public keys and shared secrets for ECDH (SP 800-56A), and signatures of ECDSA (FIPS 186-5,
//! section 6).
//!
//! The kernels are [`public_keys`], [`shared_secrets`], [`signatures`] and [`nonces`]. The last
//! computes in advance the part of a signature that depends on the nonce alone;
//! [`PreparedNonce::sign`] completes such a signature. The stack use is below 80 KiB.
//!
//! ```
//! # use slipstream_lanes::{Backend, OperationError};
//! # use slipstream_lanes::ec::{Curve, SharedSecret, shared_secrets};
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
#[cfg(test)]
mod faults;
mod integers;
mod inversion;
mod kernels;
mod moduli;
mod multiplication;
mod point;
#[cfg(test)]
mod tests;

use core::sync::atomic::{Ordering, compiler_fence};

pub use agreement::{PublicKey, SharedSecret, check_point, public_keys, shared_secrets};
pub use ecdsa::{Nonce, PreparedKey, PreparedNonce, Signature, nonces, signatures};
pub use slipstream_keys::ec::Curve;

use crate::Backend;
use crate::digits::splat;
use crate::vector::Vector;

/// Returns true if there are kernels on these curves for the backend. There are none for plain
/// AVX-512F.
#[must_use]
pub fn offered(backend: Backend) -> bool {
    match backend {
        Backend::Ifma | Backend::Portable => true,
        Backend::Avx512 => false,
    }
}

/// Bytes of stack that are wiped after multiples of the base point.
fn base_stack(backend: Backend, curve: Curve) -> usize {
    match (backend, curve) {
        (Backend::Ifma, Curve::P256) => 12 * 1024,
        (Backend::Ifma, Curve::P384) => 32 * 1024,
        _ => 76 * 1024,
    }
}

/// Bytes of stack that are wiped after multiples of other points.
fn point_stack(backend: Backend, curve: Curve) -> usize {
    match (backend, curve) {
        (Backend::Ifma, Curve::P256) => 32 * 1024,
        (Backend::Ifma, Curve::P384) => 56 * 1024,
        _ => 76 * 1024,
    }
}

/// Limbs of 64 bits of the longest integer.
const MAXIMUM_LIMBS: usize = 6;

/// Calls a generic function with the parameters of a curve.
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
