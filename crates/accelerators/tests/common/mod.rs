//! Lanes that precompute, and a signature for them to make.

use std::sync::Arc;

use slipstream_accelerators::lanes::{Backend, LANES, LaneCosts, Lanes, Options};
use slipstream_keys::ec::{Curve, PrivateKey};
use slipstream_keys::{Key, Operand};
use slipstream_offload::Operation;
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};

pub fn signature() -> Operation {
    let key = PrivateKey::new(Curve::P256, &[1; 32]).expect("in range");
    Operation::Ecdsa {
        key: Key::Value(Arc::new(key)),
        digest: Operand::new(&[2; 32]),
    }
}

pub fn lanes(backend: Backend) -> Lanes {
    Lanes::new(Options {
        backend,
        costs: LaneCosts::unknown(backend),
        scheduler: scheduler(),
        has_batches: true,
        key_pairs: LANES,
        nonces: LANES,
    })
}

pub fn scheduler() -> Scheduler {
    Scheduler {
        flush: FlushPolicy::AtLeast(1),
        ..Scheduler::default()
    }
}
