//! Key derivation for TLS on the shortest path that the provider ABI has: TLS13-KDF, HKDF and
//! TLS1-PRF, without a fetch, an allocation or a lock per derivation.
//!
//! The default provider's functions fetch HMAC and a hash function by name for each derivation and
//! make a context for each; that takes longer than the hashing. Here a context copies its
//! parameters into a buffer of its own and hashes from there.
//!
//! What is computed here is what needs no judgement: SHA-256, SHA-384 or SHA-512 and
//! parameters that every version of OpenSSL takes alike. For the rest, errors included, a context
//! of the default provider is set to the same, once, and does all that follows: so parameters,
//! errors and corner cases are OpenSSL's own here, too.

use std::ffi::{CStr, c_int, c_void};

use crate::ffi::{self, Algorithm, Dispatch, Param, Table, UNSIGNED_INTEGER};
use crate::provider::Provider;

mod default;
mod derivation;
mod settings;

pub(crate) use default::Kdfs;
use default::{DefaultContext, Shared};
use settings::{Mode, Settings};

/// The algorithms of `OSSL_OP_KDF`.
pub(crate) static ALGORITHMS: Table<Algorithm, 4> = Table([
    algorithm::<Tls13>(),
    algorithm::<Hkdf>(),
    algorithm::<Tls1Prf>(),
    Algorithm::END,
]);

/// A key derivation function of OpenSSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Tls13,
    Hkdf,
    Tls1Prf,
}

impl Function {
    const ALL: [Self; 3] = [Self::Tls13, Self::Hkdf, Self::Tls1Prf];

    /// As OpenSSL calls it; it has no other names there.
    const fn name(self) -> &'static CStr {
        match self {
            Self::Tls13 => c"TLS13-KDF",
            Self::Hkdf => c"HKDF",
            Self::Tls1Prf => c"TLS1-PRF",
        }
    }
}

/// A [`Function`] as a type, for what OpenSSL calls without a context.
trait Kind {
    const FUNCTION: Function;
}

struct Tls13;
struct Hkdf;
struct Tls1Prf;

impl Kind for Tls13 {
    const FUNCTION: Function = Function::Tls13;
}

impl Kind for Hkdf {
    const FUNCTION: Function = Function::Hkdf;
}

impl Kind for Tls1Prf {
    const FUNCTION: Function = Function::Tls1Prf;
}

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

/// A key derivation as OpenSSL holds it.
struct Context {
    shared: Shared,
    /// What has been set, unless `default` knows it.
    settings: Settings,
    default: Option<DefaultContext>,
}

impl Context {
    /// # Safety
    /// `context` must be one that this module made, that has not been freed, and that nobody else
    /// uses meanwhile.
    unsafe fn borrow<'a>(context: *mut c_void) -> &'a mut Self {
        // SAFETY: the caller's promise.
        unsafe { &mut *context.cast::<Self>() }
    }

    /// The default provider's context, which does all from now on.
    fn default(&mut self) -> Option<&mut DefaultContext> {
        if self.default.is_none() {
            self.default = Some(DefaultContext::new(self.shared, &self.settings)?);
            self.settings.clear();
        }
        self.default.as_mut()
    }

    fn reset(&mut self) {
        self.default = None;
        self.settings.clear();
    }

    fn duplicate(&self) -> Option<Box<Self>> {
        let default = match &self.default {
            Some(default) => Some(default.duplicate()?),
            None => None,
        };
        let mut copy = Box::new(Self {
            shared: self.shared,
            settings: Settings::new(),
            default,
        });
        copy.settings.copy_from(&self.settings);
        Some(copy)
    }

    /// False if the default provider has to do it, which then finds everything unchanged.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key and is not written meanwhile.
    unsafe fn set(&mut self, params: *const Param) -> bool {
        if self.default.is_some() {
            return false;
        }
        // SAFETY: the caller's promise.
        params.is_null() || unsafe { self.settings.set(self.shared.function, params) }
    }

    /// The bytes that a derivation can yield, where that is known: without a limit if the mode is
    /// not to extract only.
    fn size(&self) -> Option<usize> {
        if self.default.is_some() {
            return None;
        }
        if self.settings.mode() == Mode::ExtractOnly {
            return Some(self.settings.hash()?.length());
        }
        Some(usize::MAX)
    }
}

unsafe extern "C" fn newctx<K: Kind>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the provider's context.
    let Some(shared) = (unsafe { shared::<K>(provider) }) else {
        return std::ptr::null_mut();
    };
    Box::into_raw(Box::new(Context {
        shared,
        settings: Settings::new(),
        default: None,
    }))
    .cast()
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
            && derivation::derive(&context.shared, &context.settings, output)
        {
            return 1;
        }
        params = std::ptr::null();
    }
    let Some(default) = context.default() else {
        return 0;
    };
    // SAFETY: what the core passes, except for parameters that have been set.
    unsafe { default.derive(output, length, params) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: a context of ours.
    let context = unsafe { Context::borrow(context) };
    // SAFETY: the core passes an array that ends with a null key, or null.
    if unsafe { context.set(params) } {
        return 1;
    }
    // SAFETY: what the core passes.
    context
        .default()
        .map_or(0, |default| unsafe { default.set_params(params) })
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: a context of ours.
    let context = unsafe { Context::borrow(context) };
    if let Some(size) = context.size() {
        // SAFETY: the core passes an array that ends with a null key, or null, for us to answer.
        if unsafe { answer_size(params, size) } {
            return 1;
        }
    }
    // SAFETY: what the core passes.
    context
        .default()
        .map_or(0, |default| unsafe { default.get_params(params) })
}

/// Answers if nothing but the size is asked for, as a number of that size; else false.
///
/// # Safety
/// `params` must be null or an array that ends with a null key and that is ours to answer.
unsafe fn answer_size(params: *mut Param, size: usize) -> bool {
    // SAFETY: the caller's promise: what follows an entry with a key can be read.
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
        // SAFETY: the default provider's own context; it lists what any context has.
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
