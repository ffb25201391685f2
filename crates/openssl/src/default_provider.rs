//! OpenSSL's default provider, reached through the public ABI: everything that is not the private
//! operation itself is computed by its functions.
//!
//! It is loaded into a library context of our own. Properties and configurations of the process do
//! not reach in there, so nothing that is fetched inside can lead back to us.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

use slipstream_lanes::ec::Curve;
use slipstream_offload::Kind;
use slipstream_offload::ahead::Group;

use crate::digest::Digests;
use crate::ffi::{self, Algorithm, Callback};
use crate::kdf::Kdfs;
use crate::libcrypto::{LibCtx, Libcrypto, LoadedProvider};
use crate::{curve, rsa};

/// What is used of the default provider, with the libcrypto that it belongs to.
pub(crate) struct DefaultProvider {
    pub(crate) libcrypto: Libcrypto,
    /// What its functions want as provider context.
    pub(crate) context: *mut c_void,
    pub(crate) rsa: rsa::Functions,
    /// `None` if it lacks one of them.
    pub(crate) curves: Option<curve::Functions>,
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
        let curves = algorithms.curves();
        // SAFETY: tables of key derivation are read as such.
        let kdfs = Kdfs::new(|name| unsafe { algorithms.find(ffi::OP_KDF, name, ffi::Kdf::read) });
        let Some(rsa) = algorithms.rsa() else {
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
            rsa,
            curves,
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

    /// Passes its capabilities to `callback`. Answers as OpenSSL does.
    ///
    /// # Safety
    /// `capability` must be a text that ends with NUL, and `argument` what `callback` expects.
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

    /// What one operation of `kind` takes, the least of a few measurements.
    pub(crate) fn software_cost(&self, kind: Kind) -> Option<Duration> {
        match kind {
            Kind::Rsa(size) => rsa::software_cost(self, size),
            Kind::X25519 => curve::software_cost(self, Group::X25519),
            Kind::Ecdh(Curve::P256) => curve::software_cost(self, Group::P256),
            Kind::Ecdh(Curve::P384) => curve::software_cost(self, Group::P384),
            // Left to OpenSSL one by one: only a device takes them, and it is not measured.
            Kind::Ecdsa(_) | Kind::KeyPair(_) | Kind::Compress(_) => None,
        }
    }
}

/// What a loaded provider offers.
struct Algorithms<'a> {
    libcrypto: &'a Libcrypto,
    loaded: NonNull<LoadedProvider>,
}

impl Algorithms<'_> {
    fn rsa(&self) -> Option<rsa::Functions> {
        // SAFETY: each table is read as one of its operation.
        unsafe {
            Some(rsa::Functions {
                keymgmt: self.find(ffi::OP_KEYMGMT, c"RSA", ffi::Keymgmt::read)?,
                signature: self.find(ffi::OP_SIGNATURE, c"RSA", ffi::Signature::read)?,
                asym_cipher: self.find(ffi::OP_ASYM_CIPHER, c"RSA", ffi::AsymCipher::read)?,
            })
        }
    }

    fn curves(&self) -> Option<curve::Functions> {
        // SAFETY: as above.
        unsafe {
            Some(curve::Functions {
                x25519: curve::Exchange {
                    keymgmt: self.find(ffi::OP_KEYMGMT, c"X25519", ffi::Keymgmt::read)?,
                    keyexch: self.find(ffi::OP_KEYEXCH, c"X25519", ffi::Keyexch::read)?,
                },
                ec: curve::Exchange {
                    keymgmt: self.find(ffi::OP_KEYMGMT, c"EC", ffi::Keymgmt::read)?,
                    keyexch: self.find(ffi::OP_KEYEXCH, c"ECDH", ffi::Keyexch::read)?,
                },
                ecdsa: self.find(ffi::OP_SIGNATURE, c"ECDSA", ffi::Signature::read)?,
            })
        }
    }

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
