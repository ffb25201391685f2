//! The smallest and largest scalars, points that make additions exceptional, and operands that must
//! be refused.

use openssl::bn::BigNum;
use slipstream_keys::ec::{KeyError, PrivateKey};
use slipstream_lanes::ec::{
    Curve, Nonce, PreparedKey, PreparedNonce, SharedSecret, Signature, check_point, nonces,
    offered, shared_secrets, signatures,
};
use slipstream_lanes::{Backend, LANES, OperationError};

use crate::reference::Reference;
use crate::{Signing, backends, compute_public_keys, compute_shared_secrets, compute_signatures};

#[test]
fn small_and_large_multiples_of_the_base_point() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        for backend in backends() {
            let most = if backend == Backend::Portable {
                12
            } else {
                160
            };
            // Of P-384, n - 102 makes the last addition a doubling.
            let counts = (-most..=most)
                .filter(|count| *count != 0)
                .chain([102, -102]);
            let privates: Vec<Vec<u8>> = counts.map(|count| reference.scalar(count)).collect();
            let found = compute_public_keys(backend, curve, &privates);
            for (private, found) in privates.iter().zip(found) {
                let expected = reference.public_key(private);
                assert_eq!(found, Ok(expected), "{curve:?} {backend:?} {private:02x?}");
            }
        }
    }
}

#[test]
fn multiples_of_multiples() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        for backend in backends() {
            let is_slow = backend == Backend::Portable;
            let most = if is_slow { 3 } else { 40 };
            let points: &[i32] = if is_slow {
                &[1, -1]
            } else {
                &[1, 2, 3, 5, 31, 32, -1, -2, -31]
            };
            // Of P-384, n - 38 makes the last addition a doubling.
            let counts: Vec<i32> = (-most..=most)
                .filter(|count| *count != 0)
                .chain([38, -38])
                .collect();
            let (privates, peers): (Vec<Vec<u8>>, Vec<Vec<u8>>) = points
                .iter()
                .flat_map(|point| counts.iter().map(move |count| (point, count)))
                .map(|(point, count)| {
                    let point = reference.public_key(&reference.scalar(*point));
                    (reference.scalar(*count), point)
                })
                .unzip();
            let found = compute_shared_secrets(backend, curve, &privates, &peers);
            for ((private, peer), found) in privates.iter().zip(&peers).zip(found) {
                let expected = reference.shared_secret(private, peer);
                assert_eq!(found, Ok(expected), "{curve:?} {backend:?} {private:02x?}");
            }
        }
    }
}

#[test]
fn private_keys_out_of_range() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        let peer = reference.public_key(&reference.scalar(7));
        let (good, wrong) = scalars_and_outcomes(&reference, curve);
        for backend in backends() {
            // Wrong keys beside good ones, which must not be affected.
            let mut privates: Vec<Vec<u8>> = Vec::new();
            let mut expected = Vec::new();
            for (scalar, error) in &wrong {
                privates.extend([good.clone(), scalar.clone()]);
                let error = match error {
                    OperationError::NonceOutOfRange => OperationError::PrivateKeyOutOfRange,
                    other => *other,
                };
                expected.extend([None, Some(error)]);
            }
            let public = reference.public_key(&good);
            let secret = reference.shared_secret(&good, &peer);
            let peers = vec![peer.clone(); privates.len()];
            let publics = compute_public_keys(backend, curve, &privates);
            let secrets = compute_shared_secrets(backend, curve, &privates, &peers);
            for ((expected, found_public), found_secret) in
                expected.into_iter().zip(publics).zip(secrets)
            {
                assert_eq!(found_public, expected.map_or(Ok(public.clone()), Err));
                assert_eq!(found_secret, expected.map_or(Ok(secret.clone()), Err));
            }
        }
        for (scalar, error) in &wrong {
            let expected = match error {
                OperationError::NonceOutOfRange => KeyError::OutOfRange,
                _ => KeyError::Length,
            };
            assert_eq!(PrivateKey::new(curve, scalar).map(drop), Err(expected));
        }
    }
}

#[test]
fn smallest_and_largest_nonces_and_those_out_of_range() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        let private = reference.random_scalar();
        let public = reference.public_key(&private);
        let digest = vec![0x5a; curve.bytes()];
        let signing = |nonce: &[u8]| Signing {
            private: private.clone(),
            digest: digest.clone(),
            nonce: nonce.to_vec(),
        };
        let (_, wrong) = scalars_and_outcomes(&reference, curve);
        for backend in backends() {
            let extremes = [1, 2, -1, -2].map(|count| signing(&reference.scalar(count)));
            for signature in compute_signatures(backend, curve, &extremes) {
                let signature = signature.expect("a signature");
                assert!(reference.verifies(&public, &digest, &signature));
            }
            let refused: Vec<Signing> = wrong.iter().map(|(nonce, _)| signing(nonce)).collect();
            let found = compute_signatures(backend, curve, &refused);
            for (found, (nonce, error)) in found.into_iter().zip(&wrong) {
                assert_eq!(found, Err(*error));
                let (outcome, prepared) = prepare_nonces(backend, curve, &[nonce]).remove(0);
                assert_eq!(outcome, Err(*error));
                assert!(prepared.is_none());
            }
        }
    }
}

#[test]
fn nonces_are_prepared_in_their_order() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        let scalars = [
            reference.scalar(3),
            reference.scalar(0),
            reference.scalar(-3),
        ];
        let scalars: Vec<&[u8]> = scalars.iter().map(Vec::as_slice).collect();
        for backend in backends() {
            let (outcomes, prepared): (Vec<_>, Vec<_>) =
                prepare_nonces(backend, curve, &scalars).into_iter().unzip();
            assert_eq!(
                outcomes,
                [Ok(()), Err(OperationError::NonceOutOfRange), Ok(())]
            );
            let usable: Vec<bool> = prepared.iter().map(Option::is_some).collect();
            assert_eq!(usable, [true, false, true]);
            assert!(
                prepared
                    .iter()
                    .flatten()
                    .all(|nonce| nonce.curve() == curve)
            );
        }
    }
}

#[test]
fn digests_of_any_length() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        let private = reference.random_scalar();
        let public = reference.public_key(&private);
        let signings: Vec<Signing> = (0..=72)
            .map(|length| Signing {
                private: private.clone(),
                digest: vec![0xff; length],
                nonce: reference.random_scalar(),
            })
            .collect();
        for backend in backends() {
            let signings = match backend {
                Backend::Portable => &signings[30..38],
                _ => &signings[..],
            };
            let found = compute_signatures(backend, curve, signings);
            for (signing, signature) in signings.iter().zip(found) {
                let signature = signature.expect("a signature");
                assert!(
                    reference.verifies(&public, &signing.digest, &signature),
                    "{curve:?} {}",
                    signing.digest.len()
                );
            }
        }
    }
}

/// If e + r d = 0 modulo n, then s is zero.
#[test]
fn a_signature_of_zero_is_refused() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        let nonce = reference.random_scalar();
        // With d = 1, e = -r.
        let point = reference.public_key(&nonce);
        let x = BigNum::from_slice(&point[1..1 + curve.bytes()]).expect("memory");
        let order = reference.order();
        let mut context = openssl::bn::BigNumContext::new().expect("memory");
        let mut digest = BigNum::new().expect("memory");
        let zero = BigNum::new().expect("memory");
        digest
            .mod_sub(&zero, &x, &order, &mut context)
            .expect("memory");
        let signing = Signing {
            private: reference.scalar(1),
            digest: reference.bytes(&digest),
            nonce,
        };
        for backend in backends() {
            let found = compute_signatures(backend, curve, std::slice::from_ref(&signing));
            assert_eq!(found, [Err(OperationError::UnusableNonce)]);
        }
    }
}

#[test]
fn bytes_that_are_no_point_are_refused() {
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        let private = reference.random_scalar();
        let good = reference.public_key(&reference.random_scalar());
        let secret = reference.shared_secret(&private, &good);
        let bytes = curve.bytes();
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut point = good.clone();
            change(&mut point);
            point
        };
        let with = |x: &[u8], y: &[u8]| [&[4], x, y].concat();
        let (x, y) = good[1..].split_at(bytes);
        let field = reference.field();
        let p = reference.bytes(&field);
        let beyond = |coordinate: &[u8]| {
            let sum = &BigNum::from_slice(coordinate).expect("memory") + &field;
            (sum.num_bytes() as usize <= bytes).then(|| reference.bytes(&sum))
        };
        let zero = vec![0; bytes];
        let mut wrong = vec![
            Vec::new(),
            vec![0],
            vec![4],
            changed(&|point| point[bytes] ^= 1),
            changed(&|point| point[2 * bytes] ^= 1),
            changed(&|point| point[1] ^= 0x80),
            changed(&|point| point[0] = 0),
            changed(&|point| point[0] = 2),
            changed(&|point| point[0] = 5),
            changed(&|point| point[0] = 6 + (point[2 * bytes] & 1)),
            changed(&|point| point.truncate(2 * bytes)),
            changed(&|point| point.truncate(1 + bytes)),
            changed(&|point| point.push(0)),
            changed(&|point| point.insert(1, 0)),
            [&[2 + (y[bytes - 1] & 1)], x].concat(),
            with(&zero, &zero),
            with(&p, y),
            with(x, &p),
            with(&p, &p),
            with(&vec![0xff; bytes], y),
            with(x, &vec![0xff; bytes]),
            with(y, x),
        ];
        // A point of the curve whose x is so small that x + p still fits: the first from x = 0 on.
        let small = (0..)
            .map(|x| reference.bytes(&BigNum::from_u32(x).expect("memory")))
            .find_map(|x| Some((reference.y_of(&[&[2], &x[..]].concat())?, x)))
            .expect("a small coordinate");
        assert!(check_point(curve, &with(&small.1, &small.0)));
        if let Some(x) = beyond(&small.1) {
            wrong.push(with(&x, &small.0));
        }

        assert!(check_point(curve, &good));
        for point in &wrong {
            assert!(!check_point(curve, point), "{curve:?} {point:02x?}");
        }
        for backend in backends() {
            // Each wrong point is beside a good one.
            let peers: Vec<Vec<u8>> = wrong
                .iter()
                .flat_map(|point| [point.clone(), good.clone()])
                .collect();
            let privates = vec![private.clone(); peers.len()];
            let found = compute_shared_secrets(backend, curve, &privates, &peers);
            for pair in found.chunks(2) {
                assert_eq!(pair[0], Err(OperationError::InvalidPoint));
                assert_eq!(pair[1].as_ref(), Ok(&secret));
            }
        }
    }
}

#[test]
fn wrong_lengths() {
    let backend = Backend::Portable;
    for curve in Curve::ALL {
        let reference = Reference::new(curve);
        let private = reference.scalar(5);
        let peer = reference.public_key(&private);
        for length in [0, curve.bytes() - 1, curve.bytes() + 1] {
            let mut secret = vec![0xa5; length];
            let outcomes = shared_secrets(
                backend,
                curve,
                &mut [SharedSecret {
                    private: &private,
                    peer: &peer,
                    secret: &mut secret,
                }],
            );
            assert_eq!(outcomes[..], [Err(OperationError::OutputLength)]);
            assert!(secret.iter().all(|byte| *byte == 0));

            let key = PrivateKey::new(curve, &private).expect("a key");
            let key = PreparedKey::new(&key);
            assert_eq!(key.curve(), curve);
            let mut signature = vec![0xa5; 2 * length];
            let mut operation = [Signature {
                key: &key,
                digest: &[1; 32],
                nonce: &private,
                signature: &mut signature,
            }];
            let outcomes = signatures(backend, curve, &mut operation);
            assert_eq!(outcomes[..], [Err(OperationError::OutputLength)]);
            assert!(signature.iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
#[should_panic(expected = "a key of another curve")]
fn a_signature_with_a_key_of_another_curve() {
    let key = PrivateKey::new(Curve::P256, &[1; 32]).expect("a key");
    let mut operation = [Signature {
        key: &PreparedKey::new(&key),
        digest: &[0; 32],
        nonce: &[1; 48],
        signature: &mut [0; 96],
    }];
    let _ = signatures(Backend::Portable, Curve::P384, &mut operation);
}

#[test]
#[should_panic(expected = "a key of another curve")]
fn a_nonce_of_another_curve() {
    let key = PrivateKey::new(Curve::P256, &[1; 32]).expect("a key");
    let key = PreparedKey::new(&key);
    let (_, nonce) = prepare_nonces(Backend::Portable, Curve::P384, &[&[1; 48]]).remove(0);
    let nonce = nonce.expect("a nonce");
    let _ = nonce.sign(&key, &[0; 32], &mut [0; 64]);
}

#[test]
#[should_panic(expected = "one to eight")]
fn nine_operations() {
    prepare_nonces(Backend::Portable, Curve::P256, &[&[1; 32][..]; LANES + 1]);
}

#[test]
fn lengths_and_backends() {
    assert_eq!(Curve::ALL.map(Curve::bytes), [32, 48]);
    assert_eq!(Curve::ALL.map(Curve::point_bytes), [65, 97]);
    assert_eq!(Curve::ALL.map(Curve::index), [0, 1]);
    assert_eq!(Backend::ALL.map(offered), [true, false, true]);
}

/// Prepares nonces, and returns the outcome and the output of each.
fn prepare_nonces(
    backend: Backend,
    curve: Curve,
    scalars: &[&[u8]],
) -> Vec<(Result<(), OperationError>, Option<PreparedNonce>)> {
    let mut prepared: Vec<Option<PreparedNonce>> = scalars.iter().map(|_| None).collect();
    let mut operations: Vec<Nonce<'_>> = scalars
        .iter()
        .zip(&mut prepared)
        .map(|(scalar, prepared)| Nonce { scalar, prepared })
        .collect();
    let outcomes = nonces(backend, curve, &mut operations);
    assert_eq!(outcomes.len(), scalars.len());
    outcomes.iter().copied().zip(prepared).collect()
}

/// A private key in range, and scalars that are refused, each with the error for a nonce.
fn scalars_and_outcomes(
    reference: &Reference,
    curve: Curve,
) -> (Vec<u8>, Vec<(Vec<u8>, OperationError)>) {
    let order = reference.order();
    let mut above = order.to_owned().expect("memory");
    above.add_word(1).expect("memory");
    let good = reference.random_scalar();
    let wrong = vec![
        (reference.scalar(0), OperationError::NonceOutOfRange),
        (reference.bytes(&order), OperationError::NonceOutOfRange),
        (reference.bytes(&above), OperationError::NonceOutOfRange),
        (vec![0xff; curve.bytes()], OperationError::NonceOutOfRange),
        (Vec::new(), OperationError::InputLength),
        (good[1..].to_vec(), OperationError::InputLength),
        ([&[0], &good[..]].concat(), OperationError::InputLength),
    ];
    (good, wrong)
}
