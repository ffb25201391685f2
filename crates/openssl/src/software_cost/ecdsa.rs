//! The cost of signatures of ECDSA.

use std::time::Duration;

use slipstream_keys::ec::Curve;
use slipstream_keys::example::example_point;
use slipstream_keys::{Group, Operand};
use slipstream_offload::costs::measure;

use crate::default_provider::DefaultProvider;
use crate::group::Bytes;
use crate::object::DefaultObject;

/// Measures one signature with a key on `curve`. The key is imported before: a server's own key is
/// imported once.
pub(super) fn software_cost(default: &DefaultProvider, curve: Curve) -> Option<Duration> {
    let key = example(default, curve)?;
    let functions = &default.curves.as_ref()?.ecdsa;
    // SAFETY: the default provider's own context; no properties. It is ours.
    let context = unsafe {
        let context = (functions.newctx)(default.context, std::ptr::null());
        DefaultObject::own(context, functions.freectx)
    }?;
    let digest = vec![1; curve.bytes()];
    let mut output = [0; LONGEST_SIGNATURE];
    // SAFETY: a context and a key of the default provider; no parameters.
    let mut succeeded =
        unsafe { (functions.sign_init)(context.as_ptr(), key.as_ptr(), std::ptr::null()) } == 1;
    let cost = measure(|| {
        let mut length = 0;
        // SAFETY: an initialised context; the buffers are as long as said.
        succeeded &= unsafe {
            (functions.sign)(
                context.as_ptr(),
                output.as_mut_ptr(),
                &mut length,
                output.len(),
                digest.as_ptr(),
                digest.len(),
            )
        } == 1;
    });
    succeeded.then_some(cost)
}

/// Room for a signature on P-384 in DER, in bytes.
const LONGEST_SIGNATURE: usize = 128;

/// The time does not depend on the scalar, nor on the public key that does not belong to it.
fn example(default: &DefaultProvider, curve: Curve) -> Option<DefaultObject> {
    let group = match curve {
        Curve::P256 => Group::P256,
        Curve::P384 => Group::P384,
    };
    let key = Bytes {
        group,
        private: Some(Operand::new(&vec![1; curve.bytes()])),
        public: Some(Operand::new(&example_point(curve))),
    };
    key.import(default)
}
