//! Keys: generated, imported, exported, copied, checked.

use slipstream_accelerators::lanes::Backend;
use slipstream_openssl::{keys_with_lanes, keys_without_lanes, precomputed_keys};

use super::evp::{GROUPS, Group, KEYPAIR, Key, OTHERS, PUBLIC_KEY};
use super::{backends, on_fiber};
use crate::common::{DEFAULT, SLIPSTREAM, exclusive};

/// Generates a key on a fiber, from a pool.
fn generate_precomputed(backend: Backend, group: Group) -> Key {
    let before = precomputed_keys();
    let key = on_fiber(backend, move || group.generate(SLIPSTREAM));
    assert_eq!(precomputed_keys() - before, 1, "{group:?}");
    assert_eq!(key.provider(), "slipstream");
    key
}

#[test]
fn a_precomputed_key_is_one_of_openssl() {
    let _turn = exclusive();
    for group in GROUPS {
        for backend in backends() {
            let key = generate_precomputed(backend, group);
            let like = group.generate(DEFAULT);
            for name in [c"bits", c"security-bits", c"max-size"] {
                assert_eq!(key.int(name), like.int(name), "{group:?} {name:?}");
                assert!(key.int(name).is_some());
            }
            assert_eq!(key.group(), like.group());
            assert!(key.check(SLIPSTREAM) && key.check(DEFAULT) && key.public_check(SLIPSTREAM));
            let encoded = key.encoded_public_key().expect("a public key");
            let default = Key::from_der(&key.to_der());
            assert_eq!(default.encoded_public_key().as_ref(), Some(&encoded));
            assert!(key.equals(&default) && default.equals(&key));
            assert!(!key.equals(&like) && !like.equals(&key));
            let copies = [
                key.duplicate(),
                key.transfer(group.key_type, KEYPAIR, SLIPSTREAM),
                key.transfer(group.key_type, KEYPAIR, DEFAULT),
            ];
            for copy in copies {
                assert!(copy.equals(&key) && copy.check(DEFAULT));
                assert_eq!(copy.encoded_public_key().as_ref(), Some(&encoded));
                assert_eq!(copy.to_der(), key.to_der());
            }
        }
    }
}

#[test]
fn no_key_is_given_twice() {
    let _turn = exclusive();
    for group in GROUPS {
        let keys = on_fiber(Backend::Portable, move || {
            // More than a pool holds.
            let mut keys: Vec<_> = (0..20)
                .map(|_| group.generate(SLIPSTREAM).encoded_public_key())
                .collect();
            keys.sort();
            keys.dedup();
            keys
        });
        assert_eq!(keys.len(), 20, "{group:?}");
        assert!(keys.iter().all(Option::is_some));
    }
}

#[test]
fn outside_of_jobs_keys_are_generated_by_openssl() {
    let _turn = exclusive();
    let before = precomputed_keys();
    for group in GROUPS.iter().chain(&OTHERS) {
        let query = c"?provider=slipstream";
        let key = group.generate(query);
        let ours = key.is_a(c"EC") || key.is_a(c"X25519");
        assert_eq!(key.provider() == "slipstream", ours, "{group:?}");
        let default = Key::from_der(&key.to_der());
        assert!(key.equals(&default) && key.check(query) && key.public_check(query));
        assert_eq!(key.encoded_public_key(), default.encoded_public_key());
        assert!(key.duplicate().equals(&default));
        for selection in [PUBLIC_KEY, KEYPAIR] {
            let copy = default.transfer(group.key_type, selection, query);
            assert!(copy.equals(&key), "{group:?}");
            let back = copy.transfer(group.key_type, selection, DEFAULT);
            assert!(back.equals(&key), "{group:?}");
        }
    }
    assert_eq!(precomputed_keys(), before);
}

#[test]
fn other_curves_are_left_to_openssl_on_fibers_too() {
    let _turn = exclusive();
    let before = precomputed_keys();
    on_fiber(Backend::Portable, || {
        for group in OTHERS {
            let query = c"?provider=slipstream";
            let key = group.generate(query);
            assert!(key.check(query), "{group:?}");
            let parameters = Key::parameters(group.key_type, group.name, query);
            assert!(parameters.generate_alike(query).check(DEFAULT));
            let peer = parameters.copy_parameters();
            let encoded = key.encoded_public_key().expect("a public key");
            assert!(peer.set_encoded_public_key(&encoded) && peer.public_check(query));
            assert!(peer.equals(&key));
        }
    });
    assert_eq!(precomputed_keys(), before);
}

#[test]
fn the_peer_s_key_is_set_as_libssl_does_it() {
    let _turn = exclusive();
    for group in GROUPS {
        let own = group.generate(DEFAULT);
        let encoded = own.encoded_public_key().expect("a public key");
        // TLS 1.3: parameters, which get the peer's key, and from which a key is generated.
        let tls13 = move || Key::parameters(group.key_type, group.name, SLIPSTREAM);
        // TLS 1.2: a key, whose parameters get the peer's key.
        let tls12 = move || group.generate(SLIPSTREAM).copy_parameters();
        for peer in [
            on_fiber(Backend::Portable, tls13),
            on_fiber(Backend::Portable, tls12),
            tls13(),
            tls12(),
        ] {
            assert_eq!(peer.provider(), "slipstream");
            assert!(peer.set_encoded_public_key(&encoded), "{group:?}");
            assert!(peer.public_check(SLIPSTREAM));
            assert_eq!(peer.encoded_public_key().as_ref(), Some(&encoded));
            assert!(peer.equals(&own) && own.equals(&peer));
            assert!(!peer.check(SLIPSTREAM), "there is no private key");
            let public = peer.transfer(group.key_type, PUBLIC_KEY, DEFAULT);
            assert!(public.equals(&own));
            let alike = on_fiber(Backend::Portable, move || {
                let alike = peer.generate_alike(SLIPSTREAM);
                (alike.check(SLIPSTREAM), peer.equals(&alike))
            });
            assert_eq!(alike, (true, false));
        }
    }
}

/// Public keys that OpenSSL refuses, for the curve of `key`.
fn bad_points(key: &Key) -> Vec<Vec<u8>> {
    let good = key.encoded_public_key().expect("a public key");
    let coordinate = good.len() / 2;
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut point = good.clone();
        change(&mut point);
        point
    };
    vec![
        with(&|point| *point.last_mut().expect("bytes") ^= 1),
        with(&|point| point[1] ^= 0x40),
        with(&|point| point[1..=coordinate].fill(0xff)),
        with(&|point| point[1 + coordinate..].fill(0xff)),
        with(&|point| point[1..].fill(0)),
        with(&|point| point[0] = 5),
        with(&|point| point[0] = 2),
        with(&|point| point[0] = 6 | (1 ^ point[2 * coordinate] & 1)),
        with(&|point| point.truncate(2 * coordinate)),
        with(&|point| point.push(0)),
        with(&|point| point.truncate(1)),
        vec![2; 1 + coordinate + 1],
        [&[2][..], &vec![0xff; coordinate]].concat(),
        vec![0],
        Vec::new(),
    ]
}

#[test]
fn bad_points_are_refused_where_openssl_refuses_them() {
    let _turn = exclusive();
    for group in GROUPS.into_iter().filter(|group| !group.is_x25519()) {
        let own = group.generate(DEFAULT);
        for point in bad_points(&own) {
            let set = move |query, point: &[u8]| {
                let key = Key::parameters(group.key_type, group.name, query);
                let set = key.set_encoded_public_key(point);
                (set, set && key.public_check(query))
            };
            let expected = set(DEFAULT, &point);
            assert!(!expected.1, "{group:?} {point:02x?}");
            assert_eq!(set(SLIPSTREAM, &point), expected, "{point:02x?}");
            let ours = {
                let point = point.clone();
                on_fiber(Backend::Portable, move || set(SLIPSTREAM, &point))
            };
            assert_eq!(ours, expected, "{group:?} {point:02x?}");
        }
    }
}

#[test]
fn compressed_and_hybrid_points_are_those_of_openssl() {
    let _turn = exclusive();
    for group in GROUPS.into_iter().filter(|group| !group.is_x25519()) {
        let own = group.generate(DEFAULT);
        let encoded = own.encoded_public_key().expect("a public key");
        let odd = encoded[encoded.len() - 1] & 1;
        let mut compressed = encoded[..=encoded.len() / 2].to_vec();
        compressed[0] = 2 | odd;
        let mut hybrid = encoded.clone();
        hybrid[0] = 6 | odd;
        for point in [compressed, hybrid] {
            let peer = on_fiber(Backend::Portable, move || {
                let peer = Key::parameters(group.key_type, group.name, SLIPSTREAM);
                assert!(peer.set_encoded_public_key(&point) && peer.public_check(SLIPSTREAM));
                peer
            });
            assert_eq!(peer.encoded_public_key().as_ref(), Some(&encoded));
            assert!(peer.equals(&own));
        }
    }
}

#[test]
fn x25519_keys_are_32_bytes_of_any_value() {
    let _turn = exclusive();
    let group = GROUPS[0];
    on_fiber(Backend::Portable, move || {
        for length in [0, 1, 31, 33, 64] {
            for query in [SLIPSTREAM, DEFAULT] {
                let key = Key::parameters(group.key_type, group.name, query);
                assert!(!key.set_encoded_public_key(&vec![1; length]), "{length}");
            }
        }
        for value in [0, 1, 0xff] {
            let key = Key::parameters(group.key_type, group.name, SLIPSTREAM);
            assert!(key.set_encoded_public_key(&[value; 32]) && key.public_check(SLIPSTREAM));
            assert_eq!(key.encoded_public_key(), Some(vec![value; 32]));
        }
        // A public key replaces the key pair.
        let key = group.generate(SLIPSTREAM);
        assert!(key.set_encoded_public_key(&[1; 32]));
        assert!(key.public_check(SLIPSTREAM) && !key.check(SLIPSTREAM));
        assert_eq!(key.encoded_public_key(), Some(vec![1; 32]));
    });
}

#[test]
fn a_public_key_set_in_a_key_pair_leaves_the_private_key_of_a_curve() {
    let _turn = exclusive();
    for group in GROUPS.into_iter().filter(|group| !group.is_x25519()) {
        let other = group.generate(DEFAULT);
        let encoded = other.encoded_public_key().expect("a public key");
        for query in [DEFAULT, SLIPSTREAM] {
            let encoded = encoded.clone();
            let key = on_fiber(Backend::Portable, move || {
                let key = group.generate(query);
                assert!(key.check(query) && key.set_encoded_public_key(&encoded));
                key
            });
            assert!(key.equals(&other), "{group:?} {query:?}");
            assert!(!key.check(query), "they do not belong together");
        }
    }
}

#[test]
fn keys_are_counted_by_whether_lanes_can_use_them() {
    let _turn = exclusive();
    let counts = || (keys_with_lanes(), keys_without_lanes());
    for (group, expected) in [
        (GROUPS[1], (1, 0)),
        (GROUPS[2], (1, 0)),
        (OTHERS[0], (0, 1)),
    ] {
        let before = counts();
        let key = group.generate(DEFAULT);
        key.transfer(group.key_type, PUBLIC_KEY, SLIPSTREAM);
        assert_eq!(counts(), before, "{group:?}");
        key.transfer(group.key_type, KEYPAIR, SLIPSTREAM);
        let (with, without) = counts();
        assert_eq!((with - before.0, without - before.1), expected, "{group:?}");
    }
}
