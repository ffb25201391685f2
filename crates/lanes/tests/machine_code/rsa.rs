//! RSA. Secret are private keys, inputs and results.

use num_bigint::BigUint;
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{Components, PrivateKey};
use slipstream_lanes::rsa::{PreparedKey, PrivateOperation, Size, Workspace, private_operations};
use slipstream_lanes::{Backend, LANES, Outcomes};

use crate::trace::Subject;
use crate::{COUNTS, expect_constant_time, is_available};

#[test]
fn operations_of_2048_bits_in_ifma() {
    test(Backend::Ifma, &[Size::Rsa2048]);
}

#[test]
fn operations_of_2048_bits_in_avx512f() {
    test(Backend::Avx512, &[Size::Rsa2048]);
}

#[test]
#[ignore = "half a minute"]
fn longer_operations_in_ifma() {
    test(Backend::Ifma, &[Size::Rsa3072, Size::Rsa4096]);
}

#[test]
#[ignore = "minutes"]
fn longer_operations_in_avx512f() {
    test(Backend::Avx512, &[Size::Rsa3072, Size::Rsa4096]);
}

fn test(backend: Backend, sizes: &[Size]) {
    if !is_available(backend) {
        return;
    }
    for size in sizes {
        for count in COUNTS {
            let name = format!("{count} operations with {size:?} in {}", backend.name());
            expect_constant_time(&name, &mut Batch::new(backend, *size, count));
        }
    }
}

/// A batch of `count` operations.
struct Batch {
    backend: Backend,
    size: Size,
    count: usize,
    workspace: Box<Workspace>,
    /// Two keys with the same modulus: the primes are exchanged.
    sources: [PreparedKey; 2],
    keys: Vec<PreparedKey>,
    inputs: Vec<Vec<u8>>,
    results: Vec<Vec<u8>>,
    /// The results of the run before.
    previous: Vec<Vec<u8>>,
    outcomes: Option<Outcomes>,
}

impl Batch {
    fn new(backend: Backend, size: Size, count: usize) -> Self {
        let zeros = vec![vec![0; size.bytes()]; LANES];
        Batch {
            backend,
            size,
            count,
            workspace: Workspace::new(),
            sources: [key(backend, size, false), key(backend, size, true)],
            keys: (0..LANES).map(|_| key(backend, size, false)).collect(),
            inputs: zeros.clone(),
            results: zeros.clone(),
            previous: zeros,
            outcomes: None,
        }
    }
}

impl Subject for Batch {
    fn set_secrets(&mut self, second: bool) {
        for lane in 0..LANES {
            let source = &mut self.sources[usize::from(second ^ (lane % 2 == 1))];
            for (to, from) in self.keys[lane].secrets().zip(source.secrets()) {
                to.copy_from_slice(from);
            }
            let value = 0x5a ^ lane as u8;
            self.inputs[lane].fill(if second { !value } else { value });
            self.inputs[lane][0] = 0;
            self.previous[lane].copy_from_slice(&self.results[lane]);
        }
    }

    fn compute(&mut self) {
        let mut inputs = self.keys.iter().zip(&self.inputs).zip(&mut self.results);
        let mut operations: [_; LANES] = std::array::from_fn(|_| {
            let ((key, input), output) = inputs.next().expect("one for each lane");
            PrivateOperation { key, input, output }
        });
        self.outcomes = Some(private_operations(
            self.backend,
            &mut self.workspace,
            self.size,
            &mut operations[..self.count],
        ));
    }

    fn is_sound(&self) -> bool {
        let all_ok = |outcomes: Outcomes| outcomes.iter().all(Result::is_ok);
        let is_new = self.previous[..self.count] != self.results[..self.count];
        self.outcomes.is_some_and(all_ok) && is_new
    }
}

/// The example key, or the same with its primes exchanged.
fn key(backend: Backend, size: Size, is_exchanged: bool) -> PreparedKey {
    let components = &example_key(size).components;
    let [p, q] = [components.prime1, components.prime2].map(BigUint::from_bytes_be);
    let coefficient = p.modinv(&q).expect("different primes").to_bytes_be();
    let exchanged = Components {
        modulus: components.modulus,
        public_exponent: components.public_exponent,
        prime1: components.prime2,
        prime2: components.prime1,
        exponent1: components.exponent2,
        exponent2: components.exponent1,
        coefficient: &coefficient,
    };
    let components = if is_exchanged { &exchanged } else { components };
    let key = PrivateKey::new(components).expect("a sound key");
    PreparedKey::new(backend, &key).expect("an available backend")
}
