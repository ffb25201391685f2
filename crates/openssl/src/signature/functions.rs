//! Signatures, as OpenSSL calls them.

use std::ffi::{c_char, c_int, c_void};

use super::algorithm::Algorithm;
use super::context::Context;
use crate::ffi::{self, Dispatch, Param, Table};
use crate::loaded::Provider;
use crate::object::{self, Object};

/// The functions of `OSSL_OP_SIGNATURE` for one algorithm.
pub(crate) type FunctionTable = Table<Dispatch, { ffi::Signature::LENGTH }>;

/// The functions of `A`.
pub(crate) const fn functions<A: Algorithm>() -> FunctionTable {
    ffi::Signature {
        newctx: newctx::<A>,
        sign_init: sign_init::<A>,
        sign: sign::<A>,
        verify_init: verify_init::<A>,
        verify: verify::<A>,
        digest_sign_init: digest_sign_init::<A>,
        digest_sign_update: digest_sign_update::<A>,
        digest_sign_final: digest_sign_final::<A>,
        digest_verify_init: digest_verify_init::<A>,
        digest_verify_update: digest_verify_update::<A>,
        digest_verify_final: digest_verify_final::<A>,
        freectx: object::free::<Context<A>>,
        dupctx: dupctx::<A>,
        get_ctx_params: get_ctx_params::<A>,
        gettable_ctx_params: gettable_ctx_params::<A>,
        set_ctx_params: set_ctx_params::<A>,
        settable_ctx_params: settable_ctx_params::<A>,
        get_ctx_md_params: get_ctx_md_params::<A>,
        gettable_ctx_md_params: gettable_ctx_md_params::<A>,
        set_ctx_md_params: set_ctx_md_params::<A>,
        settable_ctx_md_params: settable_ctx_md_params::<A>,
        verify_recover_init: if A::RECOVERS {
            Some(verify_recover_init::<A>)
        } else {
            None
        },
        verify_recover: if A::RECOVERS {
            Some(verify_recover::<A>)
        } else {
            None
        },
        digest_sign: Some(digest_sign::<A>),
    }
    .table()
}

unsafe extern "C" fn newctx<A: Algorithm>(
    provider: *mut c_void,
    _query: *const c_char,
) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null_mut();
    };
    let Some(functions) = A::functions(&loaded.default) else {
        return std::ptr::null_mut();
    };
    // Without the property query: it chose this provider, and no digest would match it in the
    // library context of the default provider.
    // SAFETY: the default provider's own context.
    object::into_raw(unsafe {
        let default = (functions.newctx)(loaded.default.context, std::ptr::null());
        Context::<A>::own(loaded, default)
    })
}

unsafe extern "C" fn dupctx<A: Algorithm>(context: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    // SAFETY: a context of the default provider.
    let copy = unsafe {
        let default = (context.functions().dupctx)(context.default());
        Context::<A>::own(context.loaded, default)
    };
    let Some(mut copy) = copy else {
        return std::ptr::null_mut();
    };
    copy.key = context.key.clone();
    copy.admission = context.admission;
    if let Some(message) = &context.message {
        copy.message = message.duplicate();
        if copy.message.is_none() {
            return std::ptr::null_mut();
        }
    }
    copy.into_raw()
}

unsafe extern "C" fn sign_init<A: Algorithm>(
    context: *mut c_void,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    let init = context.functions().sign_init;
    // SAFETY: the core passes null or one of our keys.
    let Some(default_key) = (unsafe { default_key::<A>(key) }) else {
        return 0;
    };
    // SAFETY: a context and a key of the default provider, and the core's array.
    let initialised = unsafe { init(context.default(), default_key, params) };
    if initialised == 1 {
        // SAFETY: the core passes null or one of our keys.
        unsafe { context.signs_with(key) };
    }
    initialised
}

unsafe extern "C" fn sign<A: Algorithm>(
    context: *mut c_void,
    signature: *mut u8,
    length: *mut usize,
    room: usize,
    hash: *const u8,
    hash_length: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts, and buffers as `sign` wants them.
    unsafe { Context::<A>::borrow_mut(context).sign(signature, length, room, hash, hash_length) }
}

unsafe extern "C" fn digest_sign_init<A: Algorithm>(
    context: *mut c_void,
    digest: *const c_char,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    let init = context.functions().digest_sign_init;
    // SAFETY: the core passes null or one of our keys.
    let Some(default_key) = (unsafe { default_key::<A>(key) }) else {
        return 0;
    };
    // SAFETY: a context and a key of the default provider, and the core's arguments.
    let initialised = unsafe { init(context.default(), digest, default_key, params) };
    if initialised != 1 {
        return initialised;
    }
    // SAFETY: the core passes null or one of our keys, and an array.
    unsafe {
        context.signs_with(key);
        c_int::from(context.begin_message(params))
    }
}

unsafe extern "C" fn digest_sign_update<A: Algorithm>(
    context: *mut c_void,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    match &mut context.message {
        // SAFETY: as many bytes as the core says.
        Some(message) => unsafe { message.update_raw(data, length) },
        None => {
            let update = context.functions().digest_sign_update;
            // SAFETY: a context of the default provider, and the core's arguments.
            unsafe { update(context.default(), data, length) }
        }
    }
}

unsafe extern "C" fn digest_sign_final<A: Algorithm>(
    context: *mut c_void,
    signature: *mut u8,
    length: *mut usize,
    room: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    let Some(message) = &mut context.message else {
        if !signature.is_null() {
            context.count_refusal();
        }
        let end = context.functions().digest_sign_final;
        // SAFETY: a context of the default provider, and the core's arguments.
        return unsafe { end(context.default(), signature, length, room) };
    };
    let finished = if signature.is_null() {
        None
    } else {
        Some(message.finish())
    };
    // SAFETY: the core's room for the answer.
    let ended = unsafe { context.end_default_message(length) };
    match finished {
        None => ended,
        Some(None) => 0,
        // SAFETY: the core's arguments, and a hash of this length.
        Some(Some((hash, hash_length))) => unsafe {
            context.sign(signature, length, room, hash.as_ptr(), hash_length)
        },
    }
}

/// Signs a whole message. The context can be used further, as after update and final on a copy,
/// which OpenSSL does for a provider without this function. Here only the hash is copied. (OpenSSL
/// 3.5 and later do not let an application use the context further where a provider has it.)
unsafe extern "C" fn digest_sign<A: Algorithm>(
    context: *mut c_void,
    signature: *mut u8,
    length: *mut usize,
    room: usize,
    data: *const u8,
    data_length: usize,
) -> c_int {
    if signature.is_null() {
        // SAFETY: the core's arguments.
        return unsafe { digest_sign_final::<A>(context, signature, length, room) };
    }
    // SAFETY: the core's arguments.
    if unsafe { digest_sign_update::<A>(context, data, data_length) } != 1 {
        return 0;
    }
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    let Some(message) = &context.message else {
        context.count_refusal();
        let functions = context.functions();
        // SAFETY: a context of the default provider; its copy is freed here.
        return unsafe {
            let copy = (functions.dupctx)(context.default());
            if copy.is_null() {
                return 0;
            }
            let signed = (functions.digest_sign_final)(copy, signature, length, room);
            (functions.freectx)(copy);
            signed
        };
    };
    match message.duplicate().and_then(|mut message| message.finish()) {
        // SAFETY: the core's arguments, and a hash of this length.
        Some((hash, hash_length)) => unsafe {
            context.sign(signature, length, room, hash.as_ptr(), hash_length)
        },
        None => 0,
    }
}

/// Initialisations of operations that are left to the default provider.
macro_rules! init_default {
    ($($name:ident($($argument:ident: $type:ty)?);)*) => {$(
        unsafe extern "C" fn $name<A: Algorithm>(
            context: *mut c_void,
            $($argument: $type,)?
            key: *mut c_void,
            params: *const Param,
        ) -> c_int {
            // SAFETY: the core passes one of our contexts.
            let context = unsafe { Context::<A>::borrow_mut(context) };
            context.leave_to_default();
            let init = context.functions().$name;
            // SAFETY: the core passes null or one of our keys.
            let Some(key) = (unsafe { default_key::<A>(key) }) else { return 0 };
            // SAFETY: a context and a key of the default provider, and the core's arguments.
            unsafe { init(context.default(), $($argument,)? key, params) }
        }
    )*};
}

init_default! {
    verify_init();
    digest_verify_init(digest: *const c_char);
}

unsafe extern "C" fn verify_recover_init<A: Algorithm>(
    context: *mut c_void,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    context.leave_to_default();
    // SAFETY: the core passes null or one of our keys.
    let key = unsafe { default_key::<A>(key) };
    let (Some(init), Some(key)) = (context.functions().verify_recover_init, key) else {
        return 0;
    };
    // SAFETY: a context and a key of the default provider, and the core's arguments.
    unsafe { init(context.default(), key, params) }
}

unsafe extern "C" fn verify_recover<A: Algorithm>(
    context: *mut c_void,
    output: *mut u8,
    length: *mut usize,
    room: usize,
    signature: *const u8,
    signature_length: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    let Some(recover) = context.functions().verify_recover else {
        return 0;
    };
    let default = context.default();
    // SAFETY: a context of the default provider, and the core's arguments.
    unsafe { recover(default, output, length, room, signature, signature_length) }
}

/// Functions that call the default provider's function of the same name, and nothing else.
macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        unsafe extern "C" fn $name<A: Algorithm>(
            context: *mut c_void,
            $($argument: $type),*
        ) -> $result {
            // SAFETY: the core passes one of our contexts.
            let context = unsafe { Context::<A>::borrow_mut(context) };
            let function = context.functions().$name;
            // SAFETY: a context of the default provider, and the core's arguments.
            unsafe { function(context.default(), $($argument),*) }
        }
    )*};
}

forward! {
    verify(signature: *const u8, length: usize, hash: *const u8, hash_length: usize) -> c_int;
    digest_verify_update(data: *const u8, length: usize) -> c_int;
    digest_verify_final(signature: *const u8, length: usize) -> c_int;
    get_ctx_params(params: *mut Param) -> c_int;
    set_ctx_params(params: *const Param) -> c_int;
    gettable_ctx_md_params() -> *const Param;
    settable_ctx_md_params() -> *const Param;
}

unsafe extern "C" fn get_ctx_md_params<A: Algorithm>(
    context: *mut c_void,
    params: *mut Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    match &context.message {
        // SAFETY: the core's array.
        Some(message) => unsafe { message.get_params(params) },
        None => {
            let get = context.functions().get_ctx_md_params;
            // SAFETY: a context of the default provider, and the core's array.
            unsafe { get(context.default(), params) }
        }
    }
}

unsafe extern "C" fn set_ctx_md_params<A: Algorithm>(
    context: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::<A>::borrow_mut(context) };
    match &mut context.message {
        // SAFETY: the core's array.
        Some(message) => unsafe { message.set_params(params) },
        None => {
            let set = context.functions().set_ctx_md_params;
            // SAFETY: a context of the default provider, and the core's array.
            unsafe { set(context.default(), params) }
        }
    }
}

/// Tables of parameters. The core may ask for them without a context.
macro_rules! forward_tables {
    ($($name:ident)*) => {$(
        unsafe extern "C" fn $name<A: Algorithm>(
            context: *mut c_void,
            provider: *mut c_void,
        ) -> *const Param {
            // SAFETY: the core passes the context of this provider.
            let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
                return std::ptr::null();
            };
            let Some(functions) = A::functions(&loaded.default) else {
                return std::ptr::null();
            };
            // SAFETY: null or one of our contexts.
            let context = unsafe { Context::<A>::borrow(context) };
            let context = context.map_or(std::ptr::null_mut(), Context::default);
            // SAFETY: contexts of the default provider.
            unsafe { (functions.$name)(context, loaded.default.context) }
        }
    )*};
}

forward_tables! { gettable_ctx_params settable_ctx_params }

/// The key for the default provider's functions; null for null.
///
/// # Safety
/// `key` must be null or a key of this algorithm's key management.
unsafe fn default_key<A: Algorithm>(key: *const c_void) -> Option<*mut c_void> {
    if key.is_null() {
        return Some(std::ptr::null_mut());
    }
    // SAFETY: the caller's promise.
    unsafe { A::default_key(key) }
}
