//! The NIST curves. Secret are private keys, nonces and shared secrets.

use slipstream_keys::ec::PrivateKey;
use slipstream_keys::example::example_point;
use slipstream_lanes::ec::{
    Curve, PreparedKey, PublicKey, SharedSecret, Signature, public_keys, shared_secrets, signatures,
};
use slipstream_lanes::{Backend, LANES, Outcomes};

use crate::trace::Subject;
use crate::{COUNTS, expect_constant_time, is_available};

#[test]
fn public_keys_in_ifma() {
    test("public keys", |batch| {
        let (bytes, count) = (batch.curve.point_bytes(), batch.count);
        let mut privates = batch.privates.iter();
        let mut operations = batch.results.each_mut().map(|public| PublicKey {
            private: privates.next().expect("one for each lane"),
            public: &mut public[..bytes],
        });
        public_keys(Backend::Ifma, batch.curve, &mut operations[..count])
    });
}

#[test]
fn shared_secrets_in_ifma() {
    test("shared secrets", |batch| {
        let (bytes, count) = (batch.curve.bytes(), batch.count);
        let mut privates = batch.privates.iter();
        let mut operations = batch.results.each_mut().map(|secret| SharedSecret {
            private: privates.next().expect("one for each lane"),
            peer: &batch.peer,
            secret: &mut secret[..bytes],
        });
        shared_secrets(Backend::Ifma, batch.curve, &mut operations[..count])
    });
}

#[test]
fn signatures_in_ifma() {
    test("signatures", |batch| {
        let (bytes, count) = (2 * batch.curve.bytes(), batch.count);
        let mut inputs = batch.keys.iter().zip(&batch.nonces);
        let mut operations = batch.results.each_mut().map(|signature| {
            let (key, nonce) = inputs.next().expect("one for each lane");
            Signature {
                key,
                digest: &batch.digest,
                nonce,
                signature: &mut signature[..bytes],
            }
        });
        signatures(Backend::Ifma, batch.curve, &mut operations[..count])
    });
}

fn test(name: &str, kernel: fn(&mut Batch) -> Outcomes) {
    if !is_available(Backend::Ifma) {
        return;
    }
    for curve in [Curve::P256, Curve::P384] {
        for count in COUNTS {
            let mut batch = Batch::new(curve, count, kernel);
            expect_constant_time(&format!("{count} {name} on {curve:?}"), &mut batch);
        }
    }
}

/// The longest result, a public key of P-384.
const LONGEST: usize = 97;

/// A batch of `count` operations.
struct Batch {
    kernel: fn(&mut Batch) -> Outcomes,
    curve: Curve,
    count: usize,
    privates: Vec<Vec<u8>>,
    nonces: Vec<Vec<u8>>,
    keys: Vec<PreparedKey>,
    peer: Vec<u8>,
    digest: Vec<u8>,
    results: [[u8; LONGEST]; LANES],
    /// The results of the run before.
    previous: [[u8; LONGEST]; LANES],
    outcomes: Option<Outcomes>,
}

impl Batch {
    fn new(curve: Curve, count: usize, kernel: fn(&mut Batch) -> Outcomes) -> Self {
        let scalars = || vec![vec![1; curve.bytes()]; LANES];
        let keys = scalars()
            .iter()
            .map(|private| prepare(curve, private))
            .collect();
        Batch {
            kernel,
            curve,
            count,
            privates: scalars(),
            nonces: scalars(),
            keys,
            peer: example_point(curve),
            digest: vec![0xd1; curve.bytes()],
            results: [[0; LONGEST]; LANES],
            previous: [[0; LONGEST]; LANES],
            outcomes: None,
        }
    }
}

impl Subject for Batch {
    fn set_secrets(&mut self, second: bool) {
        self.previous = self.results;
        for lane in 0..LANES {
            set(&mut self.privates[lane], 0x5a + lane as u8, second);
            set(&mut self.nonces[lane], 0x39 + lane as u8, second);
            self.keys[lane] = prepare(self.curve, &self.privates[lane]);
        }
    }

    fn compute(&mut self) {
        self.outcomes = Some((self.kernel)(self));
    }

    fn is_sound(&self) -> bool {
        let all_ok = |outcomes: Outcomes| outcomes.iter().all(Result::is_ok);
        let is_new = self.previous[..self.count] != self.results[..self.count];
        self.outcomes.is_some_and(all_ok) && is_new
    }
}

/// Sets a scalar below every order, and one that differs from it in every bit but a few.
fn set(scalar: &mut [u8], value: u8, second: bool) {
    scalar.fill(if second { !value } else { value });
    scalar[0] = if second { 0xa5 } else { 0x5a };
}

fn prepare(curve: Curve, private: &[u8]) -> PreparedKey {
    PreparedKey::new(&PrivateKey::new(curve, private).expect("a private key"))
}
