//! P-256 and P-384 compared with OpenSSL and published vectors, for every backend that offers them.

#[cfg(feature = "system-openssl")]
mod edges;
#[cfg(feature = "system-openssl")]
mod random;
#[cfg(feature = "system-openssl")]
mod reference;
mod vectors;

use slipstream_keys::ec::PrivateKey;
use slipstream_lanes::ec::{
    Curve, PreparedKey, PublicKey, SharedSecret, Signature, offered, public_keys, shared_secrets,
    signatures,
};
use slipstream_lanes::{Backend, LANES, OperationError};

type Outcome<T> = Result<T, OperationError>;

/// The backends to test.
fn backends() -> impl Iterator<Item = Backend> {
    Backend::available().filter(|backend| offered(*backend))
}

/// The public keys of any number of private keys, in batches.
fn compute_public_keys(
    backend: Backend,
    curve: Curve,
    privates: &[Vec<u8>],
) -> Vec<Outcome<Vec<u8>>> {
    let batch = |privates: &[Vec<u8>]| {
        let mut outputs = vec![vec![0xa5; curve.point_bytes()]; privates.len()];
        let mut operations: Vec<PublicKey<'_>> = privates
            .iter()
            .zip(&mut outputs)
            .map(|(private, public)| PublicKey { private, public })
            .collect();
        let outcomes = public_keys(backend, curve, &mut operations);
        collect(&outcomes, outputs)
    };
    privates.chunks(LANES).flat_map(batch).collect()
}

/// The shared secrets of any number of private keys and peers, in batches.
fn compute_shared_secrets(
    backend: Backend,
    curve: Curve,
    privates: &[Vec<u8>],
    peers: &[Vec<u8>],
) -> Vec<Outcome<Vec<u8>>> {
    assert_eq!(privates.len(), peers.len());
    let batch = |(privates, peers): (&[Vec<u8>], &[Vec<u8>])| {
        let mut outputs = vec![vec![0xa5; curve.bytes()]; privates.len()];
        let mut operations: Vec<SharedSecret<'_>> = privates
            .iter()
            .zip(peers)
            .zip(&mut outputs)
            .map(|((private, peer), secret)| SharedSecret {
                private,
                peer,
                secret,
            })
            .collect();
        let outcomes = shared_secrets(backend, curve, &mut operations);
        collect(&outcomes, outputs)
    };
    privates
        .chunks(LANES)
        .zip(peers.chunks(LANES))
        .flat_map(batch)
        .collect()
}

/// A signature to compute.
struct Signing {
    private: Vec<u8>,
    digest: Vec<u8>,
    nonce: Vec<u8>,
}

/// Any number of signatures, in batches.
fn compute_signatures(
    backend: Backend,
    curve: Curve,
    signings: &[Signing],
) -> Vec<Outcome<Vec<u8>>> {
    let batch = |signings: &[Signing]| {
        let keys: Vec<PreparedKey> = signings
            .iter()
            .map(|signing| {
                let key = PrivateKey::new(curve, &signing.private).expect("a private key");
                PreparedKey::new(&key)
            })
            .collect();
        let mut outputs = vec![vec![0xa5; 2 * curve.bytes()]; signings.len()];
        let mut operations: Vec<Signature<'_>> = signings
            .iter()
            .zip(&keys)
            .zip(&mut outputs)
            .map(|((signing, key), signature)| Signature {
                key,
                digest: &signing.digest,
                nonce: &signing.nonce,
                signature,
            })
            .collect();
        let outcomes = signatures(backend, curve, &mut operations);
        collect(&outcomes, outputs)
    };
    signings.chunks(LANES).flat_map(batch).collect()
}

/// The outputs of the operations that succeeded. Those of the others must be zero.
fn collect(outcomes: &[Outcome<()>], outputs: Vec<Vec<u8>>) -> Vec<Outcome<Vec<u8>>> {
    assert_eq!(outcomes.len(), outputs.len());
    outcomes
        .iter()
        .zip(outputs)
        .map(|(outcome, output)| match outcome {
            Ok(()) => Ok(output),
            Err(error) => {
                assert!(output.iter().all(|byte| *byte == 0), "{error}");
                Err(*error)
            }
        })
        .collect()
}
