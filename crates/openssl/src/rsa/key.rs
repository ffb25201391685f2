//! Key management of RSA: the default provider's keys, each with its form for lanes.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, OnceLock};

use slipstream_lanes::rsa::{Components, PrivateKey, Size};
use slipstream_offload::calibration::example_key;
use zeroize::Zeroizing;

use crate::counts::{KEYS_WITH_LANES, KEYS_WITHOUT_LANES};
use crate::default_provider::DefaultProvider;
use crate::ffi::{
    self, Callback, Dispatch, Param, SELECT_KEYPAIR, SELECT_PRIVATE_KEY, Table, UNSIGNED_INTEGER,
};
use crate::object::{self, DefaultObject, Object};
use crate::param::{Lent, describe, find};
use crate::provider::{LoadedRef, Provider};

/// An RSA key as OpenSSL holds it.
pub(super) struct Key {
    loaded: LoadedRef,
    default: DefaultObject,
    /// Made when the key is imported, or when a key from elsewhere first signs or decrypts.
    lanes: OnceLock<Option<Arc<PrivateKey>>>,
}

impl Object for Key {}

impl Key {
    /// The form for lanes; `None` if the key is public, or not one that lanes can use.
    pub(super) fn lanes(&self) -> Option<&Arc<PrivateKey>> {
        self.lanes.get_or_init(|| self.export_to_lanes()).as_ref()
    }

    /// What the default provider's functions take as key.
    pub(super) fn default_key(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    /// A key of ours round one that the default provider has made; `None` for null.
    ///
    /// # Safety
    /// As for [`own`].
    unsafe fn wrap(loaded: LoadedRef, data: *mut c_void) -> Option<Self> {
        Some(Self {
            loaded,
            // SAFETY: the caller's promise.
            default: unsafe { own(&loaded.default, data) }?,
            lanes: OnceLock::new(),
        })
    }

    fn export_to_lanes(&self) -> Option<Arc<PrivateKey>> {
        unsafe extern "C" fn receive(params: *const Param, argument: *mut c_void) -> c_int {
            // SAFETY: the argument that is passed to `export` below.
            let (loaded, key) = unsafe { &mut *argument.cast::<(LoadedRef, Option<_>)>() };
            // SAFETY: an array that ends with a null key.
            *key = unsafe { import_to_lanes(*loaded, params) };
            1
        }
        let mut received: (LoadedRef, Option<Arc<PrivateKey>>) = (self.loaded, None);
        let argument = (&raw mut received).cast();
        let export = self.loaded.default.rsa.keymgmt.export;
        // SAFETY: a key of the default provider; `receive` gets the argument that it expects.
        unsafe { export(self.default_key(), SELECT_KEYPAIR, Some(receive), argument) };
        received.1
    }
}

/// A key of the default provider, to be freed.
///
/// # Safety
/// `data` must be null or what a function of [`ffi::Keymgmt`] has just made.
unsafe fn own(default: &DefaultProvider, data: *mut c_void) -> Option<DefaultObject> {
    // SAFETY: the caller's promise.
    unsafe { DefaultObject::own(data, default.rsa.keymgmt.free) }
}

/// The published example key of `size`, as the default provider's.
pub(super) fn example(default: &DefaultProvider, size: Size) -> Option<DefaultObject> {
    let functions = &default.rsa.keymgmt;
    // SAFETY: the default provider's own context.
    let key = unsafe { own(default, (functions.new)(default.context)) }?;
    let example = example_key(size);
    let components = &example.components;
    let mut numbers = [
        (c"n", components.modulus),
        (c"e", components.public_exponent),
        (c"d", example.private_exponent),
        (c"rsa-factor1", components.prime1),
        (c"rsa-factor2", components.prime2),
        (c"rsa-exponent1", components.exponent1),
        (c"rsa-exponent2", components.exponent2),
        (c"rsa-coefficient1", components.coefficient),
    ]
    .map(|(name, bytes)| (name, bytes.iter().rev().copied().collect::<Vec<u8>>()));
    let mut params: Vec<Lent<'_>> = numbers
        .iter_mut()
        .map(|(name, bytes)| Lent::big_number(name, bytes))
        .chain([Lent::END])
        .collect();
    let params = Lent::as_mut_ptr(&mut params);
    // SAFETY: a new key of the default provider and an array that ends with a null key.
    let imported = unsafe { (functions.import)(key.as_ptr(), SELECT_KEYPAIR, params) };
    (imported == 1).then_some(key)
}

/// The form for lanes of the private key in `params`, if there is one that lanes can use.
///
/// # Safety
/// `params` must be null or an array that ends with a null key.
unsafe fn import_to_lanes(loaded: LoadedRef, params: *const Param) -> Option<Arc<PrivateKey>> {
    // SAFETY: the caller's promise.
    unsafe { find(params, c"d") }?;
    let key = loaded.backend().and_then(|backend| {
        // SAFETY: the caller's promise.
        let number = |name| unsafe { big_endian(params, name) };
        // SAFETY: the caller's promise.
        if unsafe { find(params, c"rsa-factor3") }.is_some() {
            return None;
        }
        let components = Components {
            modulus: &number(c"n")?,
            public_exponent: &number(c"e")?,
            prime1: &number(c"rsa-factor1")?,
            prime2: &number(c"rsa-factor2")?,
            exponent1: &number(c"rsa-exponent1")?,
            exponent2: &number(c"rsa-exponent2")?,
            coefficient: &number(c"rsa-coefficient1")?,
        };
        PrivateKey::new(backend, &components).ok()
    });
    match key {
        Some(_) => KEYS_WITH_LANES.add_one(),
        None => KEYS_WITHOUT_LANES.add_one(),
    }
    key.map(Arc::new)
}

/// # Safety
/// `params` must be null or an array that ends with a null key.
unsafe fn big_endian(params: *const Param, name: &CStr) -> Option<Zeroizing<Vec<u8>>> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { find(params, name)?.unsigned_bytes() }?;
    // x86-64 is little-endian, and so are its parameters.
    Some(Zeroizing::new(bytes.iter().rev().copied().collect()))
}

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
    import_types: Some(types),
    export_types: Some(types),
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
    // SAFETY: a key of the default provider.
    let copy = unsafe {
        let data = (key.loaded.default.rsa.keymgmt.dup)(key.default_key(), selection);
        Key::wrap(key.loaded, data)
    };
    let Some(mut copy) = copy else {
        return std::ptr::null_mut();
    };
    if selection & SELECT_PRIVATE_KEY != 0 {
        copy.lanes = key.lanes.clone();
    }
    copy.into_raw()
}

unsafe extern "C" fn import(key: *mut c_void, selection: c_int, params: *const Param) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    // SAFETY: a key of the default provider, and the core's array.
    let imported =
        unsafe { (key.loaded.default.rsa.keymgmt.import)(key.default_key(), selection, params) };
    if imported == 1 && selection & SELECT_PRIVATE_KEY != 0 {
        // SAFETY: the core's array.
        key.lanes
            .get_or_init(|| unsafe { import_to_lanes(key.loaded, params) });
    }
    imported
}

unsafe extern "C" fn matches(key: *const c_void, other: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the core passes null or our keys.
    let (Some(key), Some(other)) = (unsafe { (Key::borrow(key), Key::borrow(other)) }) else {
        return 0;
    };
    // SAFETY: keys of the default provider.
    unsafe {
        (key.loaded.default.rsa.keymgmt.matches)(key.default_key(), other.default_key(), selection)
    }
}

/// Functions that only hand over to the default provider's function of the same name.
macro_rules! hand_over {
    ($($name:ident($key:ty, $($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(key: $key, $($argument: $type),*) -> c_int {
            // SAFETY: the core passes null or one of our keys.
            let Some(key) = (unsafe { Key::borrow(key) }) else { return 0 };
            // SAFETY: a key of the default provider, and what the core passes to this function.
            unsafe { (key.loaded.default.rsa.keymgmt.$name)(key.default_key(), $($argument),*) }
        }
    )*};
}

hand_over! {
    has(*const c_void, selection: c_int);
    validate(*const c_void, selection: c_int, check: c_int);
    export(*mut c_void, selection: c_int, callback: Option<Callback>, argument: *mut c_void);
    get_params(*mut c_void, params: *mut Param);
}

unsafe extern "C" fn gettable_params(provider: *mut c_void) -> *const Param {
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null();
    };
    // SAFETY: the default provider's own context.
    unsafe { (loaded.default.rsa.keymgmt.gettable_params)(loaded.default.context) }
}

/// What can be imported and exported. These functions get no context, hence are not handed over.
static TYPES: Table<Param, 33> = Table([
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

unsafe extern "C" fn types(selection: c_int) -> *const Param {
    if selection & SELECT_KEYPAIR == 0 {
        std::ptr::null()
    } else {
        TYPES.0.as_ptr()
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
