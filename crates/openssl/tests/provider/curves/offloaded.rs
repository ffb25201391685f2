//! Key pairs and signatures that an accelerator makes while the caller is paused, where nothing is
//! precomputed.

use std::cell::RefCell;
use std::rc::Rc;

use slipstream_accelerators::lanes::{Backend, Lanes, Workspace, batch};
use slipstream_keys::ec::Curve;
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::request::{Request, Response};
use slipstream_offload::{Answer, Kind, Operation, Output, Reason};
use slipstream_openssl::{precomputed_keys, precomputed_nonces};

use super::evp::{GROUPS, Group, Key};
use crate::common::{
    Context, DEFAULT, SLIPSTREAM, always, exclusive, pools, run_fibers, use_lanes,
};

/// Longer than any signature here.
const ROOM: usize = 200;
const HASH: [u8; 32] = [0x5a; 32];

/// How the accelerator answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answering {
    /// With the result, at the second poll.
    Computing,
    /// With no result.
    Refusing,
    /// With too few bytes.
    Cutting,
    /// Not at all: it computes nothing.
    Declining,
}

/// [`GROUPS`] as the accelerator knows them.
fn groups() -> impl Iterator<Item = (Group, Kind)> {
    let kinds = slipstream_keys::Group::ALL.map(Kind::KeyPair);
    GROUPS.into_iter().zip(kinds)
}

fn curves() -> impl Iterator<Item = (Group, Kind)> {
    let kinds = Curve::ALL.map(Kind::Ecdsa);
    GROUPS.into_iter().skip(1).zip(kinds)
}

#[test]
fn keys_are_generated_while_the_caller_is_paused() {
    let _turn = exclusive();
    for (group, kind) in groups() {
        let before = precomputed_keys();
        let _accelerator = Installed::new(Answering::Computing);
        let keys = on_fibers(9, move || group.generate(SLIPSTREAM));
        assert_eq!(submitted(kind), 9, "{group:?}");
        assert_eq!(precomputed_keys(), before);
        let mut publics = Vec::new();
        for key in keys {
            assert_eq!(key.provider(), "slipstream");
            assert!(key.check(SLIPSTREAM) && key.check(DEFAULT));
            let default = Key::from_der(&key.to_der());
            assert!(key.equals(&default) && default.equals(&key));
            let peer = group.generate(DEFAULT);
            assert_eq!(key.derive(&peer, SLIPSTREAM), peer.derive(&key, DEFAULT));
            publics.push(key.encoded_public_key().expect("a public key"));
        }
        publics.sort();
        publics.dedup();
        assert_eq!(publics.len(), 9, "no key is given twice");
    }
}

#[test]
fn messages_are_signed_while_the_caller_is_paused() {
    let _turn = exclusive();
    for (group, kind) in curves() {
        let key = group.generate(DEFAULT).to_pkey();
        let before = precomputed_nonces();
        let _accelerator = Installed::new(Answering::Computing);
        let signer = key.clone();
        let signatures = on_fibers(9, move || {
            let context = Context::new(&signer, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
            context.sign(&HASH, ROOM).expect("a signature")
        });
        assert_eq!(submitted(kind), 9, "{group:?}");
        assert_eq!(precomputed_nonces(), before);
        for signature in signatures {
            let verifier = Context::new(&key, DEFAULT).verifying(&[(c"digest", c"SHA256")]);
            assert!(verifier.verify(&signature, &HASH), "{group:?}");
        }
    }
}

#[test]
fn what_is_not_answered_openssl_does() {
    let _turn = exclusive();
    for answering in [
        Answering::Refusing,
        Answering::Cutting,
        Answering::Declining,
    ] {
        let asked = u64::from(answering != Answering::Declining);
        for (group, kind) in groups() {
            let _accelerator = Installed::new(answering);
            let key = on_fibers(1, move || group.generate(SLIPSTREAM)).remove(0);
            assert_eq!(submitted(kind), asked, "{group:?} {answering:?}");
            assert!(key.check(SLIPSTREAM) && key.check(DEFAULT));
        }
        for (group, kind) in curves() {
            let key = group.generate(DEFAULT).to_pkey();
            let _accelerator = Installed::new(answering);
            assert!(signs(&key), "{group:?} {answering:?}");
            assert_eq!(submitted(kind), asked);
        }
        if answering == Answering::Declining {
            let _accelerator = Installed::new(answering);
            on_fibers(1, || GROUPS[0].generate(SLIPSTREAM));
            assert_eq!(refused(), 0, "nothing has been refused");
        }
    }
}

#[test]
fn what_is_precomputed_comes_first() {
    let _turn = exclusive();
    for (group, kind) in groups() {
        let _accelerator = Installed::with_pools(Answering::Computing);
        let before = precomputed_keys();
        on_fibers(1, move || group.generate(SLIPSTREAM));
        assert_eq!((submitted(kind), precomputed_keys() - before), (0, 1));
    }
    for (group, kind) in curves() {
        let key = group.generate(DEFAULT).to_pkey();
        let _accelerator = Installed::with_pools(Answering::Computing);
        let before = precomputed_nonces();
        assert!(signs(&key));
        assert_eq!((submitted(kind), precomputed_nonces() - before), (0, 1));
    }
}

#[test]
fn what_openssl_refuses_to_sign_is_not_offloaded() {
    let _turn = exclusive();
    for (group, kind) in curves() {
        let key = group.generate(DEFAULT).to_pkey();
        let _accelerator = Installed::new(Answering::Computing);
        let refused = on_fibers(1, move || {
            let context = || Context::new(&key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
            let short_hash = context().sign(&HASH[1..], ROOM).is_err();
            let little_room = context().sign(&HASH, key.size() - 1).is_err();
            [short_hash, little_room]
        });
        assert_eq!(
            (refused, submitted(kind)),
            (vec![[true; 2]], 0),
            "{group:?}"
        );
    }
}

#[test]
fn nobody_is_paused_outside_of_jobs() {
    let _turn = exclusive();
    let _accelerator = Installed::new(Answering::Computing);
    for (group, kind) in groups() {
        assert!(group.generate(SLIPSTREAM).check(DEFAULT));
        assert_eq!(submitted(kind), 0, "{group:?}");
    }
}

/// Whether a signature made on a fiber verifies.
fn signs(key: &openssl::pkey::PKey<openssl::pkey::Private>) -> bool {
    let signer = key.clone();
    let signature = on_fibers(1, move || {
        let context = Context::new(&signer, SLIPSTREAM).signing(&[]);
        context.sign(&HASH, ROOM).expect("a signature")
    });
    let verifier = Context::new(key, DEFAULT).verifying(&[]);
    verifier.verify(&signature[0], &HASH)
}

/// Runs a job on `count` fibers at once, with the instance that is installed.
fn on_fibers<T: 'static>(count: usize, job: impl Fn() -> T + Clone + 'static) -> Vec<T> {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let jobs = (0..count).map(|_| {
        let (answers, job) = (answers.clone(), job.clone());
        Box::new(move || {
            let answer = job();
            answers.borrow_mut().push(answer);
        }) as Box<dyn FnOnce()>
    });
    run_fibers(jobs.collect());
    answers.take()
}

fn submitted(kind: Kind) -> u64 {
    instance::with(|instance| instance.counters().submitted[kind.index()]).expect("an instance")
}

fn refused() -> u64 {
    let refused = |instance: &mut Instance| instance.counters().software.iter().sum();
    instance::with(refused).expect("an instance")
}

/// An accelerator as this thread's, until this is dropped.
struct Installed;

impl Installed {
    fn new(answering: Answering) -> Self {
        Self::of(vec![Maker::boxed(answering)])
    }

    /// With lanes behind it, which precompute keys and nonces.
    fn with_pools(answering: Answering) -> Self {
        let lanes = Lanes::new(pools(Backend::Portable));
        Self::of(vec![Maker::boxed(answering), Box::new(lanes)])
    }

    fn of(accelerators: Vec<Box<dyn Accelerator>>) -> Self {
        use_lanes(Backend::Portable);
        let instance = Instance::new(accelerators, always(), 64);
        instance::install(instance.expect("an instance"));
        Self
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        instance::uninstall();
    }
}

/// Makes key pairs and ECDSA signatures, as a device does, and nothing else.
struct Maker {
    answering: Answering,
    waiting: Vec<Request>,
    polls: usize,
}

impl Maker {
    fn boxed(answering: Answering) -> Box<dyn Accelerator> {
        Box::new(Self {
            answering,
            waiting: Vec::new(),
            polls: 0,
        })
    }

    fn answer(&self, operation: &Operation) -> Answer {
        let operation = std::iter::once(operation);
        let answer = batch::compute(Backend::Portable, &mut Workspace::new(), operation).remove(0);
        match (self.answering, answer) {
            (Answering::Computing, answer) => answer,
            (Answering::Cutting, Answer::Computed(output)) => {
                let (_, cut) = output.as_slice().split_last().expect("no empty result");
                Answer::Computed(Output::new(cut))
            }
            _ => Answer::Software(Reason::Lost),
        }
    }
}

impl Accelerator for Maker {
    fn name(&self) -> &str {
        "maker"
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        matches!(operation, Operation::KeyPair(_) | Operation::Ecdsa { .. })
    }

    fn estimate(&self, work: &Work) -> Option<Estimate> {
        match work.kind {
            _ if self.answering == Answering::Declining => None,
            Kind::KeyPair(_) | Kind::Ecdsa(_) | Kind::Compress(_) => Some(Estimate::default()),
            Kind::Rsa(_) | Kind::X25519 | Kind::Ecdh(_) => None,
        }
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.waiting.push(request);
        self.polls = 0;
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn poll(&mut self, _moment: Moment, responses: &mut Vec<Response>, _counters: &mut Counters) {
        self.polls += 1;
        if self.polls < 2 {
            return;
        }
        for Request { id, operation, .. } in std::mem::take(&mut self.waiting) {
            let answer = self.answer(&operation);
            responses.push(Response::new(id, answer));
        }
    }
}
