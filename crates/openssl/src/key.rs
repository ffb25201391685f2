//! Key management: the default provider's keys, each with its form for lanes.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use slipstream_lanes::rsa::{Components, PrivateKey, Size};
use slipstream_offload::calibration::example_key;
use zeroize::Zeroizing;

use crate::counts::{KEYS_WITH_LANES, KEYS_WITHOUT_LANES};
use crate::default_provider::DefaultProvider;
use crate::ffi::{
    self, Callback, Dispatch, Param, SELECT_KEYPAIR, SELECT_PRIVATE_KEY, Table, UNSIGNED_INTEGER,
};
use crate::param::{Lent, describe, find};
use crate::provider::{Provider, RsaRef};

/// An RSA key as OpenSSL holds it.
pub(crate) struct Key {
    rsa: RsaRef,
    default: DefaultKey,
    /// Made when the key is imported, or when a key from elsewhere first signs or decrypts.
    lanes: OnceLock<Option<Arc<PrivateKey>>>,
}

impl Key {
    /// The key behind a pointer of OpenSSL's; `None` if that is null.
    ///
    /// # Safety
    /// `key` must be null or a key that this module made and that has not been freed.
    pub(crate) unsafe fn borrow<'a>(key: *const c_void) -> Option<&'a Self> {
        // SAFETY: the caller's promise; a key is only ever shared until it is freed.
        unsafe { key.cast::<Self>().as_ref() }
    }

    /// The form for lanes; `None` if the key is public, or not one that lanes can use.
    pub(crate) fn lanes(&self) -> Option<&Arc<PrivateKey>> {
        self.lanes.get_or_init(|| self.export_to_lanes()).as_ref()
    }

    /// What the default provider's functions take as key.
    pub(crate) fn default_key(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    /// A key of ours round one that the default provider has made; null for null.
    fn wrap(rsa: RsaRef, data: *mut c_void) -> *mut c_void {
        let Some(default) = DefaultKey::own(&rsa.default, data) else {
            return std::ptr::null_mut();
        };
        Box::into_raw(Box::new(Self {
            rsa,
            default,
            lanes: OnceLock::new(),
        }))
        .cast()
    }

    fn export_to_lanes(&self) -> Option<Arc<PrivateKey>> {
        unsafe extern "C" fn receive(params: *const Param, argument: *mut c_void) -> c_int {
            // SAFETY: the argument that is passed to `export` below.
            let (rsa, key) = unsafe { &mut *argument.cast::<(RsaRef, Option<_>)>() };
            // SAFETY: an array that ends with a null key.
            *key = unsafe { import_to_lanes(*rsa, params) };
            1
        }
        let mut received: (RsaRef, Option<Arc<PrivateKey>>) = (self.rsa, None);
        let argument = (&raw mut received).cast();
        let export = self.rsa.default.keymgmt.export;
        // SAFETY: a key of the default provider; `receive` gets the argument that it expects.
        unsafe { export(self.default_key(), SELECT_KEYPAIR, Some(receive), argument) };
        received.1
    }
}

/// A key of the default provider, which is freed with this.
pub(crate) struct DefaultKey {
    data: NonNull<c_void>,
    free: unsafe extern "C" fn(*mut c_void),
}

impl DefaultKey {
    /// The published example key of `size`.
    pub(crate) fn example(provider: &DefaultProvider, size: Size) -> Option<Self> {
        // SAFETY: the provider's context.
        let key = Self::own(provider, unsafe {
            (provider.keymgmt.new)(provider.context)
        })?;
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
        // SAFETY: a new key of this provider and an array that ends with a null key.
        let imported = unsafe { (provider.keymgmt.import)(key.as_ptr(), SELECT_KEYPAIR, params) };
        (imported == 1).then_some(key)
    }

    /// For functions of the default provider.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.data.as_ptr()
    }

    fn own(provider: &DefaultProvider, data: *mut c_void) -> Option<Self> {
        Some(Self {
            data: NonNull::new(data)?,
            free: provider.keymgmt.free,
        })
    }
}

impl Drop for DefaultKey {
    fn drop(&mut self) {
        // SAFETY: a key of the default provider that nobody else owns.
        unsafe { (self.free)(self.data.as_ptr()) };
    }
}

/// The form for lanes of the private key in `params`, if there is one that lanes can use.
///
/// # Safety
/// `params` must be null or an array that ends with a null key.
unsafe fn import_to_lanes(rsa: RsaRef, params: *const Param) -> Option<Arc<PrivateKey>> {
    // SAFETY: the caller's promise.
    unsafe { find(params, c"d") }?;
    let key = rsa.backend().and_then(|backend| {
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
    gen_cleanup,
    free,
    get_params,
    gettable_params,
    has,
    validate,
    matches,
    import,
    export,
    dup,
    import_types: Some(types),
    export_types: Some(types),
}
.table();

unsafe extern "C" fn new(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(rsa) = (unsafe { Provider::rsa(provider) }) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the default provider's own context.
    Key::wrap(rsa, unsafe {
        (rsa.default.keymgmt.new)(rsa.default.context)
    })
}

unsafe extern "C" fn free(key: *mut c_void) {
    if !key.is_null() {
        // SAFETY: a key that `Key::wrap` made, which the core frees once.
        drop(unsafe { Box::from_raw(key.cast::<Key>()) });
    }
}

unsafe extern "C" fn dup(key: *const c_void, selection: c_int) -> *mut c_void {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return std::ptr::null_mut();
    };
    // SAFETY: a key of the default provider.
    let data = unsafe { (key.rsa.default.keymgmt.dup)(key.default_key(), selection) };
    let Some(default) = DefaultKey::own(&key.rsa.default, data) else {
        return std::ptr::null_mut();
    };
    let lanes = match key.lanes.get() {
        Some(lanes) if selection & SELECT_PRIVATE_KEY != 0 => OnceLock::from(lanes.clone()),
        _ => OnceLock::new(),
    };
    Box::into_raw(Box::new(Key {
        rsa: key.rsa,
        default,
        lanes,
    }))
    .cast()
}

unsafe extern "C" fn import(key: *mut c_void, selection: c_int, params: *const Param) -> c_int {
    // SAFETY: the core passes null or one of our keys.
    let Some(key) = (unsafe { Key::borrow(key) }) else {
        return 0;
    };
    // SAFETY: a key of the default provider, and the core's array.
    let imported =
        unsafe { (key.rsa.default.keymgmt.import)(key.default_key(), selection, params) };
    if imported == 1 && selection & SELECT_PRIVATE_KEY != 0 {
        // SAFETY: the core's array.
        key.lanes
            .get_or_init(|| unsafe { import_to_lanes(key.rsa, params) });
    }
    imported
}

unsafe extern "C" fn matches(key: *const c_void, other: *const c_void, selection: c_int) -> c_int {
    // SAFETY: the core passes null or our keys.
    let (Some(key), Some(other)) = (unsafe { (Key::borrow(key), Key::borrow(other)) }) else {
        return 0;
    };
    // SAFETY: keys of the default provider.
    unsafe { (key.rsa.default.keymgmt.matches)(key.default_key(), other.default_key(), selection) }
}

/// Functions that only hand over to the default provider's function of the same name.
macro_rules! hand_over {
    ($($name:ident($key:ty, $($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(key: $key, $($argument: $type),*) -> c_int {
            // SAFETY: the core passes null or one of our keys.
            let Some(key) = (unsafe { Key::borrow(key) }) else { return 0 };
            // SAFETY: a key of the default provider, and what the core passes to this function.
            unsafe { (key.rsa.default.keymgmt.$name)(key.default_key(), $($argument),*) }
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
    let Some(rsa) = (unsafe { Provider::rsa(provider) }) else {
        return std::ptr::null();
    };
    // SAFETY: the default provider's own context.
    unsafe { (rsa.default.keymgmt.gettable_params)(rsa.default.context) }
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

/// A key generation: the default provider's context.
struct Generation {
    rsa: RsaRef,
    default: NonNull<c_void>,
}

impl Generation {
    /// # Safety
    /// `generation` must be null or one that `gen_init` made and that has not been cleaned up.
    unsafe fn borrow<'a>(generation: *mut c_void) -> Option<&'a Self> {
        // SAFETY: the caller's promise; it is only ever shared.
        unsafe { generation.cast::<Self>().as_ref() }
    }
}

unsafe extern "C" fn gen_init(
    provider: *mut c_void,
    selection: c_int,
    params: *const Param,
) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(rsa) = (unsafe { Provider::rsa(provider) }) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the default provider's own context, and the core's array.
    let default = unsafe { (rsa.default.keymgmt.gen_init)(rsa.default.context, selection, params) };
    match NonNull::new(default) {
        Some(default) => Box::into_raw(Box::new(Generation { rsa, default })).cast(),
        None => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn gen_set_params(generation: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: the core passes null or one of our generations.
    let Some(generation) = (unsafe { Generation::borrow(generation) }) else {
        return 0;
    };
    let set = generation.rsa.default.keymgmt.gen_set_params;
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
    let Some(rsa) = (unsafe { Provider::rsa(provider) }) else {
        return std::ptr::null();
    };
    // SAFETY: contexts of the default provider.
    unsafe { (rsa.default.keymgmt.gen_settable_params)(generation, rsa.default.context) }
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
    let rsa = generation.rsa;
    // SAFETY: a context of the default provider, and the core's callback with its argument.
    Key::wrap(rsa, unsafe {
        (rsa.default.keymgmt.generate)(generation.default.as_ptr(), callback, argument)
    })
}

unsafe extern "C" fn gen_cleanup(generation: *mut c_void) {
    if generation.is_null() {
        return;
    }
    // SAFETY: a generation that `gen_init` made, which the core cleans up once.
    let generation = unsafe { Box::from_raw(generation.cast::<Generation>()) };
    // SAFETY: a context of the default provider, not used again.
    unsafe { (generation.rsa.default.keymgmt.gen_cleanup)(generation.default.as_ptr()) };
}
