//! Measures what a batch costs against software, once, before a worker serves clients.

use std::sync::Arc;
use std::time::Duration;

use slipstream_keys::example::{example_key, example_point};
use slipstream_keys::{Key, Operand, ec, rsa};
use slipstream_lanes::rsa::Workspace;
use slipstream_lanes::{Backend, LANES, x25519};
use slipstream_offload::costs::{Cost, SoftwareCosts, measure};
use slipstream_offload::{Answer, Kind, Operation, PerKind};

use super::{batch, computes, precomputed};

/// The costs of lanes on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCosts {
    /// One batch; `None` if the backend does not compute the kind.
    pub batches: PerKind<Option<BatchCost>>,
    /// One operation of which most is [precomputed](super::precomputed), with its share of the
    /// precomputation.
    pub precomputed: PerKind<Cost>,
}

/// The cost of a batch of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCost {
    /// With more than half of its lanes live.
    pub full: Cost,
    /// With at most half of its lanes live, where that has been measured separately: RSA takes half
    /// the time. Else as `full`.
    pub half: Cost,
}

/// The costs of lanes, and of the software that they have to beat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Lanes.
    pub lanes: LaneCosts,
    /// The caller's software.
    pub software: SoftwareCosts,
}

impl LaneCosts {
    /// Nothing has been measured, only which kinds `backend` computes.
    pub fn unknown(backend: Backend) -> Self {
        Self {
            batches: PerKind::new(|kind| is_batched(backend, kind).then(BatchCost::default)),
            precomputed: PerKind::default(),
        }
    }
}

/// Measures lanes of `backend`, if there are any, and software for every kind. `software` is called
/// with each kind, and answers what one operation takes in the caller's software; see
/// [`example_key`] and [`example_point`] for operands to do it with.
pub fn calibrate(
    backend: Option<Backend>,
    mut software: impl FnMut(Kind) -> Option<Duration>,
) -> Measured {
    let mut measured = Measured {
        lanes: backend.map_or_else(LaneCosts::default, LaneCosts::unknown),
        ..Measured::default()
    };
    let mut workspace = Workspace::new();
    for kind in Kind::ALL {
        for _ in 0..ROUNDS {
            let cost = &mut measured.software[kind];
            *cost = cost.least(software(kind).into());
            let Some(backend) = backend else {
                continue;
            };
            let cost = &mut measured.lanes.precomputed[kind];
            *cost = cost.least(precomputed_cost(backend, kind));
            let batch = &mut measured.lanes.batches[kind];
            *batch = batch.and_then(|cost| cost.measured(backend, kind, &mut workspace));
        }
    }
    measured
}

impl BatchCost {
    /// The least of this cost and of another measurement. `None` if lanes fail on known operands:
    /// then they do not compute the kind.
    fn measured(self, backend: Backend, kind: Kind, workspace: &mut Workspace) -> Option<Self> {
        let mut batch = |live| batch_cost(backend, kind, live, workspace);
        let full = self.full.least(batch(LANES)?);
        let half = match kind {
            Kind::Rsa(_) => self.half.least(batch(LANES / 2)?),
            _ => full,
        };
        Some(Self { full, half })
    }
}

/// The cost of one operation of `kind` of which most is precomputed by `backend`: a key pair, or a
/// signature. Unknown for other kinds.
pub fn precomputed_cost(backend: Backend, kind: Kind) -> Cost {
    if !computes(backend, kind) {
        return Cost::Unknown;
    }
    match kind {
        Kind::KeyPair(group) => precomputed::key_pairs_cost(backend, group),
        Kind::Ecdsa(curve) => precomputed::signatures_cost(backend, curve),
        _ => Cost::Unknown,
    }
}

/// Software and lanes are measured this often in turn, so that a disturbance that lasts hits both.
const ROUNDS: usize = 2;

/// Returns true if lanes of `backend` compute batches of `kind`. Key pairs are precomputed instead.
fn is_batched(backend: Backend, kind: Kind) -> bool {
    match kind {
        Kind::Rsa(_) | Kind::X25519 | Kind::Ecdh(_) | Kind::Ecdsa(_) => computes(backend, kind),
        Kind::KeyPair(_) | Kind::Compress(_) => false,
    }
}

/// The cost of a batch with this many live lanes; `None` if an operation fails.
fn batch_cost(
    backend: Backend,
    kind: Kind,
    live: usize,
    workspace: &mut Workspace,
) -> Option<Cost> {
    let Some(operations) = examples(kind, live) else {
        return Some(Cost::Unknown);
    };
    let mut are_computed = true;
    let mut compute = || {
        let answers = batch::compute(backend, workspace, operations.iter());
        let is_computed = |answer: &Answer| matches!(answer, Answer::Computed(_));
        are_computed &= answers.iter().all(is_computed);
    };
    // Once before it is measured: keys are prepared then.
    compute();
    let cost = measure(compute);
    are_computed.then_some(Cost::Known(cost))
}

/// Operations with published operands, all with the same key.
fn examples(kind: Kind, live: usize) -> Option<Vec<Operation>> {
    let rsa_key = match kind {
        Kind::Rsa(size) => {
            let components = &example_key(size).components;
            Some(Arc::new(rsa::PrivateKey::new(components).ok()?))
        }
        _ => None,
    };
    let ec_key = match kind {
        Kind::Ecdsa(curve) => Some(Arc::new(
            ec::PrivateKey::new(curve, &vec![1; curve.bytes()]).ok()?,
        )),
        _ => None,
    };
    let example = |_| {
        Some(match kind {
            Kind::Rsa(size) => Operation::Rsa {
                key: Key::Value(rsa_key.clone()?),
                input: Operand::new(&vec![1; size.bytes()]),
            },
            Kind::X25519 => Operation::X25519 {
                private: Operand::new(&[1; x25519::KEY_BYTES]),
                peer: Operand::new(&[9; x25519::KEY_BYTES]),
            },
            Kind::Ecdh(curve) => Operation::Ecdh {
                curve,
                private: Operand::new(&vec![1; curve.bytes()]),
                peer: Operand::new(&example_point(curve)),
            },
            Kind::Ecdsa(curve) => Operation::Ecdsa {
                key: Key::Value(ec_key.clone()?),
                digest: Operand::new(&vec![1; curve.bytes()]),
            },
            Kind::KeyPair(_) | Kind::Compress(_) => return None,
        })
    };
    (0..live).map(example).collect()
}
