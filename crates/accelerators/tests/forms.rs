//! Forms of keys: lanes compute with keys that were prepared and with keys that were not, with
//! several backends in one process. A form is made once, and goes with its key.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use num_bigint::BigUint;
use slipstream_accelerators::lanes::{
    Backend, LANES, LaneCosts, Lanes, Options, computes, prepare,
};
use slipstream_keys::ec::{self, Curve};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{self, Size};
use slipstream_keys::{Key, Operand, PrivateKey};
use slipstream_offload::accelerator::{Accelerator, Moment};
use slipstream_offload::counters::Counters;
use slipstream_offload::request::Request;
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_offload::{Answer, JobToken, Kind, Notification, Operation, RequestId};

#[test]
fn rsa_keys_need_not_be_prepared() {
    for size in Size::ALL {
        let prepared = rsa_key(size);
        let not_prepared = rsa_key(size);
        for backend in backends() {
            assert!(prepare(backend, &PrivateKey::Rsa(prepared.clone())));
        }
        // Each backend finds its own form, whichever has computed with the key before.
        for backend in backends().into_iter().chain(backends()) {
            let mut lanes = lanes(backend);
            let (seeds, keys) = ([3, 5, 7], [&prepared, &not_prepared, &prepared]);
            let operations = keys.into_iter().zip(seeds);
            let operations = operations.map(|(key, seed)| rsa_operation(key, seed));
            let signatures = compute(&mut lanes, operations);
            for (signature, seed) in signatures.iter().zip(seeds) {
                let message = message(size, seed);
                assert!(verifies(size, &message, signature), "{backend:?} {size:?}");
            }
        }
    }
}

#[test]
fn forms_are_made_once_and_dropped_with_their_key() {
    let backends = backends();
    for is_prepared in [true, false] {
        for size in Size::ALL {
            let mut all: Vec<Lanes> = backends.iter().map(|backend| lanes(*backend)).collect();
            let mut sign_with_all = |key: &Arc<rsa::PrivateKey>| {
                for lanes in &mut all {
                    drop(compute(lanes, [rsa_operation(key, 3)]));
                }
            };
            // Queues and workspaces are allocated once.
            sign_with_all(&rsa_key(size));
            let before = live_bytes();

            let key = rsa_key(size);
            let without_forms = live_bytes();
            if is_prepared {
                for backend in &backends {
                    assert!(prepare(*backend, &PrivateKey::Rsa(key.clone())));
                }
            }
            let prepared = live_bytes();
            sign_with_all(&key);
            let with_forms = live_bytes();
            // Each form has at least the two primes and their exponents.
            let least = backends.len() * 2 * size.bytes();
            assert!(with_forms >= without_forms + least, "{size:?}");
            if is_prepared {
                assert_eq!(with_forms, prepared, "{size:?}: prepared again");
            }
            sign_with_all(&key);
            assert_eq!(live_bytes(), with_forms, "{size:?}: made again");
            drop(key);
            assert_eq!(live_bytes(), before, "{size:?}: left behind");
        }
    }
}

#[test]
fn the_form_of_an_ecdsa_key_is_dropped_with_it() {
    for backend in backends() {
        for curve in Curve::ALL {
            if !computes(backend, Kind::Ecdsa(curve)) {
                continue;
            }
            let mut lanes = lanes(backend);
            let mut sign = |key: &Arc<ec::PrivateKey>| {
                let operation = Operation::Ecdsa {
                    key: Key::Value(key.clone()),
                    digest: Operand::new(&DIGEST),
                };
                lanes.compute_at_once(&operation).expect("a signature");
            };
            let key = || {
                let scalar = vec![7; curve.bytes()];
                Arc::new(ec::PrivateKey::new(curve, &scalar).expect("in range"))
            };
            sign(&key());
            let before = live_bytes();
            let key = key();
            let without_form = live_bytes();
            sign(&key);
            let with_form = live_bytes();
            assert!(with_form >= without_form + curve.bytes(), "{curve:?}");
            sign(&key);
            assert_eq!(live_bytes(), with_form, "{curve:?}: made again");
            drop(key);
            assert_eq!(live_bytes(), before, "{curve:?}: left behind");
        }
    }
}

/// A job that goes away leaves its operation with the lanes, and the operation keeps the key.
#[test]
fn an_operation_keeps_its_key_and_the_form() {
    for backend in backends() {
        let mut lanes = lanes(backend);
        let size = Size::Rsa2048;
        let key = rsa_key(size);
        assert!(prepare(backend, &PrivateKey::Rsa(key.clone())));
        assert!(lanes.submit(request(1, rsa_operation(&key, 9))).is_ok());
        drop(key);
        let mut responses = Vec::new();
        lanes.poll(Moment::Idle, &mut responses, &mut Counters::default());
        let answer = responses.pop().map(|response| response.answer);
        let Some(Answer::Computed(signature)) = answer else {
            panic!("{answer:?}");
        };
        assert!(verifies(size, &message(size, 9), signature.as_slice()));
    }
}

/// Signatures are verified by OpenSSL.
#[cfg(feature = "system-openssl")]
mod signatures {
    use openssl::bn::BigNum;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::ecdsa::EcdsaSig;
    use openssl::nid::Nid;
    use openssl::pkey::Private;
    use slipstream_accelerators::lanes::{Workspace, batch};

    use super::*;

    #[test]
    fn ecdsa_keys_need_not_be_prepared() {
        let mut workspace = Workspace::new();
        for curve in Curve::ALL {
            let public = EcKey::generate(&openssl_group(curve)).expect("a key");
            let scalar = public.private_key().to_vec_padded(curve.bytes() as i32);
            let scalar = scalar.expect("a number below the order");
            let key = || Arc::new(ec::PrivateKey::new(curve, &scalar).expect("in range"));
            let (prepared, not_prepared) = (key(), key());
            for backend in backends() {
                let is_prepared = prepare(backend, &PrivateKey::Ec(prepared.clone()));
                assert_eq!(is_prepared, computes(backend, Kind::Ecdsa(curve)));
                if !is_prepared {
                    continue;
                }
                let mut lanes = lanes(backend);
                for key in [&prepared, &not_prepared] {
                    let operation = Operation::Ecdsa {
                        key: Key::Value(key.clone()),
                        digest: Operand::new(&DIGEST),
                    };
                    let at_once = lanes.compute_at_once(&operation).expect("a signature");
                    assert!(is_signed(&public, at_once.as_slice()), "{backend:?}");
                    let operations = std::iter::once(&operation);
                    let answer = batch::compute(backend, &mut workspace, operations).pop();
                    let Some(Answer::Computed(signature)) = answer else {
                        panic!("{answer:?}");
                    };
                    assert!(is_signed(&public, signature.as_slice()), "{backend:?}");
                    assert_ne!(signature.as_slice(), at_once.as_slice(), "the same nonce");
                }
            }
        }
    }

    /// Returns true if r and s are a signature of [`DIGEST`].
    fn is_signed(key: &EcKey<Private>, signature: &[u8]) -> bool {
        let (r, s) = signature.split_at(signature.len() / 2);
        let number = |bytes| BigNum::from_slice(bytes).expect("a number");
        let signature = EcdsaSig::from_private_components(number(r), number(s));
        let verified = signature.expect("a signature").verify(&DIGEST, key);
        verified.expect("a verification")
    }

    fn openssl_group(curve: Curve) -> EcGroup {
        let name = match curve {
            Curve::P256 => Nid::X9_62_PRIME256V1,
            Curve::P384 => Nid::SECP384R1,
        };
        EcGroup::from_curve_name(name).expect("a curve that OpenSSL knows")
    }
}

const DIGEST: [u8; 32] = [0x5a; 32];

/// The portable backend, and the best one of this CPU if that is another.
fn backends() -> Vec<Backend> {
    let detected = Backend::detect().filter(|backend| *backend != Backend::Portable);
    std::iter::once(Backend::Portable).chain(detected).collect()
}

fn lanes(backend: Backend) -> Lanes {
    Lanes::new(Options {
        backend,
        costs: LaneCosts::unknown(backend),
        scheduler: Scheduler {
            flush: FlushPolicy::AtLeast(1),
            ..Scheduler::default()
        },
        has_batches: true,
        key_pairs: LANES,
        nonces: LANES,
    })
}

fn rsa_key(size: Size) -> Arc<rsa::PrivateKey> {
    Arc::new(rsa::PrivateKey::new(&example_key(size).components).expect("a good key"))
}

fn rsa_operation(key: &Arc<rsa::PrivateKey>, seed: u8) -> Operation {
    Operation::Rsa {
        key: Key::Value(key.clone()),
        input: Operand::new(&message(key.size(), seed)),
    }
}

/// Something as long as the modulus, and less than it.
fn message(size: Size, seed: u8) -> Vec<u8> {
    let mut message = vec![seed; size.bytes()];
    message[0] = 0;
    message
}

/// The results of `operations`, computed in one batch.
fn compute(lanes: &mut Lanes, operations: impl IntoIterator<Item = Operation>) -> Vec<Vec<u8>> {
    let mut count = 0;
    for operation in operations {
        assert!(lanes.accepts(&operation), "{operation:?}");
        assert!(lanes.submit(request(count, operation)).is_ok());
        count += 1;
    }
    let mut responses = Vec::new();
    let mut counters = Counters::default();
    lanes.poll(Moment::Idle, &mut responses, &mut counters);
    assert_eq!((counters.batches, responses.len()), (1, count));
    let outputs = responses.into_iter().enumerate().map(|(number, response)| {
        assert_eq!(response.id, RequestId::numbered(number));
        match response.answer {
            Answer::Computed(output) => output.as_slice().to_vec(),
            other => panic!("{other:?}"),
        }
    });
    outputs.collect()
}

fn request(number: usize, operation: Operation) -> Request {
    Request {
        id: RequestId::numbered(number),
        operation,
        notification: Notification::ReadyQueue(JobToken(number)),
        deadline: None,
    }
}

/// Returns true if `signature` to the power of the public exponent is `message`.
fn verifies(size: Size, message: &[u8], signature: &[u8]) -> bool {
    let key = example_key(size).components;
    let number = BigUint::from_bytes_be;
    let (exponent, modulus) = (number(key.public_exponent), number(key.modulus));
    number(signature).modpow(&exponent, &modulus) == number(message)
}

thread_local! {
    static LIVE_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated and not freed. What another thread has freed counts too,
/// and no test here has another.
fn live_bytes() -> usize {
    LIVE_BYTES.get()
}

struct Counting;

// SAFETY: the system's allocator, and a count that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.set(LIVE_BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
