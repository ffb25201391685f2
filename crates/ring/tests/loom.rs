//! The ring and the bell under every interleaving of two threads, and every order of memory
//! accesses that the memory model allows: `RUSTFLAGS="--cfg loom" cargo test -p slipstream-ring
//! --test loom --release`.

#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use slipstream_ring::bell::Bell;
use slipstream_ring::ring::{Consumer, Geometry, Producer};
use slipstream_ring::{Word, Words};

const GEOMETRY: Geometry = Geometry {
    slots: 2,
    slot_words: 2,
    first: 3,
    tail: 0,
    head: 1,
};
const BELL: usize = 2;

struct Plain(Vec<Word>);

impl Words for Plain {
    fn words(&self) -> &[Word] {
        &self.0
    }
}

fn memory() -> Arc<Plain> {
    Arc::new(Plain((0..GEOMETRY.end()).map(|_| Word::new(0)).collect()))
}

/// Three slots through a ring of two: it is full on the way, and slots are used again.
#[test]
fn what_goes_in_comes_out_whole_and_in_order() {
    loom::model(|| {
        let memory = memory();
        let mut producer = Producer::new(memory.clone(), GEOMETRY);
        let mut consumer = Consumer::new(memory, GEOMETRY);
        let filler = thread::spawn(move || {
            for value in 1..=3 {
                while !producer.push(&[value, !value]).expect("sane counts") {
                    thread::yield_now();
                }
            }
        });
        for value in 1..=3 {
            let mut content = [0; 2];
            while !consumer.pop(&mut content).expect("sane counts") {
                thread::yield_now();
            }
            assert_eq!(content, [value, !value]);
        }
        filler.join().expect("no panic");
    });
}

/// A side that has armed its bell and then found nothing is woken for what comes later.
#[test]
fn a_sleeper_is_woken() {
    loom::model(|| {
        let memory = memory();
        let mut producer = Producer::new(memory.clone(), GEOMETRY);
        let mut consumer = Consumer::new(memory.clone(), GEOMETRY);
        let rings = {
            let bell = Bell::new(memory.clone(), BELL);
            thread::spawn(move || {
                assert_eq!(producer.push(&[7]), Ok(true));
                bell.must_ring()
            })
        };
        let bell = Bell::new(memory, BELL);
        bell.arm();
        let found = consumer.waiting().expect("sane counts") > 0;
        let rung = rings.join().expect("no panic");
        assert!(found || rung, "asleep, with a request in the ring");
    });
}
