//! The cost of private operations of RSA.

use std::time::Duration;

use slipstream_keys::example::example_key;
use slipstream_keys::rsa::Size;
use slipstream_offload::costs::measure;

use crate::default_provider::DefaultProvider;
use crate::ffi::SELECT_KEYPAIR;
use crate::object::DefaultObject;
use crate::param::Lent;

/// Measures one private operation with a key of `size`.
pub(super) fn software_cost(default: &DefaultProvider, size: Size) -> Option<Duration> {
    let key = example(default, size)?;
    let functions = &default.rsa.signature;
    // SAFETY: the default provider's own context; no properties. It is ours.
    let context = unsafe {
        let context = (functions.newctx)(default.context, std::ptr::null());
        DefaultObject::own(context, functions.freectx)
    }?;
    let mut output = vec![0; size.bytes()];
    let input = [1; 36];
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
                input.as_ptr(),
                input.len(),
            )
        } == 1;
    });
    succeeded.then_some(cost)
}

/// The published example key of `size`, as a key of the default provider.
fn example(default: &DefaultProvider, size: Size) -> Option<DefaultObject> {
    let functions = &default.rsa.keymgmt;
    // SAFETY: the default provider's own context; the key is ours.
    let key = unsafe { DefaultObject::own((functions.new)(default.context), functions.free) }?;
    let example = example_key(size);
    let components = &example.components;
    let mut numbers = [
        (c"n", components.modulus),
        (c"e", components.public_exponent),
        (c"d", example.private_exponent),
        (c"rsa-factor1", components.prime1),
        (c"rsa-factor2", components.prime2),
        (c"rsa-exponent1", components.exponent1),
        (c"rsa-exponent2", components.exponent2),
        (c"rsa-coefficient1", components.coefficient),
    ]
    .map(|(name, bytes)| (name, bytes.iter().rev().copied().collect::<Vec<u8>>()));
    let mut params: Vec<Lent<'_>> = numbers
        .iter_mut()
        .map(|(name, bytes)| Lent::big_number(name, bytes))
        .chain([Lent::END])
        .collect();
    let params = Lent::as_mut_ptr(&mut params);
    // SAFETY: a new key of the default provider and an array that ends with a null key.
    let imported = unsafe { (functions.import)(key.as_ptr(), SELECT_KEYPAIR, params) };
    (imported == 1).then_some(key)
}
