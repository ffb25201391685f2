//! The RSA private-key operation (RSADP and RSASP1 of RFC 8017, sections 5.1.2 and 5.2.1, with the
//! Chinese remainder theorem), one to eight at once. [`private_operations`] is the kernel; its keys
//! are prepared with [`PreparedKey::new`].

mod batch;
mod key;
mod workspace;

#[cfg(all(test, feature = "system-openssl"))]
mod tests;

pub use key::{PreparedKey, UnavailableBackend};
pub use slipstream_keys::rsa::Size;
pub use workspace::Workspace;

use crate::{Backend, OperationError, Outcomes, check_call};

/// A private-key operation: `output = input^d mod n`.
pub struct PrivateOperation<'a> {
    /// The key.
    pub key: &'a PreparedKey,
    /// The padded message or the ciphertext: big-endian, exactly as long as the modulus and less
    /// than it.
    pub input: &'a [u8],
    /// Receives the result: big-endian, exactly as long as the modulus. All zero if the operation
    /// fails.
    pub output: &'a mut [u8],
}

/// Returns true if there are RSA kernels for the backend. There are for all.
#[must_use]
pub fn offered(backend: Backend) -> bool {
    match backend {
        Backend::Ifma | Backend::Avx512 | Backend::Portable => true,
    }
}

/// Computes one to eight private-key operations, each with a key of its own.
///
/// The stack use is below 16 KiB.
///
/// # Panics
/// See the [crate] documentation. For example, if a key has another size or was prepared for
/// another backend.
pub fn private_operations(
    backend: Backend,
    workspace: &mut Workspace,
    size: Size,
    operations: &mut [PrivateOperation<'_>],
) -> Outcomes {
    check_call(backend, offered, operations.len());
    assert!(
        operations
            .iter()
            .all(|operation| operation.key.size() == size && operation.key.backend() == backend),
        "a key of another size or backend"
    );

    let mut outcomes = Outcomes::new(operations.len());
    for (operation, outcome) in operations.iter_mut().zip(outcomes.as_mut_slice()) {
        operation.output.fill(0);
        *outcome = check_arguments(operation);
    }
    if outcomes.iter().any(Result::is_ok) {
        batch::run(
            backend,
            workspace,
            size,
            operations,
            outcomes.as_mut_slice(),
        );
    }
    outcomes
}

fn check_arguments(operation: &PrivateOperation<'_>) -> Result<(), OperationError> {
    let modulus = operation.key.modulus_bytes();
    if operation.input.len() != modulus.len() {
        return Err(OperationError::InputLength);
    }
    if operation.output.len() != modulus.len() {
        return Err(OperationError::OutputLength);
    }
    // Input minus modulus, from the last byte up: the last borrow is set if the input is less. A
    // comparison that stops at the first difference would leak a hint at a padded message, which
    // may be secret.
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
