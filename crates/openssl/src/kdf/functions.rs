//! Key derivation, as OpenSSL calls it.

use std::ffi::{CStr, c_int, c_void};

use super::context::Context;
use super::default::Shared;
use super::function::{Hkdf, Kind, Tls1Prf, Tls13};
use crate::ffi::{self, Algorithm, Dispatch, Param, Table, UNSIGNED_INTEGER};
use crate::loaded::Provider;

/// The algorithms of `OSSL_OP_KDF`.
pub(crate) static ALGORITHMS: Table<Algorithm, 4> = Table([
    algorithm::<Tls13>(),
    algorithm::<Hkdf>(),
    algorithm::<Tls1Prf>(),
    Algorithm::END,
]);

const fn algorithm<K: Kind>() -> Algorithm {
    Algorithm {
        names: K::FUNCTION.name().as_ptr(),
        properties: c"provider=slipstream".as_ptr(),
        implementation: const { &functions::<K>() }.0.as_ptr(),
        description: c"key derivation without fetches".as_ptr(),
    }
}

/// The functions of `OSSL_OP_KDF`.
const fn functions<K: Kind>() -> Table<Dispatch, { ffi::Kdf::LENGTH }> {
    ffi::Kdf {
        newctx: newctx::<K>,
        freectx,
        reset,
        derive,
        gettable_ctx_params: gettable_ctx_params::<K>,
        settable_ctx_params: settable_ctx_params::<K>,
        get_ctx_params,
        set_ctx_params,
        dupctx: Some(dupctx),
    }
    .table()
}

unsafe extern "C" fn newctx<K: Kind>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the provider's context.
    let Some(shared) = (unsafe { shared::<K>(provider) }) else {
        return std::ptr::null_mut();
    };
    Box::into_raw(Box::new(Context::new(shared))).cast()
}

unsafe extern "C" fn freectx(context: *mut c_void) {
    if !context.is_null() {
        // SAFETY: made by `newctx` or `dupctx`, and freed once.
        drop(unsafe { Box::from_raw(context.cast::<Context>()) });
    }
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: a context of ours.
    let copy = unsafe { Context::borrow(context) }.duplicate();
    copy.map_or(std::ptr::null_mut(), |copy| Box::into_raw(copy).cast())
}

unsafe extern "C" fn reset(context: *mut c_void) {
    // SAFETY: a context of ours.
    unsafe { Context::borrow(context) }.reset();
}

unsafe extern "C" fn derive(
    context: *mut c_void,
    output: *mut u8,
    length: usize,
    params: *const Param,
) -> c_int {
    // SAFETY: a context of ours.
    let context = unsafe { Context::borrow(context) };
    let mut params = params;
    // SAFETY: the core passes an array that ends with a null key, or null.
    if unsafe { context.set(params) } {
        // SAFETY: the core passes room for as many bytes, or null.
        if let Some(output) = unsafe { ffi::bytes_mut(output, length) }
            && context.derive(output)
        {
            return 1;
        }
        params = std::ptr::null();
    }
    let Some(default) = context.default() else {
        return 0;
    };
    // SAFETY: the core's arguments, except for parameters that have been set.
    unsafe { default.derive(output, length, params) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: a context of ours.
    let context = unsafe { Context::borrow(context) };
    // SAFETY: the core passes an array that ends with a null key, or null.
    if unsafe { context.set(params) } {
        return 1;
    }
    // SAFETY: the core's arguments.
    context
        .default()
        .map_or(0, |default| unsafe { default.set_params(params) })
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: a context of ours.
    let context = unsafe { Context::borrow(context) };
    if let Some(size) = context.size() {
        // SAFETY: the core passes an array that ends with a null key, or null, to be answered.
        if unsafe { answer_size(params, size) } {
            return 1;
        }
    }
    // SAFETY: the core's arguments.
    context
        .default()
        .map_or(0, |default| unsafe { default.get_params(params) })
}

/// Answers `params` if they ask for the size only. Returns false otherwise.
///
/// # Safety
/// `params` must be null or an array that ends with a null key and that is ours to answer.
unsafe fn answer_size(params: *mut Param, size: usize) -> bool {
    // SAFETY: the caller's promise: the entry after an entry with a key can be read.
    let alone =
        !params.is_null() && unsafe { !(*params).key.is_null() && (*params.add(1)).key.is_null() };
    // SAFETY: the caller's promise.
    let Some(param) = alone.then(|| unsafe { &mut *params }) else {
        return false;
    };
    // SAFETY: names are texts that end with NUL.
    let asked = unsafe { CStr::from_ptr(param.key) } == c"size";
    if !asked || param.data_type != UNSIGNED_INTEGER || param.data_size != size_of::<usize>() {
        return false;
    }
    param.return_size = size_of::<usize>();
    if !param.data.is_null() {
        // SAFETY: the data has the size of the number, of any alignment.
        unsafe { param.data.cast::<usize>().write_unaligned(size) };
    }
    true
}

unsafe extern "C" fn gettable_ctx_params<K: Kind>(
    _context: *mut c_void,
    provider: *mut c_void,
) -> *const Param {
    // SAFETY: the provider's context.
    let shared = unsafe { shared::<K>(provider) };
    shared.map_or(std::ptr::null(), |shared| {
        // SAFETY: the default provider's own context; the table is the same for every context.
        unsafe { (shared.functions().gettable_ctx_params)(std::ptr::null_mut(), shared.provider()) }
    })
}

unsafe extern "C" fn settable_ctx_params<K: Kind>(
    _context: *mut c_void,
    provider: *mut c_void,
) -> *const Param {
    // SAFETY: the provider's context.
    let shared = unsafe { shared::<K>(provider) };
    shared.map_or(std::ptr::null(), |shared| {
        // SAFETY: as above.
        unsafe { (shared.functions().settable_ctx_params)(std::ptr::null_mut(), shared.provider()) }
    })
}

/// # Safety
/// `provider` must be the provider context that the core passes.
unsafe fn shared<K: Kind>(provider: *mut c_void) -> Option<Shared> {
    // SAFETY: the caller's promise.
    Shared::new(unsafe { Provider::loaded(provider) }?, K::FUNCTION)
}
