//! X25519 against OpenSSL: points of small order, coordinates beyond p, extreme and random keys.

use openssl::derive::Deriver;
use openssl::pkey::{Id, PKey};
use slipstream_lanes::x25519::KEY_BYTES;
use slipstream_lanes::{Backend, LANES};

use crate::{Key, agree, backends, generate, key, parse};

/// p = 2^255 - 19.
const P: Key = {
    let mut p = [0xff; KEY_BYTES];
    p[0] = 0xed;
    p[31] = 0x7f;
    p
};

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
    getrandom::fill(&mut key).expect("random bytes");
    key
}

fn minus_one(mut number: Key) -> Key {
    number[0] -= 1;
    number
}

fn plus_one(mut number: Key) -> Key {
    number[0] += 1;
    number
}
