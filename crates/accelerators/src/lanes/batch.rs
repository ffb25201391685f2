//! One batch: operations of one kind, computed together.

use std::io;

use arrayvec::ArrayVec;
use slipstream_keys::{Group, Operand};
use slipstream_lanes::ec::{self, Curve};
use slipstream_lanes::rsa::{self, Size, Workspace};
use slipstream_lanes::{Backend, LANES, x25519};
use slipstream_offload::{Answer, Kind, Operation, Output, Reason};
use zeroize::Zeroizing;

use super::key_pair::{self, Room};
use super::{computes, forms, nonce};

/// Returns true if [`compute`] can compute `operation`: `backend` computes its kind, its lengths
/// are right, and its key is in this process.
pub fn can_compute(backend: Backend, operation: &Operation) -> bool {
    computes(backend, operation.kind()) && !operation.is_held() && operation.has_valid_lengths()
}

/// Returns the answers to `operations`, in their order.
///
/// # Panics
/// If there is no operation, or more than [`LANES`], or if they differ in kind, or if one of them
/// [cannot](can_compute) be computed.
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
        Kind::Rsa(size) => rsa(backend, workspace, size, &operations, &mut outputs),
        Kind::X25519 => x25519(backend, &operations, &mut outputs),
        Kind::Ecdh(curve) => ecdh(backend, curve, &operations, &mut outputs),
        Kind::Ecdsa(curve) => ecdsa(backend, curve, &operations, &mut outputs, key_pair::draw),
        Kind::KeyPair(group) => key_pairs(backend, group, &mut outputs),
        Kind::Compress(_) => panic!("content in a batch for lanes"),
    };
    let answer = |(output, succeeded)| match succeeded {
        true => Answer::Computed(output),
        false => Answer::Software(Reason::Fault),
    };
    outputs.into_iter().zip(succeeded).map(answer).collect()
}

fn rsa(
    backend: Backend,
    workspace: &mut Workspace,
    size: Size,
    operations: &[&Operation],
    outputs: &mut [Output],
) -> Succeeded {
    let mut operations: ArrayVec<rsa::PrivateOperation<'_>, LANES> = operations
        .iter()
        .zip(outputs)
        .map(|(operation, output)| match operation {
            Operation::Rsa { key, input } => {
                let key = key.value().expect("a key of this process");
                rsa::PrivateOperation {
                    key: forms::rsa_form(backend, key).expect("a backend of this CPU"),
                    input: input.as_slice(),
                    output: output.as_mut_slice(),
                }
            }
            other => panic!("{other:?} in a batch of RSA"),
        })
        .collect();
    let outcomes = rsa::private_operations(backend, workspace, size, &mut operations);
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
    let outcomes = x25519::shared_secrets(backend, &mut operations);
    outcomes.iter().map(Result::is_ok).collect()
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

/// Nonces are [hedged](nonce). If `draw`, the system's generator, fails, so does each signature.
fn ecdsa(
    backend: Backend,
    curve: Curve,
    operations: &[&Operation],
    outputs: &mut [Output],
    draw: impl Fn(&mut [u8]) -> io::Result<()>,
) -> Succeeded {
    let mut random = Zeroizing::new([[0; nonce::RANDOM_BYTES]; LANES]);
    let mut nonces = Zeroizing::new([[0; nonce::LONGEST]; LANES]);
    // One system call for all.
    if draw(random[..operations.len()].as_flattened_mut()).is_err() {
        return operations.iter().map(|_| false).collect();
    }
    let mut signatures = ArrayVec::<ec::Signature<'_>, LANES>::new();
    let drawn = random.iter().zip(nonces.iter_mut());
    for ((operation, (random, nonce)), output) in operations.iter().zip(drawn).zip(outputs) {
        let Operation::Ecdsa { key, digest } = operation else {
            panic!("{operation:?} in a batch of ECDSA")
        };
        let key = key.value().expect("a key of this process");
        let nonce = &mut nonce[..curve.bytes()];
        nonce::derive(key, digest.as_slice(), random, nonce);
        signatures.push(ec::Signature {
            key: forms::ec_form(key),
            digest: digest.as_slice(),
            nonce,
            signature: output.as_mut_slice(),
        });
    }
    let outcomes = ec::signatures(backend, curve, &mut signatures);
    outcomes.iter().map(Result::is_ok).collect()
}

fn key_pairs(backend: Backend, group: Group, outputs: &mut [Output]) -> Succeeded {
    let mut rooms: ArrayVec<Room<'_>, LANES> = outputs
        .iter_mut()
        .map(|output| {
            let (private, public) = output.as_mut_slice().split_at_mut(group.private_bytes());
            Room { private, public }
        })
        .collect();
    match key_pair::generate(backend, group, &mut rooms) {
        Ok(outcomes) => outcomes.iter().map(Result::is_ok).collect(),
        Err(_) => rooms.iter().map(|_| false).collect(),
    }
}

/// True for each operation that succeeded.
type Succeeded = ArrayVec<bool, LANES>;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use slipstream_keys::{Key, ec as keys_ec};

    use super::*;

    #[test]
    fn a_batch_of_any_size_makes_key_pairs() {
        let mut workspace = Workspace::new();
        let mut seen = HashSet::new();
        for backend in Backend::available() {
            for group in Group::ALL {
                if !computes(backend, Kind::KeyPair(group)) {
                    continue;
                }
                for live in 1..=LANES {
                    let operation = Operation::KeyPair(group);
                    let operations = std::iter::repeat_n(&operation, live);
                    let answers = compute(backend, &mut workspace, operations);
                    assert_eq!(answers.len(), live);
                    for answer in answers {
                        let Answer::Computed(pair) = answer else {
                            panic!("{group:?}: {answer:?}");
                        };
                        assert_eq!(pair.as_slice().len(), Kind::KeyPair(group).output_bytes());
                        let (private, public) = pair.as_slice().split_at(group.private_bytes());
                        assert_eq!(public, public_key(group, private), "{group:?} {live}");
                        assert!(seen.insert(private.to_vec()), "given twice");
                    }
                }
            }
        }
    }

    /// As in two copies of a virtual machine.
    #[test]
    fn a_generator_that_repeats_itself_gives_another_nonce_to_each_key_and_message() {
        let backends = || Backend::available().filter(|backend| ec::offered(*backend));
        for (backend, curve) in backends().flat_map(|one| Curve::ALL.map(|curve| (one, curve))) {
            let operations: Vec<Operation> = (1..=8)
                .map(|number| {
                    let (key, message) = (number / 2 + 1, number % 2);
                    let key = keys_ec::PrivateKey::new(curve, &vec![key; curve.bytes()]);
                    Operation::Ecdsa {
                        key: Key::Value(Arc::new(key.expect("in range"))),
                        digest: Operand::new(&vec![message; curve.bytes()]),
                    }
                })
                .collect();
            let operations: Vec<&Operation> = operations.iter().collect();
            let mut outputs = vec![Operand::zeroed(2 * curve.bytes()); LANES];
            let repeat = |random: &mut [u8]| {
                random.fill(0x5a);
                Ok(())
            };
            let succeeded = ecdsa(backend, curve, &operations, &mut outputs, repeat);
            assert!(succeeded.iter().all(|succeeded| *succeeded));
            let nonces: HashSet<&[u8]> = outputs
                .iter()
                .map(|output| &output.as_slice()[..curve.bytes()])
                .collect();
            assert_eq!(nonces.len(), LANES, "the r of two signatures are equal");

            let fail = |_: &mut [u8]| Err(io::Error::other("no random bytes"));
            let succeeded = ecdsa(backend, curve, &operations, &mut outputs, fail);
            assert!(succeeded.iter().all(|succeeded| !succeeded));
        }
    }

    fn public_key(group: Group, private: &[u8]) -> Vec<u8> {
        let mut public = vec![0; group.public_bytes()];
        match group.curve() {
            None => {
                assert_eq!((private[0] & 7, private[31] >> 6), (0, 1), "clamped");
                let private = private.try_into().expect("as long as a key");
                let public = (&mut *public).try_into().expect("as long as a key");
                let operation = x25519::PublicKey { private, public };
                x25519::public_keys(Backend::Portable, &mut [operation])[0].expect("a public key");
            }
            Some(curve) => {
                let public = &mut public;
                let operation = ec::PublicKey { private, public };
                ec::public_keys(Backend::Portable, curve, &mut [operation])[0].expect("in range");
            }
        }
        public
    }
}
