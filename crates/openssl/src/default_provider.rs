//! OpenSSL's default provider, reached through the public ABI: everything that is not the private
//! operation itself is computed by its functions.
//!
//! It is loaded into a library context of our own. Properties and configurations of the process do
//! not reach in there, so nothing that is fetched inside can lead back to us.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use slipstream_lanes::rsa::Size;
use slipstream_offload::calibration;

use crate::digest::Digests;
use crate::ffi::{self, Algorithm};
use crate::kdf::Kdfs;
use crate::key;
use crate::libcrypto::{LibCtx, Libcrypto, LoadedProvider};

/// What is used of the default provider, with the libcrypto that it belongs to.
pub(crate) struct DefaultProvider {
    pub(crate) libcrypto: Libcrypto,
    /// What its functions want as provider context.
    pub(crate) context: *mut c_void,
    pub(crate) keymgmt: ffi::Keymgmt,
    pub(crate) signature: ffi::Signature,
    pub(crate) asym_cipher: ffi::AsymCipher,
    pub(crate) digests: Digests,
    /// `None` if it lacks one of them.
    pub(crate) kdfs: Option<Kdfs>,
    library: NonNull<LibCtx>,
    loaded: NonNull<LoadedProvider>,
}

impl DefaultProvider {
    /// Loads it. The error says in a few words what is missing.
    pub(crate) fn load(libcrypto: Libcrypto) -> Result<Self, String> {
        // SAFETY: no preconditions.
        let library = NonNull::new(unsafe { (libcrypto.lib_ctx_new)() })
            .ok_or("libcrypto has no memory for a library context")?;
        // SAFETY: the library context just made and a text that ends with NUL.
        let loaded = unsafe { (libcrypto.provider_load)(library.as_ptr(), c"default".as_ptr()) };
        let Some(loaded) = NonNull::new(loaded) else {
            // SAFETY: made above; nothing uses it.
            unsafe { (libcrypto.lib_ctx_free)(library.as_ptr()) };
            return Err("the default provider does not load".into());
        };
        let algorithms = Algorithms {
            libcrypto: &libcrypto,
            loaded,
        };
        // SAFETY: the tables that are found have the type of their operation.
        let functions = unsafe {
            (
                algorithms.find(ffi::OP_KEYMGMT, c"RSA", ffi::Keymgmt::read),
                algorithms.find(ffi::OP_SIGNATURE, c"RSA", ffi::Signature::read),
                algorithms.find(ffi::OP_ASYM_CIPHER, c"RSA", ffi::AsymCipher::read),
            )
        };
        // SAFETY: as above.
        let kdfs = Kdfs::new(|name| unsafe { algorithms.find(ffi::OP_KDF, name, ffi::Kdf::read) });
        let (Some(keymgmt), Some(signature), Some(asym_cipher)) = functions else {
            // SAFETY: both were made above, and nothing uses them.
            unsafe {
                (libcrypto.provider_unload)(loaded.as_ptr());
                (libcrypto.lib_ctx_free)(library.as_ptr());
            }
            return Err("the default provider lacks a function of RSA".into());
        };
        // SAFETY: a loaded provider.
        let context = unsafe { (libcrypto.provider_ctx)(loaded.as_ptr()) };
        let digests = Digests::default();
        Ok(Self {
            libcrypto,
            context,
            keymgmt,
            signature,
            asym_cipher,
            digests,
            kdfs,
            library,
            loaded,
        })
    }

    /// Where digests are fetched.
    pub(crate) fn library(&self) -> *mut LibCtx {
        self.library.as_ptr()
    }

    /// What one private operation with a key of `size` bits takes, the least of a few.
    pub(crate) fn private_operation_cost(&self, size: Size) -> Option<Duration> {
        let key = key::DefaultKey::example(self, size)?;
        // SAFETY: the provider's context; no properties.
        let context =
            NonNull::new(unsafe { (self.signature.newctx)(self.context, std::ptr::null()) })?;
        let mut output = vec![0; size.bytes()];
        let input = [1; 36];
        // SAFETY: a context and a key of this provider; no parameters.
        let mut succeeded =
            unsafe { (self.signature.sign_init)(context.as_ptr(), key.as_ptr(), std::ptr::null()) }
                == 1;
        let cost = calibration::least(|| {
            let mut length = 0;
            // SAFETY: an initialised context; the buffers are as long as said.
            succeeded &= unsafe {
                (self.signature.sign)(
                    context.as_ptr(),
                    output.as_mut_ptr(),
                    &mut length,
                    output.len(),
                    input.as_ptr(),
                    input.len(),
                )
            } == 1;
        });
        // SAFETY: made above and not used again.
        unsafe { (self.signature.freectx)(context.as_ptr()) };
        succeeded.then_some(cost)
    }
}

/// What a loaded provider offers.
struct Algorithms<'a> {
    libcrypto: &'a Libcrypto,
    loaded: NonNull<LoadedProvider>,
}

impl Algorithms<'_> {
    /// The functions of the algorithm `name` for `operation`.
    ///
    /// # Safety
    /// `read` must be for tables of `operation`.
    unsafe fn find<T>(
        &self,
        operation: c_int,
        name: &CStr,
        read: unsafe fn(*const ffi::Dispatch) -> Option<T>,
    ) -> Option<T> {
        let mut no_cache = 0;
        let query = self.libcrypto.provider_query_operation;
        // SAFETY: a loaded provider and room for the answer.
        let mut algorithm = unsafe { query(self.loaded.as_ptr(), operation, &mut no_cache) };
        if algorithm.is_null() {
            return None;
        }
        loop {
            // SAFETY: tables of algorithms are read up to the entry with null names.
            let Algorithm {
                names,
                implementation,
                ..
            } = unsafe { &*algorithm };
            if names.is_null() {
                return None;
            }
            // SAFETY: names are a text that ends with NUL.
            if contains(unsafe { CStr::from_ptr(*names) }, name) {
                // SAFETY: the caller's promise.
                return unsafe { read(*implementation) };
            }
            // SAFETY: not the last entry.
            algorithm = unsafe { algorithm.add(1) };
        }
    }
}

impl Drop for DefaultProvider {
    fn drop(&mut self) {
        self.digests.free(&self.libcrypto);
        // SAFETY: both were made in `load`; the core drops us after all keys and contexts.
        unsafe {
            (self.libcrypto.provider_unload)(self.loaded.as_ptr());
            (self.libcrypto.lib_ctx_free)(self.library.as_ptr());
        }
    }
}

fn contains(names: &CStr, name: &CStr) -> bool {
    names
        .to_bytes()
        .split(|&byte| byte == b':')
        .any(|known| known.eq_ignore_ascii_case(name.to_bytes()))
}
