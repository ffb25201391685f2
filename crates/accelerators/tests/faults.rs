//! Kernels that compute wrongly: a result that fails its check is not released.

mod common;

use std::time::Duration;

use slipstream_accelerators::lanes::{Backend, LANES, Workspace, batch, calibrate};
use slipstream_keys::Group;
use slipstream_keys::ec::Curve;
use slipstream_lanes::fault_test::{Damage, with_damaged_table};
use slipstream_offload::accelerator::Accelerator;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::{Answer, Kind, Operation, Reason, compute_at_once};

use common::{lanes, scheduler, signature};

#[test]
fn signatures_with_a_damaged_table_are_left_to_software() {
    let mut workspace = Workspace::new();
    let operation = signature();
    for backend in backends() {
        let mut sign = || {
            let operations = std::iter::repeat_n(&operation, LANES);
            batch::compute(backend, &mut workspace, operations)
        };
        let is_computed = |answer: &Answer| matches!(answer, Answer::Computed(_));
        assert!(sign().iter().all(is_computed));
        let is_fault = |answer: &Answer| matches!(answer, Answer::Software(Reason::Fault));
        let answers = with_damaged_table(Curve::P256, Damage::Bits, sign);
        assert_eq!(answers.iter().filter(|one| is_fault(one)).count(), LANES);
    }
}

#[test]
fn each_precomputed_value_that_fails_its_check_is_counted_and_replaced_by_software() {
    for backend in backends() {
        let lanes: Box<dyn Accelerator> = Box::new(lanes(backend));
        let instance = Instance::new(vec![lanes], scheduler(), 1);
        instance::install(instance.expect("an instance"));
        for operation in [Operation::KeyPair(Group::P256), signature()] {
            let faults = || {
                let of =
                    |instance: &mut Instance| instance.counters().software[Reason::Fault.index()];
                instance::with(of).expect("an instance")
            };
            let before = faults();
            // Of one batch, which fills the empty pool, and no more while nothing is taken.
            with_damaged_table(Curve::P256, Damage::Bits, || {
                assert!(compute_at_once(&operation).is_none());
                instance::with(Instance::precompute);
            });
            for taken in 1..LANES as u64 {
                assert_eq!(faults(), before + taken);
                assert!(compute_at_once(&operation).is_none());
            }
            assert_eq!(faults(), before + LANES as u64);
            assert!(compute_at_once(&operation).is_some());
            assert_eq!(faults(), before + LANES as u64);
        }
    }
}

#[test]
fn calibration_takes_a_kind_that_fails_out_and_goes_on() {
    // Others are slow to measure.
    let Some(backend) = backends().into_iter().find(|one| *one == Backend::Ifma) else {
        return;
    };
    let calibrate = || calibrate(Some(backend), |_| Some(Duration::from_millis(1)));
    let measured = with_damaged_table(Curve::P256, Damage::Bits, calibrate);
    for kind in Kind::ALL {
        let is_batched = !matches!(kind, Kind::KeyPair(_) | Kind::Compress(_));
        let cost = measured.lanes.batches[kind];
        assert_eq!(
            cost.is_some(),
            is_batched && kind != Kind::Ecdsa(Curve::P256),
            "{kind:?}"
        );
    }
}

/// The backends that compute on curves here.
fn backends() -> Vec<Backend> {
    let offered = |backend: &Backend| slipstream_lanes::ec::offered(*backend);
    Backend::available().filter(offered).collect()
}
