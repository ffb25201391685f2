//! What a section of `openssl.cnf` changes, in a library context of its own.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;

use foreign_types_shared::ForeignType;
use openssl::pkey::{PKey, Private};
use openssl_sys as sys;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;

use crate::async_jobs::{ASYNC_FINISH, ASYNC_PAUSE, Job};
use crate::common::{EVP_PKEY_Q_keygen, OSSL_PROVIDER_add_builtin, exclusive};

unsafe extern "C" {
    fn OSSL_LIB_CTX_load_config(library: *mut sys::OSSL_LIB_CTX, path: *const c_char) -> c_int;
    fn OSSL_PROVIDER_get_params(
        provider: *const sys::OSSL_PROVIDER,
        params: *mut sys::OSSL_PARAM,
    ) -> c_int;
}

const UNSIGNED_INTEGER: u32 = 2;
const UTF8_PTR: u32 = 6;

/// A library context with the default provider and ours, configured with `lines`.
struct Library {
    library: *mut sys::OSSL_LIB_CTX,
    provider: *mut sys::OSSL_PROVIDER,
}

impl Library {
    fn new(lines: &str) -> Self {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        write!(
            file,
            "openssl_conf = init\n[init]\nproviders = providers\n\
             [providers]\ndefault = activated\nslipstream = ours\n\
             [activated]\nactivate = 1\n[ours]\nactivate = 1\n{lines}\n"
        )
        .expect("a file");
        let path = CString::new(file.path().to_str().expect("a path")).expect("a path");
        // SAFETY: a new context, and texts that end with NUL.
        unsafe {
            let library = sys::OSSL_LIB_CTX_new();
            let (name, init) = (c"slipstream".as_ptr(), slipstream_openssl::provider_init);
            assert_eq!(OSSL_PROVIDER_add_builtin(library.cast(), name, init), 1);
            assert_eq!(OSSL_LIB_CTX_load_config(library, path.as_ptr()), 1);
            let provider = sys::OSSL_PROVIDER_load(library, name);
            assert!(!provider.is_null());
            Self { library, provider }
        }
    }

    /// A job that signs here.
    fn job(&self, key: &PKey<Private>, seed: u8) -> Job {
        Job::with(self.library.cast(), key.clone(), seed)
    }

    fn text(&self, name: &'static CStr) -> String {
        let mut text: *const c_char = std::ptr::null();
        self.param(name, UTF8_PTR, (&raw mut text).cast(), 0);
        // SAFETY: the provider has answered with a text that lives as long as it.
        unsafe { CStr::from_ptr(text) }
            .to_str()
            .expect("a text")
            .to_owned()
    }

    fn number(&self, name: &'static CStr) -> u64 {
        let mut number = 0_u64;
        self.param(
            name,
            UNSIGNED_INTEGER,
            (&raw mut number).cast(),
            size_of::<u64>(),
        );
        number
    }

    fn param(&self, name: &'static CStr, data_type: u32, data: *mut c_void, data_size: usize) {
        let param = sys::OSSL_PARAM {
            key: name.as_ptr(),
            data_type,
            data,
            data_size,
            return_size: 0,
        };
        // SAFETY: no preconditions.
        let mut params = [param, unsafe { sys::OSSL_PARAM_construct_end() }];
        let params = params.as_mut_ptr();
        // SAFETY: a loaded provider and an array that ends.
        let answered = unsafe { OSSL_PROVIDER_get_params(self.provider, params) };
        assert_eq!(answered, 1);
    }

    /// A new key that the provider with `query` has made; `None` if there is no such provider.
    fn key(&self, query: &CStr) -> Option<PKey<Private>> {
        // SAFETY: texts end with NUL; an RSA key wants a number of bits. The new key is owned.
        unsafe {
            let bits: usize = 2048;
            let (library, name) = (self.library.cast(), c"RSA".as_ptr());
            let key = EVP_PKEY_Q_keygen(library, query.as_ptr(), name, bits);
            let _ = openssl::error::ErrorStack::get();
            (!key.is_null()).then(|| PKey::from_ptr(key.cast()))
        }
    }
}

// SAFETY: OpenSSL's library contexts and providers may be used from any thread.
unsafe impl Sync for Library {}

/// Threads keep their instance: a new one has none.
fn on_new_thread(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join()).expect("signatures");
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: owned; all keys are gone.
        unsafe {
            sys::OSSL_PROVIDER_unload(self.provider);
            sys::OSSL_LIB_CTX_free(self.library);
        }
    }
}

#[test]
fn threads_with_asynchronous_jobs_get_an_instance_of_their_own() {
    let _turn = exclusive();
    let library = Library::new("lanes = portable\nflush = always");
    assert_eq!(
        library.text(c"buildinfo"),
        "RSA and curves in lanes (portable)"
    );
    let key = library.key(c"provider=slipstream").expect("a key");
    let before = library.number(c"lane-operations");
    for _ in 0..2 {
        on_new_thread(|| {
            let mut jobs = [library.job(&key, 1), library.job(&key, 2)];
            jobs.iter_mut()
                .for_each(|job| assert_eq!(job.run(), ASYNC_PAUSE));
            jobs.iter_mut()
                .for_each(|job| assert_eq!(job.run(), ASYNC_FINISH));
            jobs.iter().for_each(Job::verify);
        });
    }
    assert_eq!(library.number(c"lane-operations") - before, 4);
}

#[test]
fn lanes_that_are_slower_than_software_are_not_used() {
    let _turn = exclusive();
    // Without vector instructions a batch takes longer than eight operations of OpenSSL.
    let library = Library::new("lanes = portable");
    let key = library.key(c"provider=slipstream").expect("a key");
    let before = library.number(c"lane-operations");
    on_new_thread(|| {
        let mut job = library.job(&key, 1);
        assert_eq!(job.run(), ASYNC_FINISH, "it has not been paused");
        job.verify();
    });
    assert_eq!(library.number(c"lane-operations"), before);
}

#[test]
fn lanes_can_be_switched_off() {
    let _turn = exclusive();
    let library = Library::new("lanes = off");
    assert_eq!(library.text(c"buildinfo"), "lanes are switched off");
    let key = library.key(c"provider=slipstream").expect("a key");
    let before = library.number(c"keys-without-lanes");
    let mut job = library.job(&key, 1);
    assert_eq!(job.run(), ASYNC_FINISH);
    job.verify();
    assert_eq!(library.number(c"keys-without-lanes") - before, 1);
}

#[test]
fn with_an_unknown_value_everything_stays_with_the_default_provider() {
    let _turn = exclusive();
    let library = Library::new("lanes = of");
    let reason = "everything stays with the default provider: unknown value of lanes: of";
    assert_eq!(library.text(c"buildinfo"), reason);
    assert!(library.key(c"provider=slipstream").is_none());
    assert!(library.key(c"?provider=slipstream").is_some());
}

#[test]
fn the_cost_of_software_is_measured_while_the_provider_is_loaded() {
    let _turn = exclusive();
    let cost = |kind| slipstream_openssl::software_cost(kind).expect("a cost");
    let costs = Size::ALL.map(Kind::Rsa).map(cost);
    assert!(costs.is_sorted() && !costs[0].is_zero(), "{costs:?}");
    let costs = Curve::ALL.map(Kind::Ecdh).map(cost);
    assert!(costs.is_sorted() && !costs[0].is_zero(), "{costs:?}");
    assert!(!cost(Kind::X25519).is_zero());
}
