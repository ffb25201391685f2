//! Measuring of costs, in a process of its own, since it takes a while and other work disturbs it.

use slipstream_accelerators::lanes::{Backend, LANES, Lanes, Measured, Options, computes};
use slipstream_offload::Kind;
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_terminator::crypto::{backend, measure};

#[test]
fn aws_lc_is_measured_wherever_lanes_are() {
    let backend = backend().unwrap_or(Backend::Portable);
    let measured = measure(Some(backend));
    software_is_measured(&measured);
    let scheduler = Scheduler {
        flush: FlushPolicy::Cheapest,
        software: measured.software,
    };
    let lanes = Lanes::new(Options {
        backend,
        costs: measured.lanes,
        scheduler: scheduler.clone(),
        has_batches: true,
        key_pairs: 0,
        nonces: 0,
    });
    for kind in Kind::ALL {
        let (is_batched, is_precomputed) = match kind {
            Kind::Rsa(_) => (true, false),
            Kind::X25519 | Kind::Ecdh(_) => (computes(backend, kind), false),
            Kind::KeyPair(_) => (false, computes(backend, kind)),
            Kind::Ecdsa(_) => (computes(backend, kind), computes(backend, kind)),
            Kind::Compress(_) => (false, false),
        };
        let batch = measured.lanes.batches[kind];
        let costs = batch.map(|cost| (cost.full.known(), cost.half.known()));
        assert_eq!(costs.is_some(), is_batched, "{kind:?}");
        if let Some(costs) = costs {
            assert!(matches!(costs, (Some(_), Some(_))), "{kind:?}: {costs:?}");
        }
        let precomputed = measured.lanes.precomputed[kind].known();
        assert_eq!(precomputed.is_some(), is_precomputed, "{kind:?}");
        if let Some(least) = scheduler.least_batch(kind, &lanes) {
            assert!((1..=LANES).contains(&least), "{kind:?}");
        }
    }
}

#[test]
fn aws_lc_is_measured_without_lanes() {
    let measured = measure(None);
    software_is_measured(&measured);
    for kind in Kind::ALL {
        assert_eq!(measured.lanes.batches[kind], None, "{kind:?}");
        assert_eq!(measured.lanes.precomputed[kind].known(), None, "{kind:?}");
    }
}

/// aws-lc makes the key pairs of its exchanges itself.
fn software_is_measured(measured: &Measured) {
    for kind in Kind::ALL {
        let is_measured = match kind {
            Kind::Rsa(_) | Kind::X25519 | Kind::Ecdh(_) | Kind::Ecdsa(_) => true,
            Kind::KeyPair(_) | Kind::Compress(_) => false,
        };
        let cost = measured.software[kind].known();
        assert_eq!(cost.is_some(), is_measured, "{kind:?}");
    }
}
