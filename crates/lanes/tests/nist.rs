//! NIST's RSA signature vectors, which come with private keys: the raw operation on the padded message must give the
//! signature.

mod common;
#[path = "common/mask.rs"]
mod mask;

use common::TestKey;
use mask::{exclusive_or, mgf1};
use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::hash::{MessageDigest, hash};
use openssl::rsa::{Rsa, RsaPrivateKeyBuilder};
use slipstream_lanes::rsa::{Operation, PrivateKey, Size, Workspace, private_operation};
use slipstream_lanes::{Backend, LANES};

/// The file's format: `[name = value]` for a group, `name = value` within, hexadecimal numbers.
const VECTORS: &str = include_str!("nist/rsa_signatures.txt");

/// A padded message and its signature, both as long as the modulus, by one of the keys.
struct Vector {
    key: usize,
    padded: Vec<u8>,
    signature: Vec<u8>,
}

#[test]
fn signatures_of_both_schemes_side_by_side() {
    let (keys, vectors) = read_vectors();
    let mut workspace = Workspace::new();
    for size in Size::ALL {
        let mut vectors: Vec<&Vector> = vectors
            .iter()
            .filter(|vector| vector.signature.len() == size.bytes())
            .collect();
        // Four hashes under either scheme, and either scheme has a key of its own: one full batch of two keys in turn.
        assert_eq!(vectors.len(), LANES, "{size:?}");
        let (pkcs1, pss) = vectors.split_at(LANES / 2);
        vectors = pkcs1.iter().zip(pss).flat_map(|(a, b)| [*a, *b]).collect();
        assert_ne!(vectors[0].key, vectors[1].key);
        for vector in &vectors {
            let expected = keys[vector.key].expected(&vector.padded);
            assert!(
                expected == vector.signature,
                "the message is padded wrongly"
            );
        }
        for backend in Backend::available() {
            let keys: Vec<PrivateKey> = vectors
                .iter()
                .map(|vector| keys[vector.key].for_backend(backend))
                .collect();
            let mut outputs = vec![vec![0xa5; size.bytes()]; LANES];
            let mut operations: Vec<Operation<'_>> = keys
                .iter()
                .zip(&vectors)
                .zip(&mut outputs)
                .map(|((key, vector), output)| Operation {
                    key,
                    input: &vector.padded,
                    output,
                })
                .collect();
            let outcomes = private_operation(&mut workspace, &mut operations);
            for (lane, vector) in vectors.iter().enumerate() {
                assert_eq!(outcomes[lane], Ok(()), "{backend:?} {size:?}, lane {lane}");
                assert!(
                    outputs[lane] == vector.signature,
                    "{backend:?} {size:?}, lane {lane}"
                );
            }
        }
    }
}

fn read_vectors() -> (Vec<TestKey>, Vec<Vector>) {
    let (mut keys, mut vectors) = (Vec::new(), Vec::new());
    let [mut scheme, mut modulus, mut exponent] = [""; 3];
    let [mut digest, mut salt, mut message] = [""; 3];
    let lines = VECTORS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let (name, value) = line
            .trim_matches(['[', ']'])
            .split_once(" = ")
            .expect("a name and a value");
        match name {
            "scheme" => scheme = value,
            "mod" => {}
            "n" => modulus = value,
            "e" => exponent = value,
            "d" => keys.push(key(&[modulus, exponent, value].map(number))),
            "SHAAlg" => digest = value,
            "SaltVal" => salt = value,
            "Msg" => message = value,
            "S" => {
                let signature = bytes(value);
                let message = bytes(message);
                let padded = match scheme {
                    "PKCS#1 v1.5" => pad_pkcs1(&message, digest, signature.len()),
                    "PSS" => pad_pss(&message, digest, &bytes(salt), signature.len()),
                    other => panic!("unexpected scheme {other}"),
                };
                vectors.push(Vector {
                    key: keys.len() - 1,
                    padded,
                    signature,
                });
            }
            other => panic!("unexpected name {other}"),
        }
    }
    (keys, vectors)
}

/// The key with the numbers n, e and d, its primes found as in SP 800-56B, appendix C.1: with e d - 1 = 2^t r and r odd,
/// one of the squarings from g^r on meets a root of one that is neither 1 nor -1, for half of all g.
fn key([n, e, d]: &[BigNum; 3]) -> TestKey {
    let mut context = BigNumContext::new().expect("memory");
    let one = BigNum::from_u32(1).expect("memory");
    let minus_one = n - &one;
    let product = &(e * d) - &one;
    let twos = (0..)
        .find(|bit| product.is_bit_set(*bit))
        .expect("not zero");
    let odd = &product >> twos;
    let root = (2..100)
        .find_map(|base| {
            let base = BigNum::from_u32(base).expect("memory");
            let mut power = BigNum::new().expect("memory");
            power.mod_exp(&base, &odd, n, &mut context).expect("memory");
            for _ in 0..twos {
                let mut square = BigNum::new().expect("memory");
                square.mod_sqr(&power, n, &mut context).expect("memory");
                if square == one && power != one && power != minus_one {
                    return Some(power);
                }
                power = square;
            }
            None
        })
        .expect("d belongs to n and e");
    let mut p = BigNum::new().expect("memory");
    p.gcd(&(&root - &one), n, &mut context).expect("memory");
    let q = n / &p;
    let [d_p, d_q] = [&p, &q].map(|prime| d % &(prime - &one));
    let mut q_inverse = BigNum::new().expect("memory");
    q_inverse
        .mod_inverse(&q, &p, &mut context)
        .expect("coprime");
    let owned = |number: &BigNumRef| number.to_owned().expect("memory");
    let key: Rsa<_> = RsaPrivateKeyBuilder::new(owned(n), owned(e), owned(d))
        .and_then(|builder| builder.set_factors(p, q))
        .and_then(|builder| builder.set_crt_params(d_p, d_q, q_inverse))
        .expect("memory")
        .build();
    assert!(key.check_key().expect("memory"), "primes were found");
    TestKey(key)
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2).
fn pad_pkcs1(message: &[u8], digest: &str, length: usize) -> Vec<u8> {
    let (digest, number) = algorithm(digest);
    let hash = hash(digest, message).expect("a hash");
    let size = hash.len() as u8;
    // SEQUENCE { SEQUENCE { OID 2.16.840.1.101.3.4.2.number, NULL }, OCTET STRING hash }
    let mut info = vec![0x30, 17 + size, 0x30, 13, 0x06, 9];
    info.extend([0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, number]);
    info.extend([0x05, 0, 0x04, size]);
    info.extend(&hash[..]);
    let mut padded = vec![0xff; length];
    padded[..2].copy_from_slice(&[0, 1]);
    let start = length - info.len();
    padded[start - 1] = 0;
    padded[start..].copy_from_slice(&info);
    padded
}

/// EMSA-PSS (RFC 8017, section 9.1.1) for a modulus of `length` full bytes.
fn pad_pss(message: &[u8], digest: &str, salt: &[u8], length: usize) -> Vec<u8> {
    let (digest, _) = algorithm(digest);
    let message_hash = hash(digest, message).expect("a hash");
    let salted = [&[0; 8][..], &message_hash, salt].concat();
    let salted_hash = hash(digest, &salted).expect("a hash");
    let mut block = vec![0; length - salted_hash.len() - 1];
    let start = block.len() - salt.len();
    block[start - 1] = 1;
    block[start..].copy_from_slice(salt);
    let mut padded = exclusive_or(&block, &mgf1(&salted_hash, block.len(), digest));
    padded[0] &= 0x7f;
    padded.extend(&salted_hash[..]);
    padded.push(0xbc);
    padded
}

/// A hash by NIST's name, and the last number of its object identifier.
fn algorithm(name: &str) -> (MessageDigest, u8) {
    match name {
        "SHA256" => (MessageDigest::sha256(), 1),
        "SHA384" => (MessageDigest::sha384(), 2),
        "SHA512" => (MessageDigest::sha512(), 3),
        "SHA224" => (MessageDigest::sha224(), 4),
        other => panic!("unexpected hash {other}"),
    }
}

fn number(hexadecimal: &str) -> BigNum {
    BigNum::from_hex_str(hexadecimal).expect("a number")
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let length = hexadecimal.len() as i32 / 2;
    number(hexadecimal)
        .to_vec_padded(length)
        .expect("that long at most")
}
