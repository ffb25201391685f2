//! RSA signatures: encoded here, with the private operation at an accelerator.

use std::ffi::c_void;

use slipstream_keys::rsa::PrivateKey;
use slipstream_keys::{Key as OffloadKey, Operand};
use slipstream_offload::{Kind, Operation};

use super::encoding::Scheme;
use super::key::Key;
use crate::default_provider::DefaultProvider;
use crate::ffi;
use crate::loaded::LoadedRef;
use crate::object::Object;
use crate::signature::{Algorithm, FunctionTable, functions};

/// The functions of `OSSL_OP_SIGNATURE` for RSA.
pub(crate) static FUNCTIONS: FunctionTable = functions::<Rsa>();

struct Rsa;

impl Algorithm for Rsa {
    type PrivateKey = PrivateKey;

    const RECOVERS: bool = true;

    fn functions(default: &DefaultProvider) -> Option<&ffi::Signature> {
        Some(&default.rsa.signature)
    }

    unsafe fn offload_key(_: LoadedRef, key: *const c_void) -> Option<OffloadKey<PrivateKey>> {
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }?.offload_key()
    }

    unsafe fn default_key(key: *const c_void) -> Option<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }.map(Key::default_key)
    }

    fn kind(key: &OffloadKey<PrivateKey>) -> Kind {
        Kind::Rsa(key.parameters())
    }

    unsafe fn input(
        loaded: LoadedRef,
        default: *mut c_void,
        kind: Kind,
        hash: &[u8],
    ) -> Option<Operand> {
        // SAFETY: the caller's promise.
        unsafe { Scheme::of(loaded, default) }?.encode(loaded, hash, kind.output_bytes())
    }

    fn operation(key: OffloadKey<PrivateKey>, input: Operand) -> Operation {
        Operation::Rsa { key, input }
    }

    fn longest(kind: Kind) -> usize {
        kind.output_bytes()
    }

    fn write(output: &[u8], signature: &mut [u8]) -> usize {
        signature[..output.len()].copy_from_slice(output);
        output.len()
    }
}
