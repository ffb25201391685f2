//! The libcrypto that loaded this provider, found without linking one.
//!
//! A module that is linked to `libcrypto.so.3` brings a second libcrypto into a process that has
//! OpenSSL 4, or into one that keeps its own copy private. The core's upcalls lead to the right
//! one: the library that contains them is searched by name. A static executable exports no names.
//! There, [`Libcrypto`] is not available, and the provider offers nothing.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;

use crate::ffi::{Callback, Param};

/// Opaque types of libcrypto.
macro_rules! opaque {
    ($($(#[$meta:meta])* $name:ident)*) => {
        $($(#[$meta])* #[repr(C)] pub(crate) struct $name { opaque: [u8; 0] })*
    };
}

opaque! {
    /// `OSSL_LIB_CTX`.
    LibCtx
    /// `OSSL_PROVIDER`.
    LoadedProvider
    /// `EVP_MD`.
    EvpMd
    /// `EVP_MD_CTX`.
    EvpMdCtx
    /// `EVP_PKEY`.
    EvpPkey
    /// `EVP_PKEY_CTX`.
    EvpPkeyCtx
    /// `ASYNC_JOB`.
    AsyncJob
    /// `ASYNC_WAIT_CTX`.
    AsyncWaitCtx
}

/// Called when a wait context is freed: context, key, descriptor, custom data.
pub(crate) type WaitCleanup =
    unsafe extern "C" fn(*mut AsyncWaitCtx, *const c_void, c_int, *mut c_void);

/// Declares functions of libcrypto: the name in libcrypto, the name here, the type.
macro_rules! symbols {
    ($($symbol:ident $field:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the process's libcrypto.
        pub(crate) struct Libcrypto {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Libcrypto {
            /// Looks up every function in `library`.
            fn resolve(library: &Library) -> Result<Self, Unavailable> {
                $(
                    let name = concat!(stringify!($symbol), "\0");
                    let address = library.symbol(name)?;
                    // SAFETY: the address of the function of that name in libcrypto, whose type is
                    // part of its stable ABI (the headers of OpenSSL 3.0).
                    let $field = unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(address)
                    };
                )*
                Ok(Self { $($field,)* })
            }
        }
    };
}

symbols! {
    OSSL_LIB_CTX_new lib_ctx_new: fn() -> *mut LibCtx;
    OSSL_LIB_CTX_free lib_ctx_free: fn(*mut LibCtx);
    OSSL_PROVIDER_load provider_load: fn(*mut LibCtx, *const c_char) -> *mut LoadedProvider;
    OSSL_PROVIDER_unload provider_unload: fn(*mut LoadedProvider) -> c_int;
    OSSL_PROVIDER_query_operation provider_query_operation:
        fn(*const LoadedProvider, c_int, *mut c_int) -> *const crate::ffi::Algorithm;
    OSSL_PROVIDER_get_capabilities provider_get_capabilities:
        fn(*const LoadedProvider, *const c_char, Callback, *mut c_void) -> c_int;
    OSSL_PROVIDER_get0_provider_ctx provider_ctx: fn(*const LoadedProvider) -> *mut c_void;
    EVP_MD_fetch md_fetch: fn(*mut LibCtx, *const c_char, *const c_char) -> *mut EvpMd;
    EVP_MD_free md_free: fn(*mut EvpMd);
    EVP_MD_CTX_new md_ctx_new: fn() -> *mut EvpMdCtx;
    EVP_MD_CTX_free md_ctx_free: fn(*mut EvpMdCtx);
    EVP_MD_CTX_copy_ex md_ctx_copy: fn(*mut EvpMdCtx, *const EvpMdCtx) -> c_int;
    EVP_MD_CTX_get_params md_ctx_get_params: fn(*mut EvpMdCtx, *mut Param) -> c_int;
    EVP_MD_CTX_set_params md_ctx_set_params: fn(*mut EvpMdCtx, *const Param) -> c_int;
    EVP_DigestInit_ex2 digest_init: fn(*mut EvpMdCtx, *const EvpMd, *const Param) -> c_int;
    EVP_DigestUpdate digest_update: fn(*mut EvpMdCtx, *const c_void, usize) -> c_int;
    EVP_DigestFinal_ex digest_final: fn(*mut EvpMdCtx, *mut u8, *mut c_uint) -> c_int;
    EVP_PKEY_is_a pkey_is_a: fn(*const EvpPkey, *const c_char) -> c_int;
    EVP_PKEY_get_params pkey_get_params: fn(*const EvpPkey, *mut Param) -> c_int;
    EVP_PKEY_CTX_new_from_name pkey_ctx_new_from_name:
        fn(*mut LibCtx, *const c_char, *const c_char) -> *mut EvpPkeyCtx;
    EVP_PKEY_CTX_free pkey_ctx_free: fn(*mut EvpPkeyCtx);
    EVP_PKEY_fromdata_init pkey_fromdata_init: fn(*mut EvpPkeyCtx) -> c_int;
    EVP_PKEY_fromdata pkey_fromdata:
        fn(*mut EvpPkeyCtx, *mut *mut EvpPkey, c_int, *mut Param) -> c_int;
    ERR_set_mark error_set_mark: fn() -> c_int;
    ERR_pop_to_mark error_pop_to_mark: fn() -> c_int;
    ASYNC_get_current_job async_current_job: fn() -> *mut AsyncJob;
    ASYNC_pause_job async_pause_job: fn() -> c_int;
    ASYNC_get_wait_ctx async_wait_ctx: fn(*mut AsyncJob) -> *mut AsyncWaitCtx;
    ASYNC_WAIT_CTX_get_fd async_wait_fd:
        fn(*mut AsyncWaitCtx, *const c_void, *mut c_int, *mut *mut c_void) -> c_int;
    ASYNC_WAIT_CTX_set_wait_fd async_set_wait_fd:
        fn(*mut AsyncWaitCtx, *const c_void, c_int, *mut c_void, Option<WaitCleanup>) -> c_int;
}

/// The reason why the process's libcrypto cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// The upcalls belong to no loaded file.
    NoFile,
    /// The file that holds the upcalls does not export this function: a static executable.
    NotExported(&'static str),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => write!(f, "libcrypto is in no loaded file"),
            Self::NotExported(name) => {
                let name = name.trim_end_matches('\0');
                write!(f, "libcrypto is linked statically (no {name})")
            }
        }
    }
}

impl Error for Unavailable {}

impl Libcrypto {
    /// Finds the libcrypto that the function `upcall` belongs to.
    ///
    /// # Errors
    /// If no loaded file has it, or the file does not export a function that is needed.
    pub(crate) fn of(upcall: *const c_void) -> Result<Self, Unavailable> {
        Self::resolve(&Library::of(upcall)?)
    }
}

/// A loaded file.
struct Library {
    handle: *mut c_void,
    base: *mut c_void,
}

impl Library {
    fn of(address: *const c_void) -> Result<Self, Unavailable> {
        let found = locate(address).ok_or(Unavailable::NoFile)?;
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: the path is a text that ends with NUL; NOLOAD runs no initialisers.
        let mut handle = unsafe { libc::dlopen(found.dli_fname, flags) };
        if handle.is_null() {
            // The loader knows the main program by no path.
            // SAFETY: a null path means the main program.
            handle = unsafe { libc::dlopen(std::ptr::null(), flags) };
        }
        if handle.is_null() {
            return Err(Unavailable::NoFile);
        }
        Ok(Self {
            handle,
            base: found.dli_fbase,
        })
    }

    /// The address of `name`, which ends with NUL, if this file itself defines it: a handle of the
    /// main program also finds names that other libraries export.
    fn symbol(&self, name: &'static str) -> Result<*mut c_void, Unavailable> {
        let text = CStr::from_bytes_with_nul(name.as_bytes()).expect("names end with NUL");
        // SAFETY: an open handle and a text that ends with NUL.
        let address = unsafe { libc::dlsym(self.handle, text.as_ptr()) };
        match locate(address) {
            Some(found) if found.dli_fbase == self.base => Ok(address),
            _ => Err(Unavailable::NotExported(name)),
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // The functions stay where they are without this handle: the library that calls a provider
        // is not unloaded before the provider.
        // SAFETY: the handle was opened in `of` and is not used again.
        unsafe { libc::dlclose(self.handle) };
    }
}

fn locate(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = std::mem::MaybeUninit::uninit();
    // SAFETY: dladdr takes any address and fills `info` if it answers other than 0.
    if address.is_null() || unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled, as dladdr did not answer 0.
    Some(unsafe { info.assume_init() })
}
