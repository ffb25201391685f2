//! Inputs are foreign bytes too: a client chooses the ciphertext of an RSA key exchange.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{PrivateKey, Size};
use slipstream_lanes::Backend;
use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Workspace, private_operations};

const SIZE: Size = Size::Rsa2048;

static KEY: LazyLock<PreparedKey> = LazyLock::new(|| {
    let key = PrivateKey::new(&example_key(SIZE).components).expect("a good key");
    PreparedKey::new(Backend::Portable, &key).expect("a backend of every CPU")
});

fuzz_target!(|input: &[u8]| {
    let mut output = [0; 256];
    let operation = PrivateOperation { key: &KEY, input, output: &mut output };
    let workspace = &mut Workspace::new();
    let outcomes = private_operations(Backend::Portable, workspace, SIZE, &mut [operation]);
    let in_range = input.len() == 256 && input < KEY.modulus_bytes();
    assert_eq!(outcomes[0].is_ok(), in_range);
});
