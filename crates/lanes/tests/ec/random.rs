//! Random operations.

use openssl::rand::rand_bytes;
use slipstream_lanes::ec::Curve;
use slipstream_lanes::{Backend, LANES};

use crate::reference::Reference;
use crate::{Signing, backends, compute_public_keys, compute_shared_secrets, compute_signatures};

#[test]
fn every_number_of_live_lanes_with_different_keys() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        for backend in backends() {
            for count in 1..=LANES {
                compare(&reference, backend, curve, count);
            }
        }
    }
}

#[test]
fn ten_thousand_operations() {
    for (curve, count) in [(Curve::P256, 2800), (Curve::P384, 540)] {
        let reference = Reference::new(curve);
        for backend in backends() {
            let count = match backend {
                Backend::Portable => LANES,
                _ => count,
            };
            compare(&reference, backend, curve, count);
        }
    }
}

/// Compares `count` operations of each kind.
fn compare(reference: &Reference, backend: Backend, curve: Curve, count: usize) {
    let scalars = || -> Vec<Vec<u8>> { (0..count).map(|_| reference.random_scalar()).collect() };
    let privates = scalars();
    let publics: Vec<Vec<u8>> = privates
        .iter()
        .map(|private| reference.public_key(private))
        .collect();
    for (found, expected) in compute_public_keys(backend, curve, &privates)
        .into_iter()
        .zip(&publics)
    {
        assert_eq!(found.as_ref(), Ok(expected), "{curve:?} {backend:?}");
    }

    let others = scalars();
    for (index, found) in compute_shared_secrets(backend, curve, &others, &publics)
        .into_iter()
        .enumerate()
    {
        let expected = reference.shared_secret(&others[index], &publics[index]);
        assert_eq!(found, Ok(expected), "{curve:?} {backend:?}");
    }

    let signings: Vec<Signing> = privates
        .into_iter()
        .zip(others)
        .map(|(private, nonce)| {
            let mut digest = vec![0; curve.bytes()];
            rand_bytes(&mut digest).expect("randomness");
            Signing {
                private,
                digest,
                nonce,
            }
        })
        .collect();
    for (index, found) in compute_signatures(backend, curve, &signings)
        .into_iter()
        .enumerate()
    {
        let signature = found.expect("a signature");
        assert!(
            reference.verifies(&publics[index], &signings[index].digest, &signature),
            "{curve:?} {backend:?}"
        );
    }
}
