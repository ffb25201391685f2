//! RSA signatures: encoded here, with the private operation in lanes while the caller is paused, or at the device that
//! holds the key.

use std::ffi::c_void;
use std::sync::Arc;

use slipstream_lanes::rsa::PrivateKey;
use slipstream_offload::request::Operand;
use slipstream_offload::{Kind, Operation};

use super::encoding::Scheme;
use super::key::Key;
use crate::default_provider::DefaultProvider;
use crate::ffi;
use crate::held::Held;
use crate::job;
use crate::object::Object;
use crate::provider::LoadedRef;
use crate::signature::Algorithm;

/// See the module.
pub(super) struct Rsa;

impl Algorithm for Rsa {
    type PrivateKey = PrivateKey;

    const RECOVERS: bool = true;

    fn functions(default: &DefaultProvider) -> Option<&ffi::Signature> {
        Some(&default.rsa.signature)
    }

    unsafe fn private_key(_: LoadedRef, key: *const c_void) -> Option<Arc<PrivateKey>> {
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }?.lanes().cloned()
    }

    unsafe fn held(key: *const c_void) -> Option<Held> {
        // SAFETY: the caller's promise.
        Some(unsafe { Key::borrow(key) }?.held()?.held)
    }

    unsafe fn default_key(key: *const c_void) -> Option<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }.map(Key::default_key)
    }

    fn signs_now(loaded: LoadedRef, key: &PrivateKey) -> bool {
        job::pauses(loaded, Kind::Rsa(key.size()))
    }

    fn count_refusal(loaded: LoadedRef, key: &PrivateKey) {
        job::count_refusal(loaded, Kind::Rsa(key.size()));
    }

    unsafe fn sign(
        loaded: LoadedRef,
        default: *mut c_void,
        key: &Arc<PrivateKey>,
        hash: &[u8],
        signature: &mut [u8],
    ) -> Option<usize> {
        let signature = signature.get_mut(..key.size().bytes())?;
        let output = job::compute(loaded, key.backend(), Kind::Rsa(key.size()), || {
            Some(Operation::RsaPrivate {
                key: key.clone(),
                // SAFETY: the caller's promise.
                input: unsafe { encode(loaded, default, hash, key.size().bytes()) }?,
            })
        })?;
        signature.copy_from_slice(output.as_slice());
        Some(signature.len())
    }

    unsafe fn input(
        loaded: LoadedRef,
        default: *mut c_void,
        kind: Kind,
        hash: &[u8],
    ) -> Option<Operand> {
        // SAFETY: the caller's promise.
        unsafe { encode(loaded, default, hash, kind.output_bytes()) }
    }

    fn longest(kind: Kind) -> usize {
        kind.output_bytes()
    }

    fn write(output: &[u8], signature: &mut [u8]) -> usize {
        signature[..output.len()].copy_from_slice(output);
        output.len()
    }
}

/// `hash` as it is encoded for a modulus of `length` bytes. `None` if only the default provider knows how, or refuses.
///
/// # Safety
/// `default` must be a context of the default provider that is initialised to sign.
unsafe fn encode(
    loaded: LoadedRef,
    default: *mut c_void,
    hash: &[u8],
    length: usize,
) -> Option<Operand> {
    // SAFETY: the caller's promise.
    unsafe { Scheme::of(loaded, default) }?.encode(loaded, hash, length)
}
