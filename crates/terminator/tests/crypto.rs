//! Measuring, in a process of its own: what is measured decides for the whole process.

use slipstream_lanes::{Backend, LANES};
use slipstream_offload::policy::Policy;
use slipstream_offload::{Kind, ahead::Group};
use slipstream_terminator::crypto::{backend, costs};

#[test]
fn aws_lc_is_measured_wherever_lanes_are() {
    let backend = backend().unwrap_or(Backend::Portable);
    let costs = costs(backend);
    let has_curves = Group::X25519.is_offered(backend);
    for kind in Kind::ALL {
        let is_measured = match kind {
            Kind::Rsa(_) => true,
            Kind::X25519 | Kind::Ecdh(_) => has_curves,
            Kind::Ecdsa(_) | Kind::KeyPair(_) | Kind::Compress(_) => false,
        };
        let index = kind.index();
        assert_eq!(costs.batch[index].is_some(), is_measured, "{kind:?}");
        assert!(!is_measured || costs.software[index].is_some(), "{kind:?}");
        if let Some(least) = costs.least(Policy::Cheapest, kind) {
            assert!((1..=LANES).contains(&least), "{kind:?}");
        }
    }
}
