//! Compression of content: by clients that speak to the engine as they like, and by event loops
//! through their device.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slipstream_accelerators::engine::protocol::layout::{BUFFERS_USED, SLOT_WORDS};
use slipstream_accelerators::engine::protocol::wire::{Content, Outcome};
use slipstream_accelerators::engine::{Device, Options};
use slipstream_accelerators::threaded::{Threaded, Trigger};
use slipstream_engine::Pace;
use slipstream_keys::rsa::Size;
use slipstream_keys::{Group, Handle};
use slipstream_offload::accelerator::{Accelerator, Health, Moment};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::pause::Never;
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_offload::{
    Answer, Class, Coding, Compression, Kind, Operation, Reason, Ticket, submit,
};
use slipstream_ring::Words;

use crate::client::{
    Client, PATIENCE, TestEngine, client_options, connect, options_with_buffers, padded, verifies,
    wait_until,
};
use crate::content::{decompress, decompress_chunk, noise, text};
use crate::processes::{self, Child};

const CHUNK: usize = 64 << 10;
const SIZE: Size = Size::Rsa2048;
const DEFLATE: Kind = Kind::Compress(Coding::Deflate);

#[test]
fn chunks_come_back_compressed() {
    let engine = TestEngine::start();
    let mut client = Client::new(engine.connect(), &options_with_buffers(3, CHUNK));
    let mut before = engine.status();
    for coding in Coding::ALL {
        for level in [1, 2, 6, 9] {
            for (is_last, content) in [
                (false, Vec::new()),
                (true, Vec::new()),
                (true, b"x".to_vec()),
                (false, text(1, 1001)),
                (false, text(2, CHUNK)),
                (true, text(3, CHUNK)),
                (true, noise(CHUNK)),
            ] {
                let chunk = compress(&mut client, coding, level, is_last, 1, &content);
                assert!(decompress_chunk(coding, &chunk, is_last) == content);
                let now = engine.status();
                assert_eq!(now.compressed_chunks, before.compressed_chunks + 1);
                assert_eq!(
                    now.content_bytes,
                    before.content_bytes + content.len() as u64
                );
                assert_eq!(
                    now.compressed_bytes,
                    before.compressed_bytes + chunk.len() as u64
                );
                before = now;
            }
        }
    }
    assert_eq!((before.batches, before.faults, before.refused), (0, 0, 0));
    assert!(before.compressed_bytes < before.content_bytes);
}

#[test]
fn chunks_can_be_joined() {
    let engine = TestEngine::start();
    let mut client = Client::new(engine.connect(), &options_with_buffers(4, CHUNK));
    let content = text(1, 4 * CHUNK - 1000);
    for coding in Coding::ALL {
        let mut stream = Vec::new();
        for (index, chunk) in content.chunks(CHUNK).enumerate() {
            stream.extend(compress(&mut client, coding, 1, index == 3, index, chunk));
        }
        assert!(decompress(coding, &stream) == content, "{coding:?}");
    }
}

/// Several clients ask at once, for content and signatures, while two threads compute.
#[test]
fn nothing_is_mixed_up() {
    const CLIENTS: usize = 4;
    const BUFFERS: usize = 16;
    let engine = TestEngine::with(|options| options.cores.push(options.cores[0]));
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| Client::new(engine.connect(), &options_with_buffers(BUFFERS, CHUNK)))
        .collect();
    let keys: Vec<Handle> = clients.iter().map(|client| client.register(SIZE)).collect();
    for round in 0..3 {
        let content = |client, index| text(1000 * round + 100 * client + index, CHUNK - index);
        for (number, client) in clients.iter_mut().enumerate() {
            for index in 0..BUFFERS {
                client.put(index, &content(number, index));
                let coding = Coding::ALL[index % 2];
                client.push_content(coding, &chunk(1, index, CHUNK - index));
                let message = padded(SIZE, index as u8);
                client.push(Kind::Rsa(SIZE), keys[number], &message, &[]);
            }
            client.ring();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            for _ in 0..2 * BUFFERS {
                let response = client.wait();
                let place = (response.id - 1) as usize % (2 * BUFFERS);
                let index = place / 2;
                match response.outcome {
                    Outcome::Compressed(length) if place.is_multiple_of(2) => {
                        let chunk = client.get(index, length);
                        let coding = Coding::ALL[index % 2];
                        assert!(decompress_chunk(coding, &chunk, true) == content(number, index));
                    }
                    Outcome::Computed(signature) if place % 2 == 1 => {
                        let message = padded(SIZE, index as u8);
                        assert!(verifies(SIZE, &message, signature.as_slice()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    let status = engine.status();
    let chunks = 3 * (CLIENTS * BUFFERS) as u64;
    assert_eq!((status.compressed_chunks, status.faults), (chunks, 0));
    let in_lanes: u64 = (1..)
        .zip(status.fill)
        .map(|(live, count)| live * count)
        .sum();
    assert_eq!(in_lanes, chunks, "as many signatures");
}

#[test]
fn what_cannot_be_compressed_is_refused() {
    let engine = TestEngine::start();
    let mut client = Client::new(engine.connect(), &options_with_buffers(2, CHUNK));
    let good = chunk(1, 1, CHUNK);
    for (coding, content) in [
        (Coding::Deflate, Content { level: 0, ..good }),
        (Coding::Deflate, Content { level: 10, ..good }),
        (Coding::Zstd, Content { level: 0, ..good }),
        (Coding::Zstd, Content { level: 255, ..good }),
        (Coding::Deflate, Content { buffer: 2, ..good }),
        (
            Coding::Deflate,
            Content {
                buffer: usize::MAX,
                ..good
            },
        ),
        (
            Coding::Deflate,
            Content {
                length: CHUNK + 1,
                ..good
            },
        ),
        (
            Coding::Deflate,
            Content {
                length: usize::MAX,
                ..good
            },
        ),
    ] {
        client.push_content(coding, &content);
        client.ring();
        let outcome = client.wait().outcome;
        assert!(
            matches!(outcome, Outcome::Refused),
            "{content:?}: {outcome:?}"
        );
    }
    // A thread would be busy with it for too long.
    let mut long = Client::new(engine.connect(), &options_with_buffers(1, 1 << 20));
    for (level, length, is_refused) in [
        (4, (256 << 10) + 1, true),
        (19, 1 << 20, true),
        (10, 256 << 10, true),
        (9, 256 << 10, false),
        (3, 1 << 20, false),
    ] {
        long.push_content(Coding::Zstd, &chunk(level, 0, length));
        long.ring();
        let outcome = long.wait().outcome;
        assert_eq!(
            matches!(outcome, Outcome::Refused),
            is_refused,
            "{level} {length}"
        );
    }
    // Without buffers there is none to be named.
    let mut other = engine.client();
    other.push_content(Coding::Deflate, &chunk(1, 0, 0));
    other.ring();
    assert!(matches!(other.wait().outcome, Outcome::Refused));
    client.push_content(Coding::Deflate, &good);
    client.ring();
    assert!(matches!(client.wait().outcome, Outcome::Compressed(_)));
}

#[test]
fn slots_that_cannot_be_end_the_instance() {
    let engine = TestEngine::start();
    for (place, value) in [(2, 256), (3, 2), (3, u64::MAX)] {
        let mut client = Client::new(engine.connect(), &options_with_buffers(2, CHUNK));
        let mut slot = [0; SLOT_WORDS];
        slot[1] = DEFLATE.wire();
        slot[2] = 1;
        slot[place] = value;
        assert_eq!(client.instance.requests.push(&slot), Ok(true));
        client.ring();
        wait_until(|| {
            matches!(client.connection.receive(), Err(error)
            if error.kind() != std::io::ErrorKind::WouldBlock)
        });
    }
    assert_eq!(engine.status().malformed_rings, 3);
}

/// It names a buffer many times, and writes to it all the while. What it gets is its own business.
#[test]
fn a_client_that_abuses_its_buffers_harms_only_itself() {
    let engine = TestEngine::with(|options| options.cores.push(options.cores[0]));
    let mut witness = Client::new(engine.connect(), &options_with_buffers(2, CHUNK));
    let mut client = Client::new(engine.connect(), &options_with_buffers(1, CHUNK));
    let buffer = client.layout.buffer(0);
    for round in 0..20 {
        for _ in 0..16 {
            client.push_content(Coding::ALL[round % 2], &chunk(1, 0, CHUNK));
        }
        client.ring();
        let content = text(round, CHUNK);
        witness.put(0, &content);
        witness.push_content(Coding::Deflate, &chunk(1, 0, CHUNK));
        witness.ring();
        for word in &client.instance.memory.words()[buffer.clone()] {
            word.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        }
        let Outcome::Compressed(length) = witness.wait().outcome else {
            panic!("the witness has noticed");
        };
        let chunk = witness.get(0, length);
        assert!(decompress_chunk(Coding::Deflate, &chunk, true) == content);
        for _ in 0..16 {
            assert!(matches!(client.wait().outcome, Outcome::Compressed(_)));
        }
    }
    assert_eq!(engine.status().malformed_rings, 0);
}

#[test]
fn what_a_client_leaves_behind_is_wiped() {
    let engine = TestEngine::start();
    for used in [2, u64::MAX] {
        let mut client = Client::new(engine.connect(), &options_with_buffers(2, CHUNK));
        compress(&mut client, Coding::Deflate, 1, true, 0, &text(1, CHUNK));
        client.put(1, &text(1, CHUNK));
        let (memory, layout) = (client.instance.memory.clone(), client.layout);
        memory.words()[BUFFERS_USED].store(used, Ordering::Relaxed);
        drop(client);
        engine.wait_until(|status| status.instances == 0);
        for index in 0..2 {
            let words = &memory.words()[layout.buffer(index)];
            wait_until(|| words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }
}

#[test]
fn a_device_compresses_more_chunks_than_it_has_buffers() {
    let engine = TestEngine::start();
    install(device(&engine, options_with_buffers(3, CHUNK)));
    let contents: Vec<Arc<Vec<u8>>> = (0..50)
        .map(|seed| Arc::new(text(seed, CHUNK - 100 * seed)))
        .collect();
    let tickets: Vec<Ticket> = contents
        .iter()
        .map(|content| ask(content.clone()))
        .collect();
    assert_eq!(in_flight(), 50);
    let answers = answers(&tickets);
    for (content, answer) in contents.iter().zip(answers) {
        assert!(decompress(Coding::Deflate, &compressed(answer)) == **content);
    }
    let counters = instance::with(|instance| instance.counters().clone()).expect("an instance");
    assert_eq!(counters.device_operations[DEFLATE.index()], 50);
    assert_eq!(counters.retried, 47);
    assert_eq!(in_flight(), 0);
}

#[test]
fn a_device_takes_what_fits() {
    let engine = TestEngine::start();
    install(device(&engine, options_with_buffers(1, CHUNK)));
    let too_long = submit(operation(Arc::new(vec![0; CHUNK + 1])), &Never);
    assert_eq!(too_long.err(), Some(Reason::NotOffered));
    install(device(&engine, client_options()));
    let without_buffers = submit(operation(Arc::default()), &Never);
    assert_eq!(without_buffers.err(), Some(Reason::NotOffered));
}

#[test]
fn a_polling_thread_compresses_too() {
    let engine = TestEngine::start();
    let device = device(&engine, options_with_buffers(3, CHUNK));
    install(Threaded::new(Box::new(device), Trigger::Requests).expect("a thread"));
    let content = Arc::new(text(5, CHUNK));
    let mut tickets: Vec<Ticket> = (0..20).map(|_| ask(content.clone())).collect();
    // The thread finds out that this does not fit.
    tickets.push(ask(Arc::new(vec![0; CHUNK + 1])));
    let mut answers = answers(&tickets);
    let last = answers.pop().expect("an answer");
    assert!(
        matches!(last, Answer::Software(Reason::NotOffered)),
        "{last:?}"
    );
    for answer in answers {
        assert!(decompress(Coding::Deflate, &compressed(answer)) == *content);
    }
}

/// All buffers are taken for good; what fits into slots goes on.
#[test]
fn content_that_waits_for_a_buffer_keeps_nothing_else_waiting() {
    let engine = TestEngine::with(|options| options.pace = Some(stuck()));
    for is_threaded in [false, true] {
        let device = device(&engine, options_with_buffers(2, CHUNK));
        match is_threaded {
            true => install(Threaded::new(Box::new(device), Trigger::Requests).expect("a thread")),
            false => install(device),
        }
        let content = Arc::new(text(1, CHUNK));
        let tickets: Vec<Ticket> = (0..5).map(|_| ask(content.clone())).collect();
        for _ in 0..3 {
            let pair = submit(Operation::KeyPair(Group::X25519), &Never).expect("taken over");
            assert!(matches!(answers(&[pair]).remove(0), Answer::Computed(_)));
        }
        assert!(tickets.iter().all(|ticket| ticket.take().is_none()));
        assert_eq!(in_flight(), 5);
        instance::uninstall();
    }
}

/// A job that goes away leaves its chunks in flight; their buffers come back with the answers.
#[test]
fn buffers_of_orphans_come_back() {
    let engine = TestEngine::start();
    install(device(&engine, options_with_buffers(2, CHUNK)));
    let content = Arc::new(text(1, CHUNK));
    for _ in 0..5 {
        drop([ask(content.clone()), ask(content.clone())]);
        let answer = answers(&[ask(content.clone())]).remove(0);
        assert!(decompress(Coding::Deflate, &compressed(answer)) == *content);
    }
    assert_eq!(Arc::strong_count(&content), 1);
}

#[test]
fn nothing_is_compressed_earlier_than_by_the_card() {
    let mut pace = Pace::dh8970(1);
    pace.compression_engines = 2;
    let latency = pace.latencies[DEFLATE.index()] + 64 * pace.kibibyte;
    let engine = TestEngine::with(|options| options.pace = Some(pace));
    install(device(&engine, options_with_buffers(6, CHUNK)));
    let content = Arc::new(text(1, CHUNK));
    let start = Instant::now();
    let tickets: Vec<Ticket> = (0..6).map(|_| ask(content.clone())).collect();
    for answer in answers(&tickets) {
        assert!(decompress(Coding::Deflate, &compressed(answer)) == *content);
    }
    // Two at a time.
    assert!(start.elapsed() >= 3 * latency);
}

#[test]
fn clients_that_are_killed_take_nothing_from_others() {
    let engine = TestEngine::start();
    let mut survivor = Client::new(engine.connect(), &options_with_buffers(4, CHUNK));
    for round in 0..8 {
        let mut victim = Child::start("compression::keeps_submitting", &engine.socket, None);
        assert_eq!(victim.line(), "submitting");
        // At another point each time.
        std::thread::sleep(Duration::from_micros(700 * round));
        victim.kill();
        for buffer in 0..4 {
            let content = text(buffer, CHUNK);
            let chunk = compress(&mut survivor, Coding::Zstd, 1, true, buffer, &content);
            assert!(decompress(Coding::Zstd, &chunk) == content);
        }
    }
    engine.wait_until(|status| (status.connections, status.instances) == (1, 1));
    assert_eq!(engine.status().malformed_rings, 0, "to die is no crime");
}

/// Runs in a process of its own, until it is killed.
#[test]
#[ignore = "a part of another test"]
fn keeps_submitting() {
    let Some(socket) = processes::socket() else {
        return;
    };
    let connection = connect(&socket).expect("an engine that listens");
    let mut client = Client::new(connection, &options_with_buffers(16, CHUNK));
    for buffer in 0..16 {
        client.put(buffer, &text(buffer, CHUNK));
        client.push_content(Coding::Deflate, &chunk(1, buffer, CHUNK));
    }
    client.ring();
    processes::say("submitting");
    loop {
        let buffer = (client.wait().id - 1) as usize % 16;
        client.put(buffer, &text(buffer, CHUNK));
        client.push_content(Coding::Deflate, &chunk(1, buffer, CHUNK));
        client.ring();
    }
}

#[test]
fn what_is_in_flight_at_an_engine_that_is_killed_is_left_to_software() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("engine.sock");
    let mut engine = Child::start("compression::is_an_engine", &socket, None);
    assert_eq!(engine.line(), "ready");
    let options = options_with_buffers(4, CHUNK);
    let device = Device::new(socket, options, PATIENCE).expect("descriptors");
    assert_eq!(device.health(), Health::Ready);
    install(device);
    let content = Arc::new(text(1, CHUNK));
    // More than there are buffers.
    let tickets: Vec<Ticket> = (0..6).map(|_| ask(content.clone())).collect();
    engine.kill();
    for answer in answers(&tickets) {
        assert!(
            matches!(answer, Answer::Software(Reason::Lost)),
            "{answer:?}"
        );
    }
    assert_eq!(in_flight(), 0);
    let gone = submit(operation(content), &Never);
    assert_eq!(gone.err(), Some(Reason::NotOffered));
}

/// Runs in a process of its own, until it is killed. It never answers for content.
#[test]
#[ignore = "a part of another test"]
fn is_an_engine() {
    let Some(socket) = processes::socket() else {
        return;
    };
    let mut options = crate::client::options(&socket);
    options.pace = Some(stuck());
    let _engine = slipstream_engine::Engine::start(options).expect("an engine");
    processes::say("ready");
    std::thread::sleep(PATIENCE);
}

/// A card that takes ten minutes for content.
fn stuck() -> Pace {
    let mut pace = Pace::dh8970(1);
    for coding in Coding::ALL {
        pace.latencies[Kind::Compress(coding).index()] = Duration::from_secs(600);
    }
    pace
}

fn chunk(level: u8, buffer: usize, length: usize) -> Content {
    Content {
        level,
        is_last: true,
        buffer,
        length,
    }
}

/// Has a client's content compressed, and waits for it.
fn compress(
    client: &mut Client,
    coding: Coding,
    level: u8,
    is_last: bool,
    buffer: usize,
    content: &[u8],
) -> Vec<u8> {
    client.put(buffer, content);
    let chunk = chunk(level, buffer, content.len());
    let id = client.push_content(coding, &Content { is_last, ..chunk });
    client.ring();
    let response = client.wait();
    assert_eq!(response.id, id);
    match response.outcome {
        Outcome::Compressed(length) => client.get(buffer, length),
        other => panic!("{other:?}"),
    }
}

fn device(engine: &TestEngine, options: Options) -> Device {
    let path = engine.socket.clone();
    let device = Device::new(path, options, PATIENCE).expect("descriptors");
    assert_eq!(device.health(), Health::Ready);
    device
}

fn install(accelerator: impl Accelerator + 'static) {
    let scheduler = Scheduler {
        flush: FlushPolicy::AtLeast(1),
        ..Scheduler::default()
    };
    let instance = Instance::new(vec![Box::new(accelerator)], scheduler, 64);
    instance::install(instance.expect("an instance"));
}

fn operation(content: Arc<Vec<u8>>) -> Operation {
    Operation::Compress(Compression {
        coding: Coding::Deflate,
        level: 1,
        is_last: true,
        content,
    })
}

fn ask(content: Arc<Vec<u8>>) -> Ticket {
    submit(operation(content), &Never).expect("taken over")
}

fn in_flight() -> usize {
    let count = instance::with(|instance| instance.in_flight(Class::Compression));
    count.expect("an instance")
}

/// Polls until all of them are there.
fn answers(tickets: &[Ticket]) -> Vec<Answer> {
    let start = Instant::now();
    let mut answers: Vec<Option<Answer>> = tickets.iter().map(|_| None).collect();
    while answers.iter().any(Option::is_none) {
        assert!(start.elapsed() < PATIENCE, "{answers:?}");
        instance::with(|instance| instance.poll(Moment::Idle));
        for (ticket, answer) in tickets.iter().zip(&mut answers) {
            *answer = answer.take().or_else(|| ticket.take());
        }
        std::thread::yield_now();
    }
    answers.into_iter().flatten().collect()
}

fn compressed(answer: Answer) -> Vec<u8> {
    match answer {
        Answer::Computed(output) => output.into_content(),
        other => panic!("{other:?}"),
    }
}
