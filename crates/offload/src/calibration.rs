//! Measures what a batch costs against software, once, before a worker serves anybody.

mod examples;

use std::sync::Arc;
use std::time::Duration;

use slipstream_lanes::ec;
use slipstream_lanes::rsa::{PrivateKey, Workspace};
use slipstream_lanes::{Backend, LANES, x25519};

use crate::batch;
use crate::policy::Costs;
use crate::request::{Answer, Kind, Operand, Operation};

pub use examples::{ExampleKey, example_key, example_point};

/// How often software and lanes are measured in turn, so that a disturbance that lasts hits both.
const ROUNDS: usize = 2;

/// How often each is measured in a round. The least of all is taken, since whatever disturbs a
/// measurement only adds to it.
const REPETITIONS: usize = 3;

/// Measures a batch of `backend` for every kind. `software` is called with each kind, and answers
/// what one operation takes in the caller's software; see [`example_key`] and [`example_point`] for operands to do it
/// with.
pub fn calibrate(backend: Backend, mut software: impl FnMut(Kind) -> Option<Duration>) -> Costs {
    let mut costs = Costs::default();
    let mut workspace = Workspace::new();
    for kind in Kind::ALL {
        for _ in 0..ROUNDS {
            keep_least(&mut costs.software[kind.index()], software(kind));
            let mut batch = |live| batch(backend, kind, live, &mut workspace);
            keep_least(&mut costs.batch[kind.index()], batch(LANES));
            if let Kind::Rsa(_) = kind {
                keep_least(&mut costs.half_batch[kind.index()], batch(LANES / 2));
            }
        }
    }
    costs
}

/// The least of a few measurements of `operation`, in CPU time of this thread: a server may start
/// on a machine that is busy with other things.
pub fn least(mut operation: impl FnMut()) -> Duration {
    let measure = |_| {
        let start = thread_cpu_time();
        operation();
        thread_cpu_time().saturating_sub(start)
    };
    (0..REPETITIONS)
        .map(measure)
        .min()
        .expect("at least one repetition")
}

fn keep_least(least: &mut Option<Duration>, measured: Option<Duration>) {
    *least = match (*least, measured) {
        (Some(least), Some(measured)) => Some(least.min(measured)),
        (least, measured) => least.or(measured),
    };
}

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one timespec; the clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a batch with this many live lanes costs; `None` if the backend does not offer the kind.
fn batch(backend: Backend, kind: Kind, live: usize, workspace: &mut Workspace) -> Option<Duration> {
    let operations: Vec<Operation> = (0..live)
        .map(|_| example(backend, kind))
        .collect::<Option<_>>()?;
    Some(least(|| {
        let answers = batch::compute(backend, workspace, operations.iter());
        let computed = |answer: &Answer| matches!(answer, Answer::Computed(_));
        assert!(answers.iter().all(computed), "lanes fail on known operands");
    }))
}

fn example(backend: Backend, kind: Kind) -> Option<Operation> {
    let operation = match kind {
        Kind::Rsa(size) => Operation::RsaPrivate {
            key: Arc::new(PrivateKey::new(backend, &example_key(size).components).ok()?),
            input: Operand::new(&vec![1; size.bytes()]),
        },
        Kind::X25519 if x25519::offered(backend) => Operation::X25519 {
            private: Operand::new(&[1; x25519::KEY_BYTES]),
            peer: Operand::new(&[9; x25519::KEY_BYTES]),
        },
        Kind::Ecdh(curve) if ec::offered(backend) => Operation::Ecdh {
            curve,
            private: Operand::new(&vec![1; curve.bytes()]),
            peer: Operand::new(&example_point(curve)),
        },
        Kind::X25519 | Kind::Ecdh(_) | Kind::Ecdsa(_) | Kind::KeyPair(_) | Kind::Compress(_) => {
            return None;
        }
    };
    Some(operation)
}
