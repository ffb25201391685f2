//! Hashing with the digests of libcrypto.

use std::ffi::c_int;
use std::ptr::NonNull;

use crate::digest::{Digest, LONGEST};
use crate::ffi::Param;
use crate::libcrypto::{EvpMd, EvpMdCtx};
use crate::loaded::LoadedRef;

/// A hash in progress: an `EVP_MD_CTX`.
pub(crate) struct Hasher {
    loaded: LoadedRef,
    context: NonNull<EvpMdCtx>,
}

impl Hasher {
    /// Begins a hash; `None` if libcrypto does not offer the digest or has no memory.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    pub(crate) unsafe fn start(
        loaded: LoadedRef,
        digest: Digest,
        params: *const Param,
    ) -> Option<Self> {
        let mut hasher = Self::empty(loaded)?;
        let md = loaded.default.digest(digest)?;
        // SAFETY: the caller's promise.
        unsafe { hasher.init(md, params) }?;
        Some(hasher)
    }

    /// A copy of the state so far.
    pub(crate) fn duplicate(&self) -> Option<Self> {
        let copy = Self::empty(self.loaded)?;
        let copied = {
            let (to, from) = (copy.context.as_ptr(), self.context.as_ptr());
            // SAFETY: two contexts, of which one is new.
            unsafe { (self.loaded.default.libcrypto.md_ctx_copy)(to, from) }
        };
        (copied == 1).then_some(copy)
    }

    /// Adds `length` bytes. Returns OpenSSL's result, 1 for success.
    ///
    /// # Safety
    /// `data` must point to that many bytes.
    pub(crate) unsafe fn update_raw(&mut self, data: *const u8, length: usize) -> c_int {
        let context = self.context.as_ptr();
        // SAFETY: the caller's promise.
        unsafe { (self.loaded.default.libcrypto.digest_update)(context, data.cast(), length) }
    }

    /// Adds `data`.
    pub(crate) fn update(&mut self, data: &[u8]) -> Option<()> {
        // SAFETY: a slice has as many bytes as its length.
        (unsafe { self.update_raw(data.as_ptr(), data.len()) } == 1).then_some(())
    }

    /// Ends the hash; returns it with its length in bytes.
    pub(crate) fn finish(&mut self) -> Option<([u8; LONGEST], usize)> {
        let mut hash = [0; LONGEST];
        let mut length = 0;
        let context = self.context.as_ptr();
        // SAFETY: no digest of libcrypto is longer than LONGEST, its EVP_MAX_MD_SIZE.
        let finished = unsafe {
            (self.loaded.default.libcrypto.digest_final)(context, hash.as_mut_ptr(), &mut length)
        };
        (finished == 1).then_some((hash, length as usize))
    }

    /// Reads parameters of the digest. Returns OpenSSL's result.
    ///
    /// # Safety
    /// `params` must be an array that ends with a null key and can be answered.
    pub(crate) unsafe fn get_params(&self, params: *mut Param) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.loaded.default.libcrypto.md_ctx_get_params)(self.context.as_ptr(), params) }
    }

    /// Sets parameters of the digest. Returns OpenSSL's result.
    ///
    /// # Safety
    /// `params` must be an array that ends with a null key.
    pub(crate) unsafe fn set_params(&mut self, params: *const Param) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.loaded.default.libcrypto.md_ctx_set_params)(self.context.as_ptr(), params) }
    }

    /// # Safety
    /// As for [`Hasher::start`].
    unsafe fn init(&mut self, md: NonNull<EvpMd>, params: *const Param) -> Option<()> {
        let context = self.context.as_ptr();
        // SAFETY: a context, a fetched digest; the caller's promise for `params`.
        let started =
            unsafe { (self.loaded.default.libcrypto.digest_init)(context, md.as_ptr(), params) };
        (started == 1).then_some(())
    }

    fn empty(loaded: LoadedRef) -> Option<Self> {
        // SAFETY: no preconditions.
        let context = NonNull::new(unsafe { (loaded.default.libcrypto.md_ctx_new)() })?;
        Some(Self { loaded, context })
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        // SAFETY: made in `empty`, freed once.
        unsafe { (self.loaded.default.libcrypto.md_ctx_free)(self.context.as_ptr()) };
    }
}

/// A context that computes several hashes, one after the other.
pub(crate) struct Hashes(Hasher, NonNull<EvpMd>);

impl Hashes {
    /// A context for `digest`; `None` if libcrypto does not offer it or has no memory.
    pub(crate) fn new(loaded: LoadedRef, digest: Digest) -> Option<Self> {
        Some(Self(Hasher::empty(loaded)?, loaded.default.digest(digest)?))
    }

    /// Hashes the parts, one after the other, and fills `output` with the first bytes of the hash.
    /// `None` if libcrypto fails, or `output` is longer than the hash.
    pub(crate) fn hash(&mut self, parts: &[&[u8]], output: &mut [u8]) -> Option<()> {
        // SAFETY: no parameters.
        unsafe { self.0.init(self.1, std::ptr::null()) }?;
        parts.iter().try_for_each(|part| self.0.update(part))?;
        let (hash, length) = self.0.finish()?;
        output.copy_from_slice(hash[..length].get(..output.len())?);
        Some(())
    }
}
