//! Key management of keys on curves, as OpenSSL calls it.

use std::ffi::{c_char, c_int, c_void};

use super::key::Key;
use super::key_type::{ECDH_NAME, ECDSA_NAME, Ec, KeyType, X25519};
use super::{generation, types};
use crate::default_provider::Family;
use crate::failure::Failure;
use crate::ffi::{
    self, Callback, Dispatch, OP_KEYEXCH, OP_SIGNATURE, Param, SELECT_PRIVATE_KEY, Table,
};
use crate::loaded::{LoadedRef, Provider};
use crate::object::{self, Object};

/// The functions of `OSSL_OP_KEYMGMT` for keys of X25519.
pub(crate) static X25519_KEYMGMT: FunctionTable = functions::<X25519>();
/// The functions of `OSSL_OP_KEYMGMT` for keys on the curves of X9.62.
pub(crate) static EC_KEYMGMT: FunctionTable = functions::<Ec>();

type FunctionTable = Table<Dispatch, { ffi::Keymgmt::LENGTH }>;

const fn functions<T: KeyType>() -> FunctionTable {
    let is_ec = matches!(T::FAMILY, Family::Ec);
    ffi::Keymgmt {
        new: new::<T>,
        gen_init: generation::init::<T>,
        gen_set_params: generation::set_params,
        gen_settable_params: generation::settable_params::<T>,
        generate: generation::generate,
        gen_cleanup: object::free::<generation::Generation>,
        free: object::free::<Key>,
        get_params,
        gettable_params: gettable_params::<T>,
        has,
        validate,
        matches,
        import,
        export,
        dup,
        gen_set_template: if is_ec {
            Some(generation::set_template)
        } else {
            None
        },
        set_params: Some(set_params),
        settable_params: Some(settable_params::<T>),
        query_operation_name: if is_ec {
            Some(query_operation_name)
        } else {
            None
        },
        import_types: Some(types::imported::<T>),
        export_types: Some(types::exported::<T>),
    }
    .table()
}

unsafe extern "C" fn new<T: KeyType>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let key = unsafe { Provider::loaded(provider) };
    object::into_raw(key.and_then(|loaded| Key::empty(loaded, T::FAMILY)))
}

unsafe extern "C" fn dup(key: *const c_void, selection: c_int) -> *mut c_void {
    // SAFETY: the core passes null or one of our keys.
    let key = unsafe { Key::borrow(key) };
    let copy = key.and_then(|key| key.material().duplicate(selection));
    object::into_raw(copy.map(Key::new))
}

unsafe extern "C" fn import(key: *mut c_void, selection: c_int, params: *const Param) -> c_int {
    if key.is_null() {
        return 0;
    }
    // SAFETY: one of our keys, which only the core uses now, and the core's array.
    unsafe { Key::borrow_mut(key).import(selection, params) }
}

unsafe extern "C" fn set_params(key: *mut c_void, params: *const Param) -> c_int {
    if key.is_null() {
        return 0;
    }
    // SAFETY: one of our keys, which only the core uses now, and the core's array.
    unsafe { Key::borrow_mut(key).set_params(params) }
}

unsafe extern "C" fn get_params(key: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    // SAFETY: the core's array.
    if unsafe { key.answer(params) } {
        return 1;
    }
    let Some((functions, key)) = key.as_default() else {
        return 0;
    };
    // SAFETY: a key of the default provider, and the core's array.
    unsafe { (functions.keymgmt.get_params)(key, params) }
}

unsafe extern "C" fn has(key: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    if let Some(has) = key.has(selection) {
        return c_int::from(has);
    }
    let selection = key.material().selection(selection);
    let Some((functions, key)) = key.as_default() else {
        return 0;
    };
    // SAFETY: a key of the default provider.
    unsafe { (functions.keymgmt.has)(key, selection) }
}

unsafe extern "C" fn validate(key: *const c_void, selection: c_int, check: c_int) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    if let Some(valid) = key.is_valid(selection) {
        return c_int::from(valid);
    }
    let selection = key.material().selection(selection);
    let Some((functions, key)) = key.as_default() else {
        return 0;
    };
    // SAFETY: a key of the default provider.
    unsafe { (functions.keymgmt.validate)(key, selection, check) }
}

unsafe extern "C" fn matches(key: *const c_void, other: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the core passes null or our keys.
    let (Some(key), Some(other)) = (unsafe { (Key::borrow(key), Key::borrow(other)) }) else {
        return 0;
    };
    // Held private keys match if their public keys do.
    let selection = key.material().selection(selection);
    let selection = other.material().selection(selection);
    let (Some((functions, key)), Some(other)) = (key.as_default(), other.default_key()) else {
        return 0;
    };
    // SAFETY: keys of the default provider.
    unsafe { (functions.keymgmt.matches)(key, other, selection) }
}

unsafe extern "C" fn export(
    key: *mut c_void,
    selection: c_int,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    if key.material().held().is_some() && selection & SELECT_PRIVATE_KEY != 0 {
        key.material().loaded.errors.raise(Failure::NotExported);
        return 0;
    }
    let Some((functions, key)) = key.as_default() else {
        return 0;
    };
    // SAFETY: a key of the default provider, and the core's callback with its argument.
    unsafe { (functions.keymgmt.export)(key, selection, callback, argument) }
}

unsafe extern "C" fn gettable_params<T: KeyType>(provider: *mut c_void) -> *const Param {
    table::<T>(provider, |loaded, functions| {
        // SAFETY: the default provider's own context.
        Some(unsafe { (functions.gettable_params)(loaded.default.context) })
    })
}

unsafe extern "C" fn settable_params<T: KeyType>(provider: *mut c_void) -> *const Param {
    table::<T>(provider, |loaded, functions| {
        // SAFETY: the default provider's own context.
        Some(unsafe { (functions.settable_params?)(loaded.default.context) })
    })
}

fn table<T: KeyType>(
    provider: *mut c_void,
    table: impl FnOnce(LoadedRef, &ffi::Keymgmt) -> Option<*const Param>,
) -> *const Param {
    // SAFETY: the core passes the context of this provider.
    let found = unsafe { Provider::loaded(provider) }.and_then(|loaded| {
        let functions = loaded.default.exchange(T::FAMILY)?;
        table(loaded, &functions.keymgmt)
    });
    found.unwrap_or(std::ptr::null())
}

unsafe extern "C" fn query_operation_name(operation: c_int) -> *const c_char {
    match operation {
        OP_KEYEXCH => ECDH_NAME.as_ptr(),
        OP_SIGNATURE => ECDSA_NAME.as_ptr(),
        _ => std::ptr::null(),
    }
}
