//! Signatures: the default provider's, with the private operation replaced where that gains something.
//!
//! A context wraps one of the default provider. That one sees every parameter and makes every
//! check. Only where a key has a form that signs here and the caller is a job whose server takes part
//! is the message hashed and signed here; the choice is made when a signature begins, so that all
//! else costs what it costs without us. Whatever is not known here ends in the default provider's
//! `sign` on the same context, and in its errors.

mod functions;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::default_provider::DefaultProvider;
use crate::digest::{Digest, Hasher, NAME_BYTES};
use crate::ffi::{self, Param};
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
}

/// A signature or verification as OpenSSL holds it.
struct Context<A: Algorithm> {
    loaded: LoadedRef,
    /// The default provider's context.
    default: DefaultObject,
    /// The key, while it signs and if it has a form that signs here.
    key: Option<Arc<A::PrivateKey>>,
    /// The message so far, if it is hashed here.
    message: Option<Hasher>,
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
            key: None,
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
        self.key = None;
        self.message = None;
    }

    /// A context of the default provider initialised to sign with `key`, or with the key that it
    /// has if that is null, does so here if it can.
    ///
    /// # Safety
    /// `key` must be null or a key of this algorithm's key management.
    unsafe fn signs_with(&mut self, key: *const c_void) {
        self.message = None;
        if !key.is_null() {
            // SAFETY: the caller's promise.
            self.key = unsafe { A::private_key(self.loaded, key) };
        }
    }

    /// Starts to hash a message here, if it can be signed here.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn begin_message(&mut self, params: *const Param) -> bool {
        if let Some(key) = &self.key
            && A::signs_now(self.loaded, key)
            && let Some(digest) = self.digest()
        {
            // SAFETY: the caller's promise.
            self.message = unsafe { Hasher::start(self.loaded, digest, params) };
        }
        if self.message.is_none() {
            return true;
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
        if let Some(key) = &self.key {
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

    /// Signs `hash`: here or, with all its checks and errors, by the default provider.
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
        let signed = unsafe {
            // Callers have been seen to say more than there can be.
            let signature = ffi::bytes_mut(signature, room.min(LONGEST));
            self.sign_here(signature, ffi::bytes(hash, hash_length))
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

    fn sign_here(&self, signature: Option<&mut [u8]>, hash: Option<&[u8]>) -> Option<usize> {
        let key = self.key.as_ref()?;
        // SAFETY: a context of the default provider, which is initialised to sign if there is a key.
        unsafe { A::sign(self.loaded, self.default(), key, hash?, signature?) }
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
