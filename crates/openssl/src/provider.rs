//! The provider as the core sees it: initialisation, configuration, parameters, algorithms.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use slipstream_lanes::{Backend, ec, x25519};
use slipstream_offload::Kind;
use slipstream_offload::policy::{Costs, Policy};

use crate::default_provider::DefaultProvider;
use crate::failure::{self, Errors};
use crate::ffi::{
    self, Algorithm, Callback, CoreHandle, Dispatch, INTEGER, Item, Param, Table, UTF8_PTR,
};
use crate::libcrypto::Libcrypto;
use crate::param::{Lent, describe, find_mut};
use crate::{counts, curve, kdf, rsa};

/// A loaded provider; its address is the provider context.
pub(crate) struct Provider {
    /// One line for people: what is offered, or why nothing is.
    status: CString,
    loaded: Option<Box<Loaded>>,
}

/// What the keys and contexts of one loaded provider share.
pub(crate) struct Loaded {
    pub(crate) default: DefaultProvider,
    pub(crate) errors: Errors,
    configuration: Configuration,
    costs: OnceLock<Costs>,
}

/// A [`Loaded`] as its keys and contexts hold it. The core keeps a provider alive as long as any
/// of its algorithms, and those as long as any of their keys and contexts.
#[derive(Clone, Copy)]
pub(crate) struct LoadedRef(NonNull<Loaded>);

// SAFETY: everything in `Loaded` that changes is atomic or behind a `OnceLock`; the functions of the
// default provider and of libcrypto may be called from any thread.
unsafe impl Send for LoadedRef {}
// SAFETY: as above.
unsafe impl Sync for LoadedRef {}

impl Deref for LoadedRef {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        // SAFETY: see the type: it outlives what holds this reference. It is only ever shared.
        unsafe { self.0.as_ref() }
    }
}

impl Loaded {
    /// The backend for new keys; `None` if they are to be left to software.
    pub(crate) fn backend(&self) -> Option<Backend> {
        match self.configuration.lanes {
            Lanes::Auto => match BACKEND.load(Ordering::Relaxed) {
                UNCHOSEN => Backend::detect(),
                chosen => Backend::ALL.get(usize::from(chosen)).copied(),
            },
            Lanes::Off => None,
            Lanes::Portable => Some(Backend::Portable),
        }
    }

    /// Whether lanes are to be used for curves, too.
    pub(crate) fn offers_curves(&self) -> bool {
        let offered = |backend| x25519::offered(backend) && ec::offered(backend);
        self.backend().is_some_and(offered) && self.default.curves.is_some()
    }

    /// When an instance that is made here runs a batch.
    pub(crate) fn policy(&self) -> Policy {
        self.configuration.policy
    }

    /// What batches and software cost on this machine, measured when first asked for.
    pub(crate) fn costs(&self, backend: Backend) -> Costs {
        *self.costs.get_or_init(|| {
            slipstream_offload::calibration::calibrate(backend, |kind| {
                self.default.software_cost(kind)
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

/// What was chosen in place of detection: a place in [`Backend::ALL`], or one behind them to leave keys to software.
static BACKEND: AtomicU8 = AtomicU8::new(UNCHOSEN);

const UNCHOSEN: u8 = u8::MAX;

/// The loaded providers that offer something.
static LOADED: Mutex<Vec<LoadedRef>> = Mutex::new(Vec::new());

/// See [`crate::set_backend`].
pub(crate) fn set_backend(backend: Option<Backend>) {
    let place = |backend| Backend::ALL.iter().position(|known| *known == backend);
    let place = backend.and_then(place).unwrap_or(Backend::ALL.len());
    BACKEND.store(place as u8, Ordering::Relaxed);
}

/// See [`crate::software_cost`].
pub(crate) fn software_cost(kind: Kind) -> Option<Duration> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.last()?.default.software_cost(kind)
}

/// The provider that was loaded last.
pub(crate) fn last_loaded() -> Option<LoadedRef> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.last().copied()
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
    let provider = Box::new(match unsafe { Loaded::load(handle, core) } {
        Ok(loaded) => Provider::offering(loaded),
        Err(reason) => {
            let status = format!("everything stays with the default provider: {reason}");
            Provider {
                status: CString::new(status).unwrap_or_default(),
                loaded: None,
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
    fn offering(loaded: Loaded) -> Self {
        let status = match loaded.backend() {
            Some(backend) if loaded.offers_curves() => {
                format!("RSA and curves in lanes ({})", backend.name())
            }
            Some(backend) => format!("RSA in lanes ({})", backend.name()),
            None if loaded.configuration.lanes == Lanes::Off => "lanes are switched off".into(),
            None => "RSA in software: this CPU has no lanes".into(),
        };
        let loaded = Box::new(loaded);
        LOADED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(LoadedRef::from(&loaded));
        Self {
            status: CString::new(status).unwrap_or_default(),
            loaded: Some(loaded),
        }
    }

    /// What keys and contexts need, from the provider context that the core passes.
    ///
    /// # Safety
    /// `context` must be the context that [`initialise`] gave to the core.
    pub(crate) unsafe fn loaded(context: *mut c_void) -> Option<LoadedRef> {
        // SAFETY: the caller's promise; a provider is only ever shared until its teardown.
        let provider = unsafe { &*context.cast::<Provider>() };
        provider.loaded.as_ref().map(LoadedRef::from)
    }
}

impl From<&Box<Loaded>> for LoadedRef {
    fn from(loaded: &Box<Loaded>) -> Self {
        Self(NonNull::from(&**loaded))
    }
}

impl Loaded {
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
            errors: Errors::new(handle, &core),
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
    get_reason_strings,
    get_capabilities,
}
.table();

unsafe extern "C" fn teardown(context: *mut c_void) {
    // SAFETY: the context that `initialise` gave to the core, which passes it here once, when no
    // key and no context is left.
    let provider = unsafe { Box::from_raw(context.cast::<Provider>()) };
    if let Some(loaded) = &provider.loaded {
        let gone = LoadedRef::from(loaded).0;
        LOADED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|loaded| loaded.0 != gone);
    }
}

static PARAMETERS: Table<Param, 10> = Table([
    describe(c"name", UTF8_PTR),
    describe(c"version", UTF8_PTR),
    describe(c"buildinfo", UTF8_PTR),
    describe(c"status", INTEGER),
    describe(c"keys-with-lanes", ffi::UNSIGNED_INTEGER),
    describe(c"keys-without-lanes", ffi::UNSIGNED_INTEGER),
    describe(c"lane-operations", ffi::UNSIGNED_INTEGER),
    describe(c"keys-made-ahead", ffi::UNSIGNED_INTEGER),
    describe(c"nonces-made-ahead", ffi::UNSIGNED_INTEGER),
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
        (c"keys-made-ahead", counts::KEYS_MADE_AHEAD.get()),
        (c"nonces-made-ahead", counts::NONCES_MADE_AHEAD.get()),
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

const fn algorithm(
    names: &'static CStr,
    implementation: &'static [Dispatch],
    description: &'static CStr,
) -> Algorithm {
    Algorithm {
        names: names.as_ptr(),
        properties: c"provider=slipstream".as_ptr(),
        implementation: implementation.as_ptr(),
        description: description.as_ptr(),
    }
}

const fn rsa(implementation: &'static [Dispatch]) -> Algorithm {
    algorithm(
        rsa::NAMES,
        implementation,
        c"RSA, private operations in lanes",
    )
}

const fn x25519(implementation: &'static [Dispatch]) -> Algorithm {
    algorithm(curve::X25519_NAMES, implementation, c"X25519 in lanes")
}

const fn ec(names: &'static CStr, implementation: &'static [Dispatch]) -> Algorithm {
    algorithm(names, implementation, c"NIST curves in lanes")
}

/// Tables of algorithms. Those of the curves stand first, so that the tables can be offered without them.
static KEYMGMT: Table<Algorithm, 4> = Table([
    x25519(&curve::X25519_KEYMGMT.0),
    ec(curve::EC_NAMES, &curve::EC_KEYMGMT.0),
    rsa(&rsa::KEYMGMT.0),
    Algorithm::END,
]);
static SIGNATURE: Table<Algorithm, 3> = Table([
    ec(curve::ECDSA_NAME, &curve::ECDSA.0),
    rsa(&rsa::SIGNATURE.0),
    Algorithm::END,
]);
static KEYEXCH: Table<Algorithm, 3> = Table([
    x25519(&curve::X25519_KEYEXCH.0),
    ec(curve::ECDH_NAME, &curve::ECDH.0),
    Algorithm::END,
]);
static ASYM_CIPHER: Table<Algorithm, 2> = Table([rsa(&rsa::ASYM_CIPHER.0), Algorithm::END]);

unsafe extern "C" fn query_operation(
    context: *mut c_void,
    operation: c_int,
    no_cache: *mut c_int,
) -> *const Algorithm {
    // SAFETY: the core passes room for its answer: the table may be cached.
    unsafe { *no_cache = 0 };
    // SAFETY: the context that `initialise` gave to the core.
    let Some(loaded) = (unsafe { Provider::loaded(context) }) else {
        return std::ptr::null();
    };
    match operation {
        ffi::OP_KDF if loaded.default.kdfs.is_some() => kdf::ALGORITHMS.0.as_ptr(),
        ffi::OP_KEYMGMT if loaded.offers_curves() => KEYMGMT.0.as_ptr(),
        ffi::OP_KEYMGMT => KEYMGMT.0[2..].as_ptr(),
        ffi::OP_KEYEXCH if loaded.offers_curves() => KEYEXCH.0.as_ptr(),
        ffi::OP_SIGNATURE if loaded.offers_curves() => SIGNATURE.0.as_ptr(),
        ffi::OP_SIGNATURE => SIGNATURE.0[1..].as_ptr(),
        ffi::OP_ASYM_CIPHER => ASYM_CIPHER.0.as_ptr(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn get_reason_strings(_context: *mut c_void) -> *const Item {
    failure::REASONS.0.as_ptr()
}

unsafe extern "C" fn get_capabilities(
    context: *mut c_void,
    capability: *const c_char,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the context that `initialise` gave to the core.
    match (unsafe { Provider::loaded(context) }, callback) {
        // SAFETY: what the core passes.
        (Some(loaded), Some(callback)) => unsafe {
            curve::get_capabilities(loaded, capability, callback, argument)
        },
        _ => 1,
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
