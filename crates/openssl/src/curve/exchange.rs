//! Key exchange, by an accelerator or by the default provider.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use slipstream_keys::Operand;
use slipstream_offload::{Kind, Operation};

use super::key::Key;
use super::key_type::{Ec, KeyType, X25519};
use super::material::Material;
use crate::default_provider::{ExchangeFunctions, Family};
use crate::failure::Failure;
use crate::ffi::{self, Dispatch, Param, Table};
use crate::group::{Bytes, facts};
use crate::job;
use crate::loaded::{LoadedRef, Provider};
use crate::object::{self, DefaultObject, Object};

/// The functions of `OSSL_OP_KEYEXCH` for X25519.
pub(crate) static X25519_KEYEXCH: FunctionTable = functions::<X25519>();
/// The functions of `OSSL_OP_KEYEXCH` for the curves of X9.62.
pub(crate) static ECDH: FunctionTable = functions::<Ec>();

type FunctionTable = Table<Dispatch, { ffi::Keyexch::LENGTH }>;

const fn functions<T: KeyType>() -> FunctionTable {
    // The default provider of OpenSSL 3.0 has no parameters for X25519, and OpenSSL behaves
    // differently if these functions are missing.
    let is_ec = matches!(T::FAMILY, Family::Ec);
    ffi::Keyexch {
        newctx: newctx::<T>,
        init,
        derive,
        set_peer,
        freectx: object::free::<Context>,
        dupctx,
        set_ctx_params: if is_ec { Some(set_ctx_params) } else { None },
        settable_ctx_params: if is_ec {
            Some(settable_ctx_params)
        } else {
            None
        },
        get_ctx_params: if is_ec { Some(get_ctx_params) } else { None },
        gettable_ctx_params: if is_ec {
            Some(gettable_ctx_params)
        } else {
            None
        },
    }
    .table()
}

/// An exchange as OpenSSL holds it.
struct Context {
    loaded: LoadedRef,
    family: Family,
    /// The private key, if its bytes are known and the default provider does not do the exchange.
    own: Option<Arc<Material>>,
    /// The public key of the peer, if its bytes are known; of the same group.
    peer: Option<Arc<Material>>,
    /// The default provider's context, which has these keys and does everything from then on.
    default: Option<DefaultObject>,
}

impl Object for Context {}

impl Context {
    fn functions(&self) -> Option<&ExchangeFunctions> {
        self.loaded.default.exchange(self.family)
    }

    /// The default provider's functions and context, which do everything from now on. `None` if the
    /// default provider has no memory or refuses a key.
    fn default(&mut self) -> Option<(&ExchangeFunctions, *mut c_void)> {
        if self.default.is_none() {
            let functions = &self.functions()?.keyexch;
            // SAFETY: the default provider's own context; the new one is ours.
            let context = unsafe {
                let context = (functions.newctx)(self.loaded.default.context);
                DefaultObject::own(context, functions.freectx)
            }?;
            if let Some(own) = &self.own {
                let key = own.default_key()?.as_ptr();
                // SAFETY: a context and a key of the default provider; no parameters.
                let initialised =
                    unsafe { (functions.init)(context.as_ptr(), key, std::ptr::null()) };
                if initialised != 1 {
                    return None;
                }
            }
            if let Some(peer) = &self.peer {
                let key = peer.default_key()?.as_ptr();
                // SAFETY: a context and a key of the default provider.
                if unsafe { (functions.set_peer)(context.as_ptr(), key) } != 1 {
                    return None;
                }
            }
            self.default = Some(context);
        }
        let context = self.default.as_ref()?.as_ptr();
        Some((self.functions()?, context))
    }

    /// The bytes of a key. They are read from a key of the default provider only if operations of
    /// the caller may be offloaded.
    fn bytes<'a>(&self, key: &'a Material) -> Option<&'a Bytes> {
        match key.known() {
            Some(known) => Some(known),
            None if job::participates(self.loaded) => key.bytes(),
            None => None,
        }
    }

    /// Both keys; `None` if one is missing, or the default provider does the exchange.
    fn keys(&self) -> Option<(&Bytes, &Bytes)> {
        if self.default.is_some() {
            return None;
        }
        Some((self.own.as_ref()?.bytes()?, self.peer.as_ref()?.bytes()?))
    }

    /// Computes the secret by an accelerator. `None` if software has to compute it.
    fn derive_offloaded(&self) -> Option<Operand> {
        let (own, peer) = self.keys()?;
        let route = job::admit(self.loaded, Kind::exchange(own.group))
            .map_err(job::refuse)
            .ok()?;
        let private = own.private.clone()?;
        let peer = peer.public.clone()?;
        let operation = match facts(own.group).curve {
            None => Operation::X25519 { private, peer },
            Some(curve) => Operation::Ecdh {
                curve,
                private,
                peer,
            },
        };
        job::compute(self.loaded, route, operation)
    }
}

unsafe extern "C" fn newctx<T: KeyType>(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let loaded = unsafe { Provider::loaded(provider) };
    object::into_raw(loaded.map(|loaded| Context {
        loaded,
        family: T::FAMILY,
        own: None,
        peer: None,
        default: None,
    }))
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow_mut(context) };
    let mut copy = Context {
        loaded: context.loaded,
        family: context.family,
        own: context.own.clone(),
        peer: context.peer.clone(),
        default: None,
    };
    if context.default.is_some() {
        let Some((functions, default)) = context.default() else {
            return std::ptr::null_mut();
        };
        // SAFETY: a context of the default provider; the copy is ours.
        copy.default = unsafe {
            let default = (functions.keyexch.dupctx)(default);
            DefaultObject::own(default, functions.keyexch.freectx)
        };
        if copy.default.is_none() {
            return std::ptr::null_mut();
        }
    }
    copy.into_raw()
}

unsafe extern "C" fn init(context: *mut c_void, key: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: the core passes one of our contexts, and null or one of our keys.
    let (context, key) = unsafe { (Context::borrow_mut(context), Key::borrow(key)) };
    let Some(key) = key.map(Key::material) else {
        return 0;
    };
    if key.held().is_some() {
        context.loaded.errors.raise(Failure::NotComputed);
        return 0;
    }
    // SAFETY: an array of parameters can be read up to the entry without a key.
    let empty = unsafe { params.as_ref() }.is_none_or(|first| first.key.is_null());
    let private = context.bytes(key).is_some_and(|key| key.private.is_some());
    if empty && private && context.default.is_none() && context.peer.is_none() {
        context.own = Some(key.clone());
        return 1;
    }
    let Some(key) = key.default_key() else {
        return 0;
    };
    let Some((functions, default)) = context.default() else {
        return 0;
    };
    // SAFETY: a context and a key of the default provider, and the core's array.
    unsafe { (functions.keyexch.init)(default, key.as_ptr(), params) }
}

unsafe extern "C" fn set_peer(context: *mut c_void, key: *mut c_void) -> c_int {
    // SAFETY: the core passes one of our contexts, and null or one of our keys.
    let (context, key) = unsafe { (Context::borrow_mut(context), Key::borrow(key)) };
    let Some(key) = key.map(Key::material) else {
        return 0;
    };
    if context.default.is_none()
        && let Some(own) = &context.own
        && let Some(own) = own.bytes()
        && let Some(peer) = context.bytes(key)
        && peer.public.is_some()
        && peer.group == own.group
    {
        context.peer = Some(key.clone());
        return 1;
    }
    let Some(key) = key.default_key() else {
        return 0;
    };
    let Some((functions, default)) = context.default() else {
        return 0;
    };
    // SAFETY: a context and a key of the default provider.
    unsafe { (functions.keyexch.set_peer)(default, key.as_ptr()) }
}

unsafe extern "C" fn derive(
    context: *mut c_void,
    secret: *mut u8,
    length: *mut usize,
    room: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow_mut(context) };
    if let Some((own, _)) = context.keys() {
        let facts = facts(own.group);
        // As in the default provider: with ECDH, a secret that is too long for the buffer is cut
        // off.
        let written = facts.secret_bytes.min(room);
        let is_cut = written < facts.secret_bytes;
        if secret.is_null() {
            // SAFETY: the core's room for an answer.
            unsafe { *length = facts.secret_bytes };
            return 1;
        }
        if written > 0
            && (facts.family == Family::Ec || !is_cut)
            && let Some(output) = context.derive_offloaded()
        {
            let output = &output.as_slice()[..written];
            // SAFETY: the core's room for the secret, and for an answer.
            unsafe {
                secret.copy_from_nonoverlapping(output.as_ptr(), output.len());
                *length = output.len();
            }
            return 1;
        }
    }
    // In software, by the default provider.
    let Some((functions, default)) = context.default() else {
        return 0;
    };
    // SAFETY: a context of the default provider, and the core's arguments.
    unsafe { (functions.keyexch.derive)(default, secret, length, room) }
}

unsafe extern "C" fn set_ctx_params(context: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: an array of parameters can be read up to the entry without a key.
    if unsafe { params.as_ref() }.is_none_or(|first| first.key.is_null()) {
        return 1;
    }
    // SAFETY: the core passes one of our contexts.
    let default = unsafe { Context::borrow_mut(context) }.default();
    let Some((functions, default)) = default else {
        return 0;
    };
    match functions.keyexch.set_ctx_params {
        // SAFETY: a context of the default provider, and the core's array.
        Some(set) => unsafe { set(default, params) },
        None => 0,
    }
}

unsafe extern "C" fn get_ctx_params(context: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let default = unsafe { Context::borrow_mut(context) }.default();
    let Some((functions, default)) = default else {
        return 0;
    };
    match functions.keyexch.get_ctx_params {
        // SAFETY: a context of the default provider, and the core's array.
        Some(get) => unsafe { get(default, params) },
        None => 0,
    }
}

/// Tables of parameters, which are the same for every context.
macro_rules! forward_tables {
    ($($name:ident)*) => {$(
        unsafe extern "C" fn $name(_context: *mut c_void, provider: *mut c_void) -> *const Param {
            // SAFETY: the core passes the context of this provider.
            let loaded = unsafe { Provider::loaded(provider) };
            let table = loaded.and_then(|loaded| {
                let functions = &loaded.default.exchange(Family::Ec)?.keyexch;
                // SAFETY: the default provider's own context.
                Some(unsafe { (functions.$name?)(std::ptr::null_mut(), loaded.default.context) })
            });
            table.unwrap_or(std::ptr::null())
        }
    )*};
}

forward_tables! { gettable_ctx_params settable_ctx_params }
