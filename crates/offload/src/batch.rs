//! One batch: operations of one kind, computed together.

use arrayvec::ArrayVec;
use slipstream_lanes::ec::{self, Curve};
use slipstream_lanes::rsa::{self, Workspace};
use slipstream_lanes::{Backend, LANES, x25519};
use zeroize::{Zeroize, Zeroizing};

use crate::request::{Answer, Kind, Operand, Operation, Output, Reason};

/// The answers to `operations`, in their order.
///
/// # Panics
/// If there is no operation, or more than [`LANES`], or if they differ in kind, or if `backend` does not compute them.
pub fn compute<'a>(
    backend: Backend,
    workspace: &mut Workspace,
    operations: impl Iterator<Item = &'a Operation>,
) -> ArrayVec<Answer, LANES> {
    let operations: ArrayVec<&Operation, LANES> = operations.collect();
    let kind = operations[0].kind();
    let mut outputs: ArrayVec<Output, LANES> = operations
        .iter()
        .map(|_| Output::zeroed(kind.output_bytes()))
        .collect();
    let succeeded = match kind {
        Kind::Rsa(_) => rsa(workspace, &operations, &mut outputs),
        Kind::X25519 => x25519(backend, &operations, &mut outputs),
        Kind::Ecdh(curve) => ecdh(backend, curve, &operations, &mut outputs),
        Kind::Ecdsa(curve) => ecdsa(backend, curve, &operations, &mut outputs),
    };
    let answer = |(output, succeeded)| match succeeded {
        true => Answer::Computed(output),
        false => Answer::Software(Reason::Fault),
    };
    outputs.into_iter().zip(succeeded).map(answer).collect()
}

fn rsa(workspace: &mut Workspace, operations: &[&Operation], outputs: &mut [Output]) -> Succeeded {
    let mut operations: ArrayVec<rsa::Operation<'_>, LANES> = operations
        .iter()
        .zip(outputs)
        .map(|(operation, output)| match operation {
            Operation::RsaPrivate { key, input } => rsa::Operation {
                key,
                input: input.as_slice(),
                output: output.as_mut_slice(),
            },
            other => panic!("{other:?} in a batch of RSA"),
        })
        .collect();
    let outcomes = rsa::private_operation(workspace, &mut operations);
    outcomes.iter().map(Result::is_ok).collect()
}

fn x25519(backend: Backend, operations: &[&Operation], outputs: &mut [Output]) -> Succeeded {
    let mut operations: ArrayVec<x25519::SharedSecret<'_>, LANES> = operations
        .iter()
        .zip(outputs)
        .map(|(operation, output)| match operation {
            Operation::X25519 { private, peer } => x25519::SharedSecret {
                private: key(private),
                peer: key(peer),
                secret: output.as_mut_slice().try_into().expect("as long as a key"),
            },
            other => panic!("{other:?} in a batch of X25519"),
        })
        .collect();
    let count = operations.len();
    let nonzero = x25519::shared_secrets(backend, &mut operations);
    nonzero.into_iter().take(count).collect()
}

fn key(operand: &Operand) -> &[u8; x25519::KEY_BYTES] {
    operand
        .as_slice()
        .try_into()
        .expect("checked when it was submitted")
}

fn ecdh(
    backend: Backend,
    curve: Curve,
    operations: &[&Operation],
    outputs: &mut [Output],
) -> Succeeded {
    let mut operations: ArrayVec<ec::SharedSecret<'_>, LANES> = operations
        .iter()
        .zip(outputs)
        .map(|(operation, output)| match operation {
            Operation::Ecdh { private, peer, .. } => ec::SharedSecret {
                private: private.as_slice(),
                peer: peer.as_slice(),
                secret: output.as_mut_slice(),
            },
            other => panic!("{other:?} in a batch of ECDH"),
        })
        .collect();
    let outcomes = ec::shared_secrets(backend, curve, &mut operations);
    outcomes.iter().map(Result::is_ok).collect()
}

fn ecdsa(
    backend: Backend,
    curve: Curve,
    operations: &[&Operation],
    outputs: &mut [Output],
) -> Succeeded {
    let nonces: ArrayVec<Zeroizing<[u8; LONGEST_SCALAR]>, LANES> =
        operations.iter().map(|_| random_scalar(curve)).collect();
    let mut operations: ArrayVec<ec::Sign<'_>, LANES> = operations
        .iter()
        .zip(&nonces)
        .zip(outputs)
        .map(|((operation, nonce), output)| match operation {
            Operation::Ecdsa { key, digest } => ec::Sign {
                key,
                digest: digest.as_slice(),
                nonce: &nonce[..curve.bytes()],
                signature: output.as_mut_slice(),
            },
            other => panic!("{other:?} in a batch of ECDSA"),
        })
        .collect();
    let outcomes = ec::sign_batch(backend, curve, &mut operations);
    outcomes.iter().map(Result::is_ok).collect()
}

const LONGEST_SCALAR: usize = 48;

/// A candidate by rejection sampling (FIPS 186-5, appendix A.3.2). One that is out of range, as one in 2^32 is, or which
/// the system's generator has not filled, makes its signature fail.
fn random_scalar(curve: Curve) -> Zeroizing<[u8; LONGEST_SCALAR]> {
    let mut scalar = Zeroizing::new([0; LONGEST_SCALAR]);
    if getrandom::fill(&mut scalar[..curve.bytes()]).is_err() {
        scalar.zeroize();
    }
    scalar
}

/// Which operations succeeded.
type Succeeded = ArrayVec<bool, LANES>;
