//! NIST's RSA signature vectors, which come with private keys. The raw operation on the padded
//! message must give the signature.

#[path = "common/mask.rs"]
mod mask;

use mask::{Hash, exclusive_or, mgf1};
use num_bigint::BigUint;
use num_integer::Integer;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use slipstream_keys::rsa::{Components, PrivateKey};
use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Size, Workspace, private_operations};
use slipstream_lanes::{Backend, LANES};

/// The vectors, with a line `[name = value]` for a group, lines `name = value` within a group, and
/// hexadecimal numbers.
const VECTORS: &str = include_str!("nist/rsa_signatures.txt");

/// A padded message and its signature by one of the keys, both as long as the modulus.
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
        // Four hashes for each of two schemes, each with a key of its own. They make one full batch
        // in which the two keys alternate.
        assert_eq!(vectors.len(), LANES, "{size:?}");
        let (pkcs1, pss) = vectors.split_at(LANES / 2);
        vectors = pkcs1.iter().zip(pss).flat_map(|(a, b)| [*a, *b]).collect();
        assert_ne!(vectors[0].key, vectors[1].key);
        for vector in &vectors {
            assert!(
                keys[vector.key].verifies(vector),
                "the message is padded wrongly"
            );
        }
        for backend in Backend::available() {
            let keys: Vec<PreparedKey> = vectors
                .iter()
                .map(|vector| keys[vector.key].for_backend(backend))
                .collect();
            let mut outputs = vec![vec![0xa5; size.bytes()]; LANES];
            let mut operations: Vec<PrivateOperation<'_>> = keys
                .iter()
                .zip(&vectors)
                .zip(&mut outputs)
                .map(|((key, vector), output)| PrivateOperation {
                    key,
                    input: &vector.padded,
                    output,
                })
                .collect();
            let outcomes = private_operations(backend, &mut workspace, size, &mut operations);
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

fn read_vectors() -> (Vec<Key>, Vec<Vector>) {
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
            "d" => keys.push(Key::new([modulus, exponent, value].map(number))),
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

/// A private key, as numbers.
struct Key {
    n: BigUint,
    e: BigUint,
    d: BigUint,
    p: BigUint,
    q: BigUint,
}

impl Key {
    /// The key with the numbers n, e and d, its primes found as in SP 800-56B, appendix C.1: with
    /// e d - 1 = 2^t r and r odd, one of the squarings from g^r on meets a root of one that is
    /// neither 1 nor -1, for half of all g.
    fn new([n, e, d]: [BigUint; 3]) -> Self {
        let one = BigUint::from(1_u32);
        let minus_one = &n - 1_u32;
        let product = &e * &d - 1_u32;
        let twos = product.trailing_zeros().expect("not zero");
        let odd = &product >> twos;
        let root = (2_u32..100)
            .find_map(|base| {
                let mut power = BigUint::from(base).modpow(&odd, &n);
                for _ in 0..twos {
                    let square = &power * &power % &n;
                    if square == one && power != one && power != minus_one {
                        return Some(power);
                    }
                    power = square;
                }
                None
            })
            .expect("d belongs to n and e");
        let p = (root - 1_u32).gcd(&n);
        let q = &n / &p;
        assert!(&p * &q == n && p > one && q > one, "primes were found");
        Self { n, e, d, p, q }
    }

    fn for_backend(&self, backend: Backend) -> PreparedKey {
        let exponent = |prime: &BigUint| (&self.d % (prime - 1_u32)).to_bytes_be();
        let inverse = self.q.modinv(&self.p).expect("coprime");
        let components = Components {
            modulus: &self.n.to_bytes_be(),
            public_exponent: &self.e.to_bytes_be(),
            prime1: &self.p.to_bytes_be(),
            prime2: &self.q.to_bytes_be(),
            exponent1: &exponent(&self.p),
            exponent2: &exponent(&self.q),
            coefficient: &inverse.to_bytes_be(),
        };
        let key = PrivateKey::new(&components).expect("a sound key");
        PreparedKey::new(backend, &key).expect("an available backend")
    }

    /// Returns true if `signature`^e is the padded message.
    fn verifies(&self, vector: &Vector) -> bool {
        let message = BigUint::from_bytes_be(&vector.signature).modpow(&self.e, &self.n);
        message == BigUint::from_bytes_be(&vector.padded)
    }
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2).
fn pad_pkcs1(message: &[u8], digest: &str, length: usize) -> Vec<u8> {
    let (hash, number) = algorithm(digest);
    let hash = hash(message);
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
    let (hash, _) = algorithm(digest);
    let message_hash = hash(message);
    let salted = [&[0; 8][..], &message_hash, salt].concat();
    let salted_hash = hash(&salted);
    let mut block = vec![0; length - salted_hash.len() - 1];
    let start = block.len() - salt.len();
    block[start - 1] = 1;
    block[start..].copy_from_slice(salt);
    let mut padded = exclusive_or(&block, &mgf1(&salted_hash, block.len(), hash));
    padded[0] &= 0x7f;
    padded.extend(&salted_hash[..]);
    padded.push(0xbc);
    padded
}

/// A hash by NIST's name, and the last number of its object identifier.
fn algorithm(name: &str) -> (Hash, u8) {
    match name {
        "SHA256" => (|bytes| Sha256::digest(bytes).to_vec(), 1),
        "SHA384" => (|bytes| Sha384::digest(bytes).to_vec(), 2),
        "SHA512" => (|bytes| Sha512::digest(bytes).to_vec(), 3),
        "SHA224" => (|bytes| Sha224::digest(bytes).to_vec(), 4),
        other => panic!("unexpected hash {other}"),
    }
}

fn number(hexadecimal: &str) -> BigUint {
    BigUint::parse_bytes(hexadecimal.as_bytes(), 16).expect("a number")
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = number(hexadecimal).to_bytes_be();
    let zeros = vec![0; hexadecimal.len() / 2 - digits.len()];
    [zeros, digits].concat()
}
