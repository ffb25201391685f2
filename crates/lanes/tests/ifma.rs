//! The IFMA machine code compared with OpenSSL, natively or with the instructions emulated.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod common;
#[path = "common/ifma.rs"]
mod emulation;

use common::TestKey;
use openssl::rsa::Rsa;
use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Size, Workspace, private_operations};
use slipstream_lanes::{Backend, LANES};

#[test]
fn a_full_batch_of_2048_bits() {
    full_batch(Size::Rsa2048);
}

#[test]
#[ignore = "minutes without IFMA"]
fn a_full_batch_of_3072_bits() {
    full_batch(Size::Rsa3072);
}

#[test]
#[ignore = "minutes without IFMA"]
fn a_full_batch_of_4096_bits() {
    full_batch(Size::Rsa4096);
}

fn full_batch(size: Size) {
    if !emulation::provide() {
        return;
    }
    let test_keys: Vec<TestKey> = (0..LANES).map(|_| generate(size)).collect();
    let keys: Vec<PreparedKey> = test_keys
        .iter()
        .map(|key| key.for_backend(Backend::Ifma))
        .collect();
    let inputs: Vec<Vec<u8>> = (0..LANES)
        .map(|lane| vec![lane as u8 + 1; size.bytes()])
        .collect();
    let mut outputs = vec![vec![0; size.bytes()]; LANES];
    let mut operations: Vec<PrivateOperation<'_>> = keys
        .iter()
        .zip(&inputs)
        .zip(&mut outputs)
        .map(|((key, input), output)| PrivateOperation { key, input, output })
        .collect();
    let outcomes = private_operations(Backend::Ifma, &mut Workspace::new(), size, &mut operations);
    for lane in 0..LANES {
        assert_eq!(outcomes[lane], Ok(()), "lane {lane}");
        assert!(
            outputs[lane] == test_keys[lane].expected(&inputs[lane]),
            "lane {lane}"
        );
    }
}

fn generate(size: Size) -> TestKey {
    TestKey(Rsa::generate(size.bits() as u32).expect("a key"))
}
