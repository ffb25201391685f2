//! Known-answer tests of the kernels, made when a process starts.
//!
//! A kernel that computes a published operation wrongly, on this CPU or with this memory, is not
//! used: the kind of operation that needs it is left to software. All others stay.

use std::sync::OnceLock;

use slipstream_keys::ec::{self as keys_ec, Curve};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{self as keys_rsa, Size};
use slipstream_lanes::rsa::{self, Workspace};
use slipstream_lanes::{Backend, LANES, Outcomes, ec, x25519};
use slipstream_offload::Kind;

use super::is_offered;

mod vectors;

/// Computes published operations with every kernel of `backend`, once in a process, and takes the
/// kinds out whose results are wrong: lanes do not [compute](super::computes) them any more.
/// Processes that are forked later inherit that. Returns one line for the log if kinds have been
/// taken out.
///
/// RSA computes a full batch and a half one of each size. Every other kind computes one full batch,
/// in microseconds.
///
/// It needs 80 KiB of stack.
pub fn prove(backend: Backend) -> Option<&'static str> {
    let proof = PROOFS[backend as usize].get_or_init(|| Proof::new(backend));
    proof.complaint.as_deref()
}

/// Returns true if `kind` has been taken out.
pub(super) fn has_failed(backend: Backend, kind: Kind) -> bool {
    let proof = PROOFS[backend as usize].get();
    proof.is_some_and(|proof| proof.failed.contains(&kind))
}

/// By the number of the backend.
static PROOFS: [OnceLock<Proof>; Backend::ALL.len()] =
    [const { OnceLock::new() }; Backend::ALL.len()];

/// The outcome of all tests of a backend.
struct Proof {
    failed: Vec<Kind>,
    complaint: Option<String>,
}

impl Proof {
    fn new(backend: Backend) -> Self {
        let failed = failing(backend);
        let names: Vec<&str> = failed.iter().map(|kind| kind.name()).collect();
        let complaint = (!names.is_empty()).then(|| {
            format!(
                "{} lanes of this machine fail their known-answer tests of {}: software computes \
                 these",
                backend.name(),
                names.join(", ")
            )
        });
        Self { failed, complaint }
    }
}

/// The kinds that `backend` computes wrongly.
fn failing(backend: Backend) -> Vec<Kind> {
    if !backend.is_available() {
        return Vec::new();
    }
    let mut workspace = Workspace::new();
    Kind::ALL
        .into_iter()
        .filter(|kind| is_offered(backend, *kind) && !is_right(backend, *kind, &mut workspace))
        .collect()
}

fn is_right(backend: Backend, kind: Kind, workspace: &mut Workspace) -> bool {
    match kind {
        // More than half of the lanes, and no more than half: the two forms of the kernel.
        Kind::Rsa(size) => [LANES, LANES / 2]
            .into_iter()
            .all(|live| is_rsa_right(backend, size, live, workspace)),
        Kind::X25519 => is_x25519_right(backend),
        Kind::Ecdh(curve) => is_ecdh_right(backend, curve),
        Kind::Ecdsa(curve) => is_ecdsa_right(backend, curve),
        Kind::KeyPair(group) => match group.curve() {
            None => are_x25519_keys_right(backend),
            Some(curve) => are_keys_right(backend, curve),
        },
        Kind::Compress(_) => true,
    }
}

fn is_rsa_right(backend: Backend, size: Size, live: usize, workspace: &mut Workspace) -> bool {
    let Ok(key) = keys_rsa::PrivateKey::new(&example_key(size).components) else {
        return false;
    };
    let Ok(key) = rsa::PreparedKey::new(backend, &key) else {
        return false;
    };
    let input = vec![1; size.bytes()];
    are_right(live, vectors::rsa(size), |outputs| {
        let mut operations: Vec<rsa::PrivateOperation<'_>> = outputs
            .iter_mut()
            .map(|output| rsa::PrivateOperation {
                key: &key,
                input: &input,
                output,
            })
            .collect();
        rsa::private_operations(backend, workspace, size, &mut operations)
    })
}

fn is_x25519_right(backend: Backend) -> bool {
    let vector = &vectors::X25519;
    are_right(LANES, vector.secret, |outputs| {
        let mut operations: Vec<x25519::SharedSecret<'_>> = outputs
            .iter_mut()
            .map(|secret| x25519::SharedSecret {
                private: vector.private.try_into().expect(KEY_LENGTH),
                peer: vector.peer.try_into().expect(KEY_LENGTH),
                secret: secret.as_mut_slice().try_into().expect(KEY_LENGTH),
            })
            .collect();
        x25519::shared_secrets(backend, &mut operations)
    })
}

fn are_x25519_keys_right(backend: Backend) -> bool {
    are_right(LANES, &vectors::X25519_PUBLIC, |outputs| {
        let mut operations: Vec<x25519::PublicKey<'_>> = outputs
            .iter_mut()
            .map(|public| x25519::PublicKey {
                private: vectors::X25519.private.try_into().expect(KEY_LENGTH),
                public: public.as_mut_slice().try_into().expect(KEY_LENGTH),
            })
            .collect();
        x25519::public_keys(backend, &mut operations)
    })
}

const KEY_LENGTH: &str = "as long as a key";

fn is_ecdh_right(backend: Backend, curve: Curve) -> bool {
    let vector = vectors::agreement(curve);
    are_right(LANES, vector.secret, |outputs| {
        let mut operations: Vec<ec::SharedSecret<'_>> = outputs
            .iter_mut()
            .map(|secret| ec::SharedSecret {
                private: vector.private,
                peer: vector.peer,
                secret,
            })
            .collect();
        ec::shared_secrets(backend, curve, &mut operations)
    })
}

fn are_keys_right(backend: Backend, curve: Curve) -> bool {
    let vector = vectors::signature(curve);
    are_right(LANES, vector.public, |outputs| {
        let mut operations: Vec<ec::PublicKey<'_>> = outputs
            .iter_mut()
            .map(|public| ec::PublicKey {
                private: vector.private,
                public,
            })
            .collect();
        ec::public_keys(backend, curve, &mut operations)
    })
}

fn is_ecdsa_right(backend: Backend, curve: Curve) -> bool {
    let vector = vectors::signature(curve);
    let Ok(key) = keys_ec::PrivateKey::new(curve, vector.private) else {
        return false;
    };
    let key = ec::PreparedKey::new(&key);
    are_right(LANES, vector.signature, |outputs| {
        let mut operations: Vec<ec::Signature<'_>> = outputs
            .iter_mut()
            .map(|signature| ec::Signature {
                key: &key,
                digest: vector.digest,
                nonce: vector.nonce,
                signature,
            })
            .collect();
        ec::signatures(backend, curve, &mut operations)
    })
}

/// Returns true if `kernel` succeeds in `live` lanes, and every output is as `expected`.
fn are_right(
    live: usize,
    expected: &[u8],
    kernel: impl FnOnce(&mut [Vec<u8>]) -> Outcomes,
) -> bool {
    let mut outputs = vec![vec![0; expected.len()]; live];
    let outcomes = kernel(&mut outputs);
    outcomes.iter().all(Result::is_ok) && outputs.iter().all(|output| output == expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_this_machine_gives_the_known_answers() {
        for backend in Backend::available() {
            assert_eq!(failing(backend), []);
        }
    }

    #[test]
    fn one_wrong_bit_in_one_lane_is_found() {
        let vector = &vectors::X25519;
        let private: &[u8; x25519::KEY_BYTES] = vector.private.try_into().expect(KEY_LENGTH);
        let kernel = |outputs: &mut [Vec<u8>]| {
            let mut operations: Vec<x25519::PublicKey<'_>> = outputs
                .iter_mut()
                .map(|public| x25519::PublicKey {
                    private,
                    public: public.as_mut_slice().try_into().expect(KEY_LENGTH),
                })
                .collect();
            x25519::public_keys(Backend::Portable, &mut operations)
        };
        let expected = &vectors::X25519_PUBLIC;
        assert!(are_right(LANES, expected, kernel));
        for lane in 0..LANES {
            let damaged = |outputs: &mut [Vec<u8>]| {
                let outcomes = kernel(outputs);
                outputs[lane][3] ^= 1;
                outcomes
            };
            assert!(!are_right(LANES, expected, damaged));
        }
    }
}
