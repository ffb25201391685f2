//! The provider as the core sees it: initialisation, configuration, parameters, algorithms.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use slipstream_lanes::Backend;
use slipstream_lanes::rsa::Size;
use slipstream_offload::policy::{Costs, Policy};

use crate::default_provider::DefaultProvider;
use crate::ffi::{self, Algorithm, CoreHandle, Dispatch, INTEGER, Param, Table, UTF8_PTR};
use crate::libcrypto::Libcrypto;
use crate::param::{Lent, describe, find_mut};
use crate::{asym_cipher, counts, kdf, key, signature};

/// A loaded provider; its address is the provider context.
pub(crate) struct Provider {
    /// One line for people: what is offered, or why nothing is.
    status: CString,
    rsa: Option<Box<Rsa>>,
}

/// What RSA keys and contexts of one loaded provider share.
pub(crate) struct Rsa {
    pub(crate) default: DefaultProvider,
    configuration: Configuration,
    costs: OnceLock<Costs>,
}

/// An [`Rsa`] as its keys and contexts hold it. The core keeps a provider alive as long as any
/// of its algorithms, and those as long as any of their keys and contexts.
#[derive(Clone, Copy)]
pub(crate) struct RsaRef(NonNull<Rsa>);

// SAFETY: everything in `Rsa` that changes is atomic or behind a `OnceLock`; the functions of the
// default provider and of libcrypto may be called from any thread.
unsafe impl Send for RsaRef {}
// SAFETY: as above.
unsafe impl Sync for RsaRef {}

impl Deref for RsaRef {
    type Target = Rsa;

    fn deref(&self) -> &Rsa {
        // SAFETY: see the type: it outlives what holds this reference. It is only ever shared.
        unsafe { self.0.as_ref() }
    }
}

impl Rsa {
    /// The backend for new keys; `None` if they are to be left to software.
    pub(crate) fn backend(&self) -> Option<Backend> {
        match self.configuration.lanes {
            Lanes::Auto => {
                let chosen = *BACKEND.lock().unwrap_or_else(PoisonError::into_inner);
                chosen.unwrap_or_else(Backend::detect)
            }
            Lanes::Off => None,
            Lanes::Portable => Some(Backend::Portable),
        }
    }

    /// When an instance that is made here runs a batch.
    pub(crate) fn policy(&self) -> Policy {
        self.configuration.policy
    }

    /// What batches and software cost on this machine, measured when first asked for.
    pub(crate) fn costs(&self, backend: Backend) -> Costs {
        *self.costs.get_or_init(|| {
            slipstream_offload::calibration::calibrate(backend, |size| {
                self.default.private_operation_cost(size)
            })
        })
    }
}

/// What the section of the provider in `openssl.cnf` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Configuration {
    lanes: Lanes,
    policy: Policy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    Auto,
    Off,
    Portable,
}

/// What was chosen in place of detection; `Some(None)` leaves keys to software.
static BACKEND: Mutex<Option<Option<Backend>>> = Mutex::new(None);

/// The loaded providers that offer something.
static LOADED: Mutex<Vec<RsaRef>> = Mutex::new(Vec::new());

/// See [`crate::set_backend`].
pub(crate) fn set_backend(backend: Option<Backend>) {
    *BACKEND.lock().unwrap_or_else(PoisonError::into_inner) = Some(backend);
}

/// See [`crate::software_cost`].
pub(crate) fn software_cost(size: Size) -> Option<Duration> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.last()?.default.private_operation_cost(size)
}

/// See [`crate::provider_init`].
///
/// # Safety
/// The core's promises: `core` ends with the number 0, `out` and `context` can be written.
pub(crate) unsafe fn initialise(
    handle: *const CoreHandle,
    core: *const Dispatch,
    out: *mut *const Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let provider = Box::new(match unsafe { Rsa::load(handle, core) } {
        Ok(rsa) => Provider::offering(rsa),
        Err(reason) => {
            let status = format!("everything stays with the default provider: {reason}");
            Provider {
                status: CString::new(status).unwrap_or_default(),
                rsa: None,
            }
        }
    });
    // SAFETY: the caller's promise.
    unsafe {
        *out = PROVIDER.0.as_ptr();
        *context = Box::into_raw(provider).cast();
    }
    1
}

impl Provider {
    fn offering(rsa: Rsa) -> Self {
        let status = match rsa.backend() {
            Some(backend) => format!("RSA in lanes ({})", backend.name()),
            None if rsa.configuration.lanes == Lanes::Off => "lanes are switched off".into(),
            None => "RSA in software: this CPU has no lanes".into(),
        };
        let rsa = Box::new(rsa);
        LOADED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(RsaRef::from(&rsa));
        Self {
            status: CString::new(status).unwrap_or_default(),
            rsa: Some(rsa),
        }
    }

    /// What keys and contexts need, from the provider context that the core passes.
    ///
    /// # Safety
    /// `context` must be the context that [`initialise`] gave to the core.
    pub(crate) unsafe fn rsa(context: *mut c_void) -> Option<RsaRef> {
        // SAFETY: the caller's promise; a provider is only ever shared until its teardown.
        let provider = unsafe { &*context.cast::<Provider>() };
        provider.rsa.as_ref().map(RsaRef::from)
    }
}

impl From<&Box<Rsa>> for RsaRef {
    fn from(rsa: &Box<Rsa>) -> Self {
        Self(NonNull::from(&**rsa))
    }
}

impl Rsa {
    /// # Safety
    /// As for [`initialise`].
    unsafe fn load(handle: *const CoreHandle, core: *const Dispatch) -> Result<Self, String> {
        // SAFETY: the caller's promise.
        let core = unsafe { ffi::Core::read(core) }.ok_or("the core gives no parameters")?;
        // SAFETY: the core's own handle.
        let configuration = unsafe { Configuration::read(&core, handle) }?;
        let upcall = core.get_params as *const c_void;
        let libcrypto = Libcrypto::of(upcall).map_err(|reason| reason.to_string())?;
        let default = DefaultProvider::load(libcrypto)?;
        Ok(Self {
            default,
            configuration,
            costs: OnceLock::new(),
        })
    }
}

impl Configuration {
    /// # Safety
    /// `handle` must be the one that belongs to `core`.
    unsafe fn read(core: &ffi::Core, handle: *const CoreHandle) -> Result<Self, String> {
        let (mut lanes, mut flush) = (std::ptr::null(), std::ptr::null());
        let mut params = [
            Lent::text_pointer(c"lanes", &mut lanes),
            Lent::text_pointer(c"flush", &mut flush),
            Lent::END,
        ];
        // SAFETY: the caller's promise; an array that ends with a null key.
        unsafe { (core.get_params)(handle, Lent::as_mut_ptr(&mut params)) };
        // SAFETY: the core answers with texts that live as long as the provider, or not at all.
        let (lanes, flush) = unsafe { (text(lanes), text(flush)) };
        Self::parse(lanes, flush)
    }

    fn parse(lanes: Option<&str>, flush: Option<&str>) -> Result<Self, String> {
        let lanes = match lanes {
            None | Some("auto") => Lanes::Auto,
            Some("off") => Lanes::Off,
            Some("portable") => Lanes::Portable,
            Some(other) => return Err(format!("unknown value of lanes: {other}")),
        };
        let policy = match flush {
            None | Some("cheapest") => Policy::Cheapest,
            Some("always") => Policy::AtLeast(1),
            Some(other) => return Err(format!("unknown value of flush: {other}")),
        };
        Ok(Self { lanes, policy })
    }
}

/// # Safety
/// `pointer` must be null or a text that ends with NUL and stays.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("?"))
}

static PROVIDER: Table<Dispatch, { ffi::Provider::LENGTH }> = ffi::Provider {
    teardown,
    gettable_params,
    get_params,
    query_operation,
}
.table();

unsafe extern "C" fn teardown(context: *mut c_void) {
    // SAFETY: the context that `initialise` gave to the core, which passes it here once, when no
    // key and no context is left.
    let provider = unsafe { Box::from_raw(context.cast::<Provider>()) };
    if let Some(rsa) = &provider.rsa {
        let gone = RsaRef::from(rsa).0;
        LOADED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|rsa| rsa.0 != gone);
    }
}

static PARAMETERS: Table<Param, 8> = Table([
    describe(c"name", UTF8_PTR),
    describe(c"version", UTF8_PTR),
    describe(c"buildinfo", UTF8_PTR),
    describe(c"status", INTEGER),
    describe(c"keys-with-lanes", ffi::UNSIGNED_INTEGER),
    describe(c"keys-without-lanes", ffi::UNSIGNED_INTEGER),
    describe(c"lane-operations", ffi::UNSIGNED_INTEGER),
    Param::END,
]);

unsafe extern "C" fn gettable_params(_context: *mut c_void) -> *const Param {
    PARAMETERS.0.as_ptr()
}

unsafe extern "C" fn get_params(context: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: the context that `initialise` gave to the core.
    let provider = unsafe { &*context.cast::<Provider>() };
    let texts: [(&CStr, &CStr); 3] = [
        (c"name", c"Slipstream"),
        (c"version", VERSION),
        (c"buildinfo", &provider.status),
    ];
    let numbers = [
        (c"status", 1),
        (c"keys-with-lanes", counts::KEYS_WITH_LANES.get()),
        (c"keys-without-lanes", counts::KEYS_WITHOUT_LANES.get()),
        (c"lane-operations", counts::LANE_OPERATIONS.get()),
    ];
    let mut answered = true;
    for (key, text) in texts {
        // SAFETY: an array of the core's for us to answer; the texts live as long as the provider.
        answered &= unsafe { find_mut(params, key).is_none_or(|param| param.answer_text(text)) };
    }
    for (key, number) in numbers {
        // SAFETY: as above.
        answered &=
            unsafe { find_mut(params, key).is_none_or(|param| param.answer_number(number)) };
    }
    c_int::from(answered)
}

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL"),
    };

const fn rsa(implementation: &'static [Dispatch]) -> Table<Algorithm, 2> {
    let algorithm = Algorithm {
        names: c"RSA:rsaEncryption:1.2.840.113549.1.1.1".as_ptr(),
        properties: c"provider=slipstream".as_ptr(),
        implementation: implementation.as_ptr(),
        description: c"RSA, private operations in lanes".as_ptr(),
    };
    Table([algorithm, Algorithm::END])
}

static KEYMGMT: Table<Algorithm, 2> = rsa(&key::FUNCTIONS.0);
static SIGNATURE: Table<Algorithm, 2> = rsa(&signature::FUNCTIONS.0);
static ASYM_CIPHER: Table<Algorithm, 2> = rsa(&asym_cipher::FUNCTIONS.0);

unsafe extern "C" fn query_operation(
    context: *mut c_void,
    operation: c_int,
    no_cache: *mut c_int,
) -> *const Algorithm {
    // SAFETY: the core passes room for its answer: the table may be cached.
    unsafe { *no_cache = 0 };
    // SAFETY: the context that `initialise` gave to the core.
    let Some(rsa) = (unsafe { Provider::rsa(context) }) else {
        return std::ptr::null();
    };
    match operation {
        ffi::OP_KDF if rsa.default.kdfs.is_some() => kdf::ALGORITHMS.0.as_ptr(),
        ffi::OP_KEYMGMT => KEYMGMT.0.as_ptr(),
        ffi::OP_SIGNATURE => SIGNATURE.0.as_ptr(),
        ffi::OP_ASYM_CIPHER => ASYM_CIPHER.0.as_ptr(),
        _ => std::ptr::null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_defaults_to_what_is_cheapest() {
        let default = Configuration {
            lanes: Lanes::Auto,
            policy: Policy::Cheapest,
        };
        assert_eq!(Configuration::parse(None, None), Ok(default));
        assert_eq!(
            Configuration::parse(Some("auto"), Some("cheapest")),
            Ok(default)
        );
        let tests = Configuration {
            lanes: Lanes::Portable,
            policy: Policy::AtLeast(1),
        };
        assert_eq!(
            Configuration::parse(Some("portable"), Some("always")),
            Ok(tests)
        );
    }

    #[test]
    fn a_misspelt_configuration_is_reported() {
        let reason = Configuration::parse(Some("of"), None).expect_err("no such value");
        assert_eq!(reason, "unknown value of lanes: of");
        assert!(Configuration::parse(None, Some("never")).is_err());
    }
}
