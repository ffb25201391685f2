//! An engine as the accelerator of an event loop: operations of every kind, with keys that the
//! process has and with keys that the engine holds.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use rustix::event::{PollFd, PollFlags, Timespec};
use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::protocol::wire::Outcome;
use slipstream_accelerators::engine::{self, Device, Options};
use slipstream_accelerators::lanes::LANES;
use slipstream_keys::ec::{Curve, PrivateKey};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{self, Size};
use slipstream_keys::{Group, Handle, Key, KeyParts, Operand, Reference};
use slipstream_offload::accelerator::{Accelerator, Health, Moment};
use slipstream_offload::costs::Cost;
use slipstream_offload::fiber::{Fibers, LEAST_STACK_BYTES, Progress};
use slipstream_offload::instance::{self, Instance, Mode, Waiting};
use slipstream_offload::pause::Never;
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_offload::{
    Answer, Coding, Compression, JobToken, Kind, Notification, Operation, Output, Pause, PerKind,
    Reason, Route, Ticket, admit, fiber, run, submit,
};

use crate::client::{
    PATIENCE, TestEngine, client_options, options_with_buffers, padded, register, verifies,
    wait_until,
};
use crate::content::{decompress, text};

const SIZE: Size = Size::Rsa2048;

#[test]
fn key_pairs_are_made() {
    let engine = TestEngine::start();
    install(&engine);
    for group in Group::ALL {
        for _ in 0..3 {
            let pair = computed(run(Operation::KeyPair(group), &Never));
            let (private, public) = pair.as_slice().split_at(group.private_bytes());
            assert_eq!(public, public_key(group, private), "{group:?}");
        }
        assert_eq!(operations(Kind::KeyPair(group)), 3);
    }
}

#[test]
fn key_pairs_that_wait_together_differ() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    for group in Group::ALL {
        for _ in 0..LANES {
            client.push(Kind::KeyPair(group), Handle(0), &[], &[]);
        }
        client.ring();
        let mut pairs: Vec<_> = (0..LANES).map(|_| client.computed().1).collect();
        for pair in &pairs {
            let (private, public) = pair.split_at(group.private_bytes());
            assert_eq!(public, public_key(group, private), "{group:?}");
        }
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), LANES);
        for (first, second) in [(&[1][..], &[][..]), (&[], &[1])] {
            client.submit(Kind::KeyPair(group), Handle(0), first, second);
            assert!(matches!(client.wait().outcome, Outcome::Refused));
        }
    }
}

#[test]
fn ecdsa_keys_are_brought_there_and_used() {
    let engine = TestEngine::start();
    install(&engine);
    for curve in Curve::ALL {
        let original = EcKey::generate(&openssl_group(curve)).expect("a key");
        let private = original
            .private_key()
            .to_vec_padded(curve.bytes() as i32)
            .expect("a number below the order");
        let key = Arc::new(PrivateKey::new(curve, &private).expect("in range"));
        let digest = [0x5a; 32];
        let sign = || {
            let digest = Operand::new(&digest);
            let key = Key::Value(key.clone());
            run(Operation::Ecdsa { key, digest }, &Never)
        };
        let first = sign();
        assert!(
            matches!(first, Answer::Software(Reason::NotOffered)),
            "the key is on its way: {first:?}"
        );
        wait_until(|| matches!(sign(), Answer::Computed(_)));
        for _ in 0..3 {
            let signature = computed(sign());
            assert!(
                is_signed(&original, signature.as_slice(), &digest),
                "{curve:?}"
            );
        }
        assert_eq!(operations(Kind::Ecdsa(curve)), 4);
    }
    assert_eq!(engine.status().keys, 2);
}

/// The engine takes no request for whose answer the ring has no room, and sleeps. It has to be told
/// when there is room.
#[test]
fn an_engine_that_sleeps_for_want_of_room_is_woken() {
    const SLOTS: usize = 8;
    const MORE: usize = 4;
    let engine = TestEngine::start();
    let options = Options {
        layout: Layout::new(SLOTS).expect("a power of two"),
        ..client_options()
    };
    install_all(
        [device(&engine, options)],
        scheduler(FlushPolicy::AtLeast(1)),
    );
    let mut fibers = Fibers::new(SLOTS + MORE, LEAST_STACK_BYTES);
    let mut paused = HashMap::new();
    let done = Rc::new(Cell::new(0));
    let mut ask = |fibers: &mut Fibers, jobs: std::ops::Range<usize>| {
        for job in jobs {
            let done = done.clone();
            let progress = fibers.start(JobToken(job), move || {
                let fiber = fiber::current().expect("a fiber");
                computed(run(Operation::KeyPair(Group::X25519), &fiber));
                done.set(done.get() + 1);
            });
            if let Ok(Progress::Paused(fiber)) = progress {
                paused.insert(job, fiber);
            }
        }
    };
    // The probe.
    engine.wait_until(|status| status.responses == 1);
    ask(&mut fibers, 0..SLOTS);
    engine.wait_until(|status| status.responses == 1 + SLOTS as u64);
    ask(&mut fibers, SLOTS..SLOTS + MORE);
    // Time for the engine to fall asleep.
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    while done.get() < SLOTS + MORE {
        assert!(start.elapsed() < PATIENCE, "{} answers", done.get());
        instance::with(|instance| instance.poll(Moment::Idle));
        while let Some(job) = instance::with(Instance::next_ready).flatten() {
            let fiber = paused.remove(&job.0).expect("a paused fiber");
            assert!(matches!(fibers.resume(fiber), Progress::Finished));
        }
    }
}

/// The costs of an engine are unknown. A job that is alone gains nothing by waiting for it; any other
/// gives the thread to the next job.
#[test]
fn a_device_of_unknown_costs_is_used_from_two_concurrent_jobs_on() {
    let engine = TestEngine::start();
    for (flush, least) in [(FlushPolicy::Cheapest, 2), (FlushPolicy::AtLeast(1), 1)] {
        let measured = Scheduler {
            flush,
            software: PerKind::new(|_| Cost::Known(Duration::from_micros(1))),
        };
        for scheduler in [scheduler(flush), measured] {
            let accelerators = [device(&engine, client_options())];
            for kind in Kind::ALL {
                // There are no buffers for content.
                let expected = match kind {
                    Kind::Compress(_) => None,
                    _ => Some(least),
                };
                let concurrency = scheduler.min_concurrency(kind, &accelerators);
                assert_eq!(concurrency, expected, "{flush:?} {kind:?}");
            }
            install_all(accelerators, scheduler);
            for kind in Kind::ALL {
                for concurrency in [1, 2, 3, 64, usize::MAX] {
                    let expected = match kind {
                        Kind::Compress(_) => Err(Reason::NotOffered),
                        _ if concurrency >= least => Ok(Route::Pause),
                        _ => Err(Reason::Cheaper),
                    };
                    let route = admit(kind, &Concurrent(concurrency));
                    assert_eq!(route, expected, "{flush:?} {kind:?} {concurrency}");
                }
            }
        }
    }
}

#[test]
fn what_has_not_been_measured_is_not_cheaper() {
    let engine = TestEngine::start();
    let accelerators = [device(&engine, client_options())];
    install_all(accelerators, scheduler(FlushPolicy::Cheapest));
    for group in Group::ALL {
        let refused = admit(Kind::KeyPair(group), &Never);
        assert_eq!(refused, Err(Reason::Cheaper));
    }
    assert_eq!(
        engine.status().requests.0[Kind::X25519.index()],
        1,
        "only the probe"
    );
}

#[test]
fn keys_that_the_engine_holds_are_used_by_its_name_for_them() {
    let engine = TestEngine::start();
    let holder = engine.connect();
    let handle = register(&holder, SIZE);
    let options = Options {
        token: Some(holder.grant(PATIENCE).expect("a token")),
        ..client_options()
    };
    let mut device = device(&engine, options);
    // The number is right, but it is another accelerator's.
    for stranger in ["token", "lanes", "", "engine2", "Engine"] {
        assert!(!device.accepts(&held_by(stranger, handle)), "{stranger}");
    }
    assert!(device.accepts(&held_by(engine::NAME, handle)));

    install_all([device], scheduler(FlushPolicy::AtLeast(1)));
    let refused = run(held_by("token", handle), &Never);
    assert!(
        matches!(refused, Answer::Software(Reason::NotOffered)),
        "{refused:?}"
    );
    assert_eq!(operations(Kind::Rsa(SIZE)), 0);
    // No software has the key: a job that cannot be paused waits for the engine.
    let signature = computed(run(held_by(engine::NAME, handle), &Never));
    assert!(verifies(SIZE, &padded(SIZE, 3), signature.as_slice()));
    let unknown = run(held_by(engine::NAME, Handle(handle.0 ^ 1)), &Never);
    assert!(
        matches!(unknown, Answer::Software(Reason::NotOffered)),
        "{unknown:?}"
    );
    assert_eq!(operations(Kind::Rsa(SIZE)), 1);
    assert_eq!(engine.status().refused, 1);

    for curve in Curve::ALL {
        let original = EcKey::generate(&openssl_group(curve)).expect("a key");
        let private = original.private_key().to_vec_padded(curve.bytes() as i32);
        let private = &private.expect("a number below the order");
        let handle = holder.register(KeyParts::Ec { curve, private }, Policy::ANYTHING, PATIENCE);
        let reference = Reference::new(engine::NAME, handle.expect("a good key"));
        let operation = Operation::Ecdsa {
            key: Key::Held {
                parameters: curve,
                reference,
            },
            digest: Operand::new(&[0x5a; 32]),
        };
        let signature = computed(run(operation, &Never));
        assert!(
            is_signed(&original, signature.as_slice(), &[0x5a; 32]),
            "{curve:?}"
        );
    }
}

#[test]
fn a_key_of_the_process_is_not_one_that_the_engine_holds() {
    let engine = TestEngine::start();
    let mut device = device(&engine, client_options());
    let key = rsa::PrivateKey::new(&example_key(SIZE).components).expect("a good key");
    let operation = Operation::Rsa {
        key: Key::Value(Arc::new(key)),
        input: Operand::new(&padded(SIZE, 3)),
    };
    assert!(!device.accepts(&operation), "the key is on its way");
    let start = Instant::now();
    while !device.accepts(&operation) {
        assert!(start.elapsed() < PATIENCE, "the key never arrives");
        std::thread::yield_now();
    }
    assert_eq!(engine.status().keys, 1);
    assert!(!device.accepts(&held_by("token", Handle(0))));
}

/// The second one has buffers, and gets the content. The loop sleeps until either has answered.
#[test]
fn two_devices_wake_the_event_loop_by_one_descriptor() {
    const CHUNK: usize = 16 << 10;
    let (first, second) = (TestEngine::start(), TestEngine::start());
    install_all(
        [
            device(&first, client_options()),
            device(&second, options_with_buffers(2, CHUNK)),
        ],
        scheduler(FlushPolicy::AtLeast(1)),
    );
    let content = Arc::new(text(1, CHUNK));
    for round in 0..20 {
        let pair = || Operation::KeyPair(Group::P256);
        let compression = || {
            Operation::Compress(Compression {
                coding: Coding::Deflate,
                level: 1,
                is_last: true,
                content: content.clone(),
            })
        };
        let operations = match round % 3 {
            0 => vec![pair()],
            1 => vec![compression()],
            _ => vec![pair(), compression()],
        };
        let tickets: Vec<(Kind, Ticket)> = operations
            .into_iter()
            .map(|operation| {
                let kind = operation.kind();
                (kind, submit(operation, &Never).expect("taken over"))
            })
            .collect();
        for (kind, answer) in answers_while_asleep(tickets) {
            let output = computed(answer);
            match kind {
                Kind::Compress(coding) => {
                    assert!(decompress(coding, output.as_slice()) == *content);
                }
                _ => assert_eq!(output.as_slice().len(), kind.output_bytes()),
            }
        }
    }
    let kinds = |engine: &TestEngine| {
        let requests = engine.status().requests.0;
        let content = Kind::Compress(Coding::Deflate).index();
        (
            requests[Kind::KeyPair(Group::P256).index()],
            requests[content],
        )
    };
    assert_eq!((kinds(&first), kinds(&second)), ((13, 0), (0, 13)));
}

/// Polls whenever the descriptor of the instance is readable, and never without.
fn answers_while_asleep(mut tickets: Vec<(Kind, Ticket)>) -> Vec<(Kind, Answer)> {
    let mut answers = Vec::new();
    loop {
        tickets.retain(|(kind, ticket)| match ticket.take() {
            Some(answer) => {
                answers.push((*kind, answer));
                false
            }
            None => true,
        });
        if tickets.is_empty() {
            return answers;
        }
        if instance::with(Instance::arm).expect("an instance") {
            let timeout = Timespec::try_from(PATIENCE).expect("not that long");
            let count = instance::with(|instance| {
                let descriptor = instance.descriptor().expect("that of the devices");
                let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
                rustix::event::poll(&mut descriptors, Some(&timeout)).expect("a descriptor")
            });
            assert_eq!(count, Some(1), "no device wakes the loop");
        }
        instance::with(|instance| instance.poll(Moment::Idle));
    }
}

/// A job among so many concurrent ones.
struct Concurrent(usize);

impl Pause for Concurrent {
    fn concurrency(&self) -> usize {
        self.0
    }

    fn notification(&self) -> Notification {
        Notification::ByPauser
    }

    fn pause(&self) -> bool {
        false
    }
}

/// Makes the engine the only accelerator of this thread, which blocks until each answer is there.
fn install(engine: &TestEngine) {
    let accelerators = [device(engine, client_options())];
    install_all(accelerators, scheduler(FlushPolicy::AtLeast(1)));
    instance::with(|instance| instance.set_mode(Mode::Synchronous(Waiting::Spinning)));
}

fn install_all<const COUNT: usize>(
    accelerators: [Box<dyn Accelerator>; COUNT],
    scheduler: Scheduler,
) {
    let instance = Instance::new(accelerators.into(), scheduler, 64);
    instance::install(instance.expect("an instance"));
}

fn device(engine: &TestEngine, options: Options) -> Box<dyn Accelerator> {
    let device = Device::new(engine.socket.clone(), options, PATIENCE).expect("descriptors");
    assert_eq!(device.health(), Health::Ready);
    Box::new(device)
}

fn scheduler(flush: FlushPolicy) -> Scheduler {
    Scheduler {
        flush,
        ..Scheduler::default()
    }
}

/// A signature with a key that `holder` knows as `handle`.
fn held_by(holder: &str, handle: Handle) -> Operation {
    Operation::Rsa {
        key: Key::Held {
            parameters: SIZE,
            reference: Reference::new(holder, handle),
        },
        input: Operand::new(&padded(SIZE, 3)),
    }
}

fn operations(kind: Kind) -> u64 {
    let counted = instance::with(|instance| instance.counters().device_operations[kind.index()]);
    counted.expect("an instance")
}

fn computed(answer: Answer) -> Output {
    match answer {
        Answer::Computed(output) => output,
        other => panic!("{other:?}"),
    }
}

/// As OpenSSL computes it.
fn public_key(group: Group, private: &[u8]) -> Vec<u8> {
    let Some(curve) = group.curve() else {
        let key = PKey::private_key_from_raw_bytes(private, Id::X25519).expect("a key");
        return key.raw_public_key().expect("a public key");
    };
    let group = openssl_group(curve);
    let mut context = BigNumContext::new().expect("a context");
    let mut point = EcPoint::new(&group).expect("a point");
    point
        .mul_generator2(&group, &number(private), &mut context)
        .expect("a product");
    let form = PointConversionForm::UNCOMPRESSED;
    point.to_bytes(&group, form, &mut context).expect("bytes")
}

/// Returns true if r and s are a signature of `digest`.
fn is_signed(key: &EcKey<Private>, signature: &[u8], digest: &[u8]) -> bool {
    let (r, s) = signature.split_at(signature.len() / 2);
    let signature = EcdsaSig::from_private_components(number(r), number(s));
    let verified = signature.expect("a signature").verify(digest, key);
    verified.expect("a verification")
}

fn openssl_group(curve: Curve) -> EcGroup {
    let name = match curve {
        Curve::P256 => Nid::X9_62_PRIME256V1,
        Curve::P384 => Nid::SECP384R1,
    };
    EcGroup::from_curve_name(name).expect("a curve that OpenSSL knows")
}

fn number(bytes: &[u8]) -> BigNum {
    BigNum::from_slice(bytes).expect("a number")
}
