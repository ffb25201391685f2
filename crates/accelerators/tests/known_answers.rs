//! A kind that fails its known-answer test is taken out. A process tests once, so there is one test
//! here.

mod common;

use slipstream_accelerators::lanes::{Backend, LANES, computes, prove};
use slipstream_keys::Group;
use slipstream_keys::ec::Curve;
use slipstream_lanes::fault_test::{Damage, with_damaged_table};
use slipstream_offload::accelerator::{Accelerator, AtOnce, Work};
use slipstream_offload::{Kind, Operation, Reason};

use common::{lanes, signature};

const SIGNATURE: Kind = Kind::Ecdsa(Curve::P256);
const KEY_PAIR: Kind = Kind::KeyPair(Group::P256);

/// Every wrong result here is a point of the curve: only comparison with known answers finds it.
#[test]
fn a_kind_that_fails_its_known_answer_test_is_taken_out_and_all_others_stay() {
    let backend = Backend::Portable;
    let before = Kind::ALL.map(|kind| computes(backend, kind));
    let complaint = with_damaged_table(Curve::P256, Damage::Places, || prove(backend));
    assert_eq!(
        complaint,
        Some(
            "portable lanes of this machine fail their known-answer tests of ECDSA-P-256, \
             KEY-P-256: software computes these"
        )
    );
    for (kind, before) in Kind::ALL.into_iter().zip(before) {
        let is_out = kind == SIGNATURE || kind == KEY_PAIR;
        assert_eq!(computes(backend, kind), before && !is_out, "{kind:?}");
        let mut lanes = lanes(backend);
        let work = Work {
            kind,
            count: LANES,
            bytes: 0,
        };
        let is_batched = !matches!(kind, Kind::KeyPair(_) | Kind::Compress(_));
        assert_eq!(lanes.estimate(&work).is_some(), is_batched && !is_out);
        if is_out {
            assert_eq!(lanes.at_once(kind), AtOnce::Never);
        }
        if let Kind::KeyPair(group) = kind {
            let pair = lanes.compute_at_once(&Operation::KeyPair(group));
            assert_eq!(pair.err(), is_out.then_some(Reason::NotOffered));
        }
    }
    assert!(!lanes(backend).accepts(&signature()));
    assert_eq!(prove(backend), complaint, "tested once in a process");
}
