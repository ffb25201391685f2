//! ECDSA (FIPS 186-5, section 6.4), in a job whose operations may be offloaded. Lanes or a device
//! sign while the caller is paused. With a precomputed nonce, the rest of a signature takes less
//! time than a pause, and is computed at once. The device that holds a key always signs with it.

use std::ffi::c_void;

use slipstream_keys::ec::PrivateKey;
use slipstream_keys::{Key as OffloadKey, Operand, encoding};
use slipstream_offload::{Kind, Operation};

use super::key::Key;
use crate::default_provider::DefaultProvider;
use crate::digest;
use crate::ffi;
use crate::job;
use crate::loaded::LoadedRef;
use crate::object::Object;
use crate::param::Lent;
use crate::signature::{Algorithm, FunctionTable, functions};

/// The functions of `OSSL_OP_SIGNATURE` for ECDSA.
pub(crate) static FUNCTIONS: FunctionTable = functions::<Ecdsa>();

struct Ecdsa;

impl Algorithm for Ecdsa {
    type PrivateKey = PrivateKey;

    const RECOVERS: bool = false;

    fn functions(default: &DefaultProvider) -> Option<&ffi::Signature> {
        default.curves.as_ref().map(|functions| &functions.ecdsa)
    }

    unsafe fn offload_key(loaded: LoadedRef, key: *const c_void) -> Option<OffloadKey<PrivateKey>> {
        // SAFETY: the caller's promise.
        let material = unsafe { Key::borrow(key) }?.material();
        match material.held_key() {
            Some(held) => Some(held),
            None if job::participates(loaded) => material.value().cloned().map(OffloadKey::Value),
            None => None,
        }
    }

    unsafe fn default_key(key: *const c_void) -> Option<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe { Key::borrow(key) }?.default_key()
    }

    fn kind(key: &OffloadKey<PrivateKey>) -> Kind {
        Kind::Ecdsa(key.parameters())
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

    fn operation(key: OffloadKey<PrivateKey>, input: Operand) -> Operation {
        Operation::Ecdsa { key, digest: input }
    }

    fn longest(kind: Kind) -> usize {
        encoding::longest_ecdsa(kind.output_bytes() / 2)
    }

    fn write(output: &[u8], signature: &mut [u8]) -> usize {
        encoding::ecdsa(output, signature)
    }
}

/// `hash` as an operand. A longer input is cut off, since no order is longer than the longest
/// digest.
fn input(hash: &[u8]) -> Operand {
    Operand::new(&hash[..hash.len().min(digest::LONGEST)])
}

/// Returns true if the default provider would sign `hash` with a random nonce.
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
