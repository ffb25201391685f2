//! The outcomes of a call of a kernel.

use core::fmt;
use core::ops::Deref;

use crate::LANES;

/// The outcomes of a call, in the order of the operations: a slice with one entry for each.
#[derive(Clone, Copy, Debug)]
#[must_use = "an operation that failed has no result"]
pub struct Outcomes {
    outcomes: [Result<(), OperationError>; LANES],
    count: usize,
}

/// The reason why an operation has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum OperationError {
    /// An input does not have the length that the operation asks for.
    InputLength,
    /// The output does not have the length that the operation asks for.
    OutputLength,
    /// RSA: the input is not less than the modulus.
    InputOutOfRange,
    /// The result failed its check, so the key, a table or the computation is damaged: RSA with the
    /// public exponent, P-256 and P-384 with the equation of the curve. It is not released, since
    /// it could reveal the key (Boneh, DeMillo, Lipton: "On the Importance of Checking
    /// Cryptographic Protocols for Faults", 1997) or bits of the nonce.
    Fault,
    /// P-256 and P-384: the private key is not between 1 and n - 1, where n is the order of the
    /// base point.
    PrivateKeyOutOfRange,
    /// P-256 and P-384: the peer's public key is not an uncompressed point of the curve.
    InvalidPoint,
    /// X25519: the shared secret is zero, since the peer's public key has small order (RFC 7748,
    /// section 6.1; RFC 8446, section 7.4.2).
    ZeroSecret,
    /// ECDSA: the nonce is not between 1 and n - 1, where n is the order of the base point.
    NonceOutOfRange,
    /// ECDSA: one half of the signature would be zero. Another nonce is needed (FIPS 186-5, section
    /// 6.4.1, step 11).
    UnusableNonce,
}

impl Outcomes {
    /// Success for each of `count` operations.
    pub(crate) fn new(count: usize) -> Self {
        Outcomes {
            outcomes: [Ok(()); LANES],
            count,
        }
    }

    /// Fails the operations that have succeeded so far and whose lane in `faults` is not zero.
    pub(crate) fn note_faults(&mut self, faults: [u64; LANES]) {
        for (outcome, fault) in self.as_mut_slice().iter_mut().zip(faults) {
            if outcome.is_ok() && fault != 0 {
                *outcome = Err(OperationError::Fault);
            }
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Result<(), OperationError>] {
        &mut self.outcomes[..self.count]
    }
}

impl Deref for Outcomes {
    type Target = [Result<(), OperationError>];

    fn deref(&self) -> &Self::Target {
        &self.outcomes[..self.count]
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            OperationError::InputLength => "an input has the wrong length",
            OperationError::OutputLength => "the output has the wrong length",
            OperationError::InputOutOfRange => "the input is not less than the RSA modulus",
            OperationError::Fault => "the result failed its check",
            OperationError::PrivateKeyOutOfRange => {
                "the private key is zero or not less than the order of the curve"
            }
            OperationError::InvalidPoint => {
                "the peer's public key is not an uncompressed point of the curve"
            }
            OperationError::ZeroSecret => {
                "the shared secret is zero, since the peer's public key has small order"
            }
            OperationError::NonceOutOfRange => {
                "the nonce is zero or not less than the order of the curve"
            }
            OperationError::UnusableNonce => {
                "the nonce makes one half of the signature zero: another nonce is needed"
            }
        })
    }
}

impl std::error::Error for OperationError {}
