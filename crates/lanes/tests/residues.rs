//! Kernels leave nothing of a secret on the stack: what they leave there is the same for different
//! secrets.

use std::cell::RefCell;

use slipstream_keys::stack_test::residues;
use slipstream_lanes::ec::{self, Curve, PreparedKey};
use slipstream_lanes::{Backend, LANES, x25519};

/// The longest public key, which is longer than any secret.
const LONGEST: usize = 97;

type Bytes = [[u8; LONGEST]; LANES];

thread_local! {
    static SECRETS: RefCell<Bytes> = const { RefCell::new([[0; LONGEST]; LANES]) };

    static RESULTS: RefCell<Bytes> = const { RefCell::new([[0; LONGEST]; LANES]) };
}

/// Calls `compute` with different secrets of `bytes` in all lanes, and with room for results.
fn expect_no_residue(
    name: &str,
    bytes: usize,
    compute: impl Fn([&[u8]; LANES], [&mut [u8]; LANES]) + Sync,
) {
    let prepare = |number: usize| {
        SECRETS.with_borrow_mut(|secrets| {
            for (lane, secret) in secrets.iter_mut().enumerate() {
                for (place, byte) in secret.iter_mut().enumerate() {
                    *byte = ((lane + LANES * number) * 113 + place * 31 + 1) as u8;
                }
            }
        });
    };
    let operation = || {
        SECRETS.with_borrow(|secrets| {
            RESULTS.with_borrow_mut(|results| {
                let results = results.each_mut().map(|result| &mut result[..]);
                compute(secrets.each_ref().map(|secret| &secret[..bytes]), results);
            });
        });
    };
    let found = residues(prepare, operation);
    assert!(
        found.is_empty(),
        "{name} leaves {} words, the first {:x?}",
        found.len(),
        &found[..found.len().min(4)]
    );
}

fn for_each_backend(test: fn(Backend)) {
    for backend in Backend::available().filter(|backend| ec::offered(*backend)) {
        test(backend);
    }
}

/// One operation for each lane, of a secret and the room for its result.
fn operations<'a, T>(
    secrets: [&'a [u8]; LANES],
    results: [&'a mut [u8]; LANES],
    operation: impl Fn(&'a [u8], &'a mut [u8]) -> T,
) -> [T; LANES] {
    let mut pairs = secrets.into_iter().zip(results);
    std::array::from_fn(|_| {
        let (secret, result) = pairs.next().expect("one for each lane");
        operation(secret, result)
    })
}

#[test]
fn x25519_public_keys() {
    for_each_backend(|backend| {
        expect_no_residue("x25519::public_keys", 32, |secrets, results| {
            let mut operations = operations(secrets, results, |secret, result| x25519::PublicKey {
                private: secret.try_into().expect("32 bytes"),
                public: (&mut result[..32]).try_into().expect("32 bytes"),
            });
            let outcomes = x25519::public_keys(backend, &mut operations);
            assert!(outcomes.iter().all(Result::is_ok));
        });
    });
}

#[test]
fn x25519_shared_secrets() {
    for_each_backend(|backend| {
        expect_no_residue("x25519::shared_secrets", 32, |secrets, results| {
            let mut operations =
                operations(secrets, results, |secret, result| x25519::SharedSecret {
                    private: secret.try_into().expect("32 bytes"),
                    peer: &[9; 32],
                    secret: (&mut result[..32]).try_into().expect("32 bytes"),
                });
            let outcomes = x25519::shared_secrets(backend, &mut operations);
            assert!(outcomes.iter().all(Result::is_ok));
        });
    });
}

#[test]
fn public_keys_on_curves() {
    for_each_backend(|backend| {
        for curve in Curve::ALL {
            let bytes = curve.bytes();
            expect_no_residue("ec::public_keys", bytes, |secrets, results| {
                let mut operations = operations(secrets, results, |private, result| {
                    let public = &mut result[..curve.point_bytes()];
                    ec::PublicKey { private, public }
                });
                let outcomes = ec::public_keys(backend, curve, &mut operations);
                assert!(outcomes.iter().all(Result::is_ok));
            });
        }
    });
}

#[test]
fn shared_secrets_on_curves() {
    for_each_backend(|backend| {
        for curve in Curve::ALL {
            let bytes = curve.bytes();
            let peer = slipstream_keys::example::example_point(curve);
            expect_no_residue("ec::shared_secrets", bytes, |secrets, results| {
                let mut operations =
                    operations(secrets, results, |private, result| ec::SharedSecret {
                        private,
                        peer: &peer,
                        secret: &mut result[..bytes],
                    });
                let outcomes = ec::shared_secrets(backend, curve, &mut operations);
                assert!(outcomes.iter().all(Result::is_ok));
            });
        }
    });
}

/// The nonces are the secrets.
#[test]
fn signatures_on_curves() {
    for_each_backend(|backend| {
        for curve in Curve::ALL {
            let bytes = curve.bytes();
            let digest = vec![3; bytes];
            let key = slipstream_keys::ec::PrivateKey::new(curve, &digest).expect("in range");
            let key = PreparedKey::new(&key);
            expect_no_residue("ec::signatures", bytes, |secrets, results| {
                let mut operations = operations(secrets, results, |nonce, result| ec::Signature {
                    key: &key,
                    digest: &digest,
                    nonce,
                    signature: &mut result[..2 * bytes],
                });
                let outcomes = ec::signatures(backend, curve, &mut operations);
                assert!(outcomes.iter().all(Result::is_ok));
            });
        }
    });
}
