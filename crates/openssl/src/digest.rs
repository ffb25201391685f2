//! Hashing with the digests of libcrypto.

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::ffi::Param;
use crate::libcrypto::{EvpMd, EvpMdCtx, Libcrypto};
use crate::provider::LoadedRef;

/// Room for the name of a digest (`OSSL_MAX_NAME_SIZE`).
pub(crate) const NAME_BYTES: usize = 50;

/// The longest digest in bytes.
pub(crate) const LONGEST: usize = 64;

/// The digests for which signatures are encoded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Md5Sha1,
}

impl Digest {
    const ALL: [Digest; 6] = [
        Self::Sha1,
        Self::Sha224,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
        Self::Md5Sha1,
    ];

    /// The digest that OpenSSL knows by `name`, in any case.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|digest| {
            digest
                .names()
                .iter()
                .any(|known| known.to_bytes().eq_ignore_ascii_case(name))
        })
    }

    /// Bytes of a hash.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Md5Sha1 => 36,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn names(self) -> &'static [&'static CStr] {
        match self {
            Self::Sha1 => &[c"SHA1", c"SHA-1"],
            Self::Sha224 => &[c"SHA2-224", c"SHA224", c"SHA-224"],
            Self::Sha256 => &[c"SHA2-256", c"SHA256", c"SHA-256"],
            Self::Sha384 => &[c"SHA2-384", c"SHA384", c"SHA-384"],
            Self::Sha512 => &[c"SHA2-512", c"SHA512", c"SHA-512"],
            Self::Md5Sha1 => &[c"MD5-SHA1"],
        }
    }
}

/// The implementations of [`Digest`]s, each fetched once: a fetch by name takes as long as hashing
/// a few hundred bytes.
#[derive(Default)]
pub(crate) struct Digests {
    fetched: [OnceLock<Fetched>; Digest::ALL.len()],
}

struct Fetched(*mut EvpMd);

// SAFETY: an `EVP_MD` is immutable apart from its atomic reference count.
unsafe impl Send for Fetched {}
// SAFETY: as above.
unsafe impl Sync for Fetched {}

impl Digests {
    fn get(&self, loaded: LoadedRef, digest: Digest) -> Option<NonNull<EvpMd>> {
        let fetched = self.fetched[digest as usize].get_or_init(|| {
            let name = digest.names()[0];
            let library = loaded.default.library();
            // SAFETY: a library context, a text that ends with NUL, no properties.
            Fetched(unsafe {
                (loaded.default.libcrypto.md_fetch)(library, name.as_ptr(), std::ptr::null())
            })
        });
        NonNull::new(fetched.0)
    }

    /// Gives them back. Nothing may use them any more.
    pub(crate) fn free(&mut self, libcrypto: &Libcrypto) {
        for fetched in &mut self.fetched {
            if let Some(Fetched(md)) = fetched.take() {
                // SAFETY: fetched in `get`, and taken out, hence freed once; null is allowed.
                unsafe { (libcrypto.md_free)(md) };
            }
        }
    }
}

/// A hash being computed, an `EVP_MD_CTX`.
pub(crate) struct Hasher {
    loaded: LoadedRef,
    context: NonNull<EvpMdCtx>,
}

impl Hasher {
    /// `None` if libcrypto does not offer the digest or has no memory.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    pub(crate) unsafe fn start(
        loaded: LoadedRef,
        digest: Digest,
        params: *const Param,
    ) -> Option<Self> {
        let mut hasher = Self::empty(loaded)?;
        let md = loaded.default.digests.get(loaded, digest)?;
        // SAFETY: the caller's promise.
        unsafe { hasher.init(md, params) }?;
        Some(hasher)
    }

    /// Another hash that goes on from here.
    pub(crate) fn duplicate(&self) -> Option<Self> {
        let copy = Self::empty(self.loaded)?;
        let copied = {
            let (to, from) = (copy.context.as_ptr(), self.context.as_ptr());
            // SAFETY: two contexts, of which one is new.
            unsafe { (self.loaded.default.libcrypto.md_ctx_copy)(to, from) }
        };
        (copied == 1).then_some(copy)
    }

    /// Adds `length` bytes. Answers as OpenSSL does, 1 for success.
    ///
    /// # Safety
    /// `data` must point to as many bytes.
    pub(crate) unsafe fn update_raw(&mut self, data: *const u8, length: usize) -> c_int {
        let context = self.context.as_ptr();
        // SAFETY: the caller's promise.
        unsafe { (self.loaded.default.libcrypto.digest_update)(context, data.cast(), length) }
    }

    /// Adds `data`.
    pub(crate) fn update(&mut self, data: &[u8]) -> Option<()> {
        // SAFETY: as many bytes as the slice has.
        (unsafe { self.update_raw(data.as_ptr(), data.len()) } == 1).then_some(())
    }

    /// The hash, and its length in bytes.
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

    /// Reads parameters of the digest, as OpenSSL answers.
    ///
    /// # Safety
    /// `params` must be an array that ends with a null key and can be answered.
    pub(crate) unsafe fn get_params(&self, params: *mut Param) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { (self.loaded.default.libcrypto.md_ctx_get_params)(self.context.as_ptr(), params) }
    }

    /// Sets parameters of the digest, as OpenSSL answers.
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

/// Hashes one thing after the other with one context.
pub(crate) struct Hashes(Hasher, NonNull<EvpMd>);

impl Hashes {
    /// `None` if libcrypto does not offer the digest or has no memory.
    pub(crate) fn new(loaded: LoadedRef, digest: Digest) -> Option<Self> {
        Some(Self(
            Hasher::empty(loaded)?,
            loaded.default.digests.get(loaded, digest)?,
        ))
    }

    /// The hash of the parts, one after the other; the length of `output` decides how many of its
    /// bytes are kept.
    pub(crate) fn hash(&mut self, parts: &[&[u8]], output: &mut [u8]) -> Option<()> {
        // SAFETY: no parameters.
        unsafe { self.0.init(self.1, std::ptr::null()) }?;
        parts.iter().try_for_each(|part| self.0.update(part))?;
        let (hash, length) = self.0.finish()?;
        output.copy_from_slice(hash[..length].get(..output.len())?);
        Some(())
    }
}
