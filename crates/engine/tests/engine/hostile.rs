//! Clients that break the rules end themselves, and nobody else.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use slipstream_accelerators::engine::protocol::layout::{Layout, SLOT_WORDS};
use slipstream_accelerators::engine::protocol::message::{MESSAGE_BYTES, ToClient, ToEngine};
use slipstream_accelerators::engine::{Connection, protocol::socket};
use slipstream_keys::Handle;
use slipstream_keys::rsa::Size;
use slipstream_offload::{Coding, Kind};
use slipstream_ring::Words;

use crate::client::{
    Client, PATIENCE, TestEngine, client_options, options_with_buffers, padded, register, verifies,
    wait_until,
};

const SIZE: Size = Size::Rsa2048;

/// A client that keeps the rules, and must not notice.
struct Witness {
    client: Client,
    key: Handle,
}

impl Witness {
    fn new(engine: &TestEngine) -> Self {
        let client = engine.client();
        let key = client.register(SIZE);
        Self { client, key }
    }

    fn is_served(&mut self) {
        self.client.submit_rsa(SIZE, self.key, 3);
        assert!(verifies(SIZE, &padded(SIZE, 3), &self.client.computed().1));
    }
}

#[test]
fn impossible_counts_end_the_instance() {
    let engine = TestEngine::start();
    let mut witness = Witness::new(&engine);
    let layout = client_options().layout;
    let tail = layout.requests().tail;
    for (number, count) in [65, u64::MAX, 1 << 32, 1 << 63].into_iter().enumerate() {
        let client = engine.client();
        client.instance.memory.words()[tail].store(count, Ordering::Relaxed);
        client.ring();
        assert_ended(&client);
        assert_eq!(engine.status().malformed_rings, number as u64 + 1);
        witness.is_served();
    }
    // Responses that were never there cannot have been read.
    let head = layout.responses().head;
    for count in [2, u64::MAX] {
        let mut client = engine.client();
        let key = client.register(SIZE);
        client.instance.memory.words()[head].store(count, Ordering::Relaxed);
        client.submit_rsa(SIZE, key, 1);
        assert_ended(&client);
        witness.is_served();
    }
    assert_eq!(engine.status().malformed_rings, 6);
    engine.wait_until(|status| status.instances == 1);
}

/// The count is taken back after the engine has relied on it.
#[test]
fn room_for_responses_that_is_taken_back_ends_the_instance() {
    let engine = TestEngine::start();
    let mut witness = Witness::new(&engine);
    let mut client = engine.client();
    let key = client.register(SIZE);
    // With the last of these it has to look whether there is room.
    for seed in 0..65 {
        client.submit_rsa(SIZE, key, seed);
        client.computed();
    }
    let head = client_options().layout.responses().head;
    client.instance.memory.words()[head].store(3, Ordering::Relaxed);
    for seed in 0..64 {
        client.push(Kind::Rsa(SIZE), key, &padded(SIZE, seed), &[]);
    }
    client.ring();
    assert_ended(&client);
    witness.is_served();
}

#[test]
fn slots_of_random_bytes_end_the_instance_or_are_refused() {
    let engine = TestEngine::start();
    let mut witness = Witness::new(&engine);
    let options = options_with_buffers(4, 64 << 10);
    for round in 0..100 {
        let mut client = Client::new(engine.connect(), &options);
        let mut slot = [0_u64; SLOT_WORDS];
        for word in &mut slot {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).expect("randomness");
            *word = u64::from_ne_bytes(bytes);
        }
        if round % 2 == 0 {
            // Half of these name a kind, and lengths that can be.
            slot[1] %= 16;
            slot[3] %= 1024;
            slot[4] %= 64;
        } else {
            // And of these something that could be compressed.
            slot[1] = Kind::Compress(Coding::ALL[round / 2 % 2]).wire();
            slot[2] %= 20;
            slot[3] %= 2;
            slot[4] %= 6;
            slot[5] %= 80 << 10;
        }
        assert_eq!(client.instance.requests.push(&slot), Ok(true));
        client.ring();
        let is_answered = || {
            client.instance.memory.words()[options.layout.responses().tail].load(Ordering::Relaxed)
                == 1
        };
        let has_ended = || engine_has_closed(&client.connection);
        wait_until(|| is_answered() || has_ended());
        witness.is_served();
    }
    // Those of the witness are answered, too. Counted when they have been delivered.
    engine.wait_until(|status| status.responses + status.malformed_rings >= 200);
    let status = engine.status();
    assert!(status.malformed_rings > 0, "{status:?}");
    assert!(status.compressed_chunks > 0, "{status:?}");
}

#[test]
fn malformed_messages_close_the_connection() {
    let engine = TestEngine::start();
    let mut witness = Witness::new(&engine);
    let mut of_another_version = ToEngine::Open {
        layout: Layout::new(64).expect("a power of two"),
        weight: 1,
        aggregation: client_options().aggregation,
        token: None,
    }
    .write()
    .to_vec();
    of_another_version[1] ^= 0xff;
    let messages = [
        vec![99],
        vec![0; 100],
        vec![1; MESSAGE_BYTES],
        vec![2; MESSAGE_BYTES + 1],
        of_another_version,
    ];
    for (number, message) in messages.iter().enumerate() {
        let connection = engine.connect();
        socket::send(&connection, message, &[]).expect("room");
        let answer = loop {
            match connection.receive() {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::yield_now()
                }
                other => break other.expect("an answer").0,
            }
        };
        assert!(matches!(answer, ToClient::Refused(_)), "{answer:?}");
        wait_until(|| engine_has_closed(&connection));
        assert_eq!(engine.status().malformed_messages, number as u64 + 1);
    }
    witness.is_served();
}

#[test]
fn a_client_that_does_not_read_its_answers_is_closed() {
    let engine = TestEngine::start();
    let mut witness = Witness::new(&engine);
    let connection = engine.connect();
    let status = ToEngine::Status.write();
    wait_until(|| match socket::send(&connection, &status, &[]) {
        Ok(()) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    });
    engine.wait_until(|status| status.connections == 1);
    witness.is_served();
}

#[test]
fn descriptors_that_a_client_sends_are_not_kept() {
    let engine = TestEngine::start();
    let connection = engine.connect();
    // Not for the programs that other tests start meanwhile.
    let flags = rustix::pipe::PipeFlags::CLOEXEC;
    let (readable, writable) = rustix::pipe::pipe_with(flags).expect("a pipe");
    socket::send(&connection, &ToEngine::Grant.write(), &[writable.as_fd()]).expect("room");
    drop(writable);
    wait_until(|| connection.receive().is_ok());
    // At the end of the file, since nobody has the other end any more.
    assert_eq!(rustix::io::read(&readable, &mut [0; 1]), Ok(0));
    register(&connection, SIZE);
}

#[test]
fn a_client_that_abuses_its_descriptors_harms_only_itself() {
    let engine = TestEngine::start();
    let mut witness = Witness::new(&engine);
    let mut client = engine.client();
    let key = client.register(SIZE);
    // What the two sides share of a descriptor would block now, and be full.
    for descriptor in [&client.instance.doorbell, &client.instance.event] {
        let flags = rustix::fs::fcntl_getfl(descriptor).expect("flags");
        rustix::fs::fcntl_setfl(descriptor, flags - rustix::fs::OFlags::NONBLOCK).expect("flags");
    }
    rustix::io::write(&client.instance.doorbell, &(u64::MAX - 1).to_ne_bytes()).expect("room");
    for round in 0..2000_u32 {
        client.instance.own_bell.arm();
        client.push(Kind::Rsa(SIZE), key, &padded(SIZE, 1), &[]);
        if round % 50 == 0 {
            witness.is_served();
        }
        while client.poll().is_none() {
            witness.is_served();
        }
    }
    witness.is_served();
}

#[test]
fn a_connection_has_one_instance() {
    let engine = TestEngine::start();
    let client = engine.client();
    let refused = client
        .connection
        .open(&client_options(), PATIENCE)
        .expect_err("a second");
    assert!(refused.to_string().contains("one instance"), "{refused}");
}

#[test]
fn there_is_a_limit_of_connections() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let needed = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, needed).expect("a higher limit");
    if limit.maximum.is_some_and(|maximum| maximum < 4096) {
        eprintln!("skipped: too few descriptors");
        return;
    }
    let engine = TestEngine::start();
    let mut connections = Vec::new();
    for _ in 0..1024 {
        wait_until(|| {
            // The queue of those that wait to be accepted may be full.
            engine.status().connections + 64 > connections.len() as u64
        });
        connections.push(engine.connect());
    }
    engine.wait_until(|status| status.connections == 1024);
    let refused = engine.connect().grant(PATIENCE).expect_err("one too many");
    assert_ne!(refused.kind(), std::io::ErrorKind::TimedOut, "{refused}");
    connections.pop();
    engine.wait_until(|status| status.connections == 1023);
    engine.connect().grant(PATIENCE).expect("room for one more");
}

fn assert_ended(client: &Client) {
    wait_until(|| engine_has_closed(&client.connection));
}

fn engine_has_closed(connection: &Connection) -> bool {
    match connection.receive() {
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}
