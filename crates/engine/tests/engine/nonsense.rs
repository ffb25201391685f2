//! Engines that break the rules: a device that talks nonsense is taken out, and every request that
//! waits for it is answered.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SocketAddrUnix, SocketFlags};
use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::message::ToClient;
use slipstream_accelerators::engine::protocol::wire::{
    Input, Outcome, Request, Response, Slot, read_request, write_response,
};
use slipstream_accelerators::engine::{Device, protocol::socket};
use slipstream_keys::Group;
use slipstream_offload::accelerator::{Accelerator, Health, Moment};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::pause::Never;
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{
    Answer, Coding, Compression, Kind, Operation, Output, Reason, Ticket, submit,
};
use slipstream_ring::memory::Memory;
use slipstream_ring::ring::{Consumer, Producer};

use crate::client::{PATIENCE, options_with_buffers};

/// An engine that serves one client.
struct FakeEngine {
    socket: PathBuf,
    thread: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl FakeEngine {
    /// An engine that answers the probe as it should be, and everything else with `answer`.
    fn start(layout: Layout, answer: impl Fn(&Request) -> Outcome + Send + 'static) -> Self {
        Self::with_probe(layout, move |request| match request.kind {
            Kind::X25519 => shared_secret(request),
            _ => answer(request),
        })
    }

    /// An engine that answers everything with `answer`, the probe too.
    fn with_probe(layout: Layout, answer: impl Fn(&Request) -> Outcome + Send + 'static) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("engine.sock");
        let listener = socket::new().expect("a socket");
        let address = SocketAddrUnix::new(&socket).expect("an address");
        rustix::net::bind(&listener, &address).expect("a name");
        rustix::net::listen(&listener, 1).expect("a listener");
        Self {
            socket,
            thread: thread::spawn(move || serve(&listener, layout, answer)),
            _directory: directory,
        }
    }
}

/// Serves one client until it goes.
fn serve(listener: &OwnedFd, layout: Layout, answer: impl Fn(&Request) -> Outcome) {
    let connection = loop {
        match rustix::net::accept_with(listener, SocketFlags::NONBLOCK) {
            Ok(connection) => break connection,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    let (memory, file) = Memory::create(layout.words()).expect("memory");
    let memory = Arc::new(memory);
    let (event, _bell) = rustix::pipe::pipe().expect("a pipe");
    let flags = rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&event, flags).expect("flags");
    let (_doorbell, doorbell) = rustix::pipe::pipe().expect("a pipe");
    let descriptors = [file.as_fd(), doorbell.as_fd(), event.as_fd()];
    socket::send(&connection, &ToClient::Opened.write(), &descriptors).expect("a client");
    let mut requests = Consumer::new(memory.clone(), layout.requests());
    let mut responses = Producer::new(memory, layout.responses());
    let mut packet = [0; 4096];
    loop {
        let received = rustix::net::recv(&connection, &mut packet[..], RecvFlags::DONTWAIT);
        if matches!(received, Ok((_, 0))) {
            return;
        }
        let mut slot = Slot::default();
        if !requests.pop(&mut slot.0).expect("a sane ring") {
            thread::sleep(Duration::from_micros(100));
            continue;
        }
        let request = read_request(&slot).expect("a sane request");
        let response = Response {
            id: request.id,
            outcome: answer(&request),
        };
        let words = write_response(&mut slot, &response);
        assert_eq!(responses.push(&slot.0[..words]), Ok(true));
    }
}

fn shared_secret(request: &Request) -> Outcome {
    use openssl::pkey::{Id, PKey};

    let Input::Operands { first, second, .. } = &request.input else {
        panic!("{request:?}");
    };
    let private = PKey::private_key_from_raw_bytes(first.as_slice(), Id::X25519).expect("a key");
    let peer = PKey::public_key_from_raw_bytes(second.as_slice(), Id::X25519).expect("a key");
    let mut deriver = openssl::derive::Deriver::new(&private).expect("a derivation");
    deriver.set_peer(&peer).expect("a peer");
    Outcome::Computed(Output::new(&deriver.derive_to_vec().expect("a secret")))
}

/// Asks for the compression of two chunks and for a key pair.
fn ask(engine: &FakeEngine) -> [Answer; 3] {
    let options = options_with_buffers(2, 4096);
    let device = Device::new(engine.socket.clone(), options, PATIENCE).expect("descriptors");
    assert_eq!(device.health(), Health::Ready);
    let instance = Instance::new(vec![Box::new(device)], Scheduler::default(), 64);
    instance::install(instance.expect("an instance"));
    let compression = Operation::Compress(Compression {
        coding: Coding::Deflate,
        level: 1,
        is_last: true,
        content: Arc::new(vec![7; 4096]),
    });
    let again = match &compression {
        Operation::Compress(compression) => Operation::Compress(compression.clone()),
        _ => unreachable!("as it was made"),
    };
    let pair = Operation::KeyPair(Group::X25519);
    let tickets = [compression, pair, again].map(|operation| submit(operation, &Never));
    let answers = tickets.map(|ticket| answer(&ticket.expect("taken over")));
    instance::uninstall();
    answers
}

fn answer(ticket: &Ticket) -> Answer {
    let start = Instant::now();
    loop {
        instance::with(|instance| instance.poll(Moment::Idle));
        if let Some(answer) = ticket.take() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "no answer");
    }
}

#[test]
fn a_device_that_answers_the_probe_wrongly_is_not_let_in() {
    let options = options_with_buffers(2, 4096);
    let probes: [fn(&Request) -> Outcome; 5] = [
        |_| Outcome::Computed(Output::zeroed(32)),
        |request| match shared_secret(request) {
            Outcome::Computed(secret) => Outcome::Computed(Output::new(&secret.as_slice()[..31])),
            other => other,
        },
        |_| Outcome::Compressed(32),
        |_| Outcome::Fault,
        |_| Outcome::Refused,
    ];
    for (number, probe) in probes.into_iter().enumerate() {
        let engine = FakeEngine::with_probe(options.layout, probe);
        let device = Device::new(engine.socket.clone(), options.clone(), PATIENCE);
        let mut device = device.expect("descriptors");
        assert_eq!(device.health(), Health::Failed, "{number}");
        assert!(!device.accepts(&Operation::KeyPair(Group::X25519)));
        engine.thread.join().expect("an engine that lives");
    }
}

#[test]
fn a_device_that_answers_nonsense_is_taken_out_and_all_are_answered() {
    let layout = options_with_buffers(2, 4096).layout;
    let too_long = layout.buffer_bytes() + 1;
    let answers: [fn(&Request, usize) -> Outcome; 4] = [
        |request, too_long| match request.kind {
            Kind::Compress(_) => Outcome::Compressed(too_long),
            _ => Outcome::Fault,
        },
        |request, _| match request.kind {
            Kind::Compress(_) => Outcome::Compressed(usize::MAX),
            _ => Outcome::Fault,
        },
        |request, _| match request.kind {
            Kind::Compress(_) => Outcome::Computed(Output::new(&[1, 2, 3])),
            _ => Outcome::Fault,
        },
        |request, _| match request.kind {
            Kind::Compress(_) => Outcome::Fault,
            _ => Outcome::Compressed(64),
        },
    ];
    for (number, outcome) in answers.into_iter().enumerate() {
        let engine = FakeEngine::start(layout, move |request| outcome(request, too_long));
        let answers = ask(&engine);
        let is_lost = |answer: &Answer| matches!(answer, Answer::Software(Reason::Lost));
        assert!(answers.iter().any(is_lost), "{number}: {answers:?}");
        assert!(
            answers
                .iter()
                .all(|answer| is_lost(answer) || matches!(answer, Answer::Software(Reason::Fault))),
            "{number}: {answers:?}"
        );
        engine.thread.join().expect("an engine that lives");
    }
}

/// The same one, when it keeps the rules: what is checked is not just refused.
#[test]
fn results_up_to_the_length_of_the_buffer_are_taken() {
    let layout = options_with_buffers(2, 4096).layout;
    let longest = layout.buffer_bytes();
    let engine = FakeEngine::start(layout, move |request| match request.kind {
        Kind::Compress(_) => Outcome::Compressed(longest),
        _ => Outcome::Fault,
    });
    let [first, pair, second] = ask(&engine);
    assert!(matches!(pair, Answer::Software(Reason::Fault)), "{pair:?}");
    for answer in [first, second] {
        let Answer::Computed(output) = answer else {
            panic!("{answer:?}");
        };
        // It has not even looked at the content.
        assert_eq!(output.as_slice().len(), longest);
        assert_eq!(output.as_slice()[..4096], [7; 4096]);
    }
    engine.thread.join().expect("an engine that lives");
}
