//! OpenSSL's default provider, reached through the public ABI. Its functions compute everything
//! that is not offloaded.
//!
//! It is loaded into a library context of our own. The properties and the configuration of the
//! process have no effect there, so nothing that is fetched inside can lead back to this provider.

mod digests;
mod functions;

use std::error::Error;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr::NonNull;

use crate::digest::Digest;
use crate::ffi::Callback;
use crate::libcrypto::{EvpMd, LibCtx, Libcrypto, LoadedProvider};
use digests::Digests;
use functions::Algorithms;
pub(crate) use functions::{CurveFunctions, ExchangeFunctions, Family, KdfFunctions, RsaFunctions};

/// The default provider's functions, with the libcrypto that they belong to.
pub(crate) struct DefaultProvider {
    pub(crate) libcrypto: Libcrypto,
    /// The provider context that its functions take.
    pub(crate) context: *mut c_void,
    pub(crate) rsa: RsaFunctions,
    /// `None` if it lacks one of them.
    pub(crate) curves: Option<CurveFunctions>,
    digests: Digests,
    /// `None` if it lacks one of them.
    pub(crate) kdfs: Option<KdfFunctions>,
    library: NonNull<LibCtx>,
    loaded: NonNull<LoadedProvider>,
}

/// The reason why the default provider cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    NoMemory,
    NotLoaded,
    NoRsa,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "libcrypto has no memory for a library context",
            Self::NotLoaded => "the default provider does not load",
            Self::NoRsa => "the default provider lacks a function of RSA",
        })
    }
}

impl Error for LoadError {}

impl DefaultProvider {
    /// Loads the default provider of `libcrypto`.
    ///
    /// # Errors
    /// If it does not load, or lacks functions that cannot be left out.
    pub(crate) fn load(libcrypto: Libcrypto) -> Result<Self, LoadError> {
        // SAFETY: no preconditions.
        let library =
            NonNull::new(unsafe { (libcrypto.lib_ctx_new)() }).ok_or(LoadError::NoMemory)?;
        // SAFETY: the library context just made and a text that ends with NUL.
        let loaded = unsafe { (libcrypto.provider_load)(library.as_ptr(), c"default".as_ptr()) };
        let Some(loaded) = NonNull::new(loaded) else {
            // SAFETY: made above; nothing uses it.
            unsafe { (libcrypto.lib_ctx_free)(library.as_ptr()) };
            return Err(LoadError::NotLoaded);
        };
        let algorithms = Algorithms {
            libcrypto: &libcrypto,
            loaded,
        };
        let (curves, kdfs) = (algorithms.curves(), algorithms.kdfs());
        let Some(rsa) = algorithms.rsa() else {
            // SAFETY: both were made above, and nothing uses them.
            unsafe {
                (libcrypto.provider_unload)(loaded.as_ptr());
                (libcrypto.lib_ctx_free)(library.as_ptr());
            }
            return Err(LoadError::NoRsa);
        };
        // SAFETY: a loaded provider.
        let context = unsafe { (libcrypto.provider_ctx)(loaded.as_ptr()) };
        let digests = Digests::default();
        Ok(Self {
            libcrypto,
            context,
            rsa,
            curves,
            digests,
            kdfs,
            library,
            loaded,
        })
    }

    /// The functions for the keys of `family`, and for their exchange; `None` if curves are not
    /// offered.
    pub(crate) fn exchange(&self, family: Family) -> Option<&ExchangeFunctions> {
        Some(self.curves.as_ref()?.exchange(family))
    }

    /// The implementation of `digest`; `None` if libcrypto does not offer it.
    pub(crate) fn digest(&self, digest: Digest) -> Option<NonNull<EvpMd>> {
        // SAFETY: its own library context.
        unsafe {
            self.digests
                .get(&self.libcrypto, self.library.as_ptr(), digest)
        }
    }

    /// Passes its capabilities to `callback`. Returns OpenSSL's result.
    ///
    /// # Safety
    /// `capability` must be a text that ends with NUL, and `argument` the argument that `callback`
    /// expects.
    pub(crate) unsafe fn get_capabilities(
        &self,
        capability: *const c_char,
        callback: Callback,
        argument: *mut c_void,
    ) -> c_int {
        let get = self.libcrypto.provider_get_capabilities;
        // SAFETY: a loaded provider; the caller's promise.
        unsafe { get(self.loaded.as_ptr(), capability, callback, argument) }
    }
}

impl Drop for DefaultProvider {
    fn drop(&mut self) {
        self.digests.free(&self.libcrypto);
        // SAFETY: both were made in `load`; the core unloads a provider after all its keys and
        // contexts.
        unsafe {
            (self.libcrypto.provider_unload)(self.loaded.as_ptr());
            (self.libcrypto.lib_ctx_free)(self.library.as_ptr());
        }
    }
}
