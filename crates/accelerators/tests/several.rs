//! An instance with several accelerators: the choice between them, and the descriptor of them all.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hex_literal::hex;
use num_bigint::BigUint;
use rustix::event::{PollFd, PollFlags, Timespec};
use slipstream_accelerators::lanes::{Backend, LANES, LaneCosts, Lanes, Options};
use slipstream_accelerators::threaded::{Threaded, Trigger};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{PrivateKey, Size};
use slipstream_keys::{Handle, Key, Operand, Reference};
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::event;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::request::{Request, Response};
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_offload::{
    Answer, Coding, Compression, JobToken, Kind, Notification, Operation, Output, Pause, Reason,
    Ticket, submit,
};

const SIZE: Size = Size::Rsa2048;

/// An accelerator of which only the name and the kinds matter. It answers with its name, when the
/// test says so.
#[derive(Clone)]
struct Mock {
    name: &'static str,
    computes: fn(Kind) -> bool,
    shared: Arc<Mutex<State>>,
    event: Option<Arc<OwnedFd>>,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    is_finished: bool,
    times_armed: usize,
}

impl Mock {
    /// An accelerator that answers when it is polled.
    fn on_the_thread(name: &'static str, computes: fn(Kind) -> bool) -> Self {
        let mock = Self {
            name,
            computes,
            shared: Arc::default(),
            event: None,
        };
        mock.shared.lock().expect("no panic").is_finished = true;
        mock
    }

    /// A device that answers after it has [finished](Self::finish).
    fn with_descriptor(name: &'static str, computes: fn(Kind) -> bool) -> Self {
        Self {
            name,
            computes,
            shared: Arc::default(),
            event: Some(Arc::new(event::new().expect("a descriptor"))),
        }
    }

    /// The device has computed everything.
    fn finish(&self) {
        self.shared.lock().expect("no panic").is_finished = true;
        event::signal(self.event.as_ref().expect("a device").as_fd());
    }

    fn times_armed(&self) -> usize {
        self.shared.lock().expect("no panic").times_armed
    }
}

impl Accelerator for Mock {
    fn name(&self) -> &str {
        self.name
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        let is_known = match operation {
            Operation::Rsa { key, .. } => key
                .reference()
                .is_none_or(|reference| reference.handle_at(self.name).is_some()),
            _ => true,
        };
        is_known && (self.computes)(operation.kind())
    }

    fn estimate(&self, work: &Work) -> Option<Estimate> {
        (self.computes)(work.kind).then(Estimate::default)
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.shared.lock().expect("no panic").requests.push(request);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.shared.lock().expect("no panic").requests.len()
    }

    fn poll(&mut self, _: Moment, responses: &mut Vec<Response>, _: &mut Counters) {
        let mut state = self.shared.lock().expect("no panic");
        if !state.is_finished {
            return;
        }
        for request in state.requests.drain(..) {
            let answer = Answer::Computed(Output::new(self.name.as_bytes()));
            responses.push(Response::new(request.id, answer));
        }
        if let Some(event) = &self.event {
            state.is_finished = false;
            event::drain(event.as_fd());
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.as_fd())
    }

    fn arm(&mut self) -> bool {
        let mut state = self.shared.lock().expect("no panic");
        state.times_armed += 1;
        state.requests.is_empty() || !state.is_finished
    }
}

/// A job whose answers are announced on the ready queue.
struct Job(usize);

impl Pause for Job {
    fn notification(&self) -> Notification {
        Notification::ReadyQueue(JobToken(self.0))
    }

    fn pause(&self) -> bool {
        unreachable!("a job that looks after its answers itself")
    }
}

#[test]
fn a_request_goes_to_the_first_accelerator_that_accepts_it() {
    let mock = Mock::on_the_thread("mock", is_rsa);
    install([Box::new(mock), Box::new(lanes())]);
    let names: Vec<String> = instance::with(|instance| {
        let accelerators = instance.accelerators();
        accelerators.map(|one| one.name().to_owned()).collect()
    })
    .expect("an instance");
    assert_eq!(names, ["mock", "lanes"]);

    let key = key();
    let mut jobs = HashMap::new();
    for job in 0..4 {
        let operation = match job % 2 {
            0 => signature(&key),
            _ => exchange(),
        };
        jobs.insert(job, (operation.kind(), ask(operation, job)));
    }
    assert_eq!(instance::with(|instance| instance.waiting()), Some(4));
    // The mock answers both of its requests, the lanes one batch.
    assert_eq!(poll(), 4);
    while let Some(JobToken(job)) = instance::with(Instance::next_ready).flatten() {
        let (kind, ticket) = jobs.remove(&job).expect("a job that is notified once");
        let output = computed(ticket.take());
        match kind {
            Kind::Rsa(_) => assert_eq!(output, b"mock"),
            _ => assert_eq!(output, SECRET),
        }
    }
    assert!(jobs.is_empty(), "not notified: {jobs:?}");

    let counters = counters();
    assert_eq!(counters.submitted[Kind::Rsa(SIZE).index()], 2);
    assert_eq!(counters.submitted[Kind::X25519.index()], 2);
    assert_eq!(counters.lane_operations[Kind::Rsa(SIZE).index()], 0);
    assert_eq!(counters.lane_operations[Kind::X25519.index()], 2);
    assert_eq!((counters.batches, counters.retried), (1, 0));
}

#[test]
fn the_order_of_the_accelerators_decides_where_several_accept() {
    let mock = Mock::on_the_thread("mock", is_rsa);
    install([Box::new(lanes()), Box::new(mock)]);
    let key = key();
    let own = ask(signature(&key), 1);
    // Lanes do not compute with a key that only the mock has.
    let held = ask(held_by("mock"), 2);
    assert_eq!(poll(), 2);
    assert!(verifies(&computed(own.take())));
    assert_eq!(computed(held.take()), b"mock");
    assert_eq!(counters().lane_operations[Kind::Rsa(SIZE).index()], 1);
}

#[test]
fn what_no_accelerator_accepts_is_not_offered() {
    let mock = Mock::on_the_thread("mock", is_rsa);
    install([Box::new(mock), Box::new(lanes())]);
    let compression = Operation::Compress(Compression {
        coding: Coding::Deflate,
        level: 1,
        is_last: true,
        content: Arc::default(),
    });
    for operation in [compression, held_by("token")] {
        let refused = submit(operation, &Job(1));
        assert_eq!(refused.err(), Some(Reason::NotOffered));
    }
    install([]);
    let refused = submit(exchange(), &Job(1));
    assert_eq!(refused.err(), Some(Reason::NotOffered));
}

#[test]
fn the_descriptor_is_readable_when_that_of_one_of_two_devices_is() {
    let one = Mock::with_descriptor("one", is_rsa);
    let other = Mock::with_descriptor("other", |kind| !is_rsa(kind));
    install([Box::new(one.clone()), Box::new(other.clone())]);
    let key = key();
    let operations = [|key: &_| signature(key), |_: &_| exchange()];
    for (round, operation) in operations.into_iter().cycle().take(6).enumerate() {
        let (busy, idle) = match round % 2 {
            0 => (&one, &other),
            _ => (&other, &one),
        };
        let ticket = ask(operation(&key), round);
        assert!(arm(), "nothing to poll for");
        assert_eq!(busy.times_armed(), idle.times_armed());
        assert!(!is_readable(Duration::ZERO));
        busy.finish();
        assert!(is_readable(PATIENCE));
        assert!(!arm(), "{round}: there is an answer");
        // The other one has been armed all the same, since the next call may sleep.
        assert_eq!(
            (one.times_armed(), other.times_armed()),
            (3 * round + 2, 3 * round + 2)
        );
        assert_eq!(poll(), 1);
        assert!(!is_readable(Duration::ZERO));
        assert!(!arm(), "a job can go on");
        let ready = instance::with(Instance::next_ready).flatten();
        assert_eq!(ready, Some(JobToken(round)));
        assert_eq!(computed(ticket.take()), busy.name.as_bytes());
    }
    assert!(arm());
}

#[test]
fn a_device_beside_lanes_lends_the_instance_its_descriptor() {
    let device = Mock::with_descriptor("device", is_rsa);
    let own = device.event.clone().expect("a descriptor");
    install([Box::new(lanes()), Box::new(device.clone())]);
    instance::with(|instance| {
        let descriptor = instance.descriptor().expect("that of the device");
        event::signal(own.as_fd());
        assert!(event::drain(descriptor), "that of the device");
    });
    assert!(arm());
    let ticket = ask(exchange(), 1);
    assert!(!arm(), "lanes have to be polled");
    assert_eq!(poll(), 1);
    assert_eq!(computed(ticket.take()), SECRET);
    install([Box::new(lanes())]);
    assert!(instance::with(|instance| instance.descriptor().is_none()).expect("an instance"));
}

/// Real threads, with the loop asleep in between.
#[test]
fn threads_wake_the_event_loop_by_one_descriptor() {
    let threaded = |accelerator: Box<dyn Accelerator>| -> Box<dyn Accelerator> {
        Box::new(Threaded::new(accelerator, Trigger::Requests).expect("a thread"))
    };
    let mock = Mock::on_the_thread("mock", is_rsa);
    install([threaded(Box::new(mock)), threaded(Box::new(lanes()))]);
    let key = key();
    for round in 0..10 {
        let tickets = [
            ask(signature(&key), 2 * round),
            ask(exchange(), 2 * round + 1),
        ];
        let mut answers = 0;
        while answers < 2 {
            if arm() {
                assert!(is_readable(PATIENCE), "no thread wakes the loop");
            }
            answers += poll();
            while instance::with(Instance::next_ready).flatten().is_some() {}
        }
        let [signature, secret] = tickets.map(|ticket| computed(ticket.take()));
        assert_eq!((signature, secret), (b"mock".to_vec(), SECRET.to_vec()));
    }
    assert_eq!(counters().lane_operations[Kind::X25519.index()], 10);
}

/// Much longer than anything takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// RFC 7748, section 6.1.
const PRIVATE: [u8; 32] = hex!("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
const PEER: [u8; 32] = hex!("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
const SECRET: [u8; 32] = hex!("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");

fn is_rsa(kind: Kind) -> bool {
    matches!(kind, Kind::Rsa(_))
}

/// Lanes that run whatever waits when they are polled.
fn lanes() -> Lanes {
    Lanes::new(Options {
        backend: Backend::Portable,
        costs: LaneCosts::unknown(Backend::Portable),
        scheduler: scheduler(),
        has_batches: true,
        key_pairs: 0,
        nonces: 0,
    })
}

fn scheduler() -> Scheduler {
    Scheduler {
        flush: FlushPolicy::AtLeast(1),
        ..Scheduler::default()
    }
}

fn install<const COUNT: usize>(accelerators: [Box<dyn Accelerator>; COUNT]) {
    let instance = Instance::new(accelerators.into(), scheduler(), 2 * LANES);
    instance::install(instance.expect("an instance"));
}

fn key() -> Arc<PrivateKey> {
    Arc::new(PrivateKey::new(&example_key(SIZE).components).expect("a good key"))
}

fn signature(key: &Arc<PrivateKey>) -> Operation {
    Operation::Rsa {
        key: Key::Value(key.clone()),
        input: Operand::new(&message()),
    }
}

/// A signature with a key that only the accelerator `holder` has.
fn held_by(holder: &str) -> Operation {
    Operation::Rsa {
        key: Key::Held {
            parameters: SIZE,
            reference: Reference::new(holder, Handle(1)),
        },
        input: Operand::new(&message()),
    }
}

fn message() -> Vec<u8> {
    let mut message = vec![0x5a; SIZE.bytes()];
    message[0] = 0;
    message
}

fn exchange() -> Operation {
    Operation::X25519 {
        private: Operand::new(&PRIVATE),
        peer: Operand::new(&PEER),
    }
}

fn ask(operation: Operation, job: usize) -> Ticket {
    submit(operation, &Job(job)).expect("taken over")
}

fn poll() -> usize {
    instance::with(|instance| instance.poll(Moment::Idle)).expect("an instance")
}

fn arm() -> bool {
    instance::with(Instance::arm).expect("an instance")
}

fn counters() -> Counters {
    instance::with(|instance| instance.counters().clone()).expect("an instance")
}

/// Returns true if the descriptor of the instance becomes readable within `patience`.
fn is_readable(patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).expect("not that long");
    let readable = instance::with(|instance| {
        let descriptor = instance.descriptor().expect("that of the devices");
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&timeout)).expect("a descriptor")
    });
    readable.expect("an instance") == 1
}

fn computed(answer: Option<Answer>) -> Vec<u8> {
    match answer {
        Some(Answer::Computed(output)) => output.as_slice().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Returns true if `signature` to the power of the public exponent is [`message`].
fn verifies(signature: &[u8]) -> bool {
    let key = example_key(SIZE).components;
    let number = BigUint::from_bytes_be;
    let (exponent, modulus) = (number(key.public_exponent), number(key.modulus));
    number(signature).modpow(&exponent, &modulus) == number(&message())
}
