//! Private keys that a device holds. The device is in this process: lanes, with keys that the provider does not have.

mod decryption;
mod handshakes;
mod keys;
mod parts;
mod signatures;

use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;
use std::sync::Arc;

use foreign_types_shared::ForeignType;
use openssl::pkey::{PKey, Private};
use slipstream_lanes::Backend;
use slipstream_lanes::ec::SigningKey;
use slipstream_lanes::rsa::{PrivateKey, Workspace};
use slipstream_offload::accelerator::{Accelerator, Moment, Request, Response};
use slipstream_offload::counters::Counters;
use slipstream_offload::device::message;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::{Answer, Handle, Kind, Operation, Output, Reason, batch};
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
                    let handle = device.register(parts.as_message());
                    let key = key_with_handle(original.as_ptr().cast(), handle);
                    assert!(!key.is_null(), "{}", openssl::error::ErrorStack::get());
                    PKey::from_ptr(key.cast())
                }
            })
            .collect();
        instance::install(Instance::new(Box::new(device), 64).expect("an instance"));
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
    let rsa = slipstream_lanes::rsa::Size::ALL.map(|size| PKey::from_rsa(example(size)));
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
    PKey::from_rsa(example(slipstream_lanes::rsa::Size::Rsa2048)).expect("a key")
}

struct Device {
    backend: Backend,
    workspace: Box<Workspace>,
    keys: Vec<DeviceKey>,
    answering: Answering,
    waiting: Vec<Request>,
    polls: usize,
}

enum DeviceKey {
    Rsa(Arc<PrivateKey>),
    Ec(Arc<SigningKey>),
}

/// The first handle: neither zero, nor a number of 32 bits.
const FIRST: u64 = 0xfedc_ba98_0000_0001;

impl Device {
    fn register(&mut self, key: message::Key<'_>) -> Handle {
        self.keys.push(match key {
            message::Key::Rsa(components) => {
                let key = PrivateKey::new(self.backend, &components).expect("a key");
                DeviceKey::Rsa(Arc::new(key))
            }
            message::Key::Ec { curve, private } => {
                DeviceKey::Ec(Arc::new(SigningKey::new(curve, private).expect("a key")))
            }
        });
        Handle(FIRST + self.keys.len() as u64 - 1)
    }

    fn answer(&mut self, operation: Operation) -> Answer {
        let Operation::Held { kind, key, input } = operation else {
            panic!("not accepted");
        };
        let key = key.0.checked_sub(FIRST).expect("a handle") as usize;
        let operation = match (&self.keys[key], kind) {
            (DeviceKey::Rsa(key), Kind::Rsa(size)) => {
                assert_eq!((key.size(), input.as_slice().len()), (size, size.bytes()));
                assert!(input.as_slice() < key.modulus_bytes());
                let key = key.clone();
                Operation::RsaPrivate { key, input }
            }
            (DeviceKey::Ec(key), Kind::Ecdsa(curve)) => {
                assert_eq!(key.curve(), curve);
                let key = key.clone();
                Operation::Ecdsa { key, digest: input }
            }
            _ => panic!("{kind:?} with a key of another kind"),
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
    fn accepts(&mut self, operation: &Operation) -> bool {
        matches!(operation, Operation::Held { .. })
    }

    fn company(&self, _kind: Kind) -> Option<usize> {
        // So that nobody would be admitted who asks.
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
            responses.push(Response {
                id,
                answer,
                is_notified: false,
            });
        }
    }
}
