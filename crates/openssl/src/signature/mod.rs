//! Signatures: the default provider's, with the private operation replaced where that gains something.
//!
//! A context wraps one of the default provider. That one sees every parameter and makes every
//! check. Only where a key has a form that signs here and the caller is a job whose server takes part
//! is the message hashed and signed here; the choice is made when a signature begins, so that all
//! else costs what it costs without us. Whatever is not known here ends in the default provider's
//! `sign` on the same context, and in its errors. But with a private key that a device [holds](crate::held) everything
//! is hashed here, and the device signs it or nobody.

mod functions;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use slipstream_offload::Kind;
use slipstream_offload::request::Operand;

use crate::default_provider::DefaultProvider;
use crate::digest::{Digest, Hasher, NAME_BYTES};
use crate::failure::Failure;
use crate::ffi::{self, Param};
use crate::held::Held;
use crate::job;
use crate::object::{DefaultObject, Object};
use crate::param::Lent;
use crate::provider::LoadedRef;

pub(crate) use functions::{FunctionTable, functions};

/// The longest signature in bytes: of RSA-4096.
const LONGEST: usize = 512;

/// An algorithm of which some signatures are made here.
pub(crate) trait Algorithm: 'static {
    /// A private key in the form that signs here.
    type PrivateKey;

    /// Whether it offers to recover what was signed.
    const RECOVERS: bool;

    /// The default provider's functions; `None` if it lacks them, in which case the algorithm is not offered.
    fn functions(default: &DefaultProvider) -> Option<&ffi::Signature>;

    /// The key in the form that signs here; `None` if it has none, or is not going to sign here.
    ///
    /// # Safety
    /// `key` must be a key of this algorithm's key management.
    unsafe fn private_key(loaded: LoadedRef, key: *const c_void) -> Option<Arc<Self::PrivateKey>>;

    /// What stands in place of the private key, if a device holds it.
    ///
    /// # Safety
    /// As for [`Algorithm::private_key`].
    unsafe fn held(key: *const c_void) -> Option<Held>;

    /// The key in the form that the default provider's functions take; `None` if there is no memory for it.
    ///
    /// # Safety
    /// As for [`Algorithm::private_key`].
    unsafe fn default_key(key: *const c_void) -> Option<*mut c_void>;

    /// Whether a message that is begun now is to be hashed and signed here with `key`.
    fn signs_now(loaded: LoadedRef, key: &Self::PrivateKey) -> bool;

    /// Counts a message that the default provider has hashed and signs with `key`.
    fn count_refusal(loaded: LoadedRef, key: &Self::PrivateKey);

    /// Signs `hash` into `signature`, and returns the length. `None` if the default provider has to do it.
    ///
    /// # Safety
    /// `default` must be a context of the default provider that is initialised to sign.
    unsafe fn sign(
        loaded: LoadedRef,
        default: *mut c_void,
        key: &Arc<Self::PrivateKey>,
        hash: &[u8],
        signature: &mut [u8],
    ) -> Option<usize>;

    /// What a device takes to sign `hash`. `None` if it cannot do that.
    ///
    /// # Safety
    /// As for [`Algorithm::sign`].
    unsafe fn input(
        loaded: LoadedRef,
        default: *mut c_void,
        kind: Kind,
        hash: &[u8],
    ) -> Option<Operand>;

    /// The length of the longest signature in bytes.
    fn longest(kind: Kind) -> usize;

    /// Writes the signature that is a device's `output`, and returns its length.
    ///
    /// # Panics
    /// If there is less room than for the [longest](Self::longest).
    fn write(output: &[u8], signature: &mut [u8]) -> usize;
}

/// A signature or verification as OpenSSL holds it.
struct Context<A: Algorithm> {
    loaded: LoadedRef,
    /// The default provider's context.
    default: DefaultObject,
    signer: Signer<A>,
    /// The message so far, if it is hashed here.
    message: Option<Hasher>,
}

/// What signs.
enum Signer<A: Algorithm> {
    /// The default provider; also while it verifies.
    Default,
    /// We, where that gains something, with a key that has a form for that.
    Here(Arc<A::PrivateKey>),
    /// The device that holds the key, and nobody else.
    Device(Held),
}

impl<A: Algorithm> Clone for Signer<A> {
    fn clone(&self) -> Self {
        match self {
            Self::Default => Self::Default,
            Self::Here(key) => Self::Here(key.clone()),
            Self::Device(held) => Self::Device(*held),
        }
    }
}

impl<A: Algorithm> Object for Context<A> {}

impl<A: Algorithm> Context<A> {
    /// # Safety
    /// `default` must be null or what a function of [`ffi::Signature`] of the algorithm has just made.
    unsafe fn own(loaded: LoadedRef, default: *mut c_void) -> Option<Self> {
        let free = A::functions(&loaded.default)?.freectx;
        Some(Self {
            loaded,
            // SAFETY: the caller's promise.
            default: unsafe { DefaultObject::own(default, free) }?,
            signer: Signer::Default,
            message: None,
        })
    }

    fn default(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    fn functions(&self) -> &ffi::Signature {
        A::functions(&self.loaded.default).expect("checked when this was made, and never changed")
    }

    /// From here on the context does what the default provider's does.
    fn leave_to_default(&mut self) {
        self.signer = Signer::Default;
        self.message = None;
    }

    /// A context of the default provider initialised to sign with `key`, or with the key that it
    /// has if that is null, does so here if it can, or at the device that holds the key.
    ///
    /// # Safety
    /// `key` must be null or a key of this algorithm's key management.
    unsafe fn signs_with(&mut self, key: *const c_void) {
        self.message = None;
        if !key.is_null() {
            // SAFETY: the caller's promise.
            self.signer = match unsafe { A::held(key) } {
                Some(held) => Signer::Device(held),
                // SAFETY: the caller's promise.
                None => unsafe { A::private_key(self.loaded, key) }
                    .map_or(Signer::Default, Signer::Here),
            };
        }
    }

    /// Starts to hash a message here, if it can be signed here. False, with an error, if it cannot be signed.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn begin_message(&mut self, params: *const Param) -> bool {
        let is_hashed_here = match &self.signer {
            Signer::Default => false,
            Signer::Here(key) => A::signs_now(self.loaded, key),
            Signer::Device(_) => true,
        };
        if is_hashed_here && let Some(digest) = self.digest() {
            // SAFETY: the caller's promise.
            self.message = unsafe { Hasher::start(self.loaded, digest, params) };
        }
        if self.message.is_none() {
            let is_left_to_default = !matches!(self.signer, Signer::Device(_));
            if !is_left_to_default {
                self.loaded.errors.raise(Failure::NotComputed);
            }
            return is_left_to_default;
        }
        // If the hash is signed by the default provider after all, it must not hash it again, as a
        // context that was initialised to sign messages does in newer versions. Key and digest stay.
        let sign_init = self.functions().sign_init;
        // SAFETY: a context of the default provider that has a key, and the caller's array.
        unsafe { sign_init(self.default(), std::ptr::null_mut(), params) == 1 }
    }

    /// To be called when the default provider signs a message that it has hashed. Not when the
    /// message begins: OpenSSL begins some only to see whether a digest is supported.
    fn count_refusal(&self) {
        if let Signer::Here(key) = &self.signer {
            A::count_refusal(self.loaded, key);
        }
    }

    fn digest(&self) -> Option<Digest> {
        let mut name = [0; NAME_BYTES];
        let mut params = [Lent::text(c"digest", &mut name), Lent::END];
        let params = Lent::as_mut_ptr(&mut params);
        // SAFETY: a context of the default provider and an array that ends with a null key.
        if unsafe { (self.functions().get_ctx_params)(self.default(), params) } != 1 {
            return None;
        }
        Digest::from_name(name.split(|&byte| byte == 0).next()?)
    }

    /// Signs `hash`: here or, with all its checks and errors, by the default provider; or by the device that holds the
    /// key.
    ///
    /// # Safety
    /// As the core calls `sign`: `signature` is null or has room for `room` bytes.
    unsafe fn sign(
        &self,
        signature: *mut u8,
        length: *mut usize,
        room: usize,
        hash: *const u8,
        hash_length: usize,
    ) -> c_int {
        // SAFETY: the caller's promise: as many bytes as it says.
        let (buffer, digest) = unsafe {
            // Callers have been seen to say more than there can be.
            let buffer = ffi::bytes_mut(signature, room.min(LONGEST));
            (buffer, ffi::bytes(hash, hash_length))
        };
        let signed = match (&self.signer, buffer) {
            // Only the length is asked for.
            (_, None) | (Signer::Default, _) => None,
            (Signer::Here(key), Some(buffer)) => self.sign_here(key, digest, buffer),
            (Signer::Device(held), Some(buffer)) => {
                match self.sign_at_device(*held, digest.unwrap_or_default(), buffer) {
                    Ok(signed) => Some(signed),
                    Err(failure) => {
                        self.loaded.errors.raise(failure);
                        return 0;
                    }
                }
            }
        };
        if let Some(signed) = signed {
            // SAFETY: the core's room for an answer.
            unsafe { *length = signed };
            return 1;
        }
        let sign = self.functions().sign;
        // SAFETY: a context of the default provider, and what the core passes.
        unsafe { sign(self.default(), signature, length, room, hash, hash_length) }
    }

    fn sign_here(
        &self,
        key: &Arc<A::PrivateKey>,
        hash: Option<&[u8]>,
        signature: &mut [u8],
    ) -> Option<usize> {
        // SAFETY: a context of the default provider, which is initialised to sign.
        unsafe { A::sign(self.loaded, self.default(), key, hash?, signature) }
    }

    fn sign_at_device(
        &self,
        held: Held,
        hash: &[u8],
        signature: &mut [u8],
    ) -> Result<usize, Failure> {
        if signature.len() < A::longest(held.kind) {
            return Err(Failure::NoRoom);
        }
        // SAFETY: a context of the default provider, which is initialised to sign.
        let input = unsafe { A::input(self.loaded, self.default(), held.kind, hash) }
            .ok_or(Failure::NotComputed)?;
        let output = job::ask_device(held, input).ok_or(Failure::NoAnswer)?;
        Ok(A::write(output.as_slice(), signature))
    }

    /// Ends the default provider's own message, which is empty, so that its context again allows
    /// what it allows after a message; answers the length of a signature.
    ///
    /// # Safety
    /// `length` must be room for an answer.
    unsafe fn end_default_message(&self, length: *mut usize) -> c_int {
        let end = self.functions().digest_sign_final;
        // SAFETY: a context of the default provider; without a signature only the length is asked.
        unsafe { end(self.default(), std::ptr::null_mut(), length, 0) }
    }
}
