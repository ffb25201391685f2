//! Signatures: the default provider's, with the private operation replaced where that gains something.
//!
//! A context wraps one of the default provider. That one sees every parameter and makes every
//! check. Only where a key has a form that signs here and the caller is a job whose server takes part
//! is the message hashed and signed here; the choice is made when a signature begins, so that all
//! else costs what it costs without us. Whatever is not known here ends in the default provider's
//! `sign` on the same context, and in its errors.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use crate::default_provider::DefaultProvider;
use crate::digest::{Digest, Hasher, NAME_BYTES};
use crate::ffi::{self, Dispatch, Param, Table};
use crate::object::{self, DefaultObject, Object};
use crate::param::Lent;
use crate::provider::{LoadedRef, Provider};

/// An algorithm of which some signatures are made here.
pub(crate) trait Algorithm: 'static {
    /// A private key in the form that signs here.
    type PrivateKey;

    /// Whether it offers to recover what was signed.
    const RECOVERS: bool;

    /// The default provider's functions; `None` if it lacks them, in which case the algorithm is not offered.
    fn functions(default: &DefaultProvider) -> Option<&ffi::Signature>;

    /// The key in the form that signs here; `None` if it has none, or is not going to sign here.
    ///
    /// # Safety
    /// `key` must be a key of this algorithm's key management.
    unsafe fn private_key(loaded: LoadedRef, key: *const c_void) -> Option<Arc<Self::PrivateKey>>;

    /// The key in the form that the default provider's functions take; `None` if there is no memory for it.
    ///
    /// # Safety
    /// As for [`Algorithm::private_key`].
    unsafe fn default_key(key: *const c_void) -> Option<*mut c_void>;

    /// Whether a message that is begun now is to be hashed and signed here with `key`.
    fn signs_now(loaded: LoadedRef, key: &Self::PrivateKey) -> bool;

    /// Counts a message that the default provider has hashed and signs with `key`.
    fn count_refusal(loaded: LoadedRef, key: &Self::PrivateKey);

    /// Signs `hash` into `signature`, and returns the length. `None` if the default provider has to do it.
    ///
    /// # Safety
    /// `default` must be a context of the default provider that is initialised to sign.
    unsafe fn sign(
        loaded: LoadedRef,
        default: *mut c_void,
        key: &Arc<Self::PrivateKey>,
        hash: &[u8],
        signature: &mut [u8],
    ) -> Option<usize>;
}

/// The functions of `OSSL_OP_SIGNATURE`, for OpenSSL.
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

/// A signature or verification as OpenSSL holds it.
struct Context<A: Algorithm> {
    loaded: LoadedRef,
    /// The default provider's context.
    default: DefaultObject,
    /// The key, while it signs and if it has a form that signs here.
    key: Option<Arc<A::PrivateKey>>,
    /// The message so far, if it is hashed here.
    message: Option<Hasher>,
}

impl<A: Algorithm> Object for Context<A> {}

impl<A: Algorithm> Context<A> {
    /// # Safety
    /// `default` must be null or what a function of [`ffi::Signature`] of the algorithm has just made.
    unsafe fn own(loaded: LoadedRef, default: *mut c_void) -> Option<Self> {
        let free = A::functions(&loaded.default)?.freectx;
        Some(Self {
            loaded,
            // SAFETY: the caller's promise.
            default: unsafe { DefaultObject::own(default, free) }?,
            key: None,
            message: None,
        })
    }

    fn default(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    fn functions(&self) -> &ffi::Signature {
        A::functions(&self.loaded.default).expect("checked when this was made, and never changed")
    }

    /// From here on the context does what the default provider's does.
    fn leave_to_default(&mut self) {
        self.key = None;
        self.message = None;
    }

    /// A context of the default provider initialised to sign with `key`, or with the key that it
    /// has if that is null, does so here if it can.
    ///
    /// # Safety
    /// `key` must be null or a key of this algorithm's key management.
    unsafe fn signs_with(&mut self, key: *const c_void) {
        self.message = None;
        if !key.is_null() {
            // SAFETY: the caller's promise.
            self.key = unsafe { A::private_key(self.loaded, key) };
        }
    }

    /// Starts to hash a message here, if it can be signed here.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn begin_message(&mut self, params: *const Param) -> bool {
        if let Some(key) = &self.key
            && A::signs_now(self.loaded, key)
            && let Some(digest) = self.digest()
        {
            // SAFETY: the caller's promise.
            self.message = unsafe { Hasher::start(self.loaded, digest, params) };
        }
        if self.message.is_none() {
            return true;
        }
        // If the hash is signed by the default provider after all, it must not hash it again, as a
        // context that was initialised to sign messages does in newer versions. Key and digest stay.
        let sign_init = self.functions().sign_init;
        // SAFETY: a context of the default provider that has a key, and the caller's array.
        unsafe { sign_init(self.default(), std::ptr::null_mut(), params) == 1 }
    }

    /// To be called when the default provider signs a message that it has hashed. Not when the
    /// message begins: OpenSSL begins some only to see whether a digest is supported.
    fn count_refusal(&self) {
        if let Some(key) = &self.key {
            A::count_refusal(self.loaded, key);
        }
    }

    fn digest(&self) -> Option<Digest> {
        let mut name = [0; NAME_BYTES];
        let mut params = [Lent::text(c"digest", &mut name), Lent::END];
        let params = Lent::as_mut_ptr(&mut params);
        // SAFETY: a context of the default provider and an array that ends with a null key.
        if unsafe { (self.functions().get_ctx_params)(self.default(), params) } != 1 {
            return None;
        }
        Digest::from_name(name.split(|&byte| byte == 0).next()?)
    }

    /// Signs `hash`: here or, with all its checks and errors, by the default provider.
    ///
    /// # Safety
    /// As the core calls `sign`: `signature` is null or has room for `room` bytes.
    unsafe fn sign(
        &self,
        signature: *mut u8,
        length: *mut usize,
        room: usize,
        hash: *const u8,
        hash_length: usize,
    ) -> c_int {
        // SAFETY: the caller's promise: as many bytes as it says.
        let signed = unsafe {
            // Callers have been seen to say more than there can be.
            let signature = ffi::bytes_mut(signature, room.min(LONGEST));
            self.sign_here(signature, ffi::bytes(hash, hash_length))
        };
        if let Some(signed) = signed {
            // SAFETY: the core's room for an answer.
            unsafe { *length = signed };
            return 1;
        }
        let sign = self.functions().sign;
        // SAFETY: a context of the default provider, and what the core passes.
        unsafe { sign(self.default(), signature, length, room, hash, hash_length) }
    }

    fn sign_here(&self, signature: Option<&mut [u8]>, hash: Option<&[u8]>) -> Option<usize> {
        let key = self.key.as_ref()?;
        // SAFETY: a context of the default provider, which is initialised to sign if there is a key.
        unsafe { A::sign(self.loaded, self.default(), key, hash?, signature?) }
    }

    /// Ends the default provider's own message, which is empty, so that its context again allows
    /// what it allows after a message; answers the length of a signature.
    ///
    /// # Safety
    /// `length` must be room for an answer.
    unsafe fn end_default_message(&self, length: *mut usize) -> c_int {
        let end = self.functions().digest_sign_final;
        // SAFETY: a context of the default provider; without a signature only the length is asked.
        unsafe { end(self.default(), std::ptr::null_mut(), length, 0) }
    }
}

/// The longest signature in bytes: of RSA-4096.
const LONGEST: usize = 512;

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
    // The query chose this provider; in the library context where the default provider looks for
    // digests it would find nothing.
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
    // SAFETY: a context and a key of the default provider, and what the core passes.
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
            // SAFETY: a context of the default provider, and what the core passes.
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
        // SAFETY: a context of the default provider, and what the core passes.
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
        // SAFETY: what the core passes, and a hash as long as said.
        Some(Some((hash, hash_length))) => unsafe {
            context.sign(signature, length, room, hash.as_ptr(), hash_length)
        },
    }
}

/// Signs a whole message. As with the combination of update and final on a copy, which OpenSSL uses
/// where a provider has no such function, the context can go on afterwards; but only the hash is
/// copied, not everything. OpenSSL 4.0 does not let an application go on all the same.
unsafe extern "C" fn digest_sign<A: Algorithm>(
    context: *mut c_void,
    signature: *mut u8,
    length: *mut usize,
    room: usize,
    data: *const u8,
    data_length: usize,
) -> c_int {
    if signature.is_null() {
        // SAFETY: what the core passes.
        return unsafe { digest_sign_final::<A>(context, signature, length, room) };
    }
    // SAFETY: what the core passes.
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
        // SAFETY: what the core passes, and a hash as long as said.
        Some((hash, hash_length)) => unsafe {
            context.sign(signature, length, room, hash.as_ptr(), hash_length)
        },
        None => 0,
    }
}

/// The initialisations of what the default provider does alone.
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
            // SAFETY: a context and a key of the default provider, and what the core passes.
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
    // SAFETY: a context and a key of the default provider, and what the core passes.
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
    // SAFETY: a context of the default provider, and what the core passes.
    unsafe { recover(default, output, length, room, signature, signature_length) }
}

/// Functions that only hand over to the default provider's function of the same name.
macro_rules! hand_over {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        unsafe extern "C" fn $name<A: Algorithm>(
            context: *mut c_void,
            $($argument: $type),*
        ) -> $result {
            // SAFETY: the core passes one of our contexts.
            let context = unsafe { Context::<A>::borrow_mut(context) };
            let function = context.functions().$name;
            // SAFETY: a context of the default provider, and what the core passes.
            unsafe { function(context.default(), $($argument),*) }
        }
    )*};
}

hand_over! {
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

/// Tables of parameters, which the core also asks for without a context.
macro_rules! hand_over_tables {
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

hand_over_tables! { gettable_ctx_params settable_ctx_params }

/// The default provider's key of one of ours, and null for null.
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
