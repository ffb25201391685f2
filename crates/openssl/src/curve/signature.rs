//! ECDSA (FIPS 186-5, section 6.4) with a nonce that has been made ahead, in a job whose server takes part. What is
//! left to do then takes less time than it would take to pause. Where nothing is made ahead, by a device while the caller
//! is paused; or by the device that holds the key.

use std::ffi::c_void;
use std::sync::Arc;

use slipstream_lanes::ec::{self, SigningKey};
use slipstream_offload::encoding;
use slipstream_offload::request::Operand;
use slipstream_offload::{Kind, Operation};

use super::key::Key;
use crate::default_provider::DefaultProvider;
use crate::digest;
use crate::ffi;
use crate::held::Held;
use crate::job::{self, Output};
use crate::object::Object;
use crate::param::Lent;
use crate::provider::LoadedRef;
use crate::signature::Algorithm;

/// See the module.
pub(super) struct Ecdsa;

impl Algorithm for Ecdsa {
    type PrivateKey = SigningKey;

    const RECOVERS: bool = false;

    fn functions(default: &DefaultProvider) -> Option<&ffi::Signature> {
        default.curves.as_ref().map(|functions| &functions.ecdsa)
    }

    unsafe fn private_key(loaded: LoadedRef, key: *const c_void) -> Option<Arc<SigningKey>> {
        if !job::takes_part(loaded) {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }?
            .material()
            .signing_key()
            .cloned()
    }

    unsafe fn held(key: *const c_void) -> Option<Held> {
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }?.material().held
    }

    unsafe fn default_key(key: *const c_void) -> Option<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }?.default_key()
    }

    fn signs_now(loaded: LoadedRef, _key: &SigningKey) -> bool {
        job::takes_part(loaded)
    }

    fn count_refusal(_loaded: LoadedRef, _key: &SigningKey) {
        // Nothing has been refused: only devices compute signatures, in lanes here only their nonces are.
    }

    unsafe fn sign(
        loaded: LoadedRef,
        default: *mut c_void,
        key: &Arc<SigningKey>,
        hash: &[u8],
        signature: &mut [u8],
    ) -> Option<usize> {
        let curve = key.curve();
        // SAFETY: the caller's promise.
        let usual = unsafe { is_usual(loaded, default, hash) };
        // The default provider wants room for the longest signature.
        if !usual || signature.len() < encoding::longest_ecdsa(curve.bytes()) {
            return None;
        }
        let Some(nonce) = job::nonce(loaded, curve) else {
            let output = offloaded(loaded, key, hash)?;
            return Some(encoding::ecdsa(output.as_slice(), signature));
        };
        let mut numbers = [0; 2 * 48];
        let numbers = &mut numbers[..2 * curve.bytes()];
        ec::sign(key, hash, nonce, numbers).ok()?;
        Some(encoding::ecdsa(numbers, signature))
    }

    unsafe fn input(
        loaded: LoadedRef,
        default: *mut c_void,
        _kind: Kind,
        hash: &[u8],
    ) -> Option<Operand> {
        // SAFETY: the caller's promise.
        let usual = unsafe { is_usual(loaded, default, hash) };
        usual.then(|| input(hash))
    }

    fn longest(kind: Kind) -> usize {
        encoding::longest_ecdsa(kind.output_bytes() / 2)
    }

    fn write(output: &[u8], signature: &mut [u8]) -> usize {
        encoding::ecdsa(output, signature)
    }
}

/// r and s of a signature that is made while the caller is paused. `None` if software has to do it.
fn offloaded(loaded: LoadedRef, key: &Arc<SigningKey>, hash: &[u8]) -> Option<Output> {
    let kind = Kind::Ecdsa(key.curve());
    // Most accelerators make none, and then nothing has been refused.
    if !job::pauses(loaded, kind) {
        return None;
    }
    let operation = || {
        Some(Operation::Ecdsa {
            key: key.clone(),
            digest: input(hash),
        })
    };
    let output = job::compute(loaded, loaded.backend()?, kind, operation)?;
    (output.as_slice().len() == kind.output_bytes()).then_some(output)
}

/// `hash` as an operand. Of longer input the rest is not looked at: no order is longer than a digest.
fn input(hash: &[u8]) -> Operand {
    Operand::new(&hash[..hash.len().min(digest::LONGEST)])
}

/// Whether the default provider would sign `hash` with a random nonce.
///
/// # Safety
/// `context` must be an initialised signature context of the default provider.
unsafe fn is_usual(loaded: LoadedRef, context: *mut c_void, hash: &[u8]) -> bool {
    let Some(functions) = Ecdsa::functions(&loaded.default) else {
        return false;
    };
    let (mut digest_size, mut nonce_type) = (0, 0);
    let mut params = [
        Lent::size(c"digest-size", &mut digest_size),
        // Unknown before OpenSSL 3.2.
        Lent::unsigned(c"nonce-type", &mut nonce_type),
        Lent::END,
    ];
    let params = Lent::as_mut_ptr(&mut params);
    // SAFETY: the caller's promise; an array that ends with a null key.
    let read = unsafe { (functions.get_ctx_params)(context, params) } == 1;
    read && nonce_type == 0 && !hash.is_empty() && (digest_size == 0 || digest_size == hash.len())
}
