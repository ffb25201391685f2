//! The provider as the core sees it: initialisation, parameters, tables of algorithms.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::ffi::{
    self, Algorithm, Callback, CoreHandle, Dispatch, INTEGER, Item, Param, Table, UTF8_PTR,
};
use crate::loaded::Provider;
use crate::param::{describe, find_mut};
use crate::{counters, curve, failure, kdf, rsa};

/// Initialises the provider: see [`crate::provider_init`].
///
/// # Safety
/// The core's promises: `core` ends with the number 0, `out` and `context` can be written.
pub(crate) unsafe fn initialise(
    handle: *const CoreHandle,
    core: *const Dispatch,
    out: *mut *const Dispatch,
    context: *mut *mut c_void,
) -> c_int {
    kdf::prepare();
    // SAFETY: the caller's promise.
    let provider = Box::new(unsafe { Provider::load(handle, core) });
    // SAFETY: the caller's promise.
    unsafe {
        *out = PROVIDER.0.as_ptr();
        *context = Box::into_raw(provider).cast();
    }
    1
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
    drop(unsafe { Box::from_raw(context.cast::<Provider>()) });
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
        (c"buildinfo", provider.status()),
    ];
    let numbers = [
        (c"status", 1),
        (c"keys-with-lanes", counters::KEYS_FOR_ACCELERATORS.get()),
        (c"keys-without-lanes", counters::KEYS_LEFT_TO_SOFTWARE.get()),
        (c"lane-operations", counters::OFFLOADED_OPERATIONS.get()),
        (c"keys-made-ahead", counters::PRECOMPUTED_KEYS.get()),
        (c"nonces-made-ahead", counters::PRECOMPUTED_NONCES.get()),
    ];
    let mut answered = true;
    for (key, text) in texts {
        // SAFETY: the core's array, which is to be answered; the texts live as long as the
        // provider.
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
        c"RSA with offloaded private operations",
    )
}

const fn x25519(implementation: &'static [Dispatch]) -> Algorithm {
    algorithm(curve::X25519_NAMES, implementation, c"offloaded X25519")
}

const fn ec(names: &'static CStr, implementation: &'static [Dispatch]) -> Algorithm {
    algorithm(names, implementation, c"offloaded NIST curves")
}

/// Tables of algorithms. Curves stand first, so that a table can be offered without them.
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
        // SAFETY: the core's arguments.
        (Some(loaded), Some(callback)) => unsafe {
            curve::get_capabilities(loaded, capability, callback, argument)
        },
        _ => 1,
    }
}
