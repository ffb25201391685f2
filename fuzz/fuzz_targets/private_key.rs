//! Keys are foreign bytes: whatever their numbers are, they are refused or computed with, and what
//! is computed is right, since each result is checked.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{Components, PrivateKey, Size};
use slipstream_lanes::Backend;
use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Workspace, private_operations};

/// A damaged key is closer to being accepted than random numbers are.
#[derive(arbitrary::Arbitrary, Debug)]
struct Damage<'a> {
    size: u8,
    component: u8,
    position: u16,
    mask: u8,
    replacement: Option<&'a [u8]>,
}

fuzz_target!(|damages: Vec<Damage<'_>>| {
    let size = Size::ALL[damages.first().map_or(0, |first| usize::from(first.size) % 3)];
    let example = &example_key(size).components;
    let mut numbers = [
        example.modulus.to_vec(),
        example.public_exponent.to_vec(),
        example.prime1.to_vec(),
        example.prime2.to_vec(),
        example.exponent1.to_vec(),
        example.exponent2.to_vec(),
        example.coefficient.to_vec(),
    ];
    for damage in damages {
        let number = &mut numbers[usize::from(damage.component) % 7];
        match damage.replacement {
            Some(bytes) => *number = bytes.to_vec(),
            None if number.is_empty() => {}
            None => {
                let position = usize::from(damage.position) % number.len();
                number[position] ^= damage.mask;
            }
        }
    }
    let [modulus, public_exponent, prime1, prime2, exponent1, exponent2, coefficient] = &numbers;
    let components = Components {
        modulus,
        public_exponent,
        prime1,
        prime2,
        exponent1,
        exponent2,
        coefficient,
    };
    let Ok(key) = PrivateKey::new(&components) else { return };
    let backend = Backend::Portable;
    let key = PreparedKey::new(backend, &key).expect("a backend of every CPU");
    let size = key.size();
    let input = vec![1; size.bytes()];
    let mut output = vec![0; size.bytes()];
    let operation = PrivateOperation { key: &key, input: &input, output: &mut output };
    let outcomes = private_operations(backend, &mut Workspace::new(), size, &mut [operation]);
    assert!(outcomes[0].is_ok() || output.iter().all(|byte| *byte == 0));
});
