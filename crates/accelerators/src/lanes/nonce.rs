//! Nonces of ECDSA, drawn when a signature is computed and hedged with the key and the message.
//!
//! A nonce is the k of RFC 6979, section 3.2, with HMAC-SHA-256 and with additional data k'
//! concatenated after the digest (section 3.6): 32 bytes of the system's generator. That is
//! HMAC_DRBG (SP 800-90A, section 10.1.2) with the private key, the digest and those bytes as its
//! seed.
//!
//! While the generator works, a nonce is random. Should it repeat itself, as in two copies of a
//! virtual machine, another message or another key still has another nonce. Candidates are drawn
//! until one is in range, never reduced, so there is no bias. A nonce takes 20 blocks of SHA-256 on
//! P-256, and 22 on P-384.

use hmac::digest::Output;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use slipstream_keys::ec::{Curve, PrivateKey};
use zeroize::zeroize_stack;

/// Bytes of the system's generator in a nonce.
pub const RANDOM_BYTES: usize = 32;

/// The bytes of the longest nonce.
pub const LONGEST: usize = 48;

/// Sets `nonce` to the nonce of a signature: an integer between 1 and n - 1, big-endian.
///
/// `random` are [`RANDOM_BYTES`] of the system's generator. The time depends on the key only by the
/// number of candidates that are out of range, which says nothing of the one that is used: all but
/// once in 2^32 times there is none.
///
/// # Panics
/// If `nonce` is not as long as a scalar of the key's curve.
pub fn derive(key: &PrivateKey, digest: &[u8], random: &[u8], nonce: &mut [u8]) {
    assert_eq!(nonce.len(), key.curve().bytes(), "a nonce is a scalar");
    let curve = key.curve();
    generate(key, digest, random, nonce, |candidate| {
        curve.is_scalar(candidate)
    });
    zeroize_stack::<STACK>();
}

/// Bytes of stack on which states of HMAC lie.
const STACK: usize = 4 * 1024;

/// In a frame of its own, so that all copies of secrets lie where the stack is wiped.
#[inline(never)]
fn generate(
    key: &PrivateKey,
    digest: &[u8],
    random: &[u8],
    nonce: &mut [u8],
    mut is_usable: impl FnMut(&[u8]) -> bool,
) {
    let curve = key.curve();
    let hash = bits_to_octets(curve, digest);
    let seed = [key.scalar(), &hash[..curve.bytes()], random];
    // The letters of RFC 6979, section 3.2, steps b to h.
    let mut v = Output::<Hmac<Sha256>>::from([1; 32]);
    let mut k = keyed(&[0; 32]);
    for step in [0, 1] {
        k = keyed(&mac(&k, &[&v, &[step], seed[0], seed[1], seed[2]]));
        v = mac(&k, &[&v]);
    }
    loop {
        for part in nonce.chunks_mut(v.len()) {
            v = mac(&k, &[&v]);
            part.copy_from_slice(&v[..part.len()]);
        }
        if is_usable(nonce) {
            return;
        }
        k = keyed(&mac(&k, &[&v, &[0]]));
        v = mac(&k, &[&v]);
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("any length is a key")
}

fn mac(keyed: &Hmac<Sha256>, parts: &[&[u8]]) -> Output<Hmac<Sha256>> {
    let mut mac = keyed.clone();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes()
}

/// The digest as an integer modulo n (RFC 6979, section 2.3.4), as many bytes as a scalar has. The
/// digest is public.
fn bits_to_octets(curve: Curve, digest: &[u8]) -> [u8; LONGEST] {
    let mut octets = [0; LONGEST];
    let integer = &mut octets[..curve.bytes()];
    let used = digest.len().min(integer.len());
    let unused = integer.len() - used;
    integer[unused..].copy_from_slice(&digest[..used]);
    let order = curve.order();
    if *integer >= *order {
        // Once is enough: the order is more than half of the power of two above it.
        let mut borrow = 0;
        for (byte, order) in integer.iter_mut().zip(order).rev() {
            let difference = i16::from(*byte) - i16::from(*order) - borrow;
            *byte = difference as u8;
            borrow = i16::from(difference < 0);
        }
    }
    octets
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use hex_literal::hex;
    use rfc6979::KGenerator;
    use rfc6979::bigint::{Encoding, U256, U384, Unsigned};
    use sha2::Digest;
    use slipstream_keys::stack_test::residues;

    use super::*;

    #[test]
    fn without_additional_data_nonces_are_those_of_the_rfc() {
        // RFC 6979, appendices A.2.5 and A.2.6, with SHA-256.
        let p256 = hex!("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721");
        let p384 = hex!(
            "
            6b9d3dad2e1b8c1c05b19875b6659f4de23c3b667bf297ba9aa47740787137d8
            96d5724e4c70a825f872c9ea60d2edf5"
        );
        let check = |curve, scalar: &[u8], message: &[u8], expected: &[u8]| {
            let key = PrivateKey::new(curve, scalar).expect("in range");
            let mut nonce = vec![0; curve.bytes()];
            derive(&key, &Sha256::digest(message), &[], &mut nonce);
            assert_eq!(nonce, expected);
        };
        let sample = hex!("a6e3c57dd01abe90086538398355dd4c3b17aa873382b0f24d6129493d8aad60");
        check(Curve::P256, &p256, b"sample", &sample);
        let test = hex!("d16b6ae827f17175e040871a1c7ec3500192c4c92677336ec2537acaee0008e0");
        check(Curve::P256, &p256, b"test", &test);
        let sample = hex!(
            "
            180ae9f9aec5438a44bc159a1fcb277c7be54fa20e7cf404b490650a8acc414e
            375572342863c899f9f2edf9747a9b60"
        );
        check(Curve::P384, &p384, b"sample", &sample);
        let test = hex!(
            "
            0cfac37587532347dc3389fdc98286bba8c73807285b184c83e62e26c401c0fa
            a48dd070ba79921a3457abff2d630ad7"
        );
        check(Curve::P384, &p384, b"test", &test);
    }

    #[test]
    fn with_additional_data_nonces_are_those_of_another_implementation() {
        let p256 = U256::from_be_slice(Curve::P256.order());
        let p384 = U384::from_be_slice(Curve::P384.order());
        for round in 0..32 {
            let mut random = [0; RANDOM_BYTES];
            getrandom::fill(&mut random).expect("random bytes");
            compare(Curve::P256, &p256, &random, round);
            compare(Curve::P384, &p384, &random, round);
        }
    }

    #[test]
    fn nothing_of_a_key_is_left_on_the_stack() {
        thread_local! {
            static KEY: RefCell<Option<PrivateKey>> = const { RefCell::new(None) };
            static NONCE: RefCell<[u8; 32]> = const { RefCell::new([0; 32]) };
        }
        let prepare = |number: usize| {
            let key = PrivateKey::new(Curve::P256, &[0x21 + 0x5a * number as u8; 32]);
            KEY.set(Some(key.expect("in range")));
        };
        let found = residues(prepare, || {
            KEY.with_borrow(|key| {
                let key = key.as_ref().expect("prepared");
                NONCE.with_borrow_mut(|nonce| derive(key, &[3; 32], &[4; 32], nonce));
            });
        });
        assert!(found.is_empty(), "{found:x?}");
    }

    /// Compares two nonces of a key: the first candidate, and the one after it.
    fn compare<U: Unsigned + Encoding>(curve: Curve, order: &U, random: &[u8], round: u8) {
        let scalar = vec![round + 1; curve.bytes()];
        let key = PrivateKey::new(curve, &scalar).expect("in range");
        // Shorter, as long, longer, and with a digest that is not below the order.
        for digest in [vec![round; 20], vec![round; 32], vec![!round; 64]] {
            let mut theirs = KGenerator::<Sha256, U>::new(&scalar, &digest, random, order);
            let mut expected = vec![0; curve.bytes()];
            theirs.fill_next_k(&mut expected);
            let mut nonce = vec![0; curve.bytes()];
            derive(&key, &digest, random, &mut nonce);
            assert_eq!(nonce, expected);

            theirs.fill_next_k(&mut expected);
            let mut candidates = 0;
            generate(&key, &digest, random, &mut nonce, |_| {
                candidates += 1;
                candidates == 2
            });
            assert_eq!(nonce, expected);
        }
    }
}
