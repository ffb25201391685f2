//! What the tests share: the provider, loaded into this process, and an event loop of fibers.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use foreign_types_shared::ForeignType;
use openssl::bn::BigNum;
use openssl::pkey::{PKey, Private};
use openssl::rsa::{Rsa, RsaPrivateKeyBuilder};
use openssl_sys as sys;
use slipstream_accelerators::lanes::{Backend, LaneCosts, Lanes, Options};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::Size;
use slipstream_offload::JobToken;
use slipstream_offload::accelerator::Moment;
use slipstream_offload::counters::Counters;
use slipstream_offload::fiber::{Fiber, Fibers, Progress};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_openssl::Accelerators;
use slipstream_openssl::ffi::{CoreHandle, Dispatch};

type ProviderInit = unsafe extern "C" fn(
    *const CoreHandle,
    *const Dispatch,
    *mut *const Dispatch,
    *mut *mut c_void,
) -> c_int;

unsafe extern "C" {
    pub fn OSSL_PROVIDER_add_builtin(
        context: *mut c_void,
        name: *const c_char,
        init: ProviderInit,
    ) -> c_int;
    fn EVP_set_default_properties(context: *mut c_void, properties: *const c_char) -> c_int;
    fn EVP_PKEY_CTX_new_from_pkey(
        context: *mut c_void,
        key: *mut sys::EVP_PKEY,
        query: *const c_char,
    ) -> *mut sys::EVP_PKEY_CTX;
    fn EVP_PKEY_CTX_ctrl_str(
        context: *mut sys::EVP_PKEY_CTX,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int;
    fn EVP_PKEY_CTX_dup(context: *const sys::EVP_PKEY_CTX) -> *mut sys::EVP_PKEY_CTX;
    pub fn EVP_PKEY_Q_keygen(
        context: *mut c_void,
        query: *const c_char,
        name: *const c_char,
        ...
    ) -> *mut sys::EVP_PKEY;
}

/// Provider, accelerators and counters are the process's: tests take turns. All algorithms are
/// offered, on any CPU.
pub fn exclusive() -> MutexGuard<'static, ()> {
    exclusive_with(Accelerators {
        backend: Some(Backend::Portable),
        has_device: false,
    })
}

/// As [`exclusive`]. The first test of the process loads the provider for `accelerators`.
pub fn exclusive_with(accelerators: Accelerators) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static LOADED: Once = Once::new();
    static PROVIDERS: [AtomicPtr<sys::OSSL_PROVIDER>; 2] =
        [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    LOADED.call_once(|| {
        slipstream_openssl::set_accelerators(Some(accelerators));
        // SAFETY: texts end with NUL; a null context is the process's own.
        unsafe {
            let (name, init) = (c"slipstream".as_ptr(), slipstream_openssl::provider_init);
            assert_eq!(
                OSSL_PROVIDER_add_builtin(std::ptr::null_mut(), name, init),
                1
            );
            // Kept where leak checkers see them: they are never unloaded.
            for (name, loaded) in [c"default", c"slipstream"].into_iter().zip(&PROVIDERS) {
                let provider = sys::OSSL_PROVIDER_load(std::ptr::null_mut(), name.as_ptr());
                assert!(!provider.is_null());
                loaded.store(provider, Ordering::Relaxed);
            }
            std::hint::black_box(&PROVIDERS);
            let query = c"?provider=slipstream".as_ptr();
            assert_eq!(EVP_set_default_properties(std::ptr::null_mut(), query), 1);
        }
    });
    turn
}

/// Keys that are imported from now on are prepared for lanes of `backend`.
pub fn use_lanes(backend: Backend) {
    slipstream_openssl::set_accelerators(Some(Accelerators {
        backend: Some(backend),
        has_device: false,
    }));
}

/// Private keys in DER: three of 2048 bits, and the published one of every size. They are made by
/// the command, which is no slower when these tests run under valgrind.
pub fn keys() -> &'static [Vec<u8>] {
    static KEYS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let generated = (0..3).map(|_| {
            let made = Command::new("openssl")
                .args(["genpkey", "-quiet", "-algorithm", "RSA", "-outform", "DER"])
                .output()
                .expect("the openssl command");
            assert!(made.status.success());
            made.stdout
        });
        let examples = Size::ALL
            .into_iter()
            .map(|size| example(size).private_key_to_der());
        generated
            .chain(examples.map(|der| der.expect("DER")))
            .collect()
    })
}

/// The published example key.
pub fn example(size: Size) -> Rsa<Private> {
    let key = example_key(size);
    let number = |bytes: &[u8]| BigNum::from_slice(bytes).expect("a number");
    let parts = &key.components;
    let builder = RsaPrivateKeyBuilder::new(
        number(parts.modulus),
        number(parts.public_exponent),
        number(key.private_exponent),
    );
    builder
        .and_then(|key| key.set_factors(number(parts.prime1), number(parts.prime2)))
        .and_then(|key| {
            let coefficient = number(parts.coefficient);
            key.set_crt_params(
                number(parts.exponent1),
                number(parts.exponent2),
                coefficient,
            )
        })
        .expect("a key")
        .build()
}

/// A new key object, which the provider has not seen.
pub fn import(der: &[u8]) -> PKey<Private> {
    PKey::private_key_from_der(der).expect("a key")
}

/// A key generated by the provider itself.
pub fn generate(bits: usize) -> PKey<Private> {
    let query = c"provider=slipstream".as_ptr();
    // SAFETY: texts end with NUL; an RSA key wants a number of bits. The new key is owned.
    unsafe {
        let key = EVP_PKEY_Q_keygen(std::ptr::null_mut(), query, c"RSA".as_ptr(), bits);
        assert!(!key.is_null());
        PKey::from_ptr(key.cast())
    }
}

/// OpenSSL's own provider, to compare with.
pub const DEFAULT: &CStr = c"provider=default";
/// The provider under test.
pub const SLIPSTREAM: &CStr = c"provider=slipstream";

/// An `EVP_PKEY_CTX`.
pub struct Context(*mut sys::EVP_PKEY_CTX);

impl Context {
    pub fn new(key: &PKey<Private>, query: &CStr) -> Self {
        Self::within(std::ptr::null_mut(), key, query)
    }

    /// In a library context other than the process's own.
    pub fn within(library: *mut c_void, key: &PKey<Private>, query: &CStr) -> Self {
        // SAFETY: a key and a text that ends with NUL.
        let context =
            unsafe { EVP_PKEY_CTX_new_from_pkey(library, key.as_ptr().cast(), query.as_ptr()) };
        assert!(!context.is_null());
        Self(context)
    }

    pub fn as_ptr(&self) -> *mut sys::EVP_PKEY_CTX {
        self.0
    }

    pub fn duplicate(&self) -> Self {
        // SAFETY: a context.
        let copy = unsafe { EVP_PKEY_CTX_dup(self.0) };
        assert!(!copy.is_null());
        Self(copy)
    }

    /// Initialises it to sign.
    pub fn signing(self, options: &[(&CStr, &CStr)]) -> Self {
        // SAFETY: a context.
        assert_eq!(unsafe { sys::EVP_PKEY_sign_init(self.0) }, 1);
        self.with(options)
    }

    /// Initialises it to verify.
    pub fn verifying(self, options: &[(&CStr, &CStr)]) -> Self {
        // SAFETY: a context.
        assert_eq!(unsafe { sys::EVP_PKEY_verify_init(self.0) }, 1);
        self.with(options)
    }

    /// Initialises it to decrypt.
    pub fn decrypting(self, options: &[(&CStr, &CStr)]) -> Self {
        // SAFETY: a context.
        assert_eq!(unsafe { sys::EVP_PKEY_decrypt_init(self.0) }, 1);
        self.with(options)
    }

    pub fn with(self, options: &[(&CStr, &CStr)]) -> Self {
        for (name, value) in options {
            assert!(self.set(name, value), "{name:?} = {value:?}");
        }
        self
    }

    pub fn set(&self, name: &CStr, value: &CStr) -> bool {
        // SAFETY: a context and texts that end with NUL.
        unsafe { EVP_PKEY_CTX_ctrl_str(self.0, name.as_ptr(), value.as_ptr()) == 1 }
    }

    /// Signs into a buffer of `room` bytes.
    pub fn sign(&self, hash: &[u8], room: usize) -> Outcome {
        call(room, |output, length| {
            // SAFETY: an initialised context; buffers as long as said.
            unsafe { sys::EVP_PKEY_sign(self.0, output, length, hash.as_ptr(), hash.len()) }
        })
    }

    /// Decrypts into a buffer of `room` bytes.
    pub fn decrypt(&self, input: &[u8], room: usize) -> Outcome {
        call(room, |output, length| {
            // SAFETY: an initialised context; buffers as long as said.
            unsafe { sys::EVP_PKEY_decrypt(self.0, output, length, input.as_ptr(), input.len()) }
        })
    }

    pub fn verify(&self, signature: &[u8], hash: &[u8]) -> bool {
        let (hash, hash_length) = (hash.as_ptr(), hash.len());
        // SAFETY: an initialised context; buffers as long as said.
        let verified = unsafe {
            sys::EVP_PKEY_verify(
                self.0,
                signature.as_ptr(),
                signature.len(),
                hash,
                hash_length,
            )
        };
        let _ = openssl::error::ErrorStack::get();
        verified == 1
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { sys::EVP_PKEY_CTX_free(self.0) };
    }
}

/// What a function of OpenSSL answers: its output, or its result and the reasons it gives.
pub type Outcome = Result<Vec<u8>, (c_int, Vec<String>)>;

/// Calls a function of OpenSSL that writes at most `room` bytes and answers their number.
pub fn call(room: usize, function: impl FnOnce(*mut c_uchar, *mut usize) -> c_int) -> Outcome {
    let mut output = vec![0; room];
    let mut length = room;
    let result = function(output.as_mut_ptr(), &mut length);
    let errors = openssl::error::ErrorStack::get();
    if result == 1 {
        output.truncate(length);
        return Ok(output);
    }
    let reasons = errors
        .errors()
        .iter()
        .map(|error| error.reason().unwrap_or("?").to_string());
    Err((result, reasons.collect()))
}

/// Runs jobs on fibers of one event loop, all at once, and computes them in lanes of `backend`.
pub fn on_fibers(backend: Backend, jobs: Vec<Box<dyn FnOnce()>>) -> Counters {
    install(backend);
    let counters = run_fibers(jobs);
    instance::uninstall();
    counters
}

/// Runs jobs on fibers of one event loop, all at once, with the instance that is installed.
pub fn run_fibers(jobs: Vec<Box<dyn FnOnce()>>) -> Counters {
    let mut fibers = Fibers::new(jobs.len(), 256 * 1024);
    let mut paused = HashMap::new();
    for (token, job) in jobs.into_iter().enumerate() {
        let progress = fibers.start(JobToken(token), job).expect("a stack");
        keep(&mut paused, token, progress);
    }
    let mut polls_without_answer = 0;
    while !paused.is_empty() {
        let answers = instance::with(|instance| instance.poll(Moment::Idle)).expect("an instance");
        polls_without_answer = if answers > 0 {
            0
        } else {
            polls_without_answer + 1
        };
        assert!(
            polls_without_answer < 3,
            "{} jobs wait for nothing",
            paused.len()
        );
        while let Some(JobToken(token)) = instance::with(Instance::next_ready).flatten() {
            let fiber = paused.remove(&token).expect("a paused fiber");
            keep(&mut paused, token, fibers.resume(fiber));
        }
    }
    instance::with(|instance| instance.counters().clone()).expect("an instance")
}

/// An instance of this thread that always uses lanes and precomputes keys and nonces.
pub fn install(backend: Backend) {
    use_lanes(backend);
    let lanes = Lanes::new(Options {
        has_batches: true,
        ..pools(backend)
    });
    let instance = Instance::new(vec![Box::new(lanes)], always(), 64);
    instance::install(instance.expect("an instance"));
}

/// Lanes without batches, which precompute keys and nonces.
pub fn pools(backend: Backend) -> Options {
    Options {
        backend,
        costs: LaneCosts::unknown(backend),
        scheduler: always(),
        has_batches: false,
        key_pairs: 16,
        nonces: 16,
    }
}

/// Offloads every operation, whatever it costs and however few jobs are concurrent.
pub fn always() -> Scheduler {
    Scheduler {
        flush: FlushPolicy::AtLeast(1),
        ..Scheduler::default()
    }
}

fn keep(paused: &mut HashMap<usize, Fiber>, token: usize, progress: Progress) {
    if let Progress::Paused(fiber) = progress {
        paused.insert(token, fiber);
    }
}
