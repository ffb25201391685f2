//! What workers leave to a device only where nothing is made ahead: key pairs, and signatures with ECDSA keys that the
//! worker has. An engine and the client of an event loop, as they are used together.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey};
use slipstream_lanes::LANES;
use slipstream_lanes::ec::{Curve, SigningKey};
use slipstream_offload::accelerator::Moment;
use slipstream_offload::ahead::Group;
use slipstream_offload::device::layout::Layout;
use slipstream_offload::device::wire::Outcome;
use slipstream_offload::device::{Device, Options};
use slipstream_offload::fiber::{Fibers, LEAST_STACK_BYTES, Progress};
use slipstream_offload::instance::{self, Instance, Mode, Waiting};
use slipstream_offload::pause::Never;
use slipstream_offload::policy::{Costs, Policy};
use slipstream_offload::request::Operand;
use slipstream_offload::{Answer, Handle, JobToken, Kind, Operation, Output, Reason, fiber, run};

use crate::client::{PATIENCE, TestEngine, client_options, wait_until};

#[test]
fn key_pairs_are_made() {
    let engine = TestEngine::start();
    install(&engine, Policy::AtLeast(1));
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
    install(&engine, Policy::AtLeast(1));
    for curve in Curve::ALL {
        let original = EcKey::generate(&openssl_group(curve)).expect("a key");
        let private = original
            .private_key()
            .to_vec_padded(curve.bytes() as i32)
            .expect("a number below the order");
        let key = Arc::new(SigningKey::new(curve, &private).expect("in range"));
        let digest = [0x5a; 32];
        let sign = || {
            let digest = Operand::new(&digest);
            let key = key.clone();
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
            let (r, s) = signature.as_slice().split_at(curve.bytes());
            let signature = EcdsaSig::from_private_components(number(r), number(s));
            let verified = signature.expect("a signature").verify(&digest, &original);
            assert!(verified.expect("a verification"), "{curve:?}");
        }
        assert_eq!(operations(Kind::Ecdsa(curve)), 4);
    }
    assert_eq!(engine.status().keys, 2);
}

/// The engine takes no request for whose answer the ring has no room, and sleeps. It has to be told when there is room.
#[test]
fn an_engine_that_sleeps_for_want_of_room_is_woken() {
    const SLOTS: usize = 8;
    const MORE: usize = 4;
    let engine = TestEngine::start();
    let options = Options {
        layout: Layout::new(SLOTS).expect("a power of two"),
        ..client_options()
    };
    install_with(&engine, options, Policy::AtLeast(1));
    instance::with(|instance| instance.set_mode(Mode::Asynchronous));
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

#[test]
fn what_has_not_been_measured_is_not_cheaper() {
    let engine = TestEngine::start();
    install(&engine, Policy::Cheapest);
    for group in Group::ALL {
        let answer = run(Operation::KeyPair(group), &Never);
        assert!(
            matches!(answer, Answer::Software(Reason::Cheaper)),
            "{answer:?}"
        );
    }
    assert_eq!(
        engine.status().requests.0[Kind::X25519.index()],
        1,
        "only the probe"
    );
}

/// Makes the engine the device of this thread, which waits for each answer.
fn install(engine: &TestEngine, policy: Policy) {
    install_with(engine, client_options(), policy);
}

fn install_with(engine: &TestEngine, options: Options, policy: Policy) {
    let path = engine.socket.clone();
    let device = Device::new(path, options, policy, Costs::default(), PATIENCE);
    let device = device.expect("descriptors");
    assert!(device.is_in());
    let mut instance = Instance::new(Box::new(device), 64).expect("an instance");
    instance.set_mode(Mode::Synchronous(Waiting::Spinning));
    instance::install(instance);
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
