//! Key management of RSA, as OpenSSL calls it.

use std::ffi::{c_int, c_void};

use super::key::Key;
use crate::failure::Failure;
use crate::ffi::{
    self, Callback, Dispatch, Param, SELECT_KEYPAIR, SELECT_PRIVATE_KEY, Table, UNSIGNED_INTEGER,
};
use crate::held;
use crate::loaded::{LoadedRef, Provider};
use crate::object::{self, DefaultObject, Object};
use crate::param::describe;

/// The functions of `OSSL_OP_KEYMGMT`.
pub(crate) static FUNCTIONS: Table<Dispatch, { ffi::Keymgmt::LENGTH }> = ffi::Keymgmt {
    new,
    gen_init,
    gen_set_params,
    gen_settable_params,
    generate,
    gen_cleanup: object::free::<Generation>,
    free: object::free::<Key>,
    get_params,
    gettable_params,
    has,
    validate,
    matches,
    import,
    export,
    dup,
    gen_set_template: None,
    set_params: None,
    settable_params: None,
    query_operation_name: None,
    import_types: Some(import_types),
    export_types: Some(export_types),
}
.table();

unsafe extern "C" fn new(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the default provider's own context.
    object::into_raw(unsafe {
        let data = (loaded.default.rsa.keymgmt.new)(loaded.default.context);
        Key::wrap(loaded, data)
    })
}

unsafe extern "C" fn dup(key: *const c_void, selection: c_int) -> *mut c_void {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return std::ptr::null_mut();
    };
    object::into_raw(key.duplicate(selection))
}

unsafe extern "C" fn import(key: *mut c_void, selection: c_int, params: *const Param) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    // SAFETY: the core's array.
    unsafe { key.import(selection, params) }
}

unsafe extern "C" fn matches(key: *const c_void, other: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the core passes null or our keys.
    let (Some(key), Some(other)) = (unsafe { (Key::borrow(key), Key::borrow(other)) }) else {
        return 0;
    };
    // Held private keys match if their public keys do.
    let selection = key.selection(other.selection(selection));
    // SAFETY: keys of the default provider.
    unsafe {
        (key.loaded.default.rsa.keymgmt.matches)(key.default_key(), other.default_key(), selection)
    }
}

unsafe extern "C" fn has(key: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    let has = key.loaded.default.rsa.keymgmt.has;
    // SAFETY: a key of the default provider.
    unsafe { has(key.default_key(), key.selection(selection)) }
}

unsafe extern "C" fn validate(key: *const c_void, selection: c_int, check: c_int) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    let validate = key.loaded.default.rsa.keymgmt.validate;
    // SAFETY: a key of the default provider.
    unsafe { validate(key.default_key(), key.selection(selection), check) }
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
    if key.held().is_some() && selection & SELECT_PRIVATE_KEY != 0 {
        key.loaded.errors.raise(Failure::NotExported);
        return 0;
    }
    let export = key.loaded.default.rsa.keymgmt.export;
    // SAFETY: a key of the default provider, and the core's callback with its argument.
    unsafe { export(key.default_key(), selection, callback, argument) }
}

unsafe extern "C" fn get_params(key: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    // SAFETY: a key of the default provider, and the core's array.
    unsafe { (key.loaded.default.rsa.keymgmt.get_params)(key.default_key(), params) }
}

unsafe extern "C" fn gettable_params(provider: *mut c_void) -> *const Param {
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null();
    };
    // SAFETY: the default provider's own context.
    unsafe { (loaded.default.rsa.keymgmt.gettable_params)(loaded.default.context) }
}

/// Parameters that can be imported. All but the first can be exported. OpenSSL asks for them
/// without a context, so the default provider cannot be asked.
static TYPES: Table<Param, 34> = Table([
    describe(held::PARAMETER, UNSIGNED_INTEGER),
    describe(c"n", UNSIGNED_INTEGER),
    describe(c"e", UNSIGNED_INTEGER),
    describe(c"d", UNSIGNED_INTEGER),
    describe(c"rsa-factor1", UNSIGNED_INTEGER),
    describe(c"rsa-factor2", UNSIGNED_INTEGER),
    describe(c"rsa-factor3", UNSIGNED_INTEGER),
    describe(c"rsa-factor4", UNSIGNED_INTEGER),
    describe(c"rsa-factor5", UNSIGNED_INTEGER),
    describe(c"rsa-factor6", UNSIGNED_INTEGER),
    describe(c"rsa-factor7", UNSIGNED_INTEGER),
    describe(c"rsa-factor8", UNSIGNED_INTEGER),
    describe(c"rsa-factor9", UNSIGNED_INTEGER),
    describe(c"rsa-factor10", UNSIGNED_INTEGER),
    describe(c"rsa-exponent1", UNSIGNED_INTEGER),
    describe(c"rsa-exponent2", UNSIGNED_INTEGER),
    describe(c"rsa-exponent3", UNSIGNED_INTEGER),
    describe(c"rsa-exponent4", UNSIGNED_INTEGER),
    describe(c"rsa-exponent5", UNSIGNED_INTEGER),
    describe(c"rsa-exponent6", UNSIGNED_INTEGER),
    describe(c"rsa-exponent7", UNSIGNED_INTEGER),
    describe(c"rsa-exponent8", UNSIGNED_INTEGER),
    describe(c"rsa-exponent9", UNSIGNED_INTEGER),
    describe(c"rsa-exponent10", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient1", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient2", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient3", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient4", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient5", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient6", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient7", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient8", UNSIGNED_INTEGER),
    describe(c"rsa-coefficient9", UNSIGNED_INTEGER),
    Param::END,
]);

unsafe extern "C" fn import_types(selection: c_int) -> *const Param {
    types(selection, &TYPES.0)
}

unsafe extern "C" fn export_types(selection: c_int) -> *const Param {
    types(selection, &TYPES.0[1..])
}

fn types(selection: c_int, types: &'static [Param]) -> *const Param {
    if selection & SELECT_KEYPAIR == 0 {
        std::ptr::null()
    } else {
        types.as_ptr()
    }
}

/// A key generation.
struct Generation {
    loaded: LoadedRef,
    /// The default provider's context.
    default: DefaultObject,
}

impl Object for Generation {}

unsafe extern "C" fn gen_init(
    provider: *mut c_void,
    selection: c_int,
    params: *const Param,
) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the default provider's own context, and the core's array.
    let default = unsafe {
        let functions = &loaded.default.rsa.keymgmt;
        let context = (functions.gen_init)(loaded.default.context, selection, params);
        DefaultObject::own(context, functions.gen_cleanup)
    };
    object::into_raw(default.map(|default| Generation { loaded, default }))
}

unsafe extern "C" fn gen_set_params(generation: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: the core passes null or one of our generations.
    let Some(generation) = (unsafe { Generation::borrow(generation) }) else {
        return 0;
    };
    let set = generation.loaded.default.rsa.keymgmt.gen_set_params;
    // SAFETY: a context of the default provider, and the core's array.
    unsafe { set(generation.default.as_ptr(), params) }
}

unsafe extern "C" fn gen_settable_params(
    generation: *mut c_void,
    provider: *mut c_void,
) -> *const Param {
    // SAFETY: the core passes null or one of our generations.
    let generation = unsafe { Generation::borrow(generation) };
    let generation = generation.map_or(std::ptr::null_mut(), |known| known.default.as_ptr());
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null();
    };
    // SAFETY: contexts of the default provider.
    unsafe { (loaded.default.rsa.keymgmt.gen_settable_params)(generation, loaded.default.context) }
}

unsafe extern "C" fn generate(
    generation: *mut c_void,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> *mut c_void {
    // SAFETY: the core passes null or one of our generations.
    let Some(generation) = (unsafe { Generation::borrow(generation) }) else {
        return std::ptr::null_mut();
    };
    let loaded = generation.loaded;
    // SAFETY: a context of the default provider, and the core's callback with its argument.
    object::into_raw(unsafe {
        let generate = loaded.default.rsa.keymgmt.generate;
        Key::wrap(
            loaded,
            generate(generation.default.as_ptr(), callback, argument),
        )
    })
}
