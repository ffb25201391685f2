//! Inputs are foreign bytes too: a client chooses the ciphertext of an RSA key exchange.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use slipstream_lanes::Backend;
use slipstream_lanes::rsa::{Operation, PrivateKey, Size, Workspace, private_operation};
use slipstream_offload::calibration::example_key;

static KEY: LazyLock<PrivateKey> = LazyLock::new(|| {
    PrivateKey::new(Backend::Portable, &example_key(Size::Rsa2048).components).expect("a good key")
});

fuzz_target!(|input: &[u8]| {
    let mut output = [0; 256];
    let operation = Operation { key: &KEY, input, output: &mut output };
    let outcomes = private_operation(&mut Workspace::new(), &mut [operation]);
    let in_range = input.len() == 256 && input < KEY.modulus_bytes();
    assert_eq!(outcomes[0].is_ok(), in_range);
});
