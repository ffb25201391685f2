//! X25519. Secret are private keys and shared secrets.

use openssl::derive::Deriver;
use openssl::pkey::{Id, PKey, Private};
use slipstream_lanes::x25519::{KEY_BYTES, PublicKey, SharedSecret, public_keys, shared_secrets};
use slipstream_lanes::{Backend, LANES, OperationError};

use crate::memcheck::{expect_constant_time, make_public, make_secret, publish};

type Key = [u8; KEY_BYTES];

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn public_keys_of_a_batch() {
    expect_constant_time(&[], || {
        let (mut privates, keys) = key_pairs(1);
        let mut publics = [[0; KEY_BYTES]; LANES];

        make_secret(&mut privates[..]);
        let mut operations: Vec<PublicKey<'_>> = privates
            .iter()
            .zip(&mut publics)
            .map(|(private, public)| PublicKey { private, public })
            .collect();
        let mut outcomes = public_keys(Backend::Portable, &mut operations);

        make_public(&mut outcomes);
        assert!(outcomes.iter().all(Result::is_ok));
        for (public, key) in publics.iter_mut().zip(&keys) {
            publish(public);
            assert!(*public == public_bytes(key));
        }
    });
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn shared_secrets_of_a_batch() {
    expect_constant_time(&[], || {
        let (mut privates, keys) = key_pairs(1);
        let (_, peers) = key_pairs(101);
        let expected: Vec<Vec<u8>> = keys
            .iter()
            .zip(&peers)
            .map(|(key, peer)| {
                let mut deriver = Deriver::new(key).expect("memory");
                deriver.set_peer(peer).expect("a peer's key");
                deriver.derive_to_vec().expect("a secret")
            })
            .collect();
        let mut peers: Vec<Key> = peers.iter().map(public_bytes).collect();
        // The last lane has a point of small order.
        peers[LANES - 1].fill(0);
        let mut secrets = [[0; KEY_BYTES]; LANES];

        make_secret(&mut privates[..]);
        let mut operations: Vec<SharedSecret<'_>> = privates
            .iter()
            .zip(&peers)
            .zip(&mut secrets)
            .map(|((private, peer), secret)| SharedSecret {
                private,
                peer,
                secret,
            })
            .collect();
        let mut outcomes = shared_secrets(Backend::Portable, &mut operations);

        make_public(&mut outcomes);
        for lane in 0..LANES - 1 {
            assert_eq!(outcomes[lane], Ok(()));
            publish(&mut secrets[lane]);
            assert!(secrets[lane][..] == expected[lane]);
        }
        assert_eq!(outcomes[LANES - 1], Err(OperationError::ZeroSecret));
        make_public(&mut secrets[LANES - 1]);
        assert!(secrets[LANES - 1] == [0; KEY_BYTES]);
    });
}

/// Private keys, as bytes and for OpenSSL.
fn key_pairs(seed: u8) -> (Vec<Key>, Vec<PKey<Private>>) {
    (seed..)
        .take(LANES)
        .map(|value| {
            let private = [value; KEY_BYTES];
            let key = PKey::private_key_from_raw_bytes(&private, Id::X25519).expect("a key");
            (private, key)
        })
        .unzip()
}

fn public_bytes(key: &PKey<Private>) -> Key {
    let bytes = key.raw_public_key().expect("a public key");
    bytes.try_into().expect("32 bytes")
}
