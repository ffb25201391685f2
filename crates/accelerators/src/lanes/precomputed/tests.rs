use std::sync::Arc;

use slipstream_keys::Key;

use super::super::machine::tests::{Devices, Dial, count_up};
use super::*;

const MOMENT: Duration = Duration::from_millis(1);

/// Pools that have given away one key pair and one nonce.
struct Fixture {
    dial: Dial,
    pools: Precomputed,
}

impl Fixture {
    fn new() -> Self {
        let dial = Dial::new();
        Self::with(dial.machine(), dial)
    }

    fn with(machine: Machine, dial: Dial) -> Self {
        let pools = Precomputed::new(Backend::Portable, machine, 2 * LANES, 2 * LANES);
        let pools = pools.expect("pools of the portable backend");
        let mut fixture = Self { dial, pools };
        fixture.sign();
        fixture.key_pair();
        assert_eq!(fixture.left(), (LANES - 1, LANES - 1));
        fixture
    }

    fn sign(&mut self) {
        let key = keys_ec::PrivateKey::new(Curve::P256, &[1; 32]).expect("in range");
        let operation = Operation::Ecdsa {
            key: Key::Value(Arc::new(key)),
            digest: Operand::new(&[2; 32]),
        };
        assert!(self.pools.compute(&operation).is_ok());
    }

    fn key_pair(&mut self) {
        let operation = Operation::KeyPair(Group::X25519);
        assert!(self.pools.compute(&operation).is_ok());
    }

    /// The nonces and the key pairs in the pools.
    fn left(&self) -> (usize, usize) {
        (self.pools.p256_nonces.len(), self.pools.x25519.len())
    }
}

#[test]
fn a_nonce_is_used_within_its_life() {
    let mut fixture = Fixture::new();
    fixture.dial.pass(NONCE_LIFE);
    fixture.sign();
    assert_eq!(fixture.left().0, LANES - 2);
    fixture.dial.pass(MOMENT);
    fixture.sign();
    assert_eq!(fixture.left().0, LANES - 1, "others than before");
}

#[test]
fn a_key_pair_is_used_within_its_life() {
    let mut fixture = Fixture::new();
    fixture.dial.pass(KEY_PAIR_LIFE);
    fixture.key_pair();
    assert_eq!(fixture.left().1, LANES - 2);
    fixture.dial.pass(MOMENT);
    fixture.key_pair();
    assert_eq!(fixture.left().1, LANES - 1, "others than before");
}

#[test]
fn values_of_several_ages_are_wiped_one_after_the_other() {
    let mut fixture = Fixture::new();
    fixture.dial.pass(KEY_PAIR_LIFE / 2);
    fixture.pools.top_up();
    assert_eq!(fixture.left().1, 2 * LANES - 1);
    fixture.dial.pass(KEY_PAIR_LIFE / 2 + MOMENT);
    assert_eq!(fixture.pools.expire(), Some(KEY_PAIR_LIFE / 2));
    assert_eq!(fixture.left().1, LANES);
}

#[test]
fn an_event_loop_that_sleeps_is_woken_until_nothing_is_left() {
    let mut fixture = Fixture::new();
    let first = fixture.pools.expire().expect("nonces are left");
    assert_eq!(first, NONCE_REST + MOMENT);
    assert_eq!(fixture.left(), (LANES - 1, LANES - 1));
    fixture.dial.pass(first);
    let second = fixture.pools.expire().expect("key pairs are left");
    assert_eq!(fixture.left(), (0, LANES - 1));
    fixture.dial.pass(second);
    assert_eq!(fixture.pools.expire(), None);
    assert_eq!(fixture.left(), (0, 0));
}

#[test]
fn nonces_that_are_asked_for_are_kept_for_their_life() {
    let mut fixture = Fixture::new();
    for _ in 0..5 {
        fixture.dial.pass(NONCE_REST - MOMENT);
        fixture.sign();
        assert_eq!(fixture.pools.expire(), Some(NONCE_REST + MOMENT));
    }
    assert_eq!(fixture.left().0, LANES - 6);
}

#[test]
fn a_clock_that_jumps_wipes_everything() {
    for jump in [Dial::suspend, Dial::set_back] {
        let mut fixture = Fixture::new();
        jump(&fixture.dial, Duration::from_millis(20));
        fixture.sign();
        assert_eq!(
            fixture.left(),
            (LANES - 1, 0),
            "nonces are others than before"
        );
        fixture.key_pair();
        jump(&fixture.dial, Duration::from_millis(20));
        assert_eq!(fixture.pools.expire(), None);
        assert_eq!(fixture.left(), (0, 0));
    }
}

#[test]
fn another_generation_of_the_machine_wipes_everything() {
    let devices = Devices::new();
    let vmclock = devices.counting_vmclock();
    let generation = Box::leak(Box::new(devices.open().expect("a clock")));
    let dial = Dial::new();
    let machine = Machine::with(dial.clocks(), Some(generation));
    let mut fixture = Fixture::with(machine, dial);
    count_up(&vmclock, 1);
    fixture.key_pair();
    assert_eq!(
        fixture.left(),
        (0, LANES - 1),
        "key pairs are others than before"
    );
    fixture.sign();
    fixture.sign();
    assert_eq!(fixture.left(), (LANES - 2, LANES - 1));
    count_up(&vmclock, 2);
    fixture.pools.top_up();
    assert_eq!(fixture.left(), (LANES, LANES), "made after that");
}
