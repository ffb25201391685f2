//! Private keys that a device holds. The device is in this process: lanes, with keys that the
//! provider does not have.

mod decryption;
mod handshakes;
mod keys;
mod parts;
mod signatures;

use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;

use foreign_types_shared::ForeignType;
use openssl::pkey::{PKey, Private};
use slipstream_accelerators::lanes::{Backend, Workspace, batch};
use slipstream_keys::{Handle, Key as OffloadKey, KeyParts, PrivateKey, Reference};
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::request::{Request, Response};
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{Answer, Kind, Operation, Output, Reason};
use slipstream_openssl::held::{key_with_handle, private_parts};

use crate::common::{example, run_fibers};
use crate::curves::evp::{GROUPS, Key};

/// The text of every failure for want of an answer.
const NO_ANSWER: &str = "the device that holds this key does not answer";
/// The beginning of the text about what a device does not do.
const NOT_COMPUTED: &str = "the device that holds this key only signs";
const NOT_EXPORTED: &str = "the private key is held by a device";
const NOT_HELD: &str = "a device holds RSA-2048, RSA-3072, RSA-4096, P-256 and P-384 keys only";

/// How the device answers.
#[derive(Clone, Copy, Debug)]
enum Answering {
    /// With the result, at the second poll.
    Computing,
    /// With no result.
    Refusing(Reason),
    /// With too few bytes.
    Cutting,
}

/// Keys of which this thread's device holds the private half. When dropped, the device has gone.
struct Held {
    keys: Vec<PKey<Private>>,
}

impl Held {
    fn of(originals: &[PKey<Private>], answering: Answering) -> Self {
        Self::at(Backend::Portable, originals, answering)
    }

    /// With a device that computes in lanes of `backend`.
    fn at(backend: Backend, originals: &[PKey<Private>], answering: Answering) -> Self {
        let mut device = Device {
            backend,
            workspace: Workspace::new(),
            keys: Vec::new(),
            answering,
            waiting: Vec::new(),
            polls: 0,
        };
        let keys = originals
            .iter()
            .map(|original| {
                // SAFETY: a key of this process's libcrypto; the provider stays loaded.
                unsafe {
                    let parts = private_parts(original.as_ptr().cast()).expect("parts");
                    let handle = device.register(parts.parts());
                    let key = key_with_handle(original.as_ptr().cast(), handle);
                    assert!(!key.is_null(), "{}", openssl::error::ErrorStack::get());
                    PKey::from_ptr(key.cast())
                }
            })
            .collect();
        let instance = Instance::new(vec![Box::new(device)], Scheduler::default(), 64);
        instance::install(instance.expect("an instance"));
        Self { keys }
    }

    /// The only key.
    fn key(&self) -> PKey<Private> {
        assert_eq!(self.keys.len(), 1);
        self.keys[0].clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        instance::uninstall();
    }
}

/// How many operations of `kind` the device has been asked for.
fn asked(kind: Kind) -> u64 {
    let submitted = instance::with(|instance| instance.counters().submitted);
    submitted.expect("an instance")[kind.index()]
}

/// Runs one job on a fiber, with the device.
fn on_fiber<T: 'static>(job: impl FnOnce() -> T + 'static) -> T {
    let answer = Rc::new(RefCell::new(None));
    let job = {
        let answer = answer.clone();
        move || *answer.borrow_mut() = Some(job())
    };
    run_fibers(vec![Box::new(job)]);
    answer.take().expect("the job has ended")
}

/// Runs a job on a fiber, and then without one.
fn everywhere<T: 'static>(job: impl Fn() -> T + Clone + 'static) -> [T; 2] {
    [on_fiber(job.clone()), job()]
}

/// A key of each kind that a device holds.
fn originals() -> Vec<PKey<Private>> {
    let rsa = slipstream_keys::rsa::Size::ALL.map(|size| PKey::from_rsa(example(size)));
    let rsa = rsa.map(|key| key.expect("a key"));
    let curves = CURVES.map(on_curve);
    rsa.into_iter().chain(curves).collect()
}

/// As OpenSSL calls them.
const CURVES: [&CStr; 2] = [GROUPS[1].name, GROUPS[2].name];

fn on_curve(curve: &CStr) -> PKey<Private> {
    Key::generate(c"EC", Some(curve), crate::common::DEFAULT).to_pkey()
}

fn rsa_2048() -> PKey<Private> {
    PKey::from_rsa(example(slipstream_keys::rsa::Size::Rsa2048)).expect("a key")
}

struct Device {
    backend: Backend,
    workspace: Box<Workspace>,
    keys: Vec<PrivateKey>,
    answering: Answering,
    waiting: Vec<Request>,
    polls: usize,
}

/// The name under which keys refer to their device.
const NAME: &str = slipstream_accelerators::engine::NAME;

/// The first handle: neither zero, nor a number of 32 bits.
const FIRST: u64 = 0xfedc_ba98_0000_0001;

impl Device {
    fn register(&mut self, key: KeyParts<'_>) -> Handle {
        self.keys.push(PrivateKey::new(&key).expect("a key"));
        Handle(FIRST + self.keys.len() as u64 - 1)
    }

    fn key(&self, reference: Option<&Reference>) -> &PrivateKey {
        let reference = reference.expect("a key that only the device has");
        let handle = reference.handle_at(NAME).expect("a key of this device");
        &self.keys[handle.0.checked_sub(FIRST).expect("a handle") as usize]
    }

    fn answer(&mut self, operation: Operation) -> Answer {
        let operation = match operation {
            Operation::Rsa { key, input } => {
                let PrivateKey::Rsa(own) = self.key(key.reference()) else {
                    panic!("{:?} with a key of another kind", key.parameters());
                };
                let size = key.parameters();
                assert_eq!((own.size(), input.as_slice().len()), (size, size.bytes()));
                assert!(input.as_slice() < own.modulus());
                let key = OffloadKey::Value(own.clone());
                Operation::Rsa { key, input }
            }
            Operation::Ecdsa { key, digest } => {
                let PrivateKey::Ec(own) = self.key(key.reference()) else {
                    panic!("{:?} with a key of another kind", key.parameters());
                };
                assert_eq!(own.curve(), key.parameters());
                let key = OffloadKey::Value(own.clone());
                Operation::Ecdsa { key, digest }
            }
            _ => panic!("not accepted"),
        };
        let operations = [operation];
        let computed =
            batch::compute(self.backend, &mut self.workspace, operations.iter()).remove(0);
        match (self.answering, computed) {
            (Answering::Computing, computed) => computed,
            (Answering::Refusing(reason), _) => Answer::Software(reason),
            (Answering::Cutting, Answer::Computed(output)) => {
                Answer::Computed(Output::new(&output.as_slice()[1..]))
            }
            (Answering::Cutting, software) => software,
        }
    }
}

impl Accelerator for Device {
    fn name(&self) -> &str {
        NAME
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        operation.is_held()
    }

    fn estimate(&self, _work: &Work) -> Option<Estimate> {
        // No operation is admitted, and those with held keys need not be.
        None
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
            let answer = self.answer(operation);
            responses.push(Response::new(id, answer));
        }
    }
}
