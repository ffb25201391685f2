//! Tests that need the inside of the module: damaged keys and wiped memory.

use openssl::rsa::{Padding, Rsa};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{Components, KeyError, PrivateKey};

use super::*;
use crate::LANES;

struct TestKey {
    openssl: Rsa<openssl::pkey::Private>,
    components: [Vec<u8>; 7],
}

impl TestKey {
    fn generate(bits: u32) -> TestKey {
        TestKey::from_openssl(Rsa::generate(bits).expect("a key"))
    }

    fn from_openssl(openssl: Rsa<openssl::pkey::Private>) -> TestKey {
        let components = [
            openssl.n().to_vec(),
            openssl.e().to_vec(),
            openssl.p().expect("p").to_vec(),
            openssl.q().expect("q").to_vec(),
            openssl.dmp1().expect("dP").to_vec(),
            openssl.dmq1().expect("dQ").to_vec(),
            openssl.iqmp().expect("qInv").to_vec(),
        ];
        TestKey {
            openssl,
            components,
        }
    }

    fn prepare(&self, backend: Backend) -> Result<PreparedKey, KeyError> {
        let [
            modulus,
            public_exponent,
            prime1,
            prime2,
            exponent1,
            exponent2,
            coefficient,
        ] = &self.components;
        let components = Components {
            modulus,
            public_exponent,
            prime1,
            prime2,
            exponent1,
            exponent2,
            coefficient,
        };
        let key = PrivateKey::new(&components)?;
        Ok(PreparedKey::new(backend, &key).expect("an available backend"))
    }

    fn expected(&self, input: &[u8]) -> Vec<u8> {
        let mut output = vec![0; input.len()];
        self.openssl
            .private_decrypt(input, &mut output, Padding::NONE)
            .expect("an input below the modulus");
        output
    }
}

fn input() -> Vec<u8> {
    (0..256_u32).map(|index| (index * 89 % 127) as u8).collect()
}

type Damage = (&'static str, fn(&mut PreparedKey));

/// A flipped bit in each number of a key, low and high.
const DAMAGES: [Damage; 20] = [
    ("n, low bit", |key| key.residue.modulus[0] ^= 2),
    ("n, high bit", |key| {
        *key.residue.modulus.last_mut().unwrap() ^= 1
    }),
    ("n, negated inverse", |key| key.residue.negated_inverse ^= 4),
    ("n, R^2", |key| key.residue.r_squared[3] ^= 1 << 20),
    ("e", |key| key.public_exponent ^= 2),
    ("p, low bit", |key| key.prime1.residue.modulus[0] ^= 2),
    ("p, even", |key| key.prime1.residue.modulus[0] ^= 1),
    ("p, high bit", |key| {
        *key.prime1.residue.modulus.last_mut().unwrap() ^= 1 << 5
    }),
    ("p, negated inverse", |key| {
        key.prime1.residue.negated_inverse ^= 1
    }),
    ("p, R^2", |key| key.prime1.residue.r_squared[0] ^= 1),
    ("p, R^3", |key| key.prime1.r_cubed[7] ^= 1 << 9),
    ("dP, low bit", |key| key.prime1.exponent[0] ^= 1),
    ("dP, high bit", |key| {
        *key.prime1.exponent.last_mut().unwrap() ^= 1 << 60
    }),
    ("q, low bit", |key| key.prime2.residue.modulus[0] ^= 4),
    ("q, high bit", |key| {
        *key.prime2.residue.modulus.last_mut().unwrap() ^= 1 << 6
    }),
    ("q, R^2", |key| key.prime2.residue.r_squared[5] ^= 8),
    ("q, R^3", |key| key.prime2.r_cubed[0] ^= 1),
    ("dQ", |key| key.prime2.exponent[4] ^= 1 << 33),
    ("qInv", |key| key.coefficient[9] ^= 1 << 11),
    ("q R mod n", |key| key.prime2_montgomery[2] ^= 1),
];

#[test]
fn a_damaged_key_yields_a_fault_and_zeros_and_harms_no_other_lane() {
    let test_key = TestKey::generate(2048);
    let input = input();
    let expected = test_key.expected(&input);
    let mut workspace = Workspace::new();
    for backend in Backend::available() {
        let sound = test_key.prepare(backend).expect("a sound key");
        for damages in DAMAGES.chunks(LANES - 1) {
            let damaged: Vec<PreparedKey> = damages
                .iter()
                .map(|(_, damage)| {
                    let mut key = test_key.prepare(backend).expect("a sound key");
                    damage(&mut key);
                    key
                })
                .collect();
            let mut outputs = [[0xa5; 256]; LANES];
            let mut operations: Vec<PrivateOperation<'_>> = damaged
                .iter()
                .chain([&sound])
                .zip(&mut outputs)
                .map(|(key, output)| PrivateOperation {
                    key,
                    input: &input,
                    output,
                })
                .collect();
            let outcomes =
                private_operations(backend, &mut workspace, Size::Rsa2048, &mut operations);
            for (lane, (name, _)) in damages.iter().enumerate() {
                assert_eq!(
                    outcomes[lane],
                    Err(OperationError::Fault),
                    "{backend:?}: {name}"
                );
                assert_eq!(outputs[lane], [0; 256], "{backend:?}: {name}");
            }
            assert_eq!(outcomes[damages.len()], Ok(()));
            assert!(outputs[damages.len()][..] == expected);
        }
    }
}

#[test]
fn the_workspace_is_zero_after_a_batch_whatever_the_outcome() {
    let test_key = TestKey::generate(2048);
    let input = input();
    for backend in Backend::available() {
        let mut key = test_key.prepare(backend).expect("a sound key");
        let mut workspace = Workspace::new();
        for expected in [Ok(()), Err(OperationError::Fault)] {
            let mut output = [0; 256];
            let mut operations = [PrivateOperation {
                key: &key,
                input: &input,
                output: &mut output,
            }];
            let outcomes =
                private_operations(backend, &mut workspace, Size::Rsa2048, &mut operations);
            assert_eq!(outcomes[..], [expected]);
            assert!(workspace.is_zero(), "{backend:?} {expected:?}");
            key.prime1.exponent[0] ^= 1;
        }
    }
}

#[test]
fn a_dropped_guard_wipes_the_memory() {
    let mut workspace = Workspace::new();
    // SAFETY: the portable vector needs no particular CPU.
    let mut guard = unsafe { workspace.memory::<crate::vector::Portable, 20, 40>() };
    guard.dirty();
    drop(guard);
    assert!(workspace.is_zero());
}

#[test]
fn leading_zeros_are_allowed() {
    let mut test_key = TestKey::generate(2048);
    for component in &mut test_key.components {
        component.splice(0..0, [0, 0, 0]);
    }
    let key = test_key.prepare(Backend::Portable).expect("a sound key");
    assert_eq!(key.size(), Size::Rsa2048);
    assert_eq!(key.modulus_bytes().len(), 256);
}

#[test]
fn exchanged_primes_are_a_key_too() {
    let test_key = TestKey::generate(2048);
    let mut exchanged = TestKey {
        components: test_key.components.clone(),
        openssl: test_key.openssl.clone(),
    };
    exchanged.components.swap(2, 3);
    exchanged.components.swap(4, 5);
    let [p, q] = [2, 3].map(|index| {
        openssl::bn::BigNum::from_slice(&exchanged.components[index]).expect("memory")
    });
    let mut inverse = openssl::bn::BigNum::new().expect("memory");
    let mut context = openssl::bn::BigNumContext::new().expect("memory");
    inverse.mod_inverse(&q, &p, &mut context).expect("coprime");
    exchanged.components[6] = inverse.to_vec();
    let input = input();
    for backend in Backend::available() {
        let key = exchanged.prepare(backend).expect("a sound key");
        let mut output = [0; 256];
        let mut operations = [PrivateOperation {
            key: &key,
            input: &input,
            output: &mut output,
        }];
        let outcomes = private_operations(
            backend,
            &mut Workspace::new(),
            Size::Rsa2048,
            &mut operations,
        );
        assert_eq!(outcomes[..], [Ok(())]);
        assert!(output[..] == test_key.expected(&input));
    }
}

#[test]
fn a_flipped_bit_in_any_component_is_refused() {
    let mut test_key = TestKey::generate(2048);
    for component in 0..test_key.components.len() {
        let last = test_key.components[component].len() - 1;
        for (byte, bit) in [(last, 1), (last, 2), (last / 2, 0x10), (0, 1)] {
            test_key.components[component][byte] ^= bit;
            let refused = test_key.prepare(Backend::Portable).is_err();
            assert!(refused, "component {component}, byte {byte}, bit {bit}");
            test_key.components[component][byte] ^= bit;
        }
    }
    test_key
        .prepare(Backend::Portable)
        .expect("a sound key again");
}

#[test]
fn unsupported_keys_are_refused_with_the_reason() {
    let error = |test_key: &TestKey| test_key.prepare(Backend::Portable).map(drop).unwrap_err();
    for bits in [1024, 2056, 2560] {
        assert_eq!(
            error(&TestKey::generate(bits)),
            KeyError::UnsupportedModulus,
            "{bits}"
        );
    }

    let mut test_key = TestKey::generate(2048);
    let exponents: [&[u8]; 6] = [
        &[],
        &[0],
        &[1],
        &[2],
        &[1, 0, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0, 1],
    ];
    for exponent in exponents {
        test_key.components[1] = exponent.to_vec();
        assert_eq!(
            error(&test_key),
            KeyError::UnsupportedPublicExponent,
            "{exponent:?}"
        );
    }

    // Any p and q of other lengths.
    let mut test_key = TestKey::generate(2048);
    test_key.components[2].insert(0, 1);
    assert_eq!(error(&test_key), KeyError::UnbalancedPrimes);
    let mut test_key = TestKey::generate(2048);
    test_key.components[3] = vec![3];
    assert_eq!(error(&test_key), KeyError::UnbalancedPrimes);

    // p = q.
    let mut test_key = TestKey::generate(2048);
    let mut prime = vec![0xff; 128];
    prime[1] = 0x17;
    let prime = openssl::bn::BigNum::from_slice(&prime).expect("memory");
    let square = &prime * &prime;
    test_key.components[0] = square.to_vec();
    test_key.components[2] = prime.to_vec();
    test_key.components[3] = prime.to_vec();
    assert_eq!(error(&test_key), KeyError::Inconsistent);

    // The inverse plus p.
    let mut test_key = TestKey::generate(2048);
    let [p, inverse] = [2, 6]
        .map(|index| openssl::bn::BigNum::from_slice(&test_key.components[index]).expect("memory"));
    test_key.components[6] = (&inverse + &p).to_vec();
    assert_eq!(error(&test_key), KeyError::Inconsistent);

    if !Backend::Ifma.is_available() {
        let components = example_key(Size::Rsa2048).components;
        let key = PrivateKey::new(&components).expect("a good key");
        let unavailable = PreparedKey::new(Backend::Ifma, &key).map(drop);
        assert_eq!(unavailable, Err(UnavailableBackend(Backend::Ifma)));
    }
}

#[test]
#[should_panic(expected = "one to eight operations")]
fn no_operation_is_too_few() {
    let workspace = &mut Workspace::new();
    let _ = private_operations(Backend::Portable, workspace, Size::Rsa2048, &mut []);
}

#[test]
#[should_panic(expected = "a key of another size or backend")]
fn a_key_of_another_size() {
    let key = TestKey::generate(2048)
        .prepare(Backend::Portable)
        .expect("a sound key");
    let mut operation = [PrivateOperation {
        key: &key,
        input: &input(),
        output: &mut [0; 256],
    }];
    let workspace = &mut Workspace::new();
    let _ = private_operations(Backend::Portable, workspace, Size::Rsa3072, &mut operation);
}

#[test]
fn every_backend_is_offered() {
    assert!(Backend::ALL.into_iter().all(offered));
}

#[test]
fn nothing_secret_is_printed() {
    let key = TestKey::generate(2048)
        .prepare(Backend::Portable)
        .expect("a sound key");
    assert_eq!(
        format!("{key:?}"),
        "PreparedKey { size: Rsa2048, backend: Portable, .. }"
    );
}

#[test]
fn a_small_stack_is_enough() {
    use std::thread;
    let test_key = TestKey::generate(2048);
    for backend in Backend::available() {
        let key = test_key.prepare(backend).expect("a sound key");
        let mut workspace = Workspace::new();
        let used = thread::scope(|scope| {
            let (key, workspace) = (&key, &mut workspace);
            scope
                .spawn(move || {
                    let mut output = [0; 256];
                    let input = input();
                    stack_use(|| {
                        let mut operations = [PrivateOperation {
                            key,
                            input: &input,
                            output: &mut output,
                        }];
                        let outcomes =
                            private_operations(backend, workspace, Size::Rsa2048, &mut operations);
                        assert!(outcomes[0].is_ok());
                    })
                })
                .join()
                .expect("no panic")
        });
        println!("{backend:?}: {used} bytes of stack");
        assert!(used < 16 << 10, "{backend:?}: {used} bytes of stack");
    }
}

/// Bytes of stack below this function's frame that `run` writes to.
#[inline(never)]
fn stack_use(run: impl FnOnce()) -> usize {
    const PAINTED: usize = 64 << 10;
    const PAINT: u8 = 0xd7;
    let bottom = paint::<PAINTED>(PAINT);
    run();
    let mut untouched = 0;
    // SAFETY: the painted memory is part of this thread's stack, below the frames in use.
    while unsafe { bottom.wrapping_add(untouched).read_volatile() } == PAINT {
        untouched += 1;
    }
    PAINTED - untouched
}

/// Fills memory below the caller's frame and returns its lowest address.
#[inline(never)]
fn paint<const BYTES: usize>(value: u8) -> *const u8 {
    let mut area = [0; BYTES];
    area.fill(value);
    core::hint::black_box(&area).as_ptr()
}
