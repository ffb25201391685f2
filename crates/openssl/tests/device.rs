//! A process without lanes that has a device: in a process of its own, since the choice of
//! accelerators is the process's, and OpenSSL asks only once which algorithms there are.

#[allow(dead_code)]
#[path = "provider/common.rs"]
mod common;
#[allow(dead_code)]
#[path = "provider/curves/evp.rs"]
mod evp;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::MutexGuard;

use openssl::pkey::{PKey, Private};
use slipstream_accelerators::lanes::{Backend, Workspace, batch};
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::fiber::{self, Rules};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::request::{Request, Response};
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{Kind, Notification, Operation, Reason};
use slipstream_openssl::{
    Accelerators, keys_with_lanes, keys_without_lanes, precomputed_keys, precomputed_nonces,
};

use common::{Context, DEFAULT, SLIPSTREAM, import, keys, run_fibers};
use evp::{GROUPS, Group};

/// Longer than any signature.
const ROOM: usize = 600;
const HASH: [u8; 32] = [0x5a; 32];

fn exclusive() -> MutexGuard<'static, ()> {
    common::exclusive_with(Accelerators {
        backend: None,
        has_device: true,
    })
}

/// The groups, each with its kinds of operations: key pair and exchange.
fn groups() -> impl Iterator<Item = (Group, [Kind; 2])> {
    let kinds = |group| [Kind::KeyPair(group), Kind::exchange(group)];
    GROUPS
        .into_iter()
        .zip(slipstream_keys::Group::ALL.map(kinds))
}

/// A key of each kind that accelerators compute with, each with the kind of its signatures.
fn originals() -> Vec<(Vec<u8>, Kind)> {
    let rsa = keys()[keys().len() - Size::ALL.len()..].iter().cloned();
    let rsa = rsa.zip(Size::ALL.map(Kind::Rsa));
    let curves = GROUPS[1..].iter().zip(Curve::ALL.map(Kind::Ecdsa));
    let curves = curves.map(|(group, kind)| (group.generate(DEFAULT).to_der(), kind));
    rsa.chain(curves).collect()
}

fn sign(key: &PKey<Private>) -> Vec<u8> {
    let context = Context::new(key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
    context.sign(&HASH, ROOM).expect("a signature")
}

fn verifies(key: &PKey<Private>, signature: &[u8]) -> bool {
    let verifier = Context::new(key, DEFAULT).verifying(&[(c"digest", c"SHA256")]);
    verifier.verify(signature, &HASH)
}

#[test]
fn imported_keys_sign_at_the_device() {
    let _turn = exclusive();
    for (der, kind) in originals() {
        let key = import(&der);
        let before = (
            keys_with_lanes(),
            keys_without_lanes(),
            precomputed_nonces(),
        );
        let signer = key.clone();
        let (signatures, counters) = on_two_fibers(move || sign(&signer));
        let after = (
            keys_with_lanes(),
            keys_without_lanes(),
            precomputed_nonces(),
        );
        assert_eq!(after, (before.0 + 1, before.1, before.2), "{kind:?}");
        assert_submitted(&counters, &[kind]);
        assert_eq!(counters.polls, 2, "both have been in flight together");
        for signature in signatures {
            assert!(verifies(&key, &signature), "{kind:?}");
        }
    }
}

#[test]
fn key_pairs_and_exchanges_are_made_by_the_device() {
    let _turn = exclusive();
    for (group, kinds) in groups() {
        let before = precomputed_keys();
        let (shares, counters) = on_two_fibers(move || {
            let own = group.generate(SLIPSTREAM);
            assert_eq!(own.provider(), "slipstream");
            assert!(own.check(DEFAULT), "{group:?}");
            let peer = group.generate(DEFAULT);
            let secret = own.derive(&peer, SLIPSTREAM);
            assert!(secret.is_ok(), "{group:?}");
            assert_eq!(secret, peer.derive(&own, DEFAULT), "{group:?}");
            own.encoded_public_key().expect("a public key")
        });
        assert_submitted(&counters, &kinds);
        assert_eq!(precomputed_keys(), before);
        assert_ne!(shares[0], shares[1], "{group:?}");
    }
}

/// Nothing is known of the device's costs, so there have to be others to wait with.
#[test]
fn a_job_that_is_alone_is_left_to_openssl() {
    let _turn = exclusive();
    let left_to_openssl = |counters: &Counters| {
        assert_submitted(counters, &[]);
        counters.software[Reason::Cheaper.index()]
    };
    for (der, kind) in originals() {
        let key = import(&der);
        let signer = key.clone();
        let (signature, counters) = on_lone_fiber(move || sign(&signer));
        assert_eq!(left_to_openssl(&counters), 1, "{kind:?}");
        assert!(verifies(&key, &signature), "{kind:?}");
    }
    for (group, _) in groups() {
        let (key, counters) = on_lone_fiber(move || group.generate(SLIPSTREAM));
        assert_eq!(left_to_openssl(&counters), 1, "{group:?}");
        let peer = group.generate(DEFAULT);
        let expected = peer.derive(&key, DEFAULT);
        let (secret, counters) = on_lone_fiber(move || key.derive(&peer, SLIPSTREAM));
        assert_eq!(left_to_openssl(&counters), 1, "{group:?}");
        assert_eq!(secret, expected, "{group:?}");
    }
}

/// Asserts that both of two jobs have had an operation of each of these kinds computed, and that
/// the device has computed all of them.
fn assert_submitted(counters: &Counters, kinds: &[Kind]) {
    for kind in Kind::ALL {
        let expected = 2 * u64::from(kinds.contains(&kind));
        assert_eq!(counters.submitted[kind.index()], expected, "{kind:?}");
        assert_eq!(
            counters.device_operations[kind.index()],
            expected,
            "{kind:?}"
        );
    }
    assert_eq!(counters.at_once.iter().sum::<u64>(), 0, "{kinds:?}");
    if !kinds.is_empty() {
        assert_eq!(counters.software.iter().sum::<u64>(), 0, "{kinds:?}");
    }
}

fn on_two_fibers<T: 'static>(job: impl Fn() -> T + 'static) -> (Vec<T>, Counters) {
    on_fibers(2, || 2, job)
}

fn on_lone_fiber<T: 'static>(job: impl Fn() -> T + 'static) -> (T, Counters) {
    let (mut answers, counters) = on_fibers(1, || 1, job);
    (answers.remove(0), counters)
}

/// Runs a job on `count` fibers at once, with the device.
fn on_fibers<T: 'static>(
    count: usize,
    concurrency: fn() -> usize,
    job: impl Fn() -> T + 'static,
) -> (Vec<T>, Counters) {
    let device = Box::new(Device::default());
    let instance = Instance::new(vec![device], Scheduler::default(), 64);
    instance::install(instance.expect("an instance"));
    fiber::set_rules(Rules {
        admits: |_| Ok(()),
        concurrency,
        notification: Notification::ReadyQueue,
    });
    let (answers, job) = (Rc::new(RefCell::new(Vec::new())), Rc::new(job));
    let jobs = (0..count).map(|_| {
        let (answers, job) = (answers.clone(), job.clone());
        Box::new(move || {
            let answer = job();
            answers.borrow_mut().push(answer);
        }) as Box<dyn FnOnce()>
    });
    let counters = run_fibers(jobs.collect());
    instance::uninstall();
    (answers.take(), counters)
}

/// Computes private-key operations, exchanges and key pairs, at the second poll. Its costs are
/// unknown.
#[derive(Default)]
struct Device {
    waiting: Vec<Request>,
    polls: usize,
}

impl Accelerator for Device {
    fn name(&self) -> &str {
        "device"
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        batch::can_compute(Backend::Portable, operation)
    }

    fn estimate(&self, work: &Work) -> Option<Estimate> {
        (!matches!(work.kind, Kind::Compress(_))).then(Estimate::default)
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.waiting.push(request);
        self.polls = 0;
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn poll(&mut self, _moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters) {
        self.polls += 1;
        if self.polls < 2 {
            return;
        }
        let mut workspace = Workspace::new();
        for Request { id, operation, .. } in std::mem::take(&mut self.waiting) {
            counters.device_operations[operation.kind().index()] += 1;
            let alone = std::iter::once(&operation);
            let answer = batch::compute(Backend::Portable, &mut workspace, alone).remove(0);
            responses.push(Response::new(id, answer));
        }
    }
}
