//! The RSA private-key operation (RSADP and RSASP1 of RFC 8017, sections 5.1.2 and 5.2.1, with the Chinese
//! remainder theorem), one to eight at once.

mod batch;
mod integer;
mod key;
mod workspace;

#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Deref;

pub use key::{Components, KeyError, OwnedComponents, PrivateKey};
pub use workspace::Workspace;

use crate::LANES;

/// A supported size of the modulus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Size {
    /// 2048 bits.
    Rsa2048,
    /// 3072 bits.
    Rsa3072,
    /// 4096 bits.
    Rsa4096,
}

impl Size {
    /// All sizes, ascending; [`Size::index`] is the position here.
    pub const ALL: [Size; 3] = [Size::Rsa2048, Size::Rsa3072, Size::Rsa4096];

    /// Length of the modulus in bits.
    pub const fn bits(self) -> usize {
        match self {
            Size::Rsa2048 => 2048,
            Size::Rsa3072 => 3072,
            Size::Rsa4096 => 4096,
        }
    }

    /// Length of the modulus, and so of inputs and outputs, in bytes.
    pub const fn bytes(self) -> usize {
        self.bits() / 8
    }

    /// Position in [`Size::ALL`], for tables by size.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The size with a modulus of `bits` bits, if it is supported.
    pub fn from_bits(bits: usize) -> Option<Size> {
        Size::ALL.into_iter().find(|size| size.bits() == bits)
    }
}

/// One private-key operation: `output = input^d mod n`.
pub struct Operation<'a> {
    /// The key.
    pub key: &'a PrivateKey,
    /// The padded message or the ciphertext: big-endian, exactly as long as the modulus, less than it.
    pub input: &'a [u8],
    /// Where the result goes: big-endian, exactly as long as the modulus. All zero if the operation fails.
    pub output: &'a mut [u8],
}

/// Why there is no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum OperationError {
    /// The input is not exactly as long as the modulus.
    InputLength,
    /// The output is not exactly as long as the modulus.
    OutputLength,
    /// The input is not less than the modulus.
    InputOutOfRange,
    /// The result did not stand the check with the public exponent: the key or the computation is damaged.
    /// The result was destroyed, since it could reveal the key (Boneh, DeMillo, Lipton: "On the Importance of
    /// Checking Cryptographic Protocols for Faults", 1997).
    Fault,
}

impl fmt::Display for OperationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            OperationError::InputLength => "the input is not as long as the RSA modulus",
            OperationError::OutputLength => "the output is not as long as the RSA modulus",
            OperationError::InputOutOfRange => "the input is not less than the RSA modulus",
            OperationError::Fault => "the RSA result failed the check with the public exponent",
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

impl Deref for Outcomes {
    type Target = [Result<(), OperationError>];

    fn deref(&self) -> &Self::Target {
        &self.outcomes[..self.count]
    }
}

/// Computes one to eight operations with keys of one size and one backend, each with a key of its own.
///
/// The time does not depend on how many operations there are, nor on keys, inputs or results, except that the
/// public exponents and whether an operation fails are taken to be public. The stack use is below 16 KiB.
///
/// # Panics
/// If there is no operation, or more than [`LANES`], or if the keys' sizes or backends differ.
pub fn private_operation(workspace: &mut Workspace, operations: &mut [Operation<'_>]) -> Outcomes {
    assert!(
        (1..=LANES).contains(&operations.len()),
        "one to eight operations"
    );
    let (size, backend) = (operations[0].key.size(), operations[0].key.backend());
    assert!(
        operations
            .iter()
            .all(|operation| operation.key.size() == size && operation.key.backend() == backend),
        "the operations' keys differ in size or backend"
    );

    let mut outcomes = Outcomes {
        outcomes: [Ok(()); LANES],
        count: operations.len(),
    };
    for (operation, outcome) in operations.iter_mut().zip(&mut outcomes.outcomes) {
        operation.output.fill(0);
        *outcome = check_arguments(operation);
    }
    if outcomes.iter().any(Result::is_ok) {
        batch::run(workspace, operations, &mut outcomes.outcomes);
    }
    outcomes
}

fn check_arguments(operation: &Operation<'_>) -> Result<(), OperationError> {
    let modulus = operation.key.modulus_bytes();
    if operation.input.len() != modulus.len() {
        return Err(OperationError::InputLength);
    }
    if operation.output.len() != modulus.len() {
        return Err(OperationError::OutputLength);
    }
    // Input minus modulus, from the last byte up: the last borrow tells which is less. Where they differ
    // would be a hint at a padded message, which may be secret.
    let mut borrow = 0;
    for (input, modulus) in operation.input.iter().zip(modulus).rev() {
        borrow = (u16::from(*input))
            .wrapping_sub(u16::from(*modulus))
            .wrapping_sub(borrow)
            >> 15;
    }
    if borrow == 0 {
        return Err(OperationError::InputOutOfRange);
    }
    Ok(())
}
