//! An engine in a directory of its own, and clients of it.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use num_bigint::BigUint;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::CpuSet;
use slipstream_accelerators::engine::protocol::buffers;
use slipstream_accelerators::engine::protocol::layout::{BUFFERS_USED, CONCURRENCY, Layout};
use slipstream_accelerators::engine::protocol::message::Aggregation;
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::protocol::wire::{
    Content, Outcome, Response, Slot, read_response, write_content_request, write_request,
};
use slipstream_accelerators::engine::{self, Connection, EngineUser, Instance};
use slipstream_accelerators::lanes::Backend;
use slipstream_engine::{Engine, Options, Quotas, Status};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::Size;
use slipstream_keys::{Handle, KeyParts};
use slipstream_offload::{Coding, Kind};
use slipstream_ring::Words;

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

/// Much longer than anything takes, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An engine that listens in a directory of its own.
pub(crate) struct TestEngine {
    pub(crate) engine: Engine,
    pub(crate) socket: PathBuf,
    _directory: tempfile::TempDir,
}

/// A client with an instance.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) instance: Instance,
    pub(crate) layout: Layout,
    next: u64,
}

/// The options of engines, unless a test needs others.
pub(crate) fn options(socket: &Path) -> Options {
    let usable = rustix::thread::sched_getaffinity(None).expect("the cores of this process");
    let core = (0..CpuSet::MAX_CPU).find(|core| usable.is_set(*core));
    Options {
        socket: socket.to_owned(),
        cores: vec![core.expect("a core")],
        backend: Backend::detect().unwrap_or(Backend::Portable),
        allow: Vec::new(),
        quotas: Quotas::default(),
        grace: HOUR,
        linger: Some(Duration::ZERO),
        pace: None,
        publishes: None,
    }
}

impl TestEngine {
    /// An engine with [`options`].
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    /// An engine with changed options.
    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("engine.sock");
        let mut options = options(&socket);
        change(&mut options);
        Self {
            engine: Engine::start(options).expect("an engine"),
            socket,
            _directory: directory,
        }
    }

    pub(crate) fn status(&self) -> Status {
        self.engine.status()
    }

    pub(crate) fn connect(&self) -> Connection {
        connect(&self.socket).expect("an engine that listens")
    }

    /// A client with [`client_options`].
    pub(crate) fn client(&self) -> Client {
        Client::new(self.connect(), &client_options())
    }

    /// Waits until the figures fulfil a condition.
    pub(crate) fn wait_until(&self, condition: impl Fn(&Status) -> bool) {
        wait_until(|| condition(&self.status()));
    }
}

/// The options of instances, unless a test needs others.
pub(crate) fn client_options() -> engine::Options {
    engine::Options {
        layout: Layout::new(64).expect("a power of two"),
        weight: 1,
        aggregation: Aggregation::Fixed(1),
        token: None,
        user: EngineUser::default(),
    }
}

/// [`client_options`] with buffers.
pub(crate) fn options_with_buffers(count: usize, content_bytes: usize) -> engine::Options {
    let options = client_options();
    let layout = options.layout.with_buffers(count, content_bytes);
    engine::Options {
        layout: layout.expect("in range"),
        ..options
    }
}

impl Client {
    pub(crate) fn new(connection: Connection, options: &engine::Options) -> Self {
        let instance = connection.open(options, PATIENCE).expect("an instance");
        Self {
            connection,
            instance,
            layout: options.layout,
            next: 0,
        }
    }

    /// Says how many jobs are concurrent.
    pub(crate) fn announce(&self, concurrency: u64) {
        self.instance.memory.words()[CONCURRENCY].store(concurrency, Ordering::Relaxed);
    }

    /// Registers the published key of this size.
    pub(crate) fn register(&self, size: Size) -> Handle {
        register(&self.connection, size)
    }

    /// Puts a request into the ring, without waking the engine.
    pub(crate) fn push(&mut self, kind: Kind, key: Handle, first: &[u8], second: &[u8]) -> u64 {
        let mut slot = Slot::default();
        self.next += 1;
        let words = write_request(&mut slot, self.next, kind, key, first, second);
        let pushed = self.instance.requests.push(&slot.0[..words]);
        assert_eq!(pushed, Ok(true), "room for a request");
        self.next
    }

    /// As [`push`](Self::push), for content that has been [put](Self::put) into a buffer.
    pub(crate) fn push_content(&mut self, coding: Coding, content: &Content) -> u64 {
        let mut slot = Slot::default();
        self.next += 1;
        let words = write_content_request(&mut slot, self.next, coding, content);
        let pushed = self.instance.requests.push(&slot.0[..words]);
        assert_eq!(pushed, Ok(true), "room for a request");
        self.next
    }

    /// Puts bytes into a buffer.
    pub(crate) fn put(&self, buffer: usize, bytes: &[u8]) {
        let words = self.instance.memory.words();
        buffers::write(&words[self.layout.buffer(buffer)], bytes);
        words[BUFFERS_USED].store(self.layout.buffers() as u64, Ordering::Relaxed);
    }

    /// The first bytes of a buffer.
    pub(crate) fn get(&self, buffer: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let words = self.instance.memory.words();
        buffers::read(&words[self.layout.buffer(buffer)], &mut bytes);
        bytes
    }

    /// Wakes the engine if it sleeps.
    pub(crate) fn ring(&self) {
        if self.instance.engine_bell.must_ring() {
            let written = rustix::io::write(&self.instance.doorbell, &1_u64.to_ne_bytes());
            assert_eq!(written, Ok(8));
        }
    }

    /// Submits a request.
    pub(crate) fn submit(&mut self, kind: Kind, key: Handle, first: &[u8], second: &[u8]) -> u64 {
        let id = self.push(kind, key, first, second);
        self.ring();
        id
    }

    /// Submits the signature of [`padded`].
    pub(crate) fn submit_rsa(&mut self, size: Size, key: Handle, seed: u8) -> u64 {
        self.submit(Kind::Rsa(size), key, &padded(size, seed), &[])
    }

    /// The next response, if it is there.
    pub(crate) fn poll(&mut self) -> Option<Response> {
        let mut slot = Slot::default();
        let popped = self.instance.responses.pop(&mut slot.0);
        popped
            .expect("a sane ring")
            .then(|| read_response(&slot).expect("a sane response"))
    }

    /// The next response, for which this sleeps.
    pub(crate) fn wait(&mut self) -> Response {
        loop {
            if let Some(response) = self.poll() {
                return response;
            }
            self.instance.own_bell.arm();
            if let Some(response) = self.poll() {
                self.instance.own_bell.disarm();
                return response;
            }
            assert!(self.sleep(PATIENCE), "no event came");
        }
    }

    /// The next response, which must have been computed.
    pub(crate) fn computed(&mut self) -> (u64, Vec<u8>) {
        let response = self.wait();
        match response.outcome {
            Outcome::Computed(output) => (response.id, output.as_slice().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// Sleeps until an event comes; returns false if none does.
    pub(crate) fn sleep(&self, patience: Duration) -> bool {
        let timeout = Timespec::try_from(patience).expect("not that long");
        let mut event = [PollFd::new(&self.instance.event, PollFlags::IN)];
        let count = rustix::event::poll(&mut event, Some(&timeout)).expect("a descriptor");
        if count == 1 {
            rustix::io::read(&self.instance.event, &mut [0; 4096]).expect("an event");
        }
        count == 1
    }
}

/// Connects to an engine of this user.
pub(crate) fn connect(socket: &Path) -> std::io::Result<Connection> {
    Connection::new(socket, &EngineUser::default())
}

/// Registers the published key of this size, for anything.
pub(crate) fn register(connection: &Connection, size: Size) -> Handle {
    let key = KeyParts::Rsa(example_key(size).components);
    let handle = connection.register(key, Policy::ANYTHING, PATIENCE);
    handle.expect("a good key")
}

/// Something as long as the modulus, and less than it.
pub(crate) fn padded(size: Size, seed: u8) -> Vec<u8> {
    let mut message: Vec<u8> = (0..size.bytes())
        .map(|n| (n as u8).wrapping_mul(seed))
        .collect();
    message[..2].copy_from_slice(&[0, 1]);
    message
}

/// Returns true if `signature` to the power of the public exponent is `message`.
pub(crate) fn verifies(size: Size, message: &[u8], signature: &[u8]) -> bool {
    let key = example_key(size).components;
    let number = BigUint::from_bytes_be;
    let (exponent, modulus) = (number(key.public_exponent), number(key.modulus));
    number(signature).modpow(&exponent, &modulus) == number(message)
}

/// Waits until a condition holds.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(
            std::time::Instant::now() < deadline,
            "it never comes to hold"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
