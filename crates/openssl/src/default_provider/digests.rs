//! The implementations of digests in libcrypto.

use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::digest::Digest;
use crate::libcrypto::{EvpMd, LibCtx, Libcrypto};

/// The implementations of all digests. Each is fetched once: a fetch by name takes as long as
/// hashing a few hundred bytes.
#[derive(Default)]
pub(super) struct Digests {
    fetched: [OnceLock<Fetched>; Digest::ALL.len()],
}

struct Fetched(*mut EvpMd);

// SAFETY: an `EVP_MD` is immutable apart from its atomic reference count.
unsafe impl Send for Fetched {}
// SAFETY: as above.
unsafe impl Sync for Fetched {}

impl Digests {
    /// The implementation of `digest`; `None` if libcrypto does not offer it.
    ///
    /// # Safety
    /// `library` must be a library context of `libcrypto`, the same one in every call.
    pub(super) unsafe fn get(
        &self,
        libcrypto: &Libcrypto,
        library: *mut LibCtx,
        digest: Digest,
    ) -> Option<NonNull<EvpMd>> {
        let fetched = self.fetched[digest as usize].get_or_init(|| {
            let name = digest.name().as_ptr();
            // SAFETY: the caller's promise, a text that ends with NUL, no properties.
            Fetched(unsafe { (libcrypto.md_fetch)(library, name, std::ptr::null()) })
        });
        NonNull::new(fetched.0)
    }

    /// Frees all implementations. Nothing may use them any more.
    pub(super) fn free(&mut self, libcrypto: &Libcrypto) {
        for fetched in &mut self.fetched {
            if let Some(Fetched(md)) = fetched.take() {
                // SAFETY: fetched in `get`, and taken out, hence freed once; null is allowed.
                unsafe { (libcrypto.md_free)(md) };
            }
        }
    }
}
