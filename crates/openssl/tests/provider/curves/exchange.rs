//! Shared secrets.

use openssl::nid::Nid;
use slipstream_accelerators::lanes::Backend;
use slipstream_openssl::lane_operations;

use super::evp::{Context, GROUPS, Key, OTHERS};
use super::{backends, collect_on_fibers, on_fiber};
use crate::common::{DEFAULT, Outcome, SLIPSTREAM, exclusive};

/// Derives with a new key of ours, and answers that key as well.
type Job = Box<dyn FnOnce() -> (Key, Outcome)>;

#[test]
fn secrets_equal_those_of_openssl() {
    let _turn = exclusive();
    for backend in backends() {
        for group in GROUPS {
            // Two full batches and one that is not.
            let peers: Vec<Key> = (0..19).map(|_| group.generate(DEFAULT)).collect();
            let before = lane_operations();
            let jobs = peers.iter().map(|peer| {
                let encoded = peer.encoded_public_key().expect("a public key");
                Box::new(move || {
                    let peer = Key::parameters(group.key_type, group.name, SLIPSTREAM);
                    assert!(peer.set_encoded_public_key(&encoded));
                    let own = peer.generate_alike(SLIPSTREAM);
                    let secret = own.derive(&peer, SLIPSTREAM);
                    (own, secret)
                }) as Job
            });
            let answers = collect_on_fibers(backend, jobs.collect::<Vec<_>>());
            assert_eq!(lane_operations() - before, 19, "{backend:?} {group:?}");
            for (peer, (own, secret)) in peers.iter().zip(answers) {
                let own = group.public_key(&own.encoded_public_key().expect("a public key"));
                let expected = peer.derive(&own, DEFAULT);
                assert!(expected.is_ok());
                assert_eq!(secret, expected, "{backend:?} {group:?}");
            }
        }
    }
}

#[test]
fn software_goes_on_with_precomputed_keys() {
    let _turn = exclusive();
    for group in GROUPS {
        let (own, peer) = on_fiber(Backend::Portable, move || {
            (group.generate(SLIPSTREAM), group.generate(SLIPSTREAM))
        });
        let before = lane_operations();
        let one = own.derive(&peer, SLIPSTREAM).expect("a secret");
        assert_eq!(one.len(), group.secret_bytes);
        assert_eq!(peer.derive(&own, SLIPSTREAM).as_ref(), Ok(&one));
        assert_eq!(own.derive(&peer, DEFAULT).as_ref(), Ok(&one));
        assert_eq!(peer.derive(&own, DEFAULT).as_ref(), Ok(&one));
        assert_eq!(lane_operations(), before, "{group:?}");
        let again = on_fiber(Backend::Portable, move || own.derive(&peer, SLIPSTREAM));
        assert_eq!(again, Ok(one));
        assert_eq!(lane_operations() - before, 1, "{group:?}");
    }
}

#[test]
fn keys_of_openssl_are_computed_in_lanes_too() {
    let _turn = exclusive();
    for group in GROUPS {
        let (own, peer) = (group.generate(SLIPSTREAM), group.generate(SLIPSTREAM));
        let expected = peer.derive(&own, DEFAULT);
        let before = lane_operations();
        let secret = on_fiber(Backend::Portable, move || own.derive(&peer, SLIPSTREAM));
        assert_eq!(secret, expected);
        assert_eq!(lane_operations() - before, 1, "{group:?}");
    }
}

#[test]
fn other_groups_are_left_to_openssl() {
    let _turn = exclusive();
    for group in OTHERS {
        let query = c"?provider=slipstream";
        let (own, peer) = (group.generate(query), group.generate(query));
        let expected = peer.derive(&own, DEFAULT).expect("a secret");
        assert_eq!(expected.len(), group.secret_bytes);
        assert_eq!(own.derive(&peer, query).as_ref(), Ok(&expected));
        let before = lane_operations();
        let secret = on_fiber(Backend::Portable, move || own.derive(&peer, query));
        assert_eq!(secret, Ok(expected), "{group:?}");
        assert_eq!(lane_operations(), before);
    }
}

#[test]
fn a_secret_of_zero_is_refused() {
    let _turn = exclusive();
    let group = GROUPS[0];
    // Points of small order: 0, 1, and p - 1 (RFC 7748, section 6.1).
    let mut minus_one = [0xff; 32];
    (minus_one[0], minus_one[31]) = (0xec, 0x7f);
    let mut one = [0; 32];
    one[0] = 1;
    for encoded in [[0; 32], one, minus_one] {
        let derive = move |query| {
            let peer = Key::parameters(group.key_type, group.name, query);
            assert!(peer.set_encoded_public_key(&encoded));
            let own = peer.generate_alike(query);
            own.derive(&peer, query)
        };
        let expected = derive(DEFAULT);
        assert!(expected.is_err());
        assert_eq!(derive(SLIPSTREAM), expected);
        for backend in backends() {
            let secret = on_fiber(backend, move || derive(SLIPSTREAM));
            assert_eq!(secret, expected, "{backend:?} {encoded:02x?}");
        }
    }
}

#[test]
fn a_peer_on_another_curve_is_refused() {
    let _turn = exclusive();
    for (own, peer) in [(1, 2), (2, 1)].map(|(own, peer)| (GROUPS[own], GROUPS[peer])) {
        let refused = move || {
            let (own, peer) = (own.generate(SLIPSTREAM), peer.generate(SLIPSTREAM));
            let context = Context::of(&own, SLIPSTREAM);
            context.derive_init() && !context.set_peer(&peer) && context.derive().is_err()
        };
        assert!(refused());
        assert!(on_fiber(Backend::Portable, refused));
    }
}

#[test]
fn what_is_missing_is_missed_as_in_openssl() {
    let _turn = exclusive();
    for group in GROUPS {
        let outcomes = move |query| {
            let own = group.generate(query);
            let public = own.copy_parameters();
            let encoded = own.encoded_public_key().expect("a public key");
            assert!(public.set_encoded_public_key(&encoded));
            let parameters = Key::parameters(group.key_type, group.name, query);
            let no_peer = Context::of(&own, query);
            let no_private_key = Context::of(&public, query);
            (
                (no_peer.derive_init(), no_peer.derive()),
                (
                    no_private_key.derive_init(),
                    no_private_key.set_peer(&own),
                    no_private_key.derive(),
                ),
                // A blank key is a public key to no version alike; here only that nothing is
                // derived.
                parameters.derive(&own, query).is_ok(),
            )
        };
        let expected = outcomes(DEFAULT);
        assert!(expected.0.1.is_err() && expected.1.2.is_err() && !expected.2);
        assert_eq!(outcomes(SLIPSTREAM), expected, "{group:?}");
        let ours = on_fiber(Backend::Portable, move || outcomes(SLIPSTREAM));
        assert_eq!(ours, expected, "{group:?}");
    }
}

#[test]
fn room_for_less_is_treated_as_in_openssl() {
    let _turn = exclusive();
    for group in GROUPS {
        let (own, peer) = on_fiber(Backend::Portable, move || {
            (group.generate(SLIPSTREAM), group.generate(SLIPSTREAM))
        });
        let rooms = [1, 16, group.secret_bytes - 1, group.secret_bytes, 100];
        let derive = move |own: &Key, peer: &Key, query| {
            let context = Context::of(own, query);
            assert!(context.derive_init() && context.set_peer(peer));
            rooms.map(|room| context.derive_into(room))
        };
        let expected = derive(&own, &peer, DEFAULT);
        assert_eq!(derive(&own, &peer, SLIPSTREAM), expected, "{group:?}");
        let ours = on_fiber(Backend::Portable, move || derive(&own, &peer, SLIPSTREAM));
        assert_eq!(ours, expected, "{group:?}");
    }
}

#[test]
fn a_copied_context_goes_on_where_the_first_one_was() {
    let _turn = exclusive();
    for group in GROUPS {
        let own = group.generate(SLIPSTREAM);
        let peer = group.generate(SLIPSTREAM);
        let expected = peer.derive(&own, DEFAULT);
        let derive = move || {
            let first = Context::of(&own, SLIPSTREAM);
            assert!(first.derive_init());
            let begun = first.duplicate();
            assert!(first.set_peer(&peer));
            let ready = first.duplicate();
            let secret = first.derive();
            let after = first.duplicate();
            drop(first);
            assert!(begun.set_peer(&peer));
            let again = [secret, begun.derive(), ready.derive(), after.derive()];
            // The same context with other keys.
            assert!(ready.derive_init() && ready.set_peer(&own));
            (again, ready.derive() == own.derive(&own, SLIPSTREAM))
        };
        let (secrets, same) = on_fiber(Backend::Portable, derive);
        assert!(secrets.iter().all(|secret| *secret == expected) && same);
    }
}

#[test]
fn key_derivation_and_cofactors_are_openssl_s() {
    let _turn = exclusive();
    for group in GROUPS.into_iter().filter(|group| !group.is_x25519()) {
        let (own, peer) = on_fiber(Backend::Portable, move || {
            (group.generate(SLIPSTREAM), group.generate(SLIPSTREAM))
        });
        for options in [
            &[
                (c"ecdh_kdf_md", c"SHA256"),
                (c"kdf-type", c"X963KDF"),
                (c"kdf-outlen", c"57"),
            ][..],
            &[(c"ecdh_cofactor_mode", c"1")],
            &[(c"ecdh_cofactor_mode", c"0")],
        ] {
            let derive = move |own: &Key, peer: &Key, query| {
                let context = Context::of(own, query);
                assert!(context.derive_init());
                let set = options
                    .iter()
                    .map(|(name, value)| context.set(name, value))
                    .collect::<Vec<_>>();
                assert!(context.set_peer(peer));
                (set, context.derive_into(100))
            };
            let expected = derive(&own, &peer, DEFAULT);
            assert!(expected.1.is_ok());
            assert_eq!(derive(&own, &peer, SLIPSTREAM), expected, "{options:?}");
        }
    }
}

#[test]
fn explicit_parameters_are_left_to_openssl() {
    let _turn = exclusive();
    for curve in [Nid::X9_62_PRIME256V1, Nid::SECP521R1] {
        let explicit = || {
            let mut group = openssl::ec::EcGroup::from_curve_name(curve).expect("a curve");
            group.set_asn1_flag(openssl::ec::Asn1Flag::EXPLICIT_CURVE);
            let key = openssl::ec::EcKey::generate(&group).expect("a key");
            let key = openssl::pkey::PKey::from_ec_key(key).expect("a key");
            Key::from_der(&key.private_key_to_der().expect("DER"))
        };
        let (own, peer) = (explicit(), explicit());
        let expected = peer.derive(&own, DEFAULT);
        assert!(expected.is_ok());
        assert_eq!(own.derive(&peer, SLIPSTREAM), expected);
        let secret = on_fiber(Backend::Portable, move || own.derive(&peer, SLIPSTREAM));
        assert_eq!(secret, expected);
    }
}
