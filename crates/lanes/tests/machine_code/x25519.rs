//! X25519. Secret are private keys and shared secrets.

use slipstream_lanes::x25519::{KEY_BYTES, PublicKey, SharedSecret, public_keys, shared_secrets};
use slipstream_lanes::{Backend, LANES, Outcomes};

use crate::trace::Subject;
use crate::{COUNTS, expect_constant_time, is_available};

type Key = [u8; KEY_BYTES];

/// A batch of `count` operations.
struct Batch {
    count: usize,
    privates: [Key; LANES],
    results: [Key; LANES],
    outcomes: Option<Outcomes>,
    /// The results of the run before.
    previous: [Key; LANES],
}

impl Batch {
    fn new(count: usize) -> Self {
        Batch {
            count,
            privates: [[0; KEY_BYTES]; LANES],
            results: [[0; KEY_BYTES]; LANES],
            outcomes: None,
            previous: [[0; KEY_BYTES]; LANES],
        }
    }

    fn set_secrets(&mut self, second: bool) {
        self.previous = self.results;
        for (lane, private) in self.privates.iter_mut().enumerate() {
            let value = 0x5a + lane as u8;
            private.fill(if second { !value } else { value });
        }
    }

    fn is_sound(&self) -> bool {
        let all_ok = |outcomes: Outcomes| outcomes.iter().all(Result::is_ok);
        self.outcomes.is_some_and(all_ok) && self.previous[0] != self.results[0]
    }
}

pub struct Generation(Batch);

impl Generation {
    pub fn new(count: usize) -> Self {
        Generation(Batch::new(count))
    }
}

impl Subject for Generation {
    fn set_secrets(&mut self, second: bool) {
        self.0.set_secrets(second);
    }

    fn compute(&mut self) {
        let Batch {
            privates,
            results,
            count,
            ..
        } = &mut self.0;
        let mut privates = privates.iter();
        let mut operations = results.each_mut().map(|public| PublicKey {
            private: privates.next().expect("one for each lane"),
            public,
        });
        self.0.outcomes = Some(public_keys(Backend::Ifma, &mut operations[..*count]));
    }

    fn is_sound(&self) -> bool {
        self.0.is_sound()
    }
}

struct Exchange {
    batch: Batch,
    peers: [Key; LANES],
}

impl Subject for Exchange {
    fn set_secrets(&mut self, second: bool) {
        self.batch.set_secrets(second);
    }

    fn compute(&mut self) {
        let Batch {
            privates,
            results,
            count,
            ..
        } = &mut self.batch;
        let mut inputs = privates.iter().zip(&self.peers);
        let mut operations = results.each_mut().map(|secret| {
            let (private, peer) = inputs.next().expect("one for each lane");
            SharedSecret {
                private,
                peer,
                secret,
            }
        });
        self.batch.outcomes = Some(shared_secrets(Backend::Ifma, &mut operations[..*count]));
    }

    fn is_sound(&self) -> bool {
        self.batch.is_sound()
    }
}

#[test]
fn public_keys_in_ifma() {
    if !is_available(Backend::Ifma) {
        return;
    }
    for count in COUNTS {
        let mut subject = Generation::new(count);
        expect_constant_time(&format!("{count} public keys on X25519"), &mut subject);
    }
}

#[test]
fn shared_secrets_in_ifma() {
    if !is_available(Backend::Ifma) {
        return;
    }
    let mut peers = [[9; KEY_BYTES]; LANES];
    for (lane, peer) in peers.iter_mut().enumerate() {
        peer[5] = lane as u8;
    }
    for count in COUNTS {
        let mut subject = Exchange {
            batch: Batch::new(count),
            peers,
        };
        expect_constant_time(&format!("{count} shared secrets on X25519"), &mut subject);
    }
}
