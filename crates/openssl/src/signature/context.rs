//! A signature or verification as OpenSSL holds it.

use std::ffi::{c_int, c_void};

use slipstream_keys::Key as OffloadKey;
use slipstream_offload::{Reason, Route};

use super::algorithm::Algorithm;
use crate::digest::{Digest, NAME_BYTES};
use crate::failure::Failure;
use crate::ffi::{self, Param};
use crate::hasher::Hasher;
use crate::job;
use crate::loaded::LoadedRef;
use crate::object::{DefaultObject, Object};
use crate::param::Lent;

/// The longest signature in bytes: of RSA-4096.
const LONGEST: usize = 512;

/// A signature or verification as OpenSSL holds it.
pub(super) struct Context<A: Algorithm> {
    pub(super) loaded: LoadedRef,
    /// The default provider's context.
    default: DefaultObject,
    /// The key, if accelerators may sign with it. `None` otherwise and while the context verifies:
    /// then the default provider does everything.
    pub(super) key: Option<OffloadKey<A::PrivateKey>>,
    /// The message so far, if it is hashed here.
    pub(super) message: Option<Hasher>,
    /// The decision for the message, made at its beginning; `None` if a hash is signed without a
    /// message.
    pub(super) admission: Option<Result<Route, Reason>>,
}

impl<A: Algorithm> Object for Context<A> {}

impl<A: Algorithm> Context<A> {
    /// # Safety
    /// `default` must be null or a context that a function of [`ffi::Signature`] of the algorithm
    /// has just made.
    pub(super) unsafe fn own(loaded: LoadedRef, default: *mut c_void) -> Option<Self> {
        let free = A::functions(&loaded.default)?.freectx;
        Some(Self {
            loaded,
            // SAFETY: the caller's promise.
            default: unsafe { DefaultObject::own(default, free) }?,
            key: None,
            message: None,
            admission: None,
        })
    }

    pub(super) fn default(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    pub(super) fn functions(&self) -> &ffi::Signature {
        A::functions(&self.loaded.default).expect("checked when this was made, and never changed")
    }

    /// Leaves everything from here on to the default provider.
    pub(super) fn leave_to_default(&mut self) {
        self.key = None;
        self.message = None;
        self.admission = None;
    }

    /// Notes that the context signs with `key`, or with its earlier key if that is null. To be
    /// called when the default provider's context has been initialised for this.
    ///
    /// # Safety
    /// `key` must be null or a key of this algorithm's key management.
    pub(super) unsafe fn signs_with(&mut self, key: *const c_void) {
        self.message = None;
        self.admission = None;
        if !key.is_null() {
            // SAFETY: the caller's promise.
            self.key = unsafe { A::offload_key(self.loaded, key) };
        }
    }

    /// Starts to hash a message here, if it can be signed here. Returns false, with an error on the
    /// queue, if it cannot be signed at all.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    pub(super) unsafe fn begin_message(&mut self, params: *const Param) -> bool {
        self.admission = self.key.as_ref().map(|key| self.admit(key));
        if let Some(Ok(_)) = self.admission
            && let Some(digest) = self.digest()
        {
            // SAFETY: the caller's promise.
            self.message = unsafe { Hasher::start(self.loaded, digest, params) };
        }
        if self.message.is_none() {
            let is_left_to_default = self.key.as_ref().is_none_or(|key| key.value().is_some());
            if !is_left_to_default {
                self.loaded.errors.raise(Failure::NotComputed);
            }
            return is_left_to_default;
        }
        // The default provider may have to sign the hash after all. In newer versions, a context
        // that was initialised to sign messages would hash it again. Key and digest stay.
        let sign_init = self.functions().sign_init;
        // SAFETY: a context of the default provider that has a key, and the caller's array.
        unsafe { sign_init(self.default(), std::ptr::null_mut(), params) == 1 }
    }

    /// Decides how the operation that signs with `key` is computed. With a held key it is always
    /// offloaded.
    fn admit(&self, key: &OffloadKey<A::PrivateKey>) -> Result<Route, Reason> {
        match key.value() {
            Some(_) => job::admit(self.loaded, A::kind(key)),
            None => Ok(Route::Pause),
        }
    }

    /// Counts the message as left to software. To be called when the default provider signs it, not
    /// when it begins: OpenSSL begins some messages only to see if a digest is supported.
    pub(super) fn count_refusal(&self) {
        if let Some(Err(reason)) = self.admission {
            job::refuse(reason);
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

    /// Signs `hash`, by an accelerator or by the default provider with all its checks and errors.
    /// With a held key only the device can sign.
    ///
    /// # Safety
    /// The arguments must be those of the core: `signature` is null or has room for `room` bytes.
    pub(super) unsafe fn sign(
        &self,
        signature: *mut u8,
        length: *mut usize,
        room: usize,
        hash: *const u8,
        hash_length: usize,
    ) -> c_int {
        // SAFETY: the caller's promise: the lengths are right.
        let (buffer, digest) = unsafe {
            // Some callers pass a room that is larger than any buffer.
            let buffer = ffi::bytes_mut(signature, room.min(LONGEST));
            (buffer, ffi::bytes(hash, hash_length))
        };
        let signed = match (&self.key, buffer) {
            // Only the length is asked for.
            (_, None) | (None, _) => None,
            (Some(key), Some(buffer)) => {
                match self.sign_offloaded(key, digest.unwrap_or_default(), buffer) {
                    Ok(signed) => signed,
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
        // SAFETY: a context of the default provider, and the core's arguments.
        unsafe { sign(self.default(), signature, length, room, hash, hash_length) }
    }

    /// Signs `hash` by an accelerator, and returns the length of the signature. `None` if the
    /// default provider has to sign it.
    ///
    /// # Errors
    /// If a device holds the key and does not sign. The default provider cannot stand in for it.
    fn sign_offloaded(
        &self,
        key: &OffloadKey<A::PrivateKey>,
        hash: &[u8],
        signature: &mut [u8],
    ) -> Result<Option<usize>, Failure> {
        let kind = A::kind(key);
        let is_held = key.value().is_none();
        let fail = |failure| if is_held { Err(failure) } else { Ok(None) };
        if signature.len() < A::longest(kind) {
            return fail(Failure::NoRoom);
        }
        let route = match self.admission.unwrap_or_else(|| self.admit(key)) {
            Ok(route) => route,
            Err(reason) => {
                job::refuse(reason);
                return Ok(None);
            }
        };
        // SAFETY: a context of the default provider, which is initialised to sign.
        let Some(input) = (unsafe { A::input(self.loaded, self.default(), kind, hash) }) else {
            return fail(Failure::NotComputed);
        };
        let operation = A::operation(key.clone(), input);
        let output = match is_held {
            true => job::compute_held(operation),
            false => job::compute(self.loaded, route, operation),
        };
        match output {
            Some(output) => Ok(Some(A::write(output.as_slice(), signature))),
            None => fail(Failure::NoAnswer),
        }
    }

    /// Ends the empty message of the default provider's context, so that the context is in the
    /// state after a message. Writes the length of a signature to `length`, and returns OpenSSL's
    /// result.
    ///
    /// # Safety
    /// `length` must be room for an answer.
    pub(super) unsafe fn end_default_message(&self, length: *mut usize) -> c_int {
        let end = self.functions().digest_sign_final;
        // SAFETY: a context of the default provider; without a signature only the length is asked.
        unsafe { end(self.default(), std::ptr::null_mut(), length, 0) }
    }
}
