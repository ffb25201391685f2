//! RSA compared with OpenSSL, for every backend that this CPU runs.

mod common;

use common::TestKey;
use openssl::bn::{BigNum, BigNumRef};
use openssl::rsa::Rsa;
use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Size, Workspace, private_operations};
use slipstream_lanes::{Backend, LANES, OperationError, Outcomes};

/// Runs one operation per input, with the key of the same index.
fn run(
    workspace: &mut Workspace,
    keys: &[PreparedKey],
    inputs: &[Vec<u8>],
) -> (Outcomes, Vec<Vec<u8>>) {
    // Not zero, so that an output that nobody writes is noticed.
    let mut outputs: Vec<Vec<u8>> = inputs.iter().map(|input| vec![0xa5; input.len()]).collect();
    let mut operations: Vec<PrivateOperation<'_>> = keys
        .iter()
        .zip(inputs)
        .zip(&mut outputs)
        .map(|((key, input), output)| PrivateOperation { key, input, output })
        .collect();
    let (backend, size) = (keys[0].backend(), keys[0].size());
    let outcomes = private_operations(backend, workspace, size, &mut operations);
    (outcomes, outputs)
}

#[test]
fn every_number_of_live_lanes_with_different_keys() {
    let mut workspace = Workspace::new();
    for size in Size::ALL {
        let test_keys: Vec<TestKey> = (0..LANES).map(|_| generate(size)).collect();
        for backend in Backend::available() {
            let keys: Vec<PreparedKey> = test_keys
                .iter()
                .map(|key| key.for_backend(backend))
                .collect();
            for count in live_lanes(backend, size) {
                let inputs: Vec<Vec<u8>> = test_keys[..count].iter().map(random_input).collect();
                let (outcomes, outputs) = run(&mut workspace, &keys, &inputs);
                assert_eq!(outcomes.len(), count);
                for lane in 0..count {
                    assert_eq!(outcomes[lane], Ok(()), "{size:?} {backend:?} {lane}");
                    assert!(
                        outputs[lane] == test_keys[lane].expected(&inputs[lane]),
                        "{size:?} {backend:?}, lane {lane} of {count}"
                    );
                }
            }
        }
    }
}

#[test]
fn smallest_and_largest_inputs() {
    let mut workspace = Workspace::new();
    for size in Size::ALL {
        let test_key = generate(size);
        let number = |change: i32| {
            let mut number = test_key.0.n().to_owned().expect("memory");
            if change < 0 {
                number.sub_word(change.unsigned_abs()).expect("memory");
            } else {
                number.add_word(change as u32).expect("memory");
            }
            padded(&number, size.bytes())
        };
        let small = |value| padded(&BigNum::from_u32(value).expect("memory"), size.bytes());
        let prime = |number: Option<&BigNumRef>| padded(number.expect("a CRT key"), size.bytes());
        let inputs = [
            small(0),
            small(1),
            number(-1),
            number(0),
            number(1),
            vec![0xff; size.bytes()],
            prime(test_key.0.p()),
            prime(test_key.0.q()),
        ];
        for backend in Backend::available() {
            let keys: Vec<PreparedKey> =
                (0..LANES).map(|_| test_key.for_backend(backend)).collect();
            let (outcomes, outputs) = run(&mut workspace, &keys, &inputs);
            for lane in [0, 1, 2, 6, 7] {
                assert_eq!(outcomes[lane], Ok(()), "{size:?} {backend:?} {lane}");
                assert!(
                    outputs[lane] == test_key.expected(&inputs[lane]),
                    "{size:?} {backend:?} {lane}"
                );
            }
            for lane in [3, 4, 5] {
                assert_eq!(outcomes[lane], Err(OperationError::InputOutOfRange));
                assert!(outputs[lane] == small(0));
            }
        }
    }
}

#[test]
fn public_exponents_of_all_kinds_side_by_side() {
    let exponents = [
        3,
        5,
        17,
        65537,
        65539,
        0xffff_ffff,
        (1 << 32) + 15,
        u64::MAX,
    ];
    let mut workspace = Workspace::new();
    // If 2^64 - 1 or another divides p - 1, the generator takes a new prime.
    let test_keys = exponents.map(|exponent| {
        let exponent = BigNum::from_dec_str(&exponent.to_string()).expect("a number");
        TestKey(Rsa::generate_with_e(2048, &exponent).expect("a key"))
    });
    for backend in Backend::available() {
        let keys: Vec<PreparedKey> = test_keys
            .iter()
            .map(|key| key.for_backend(backend))
            .collect();
        let inputs: Vec<Vec<u8>> = test_keys.iter().map(random_input).collect();
        let (outcomes, outputs) = run(&mut workspace, &keys, &inputs);
        for (lane, exponent) in exponents.into_iter().enumerate() {
            assert_eq!(outcomes[lane], Ok(()), "{backend:?}, e = {exponent}");
            assert!(outputs[lane] == test_keys[lane].expected(&inputs[lane]));
        }
    }
}

#[test]
fn wrong_lengths_fail_alone() {
    let mut workspace = Workspace::new();
    let test_key = generate(Size::Rsa2048);
    for backend in Backend::available() {
        let key = test_key.for_backend(backend);
        let input = random_input(&test_key);
        let (long_input, mut long_output) = (vec![0; 257], vec![0xa5; 257]);
        let mut outputs = [[0xa5; 256]; 3];
        let mut short_output = [0xa5; 255];
        let [output0, output1, output2] = &mut outputs;
        let outcomes = private_operations(
            backend,
            &mut workspace,
            Size::Rsa2048,
            &mut [
                PrivateOperation {
                    key: &key,
                    input: &input[1..],
                    output: output0,
                },
                PrivateOperation {
                    key: &key,
                    input: &long_input,
                    output: output1,
                },
                PrivateOperation {
                    key: &key,
                    input: &input,
                    output: &mut short_output,
                },
                PrivateOperation {
                    key: &key,
                    input: &input,
                    output: output2,
                },
                PrivateOperation {
                    key: &key,
                    input: &input,
                    output: &mut long_output,
                },
            ],
        );
        assert_eq!(
            outcomes[..],
            [
                Err(OperationError::InputLength),
                Err(OperationError::InputLength),
                Err(OperationError::OutputLength),
                Ok(()),
                Err(OperationError::OutputLength),
            ]
        );
        assert_eq!(outputs[0], [0; 256]);
        assert_eq!(short_output, [0; 255]);
        assert!(outputs[2][..] == test_key.expected(&input));

        let mut output = [0xa5; 256];
        let mut alone = [PrivateOperation {
            key: &key,
            input: &[],
            output: &mut output,
        }];
        let outcomes = private_operations(backend, &mut workspace, Size::Rsa2048, &mut alone);
        assert_eq!(outcomes[..], [Err(OperationError::InputLength)]);
    }
}

/// Every number of live lanes, or the extremes alone if the portable backend takes long.
fn live_lanes(backend: Backend, size: Size) -> Vec<usize> {
    match (backend, size) {
        (Backend::Portable, Size::Rsa3072 | Size::Rsa4096) => vec![1, LANES],
        _ => (1..=LANES).collect(),
    }
}

/// A random number below the modulus.
fn random_input(key: &TestKey) -> Vec<u8> {
    let mut input = BigNum::new().expect("memory");
    key.0.n().rand_range(&mut input).expect("randomness");
    padded(&input, key.0.size() as usize)
}

/// Big-endian with leading zeros.
fn padded(number: &BigNumRef, length: usize) -> Vec<u8> {
    number
        .to_vec_padded(length as i32)
        .expect("that long at most")
}

fn generate(size: Size) -> TestKey {
    TestKey(Rsa::generate(size.bits() as u32).expect("a key"))
}
