//! The cost of key exchange on curves.

use std::time::Duration;

use slipstream_keys::example::example_point;
use slipstream_keys::{Group, Operand};
use slipstream_offload::costs::measure;

use crate::default_provider::DefaultProvider;
use crate::group::{Bytes, facts};
use crate::object::DefaultObject;

/// Measures one exchange that an accelerator has given back. The default provider has to import
/// both keys first, so that is measured, too.
pub(super) fn software_cost(default: &DefaultProvider, group: Group) -> Option<Duration> {
    let facts = facts(group);
    let public = match facts.curve {
        Some(curve) => Operand::new(&example_point(curve)),
        None => Operand::new(&[9; 32]),
    };
    let peer = Bytes {
        group,
        private: None,
        public: Some(public),
    };
    let own = Bytes {
        // The time does not depend on the scalar, nor on the public key that does not belong to it.
        private: Some(Operand::new(&[1; 48][..facts.private_bytes])),
        ..peer.clone()
    };
    let mut succeeded = true;
    let cost = measure(|| {
        succeeded &= exchange_in_software(default, &own, &peer).is_some();
    });
    succeeded.then_some(cost)
}

fn exchange_in_software(default: &DefaultProvider, own: &Bytes, peer: &Bytes) -> Option<Operand> {
    let functions = &default.exchange(facts(own.group).family)?.keyexch;
    let (own, peer) = (own.import(default)?, peer.import(default)?);
    let mut secret = Operand::zeroed(48);
    let room = secret.as_slice().len();
    let mut length = 0;
    // SAFETY: a context and keys of the default provider; no parameters, and room as long as said.
    let derived = unsafe {
        let context = (functions.newctx)(default.context);
        let context = DefaultObject::own(context, functions.freectx)?;
        (functions.init)(context.as_ptr(), own.as_ptr(), std::ptr::null()) == 1
            && (functions.set_peer)(context.as_ptr(), peer.as_ptr()) == 1
            && {
                let secret = secret.as_mut_slice().as_mut_ptr();
                (functions.derive)(context.as_ptr(), secret, &mut length, room) == 1
            }
    };
    derived.then_some(secret)
}
