//! The trait of signature algorithms whose private operations are offloaded.

use std::ffi::c_void;

use slipstream_keys::{Key as OffloadKey, Operand, Value};
use slipstream_offload::{Kind, Operation};

use crate::default_provider::DefaultProvider;
use crate::ffi;
use crate::loaded::LoadedRef;

/// A signature algorithm whose private operations are offloaded.
pub(crate) trait Algorithm: 'static {
    /// The value of a private key.
    type PrivateKey: Value;

    /// True if a hash can be recovered from its signature.
    const RECOVERS: bool;

    /// The default provider's functions. `None` if it lacks them; then the algorithm is not
    /// offered.
    fn functions(default: &DefaultProvider) -> Option<&ffi::Signature>;

    /// The key for accelerators; `None` if they cannot use it, or the caller is not a job whose
    /// operations may be offloaded.
    ///
    /// # Safety
    /// `key` must be a key of this algorithm's key management.
    unsafe fn offload_key(
        loaded: LoadedRef,
        key: *const c_void,
    ) -> Option<OffloadKey<Self::PrivateKey>>;

    /// The key in the form that the default provider's functions take; `None` if there is no memory
    /// for it.
    ///
    /// # Safety
    /// As for [`Algorithm::offload_key`].
    unsafe fn default_key(key: *const c_void) -> Option<*mut c_void>;

    /// The kind of the operation that signs with `key`.
    fn kind(key: &OffloadKey<Self::PrivateKey>) -> Kind;

    /// The input of the operation that signs `hash`. `None` if only the default provider can encode
    /// it, or would refuse it.
    ///
    /// # Safety
    /// `default` must be a context of the default provider that is initialised to sign.
    unsafe fn input(
        loaded: LoadedRef,
        default: *mut c_void,
        kind: Kind,
        hash: &[u8],
    ) -> Option<Operand>;

    /// The operation that signs.
    fn operation(key: OffloadKey<Self::PrivateKey>, input: Operand) -> Operation;

    /// The length of the longest signature in bytes.
    fn longest(kind: Kind) -> usize;

    /// Encodes the `output` of the operation as a signature, and returns its length.
    ///
    /// # Panics
    /// If `signature` is shorter than the [longest](Self::longest) signature.
    fn write(output: &[u8], signature: &mut [u8]) -> usize;
}
