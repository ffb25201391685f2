//! Signatures: the default provider's, with the private operation replaced where it can be paused.
//!
//! A context wraps one of the default provider. That one sees every parameter and makes every
//! check. Only where a key has a form for lanes and the caller is a job that can be paused is the
//! message hashed and encoded here; the choice is made when a signature begins, so that all else
//! costs what it costs without us. Whatever is not known here ends in the default provider's
//! `sign` on the same context, and in its errors.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use slipstream_lanes::rsa::PrivateKey;

use crate::digest::{Digest, Hasher};
use crate::encoding::{NAME_BYTES, Scheme};
use crate::ffi::{self, Dispatch, Param, Table};
use crate::job;
use crate::key::Key;
use crate::param::Lent;
use crate::provider::{Provider, RsaRef};

/// A signature or verification as OpenSSL holds it.
struct Context {
    rsa: RsaRef,
    /// The default provider's context.
    default: NonNull<c_void>,
    /// The key, while it signs and if it has a form for lanes.
    key: Option<Arc<PrivateKey>>,
    /// The message so far, if it is hashed here.
    message: Option<Hasher>,
}

impl Context {
    /// # Safety
    /// `context` must be one that this module made, that has not been freed, and that nobody else
    /// uses meanwhile.
    unsafe fn borrow<'a>(context: *mut c_void) -> &'a mut Self {
        // SAFETY: the caller's promise.
        unsafe { &mut *context.cast::<Self>() }
    }

    fn own(rsa: RsaRef, default: *mut c_void) -> Option<Self> {
        Some(Self {
            rsa,
            default: NonNull::new(default)?,
            key: None,
            message: None,
        })
    }

    fn into_raw(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    fn default(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    /// From here on the context does what the default provider's does.
    fn leave_to_default(&mut self) {
        self.key = None;
        self.message = None;
    }

    /// A context of the default provider initialised to sign with `key`, or with the key that it
    /// has if that is null, does so in lanes if it can.
    ///
    /// # Safety
    /// `key` must be null or one of our keys.
    unsafe fn signs_with(&mut self, key: *const c_void) {
        self.message = None;
        // SAFETY: the caller's promise.
        if let Some(key) = unsafe { Key::borrow(key) } {
            self.key = key.lanes().cloned();
        }
    }

    /// Starts to hash a message here, if it can be signed here.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn begin_message(&mut self, params: *const Param) -> bool {
        if self.key.is_some()
            && job::can_pause(self.rsa)
            && let Some(digest) = self.digest()
        {
            // SAFETY: the caller's promise.
            self.message = unsafe { Hasher::start(self.rsa, digest, params) };
        }
        if self.message.is_none() {
            return true;
        }
        // If the hash is signed by the default provider after all, it must not hash it again, as a
        // context that was initialised to sign messages does in newer versions. Key and digest stay.
        let sign_init = self.rsa.default.signature.sign_init;
        // SAFETY: a context of the default provider that has a key, and the caller's array.
        unsafe { sign_init(self.default(), std::ptr::null_mut(), params) == 1 }
    }

    /// To be called when the default provider signs a message that it has hashed. Not when the
    /// message begins: OpenSSL begins some only to see whether a digest is supported.
    fn count_refusal(&self) {
        if self.key.is_some() {
            job::count_refusal(self.rsa);
        }
    }

    fn digest(&self) -> Option<Digest> {
        let mut name = [0; NAME_BYTES];
        let mut params = [Lent::text(c"digest", &mut name), Lent::END];
        let params = Lent::as_mut_ptr(&mut params);
        // SAFETY: a context of the default provider and an array that ends with a null key.
        if unsafe { (self.rsa.default.signature.get_ctx_params)(self.default(), params) } != 1 {
            return None;
        }
        Digest::from_name(name.split(|&byte| byte == 0).next()?)
    }

    /// Signs `hash`: in lanes or, with all its checks and errors, by the default provider.
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
        let bytes = unsafe { ffi::bytes(hash, hash_length) };
        if !signature.is_null()
            && let Some(output) = bytes.and_then(|bytes| self.sign_in_lanes(room, bytes))
        {
            let output = output.as_slice();
            // SAFETY: `sign_in_lanes` answers no more than the room that there is.
            unsafe {
                signature.copy_from_nonoverlapping(output.as_ptr(), output.len());
                *length = output.len();
            }
            return 1;
        }
        let sign = self.rsa.default.signature.sign;
        // SAFETY: a context of the default provider, and what the core passes.
        unsafe { sign(self.default(), signature, length, room, hash, hash_length) }
    }

    fn sign_in_lanes(&self, room: usize, hash: &[u8]) -> Option<job::Output> {
        let key = self.key.as_ref().filter(|key| key.size().bytes() <= room)?;
        job::private_operation(self.rsa, key, || {
            // SAFETY: a context of the default provider that is initialised to sign.
            let scheme = unsafe { Scheme::of(self.rsa, self.default()) }?;
            scheme.encode(self.rsa, hash, key.size().bytes())
        })
    }

    /// Ends the default provider's own message, which is empty, so that its context again allows
    /// what it allows after a message; answers the length of a signature.
    ///
    /// # Safety
    /// `length` must be room for an answer.
    unsafe fn end_default_message(&self, length: *mut usize) -> c_int {
        let end = self.rsa.default.signature.digest_sign_final;
        // SAFETY: a context of the default provider; without a signature only the length is asked.
        unsafe { end(self.default(), std::ptr::null_mut(), length, 0) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: a context of the default provider that is ours alone.
        unsafe { (self.rsa.default.signature.freectx)(self.default.as_ptr()) };
    }
}

/// The functions of `OSSL_OP_SIGNATURE`.
pub(crate) static FUNCTIONS: Table<Dispatch, { ffi::Signature::LENGTH }> = ffi::Signature {
    newctx,
    sign_init,
    sign,
    verify_init,
    verify,
    verify_recover_init,
    verify_recover,
    digest_sign_init,
    digest_sign_update,
    digest_sign_final,
    digest_sign: Some(digest_sign),
    digest_verify_init,
    digest_verify_update,
    digest_verify_final,
    freectx,
    dupctx,
    get_ctx_params,
    gettable_ctx_params,
    set_ctx_params,
    settable_ctx_params,
    get_ctx_md_params,
    gettable_ctx_md_params,
    set_ctx_md_params,
    settable_ctx_md_params,
}
.table();

unsafe extern "C" fn newctx(provider: *mut c_void, _query: *const c_char) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(rsa) = (unsafe { Provider::rsa(provider) }) else {
        return std::ptr::null_mut();
    };
    // The query chose this provider; in the library context where the default provider looks for
    // digests it would find nothing.
    // SAFETY: the default provider's own context.
    let default = unsafe { (rsa.default.signature.newctx)(rsa.default.context, std::ptr::null()) };
    Context::own(rsa, default).map_or(std::ptr::null_mut(), Context::into_raw)
}

unsafe extern "C" fn freectx(context: *mut c_void) {
    if !context.is_null() {
        // SAFETY: a context that `into_raw` made, which the core frees once.
        drop(unsafe { Box::from_raw(context.cast::<Context>()) });
    }
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    // SAFETY: a context of the default provider.
    let default = unsafe { (context.rsa.default.signature.dupctx)(context.default()) };
    let Some(mut copy) = Context::own(context.rsa, default) else {
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

unsafe extern "C" fn sign_init(
    context: *mut c_void,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    let init = context.rsa.default.signature.sign_init;
    // SAFETY: a context and a key of the default provider, and the core's array.
    let initialised = unsafe { init(context.default(), default_key(key), params) };
    if initialised == 1 {
        // SAFETY: the core passes null or one of our keys.
        unsafe { context.signs_with(key) };
    }
    initialised
}

unsafe extern "C" fn sign(
    context: *mut c_void,
    signature: *mut u8,
    length: *mut usize,
    room: usize,
    hash: *const u8,
    hash_length: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts, and buffers as `sign` wants them.
    unsafe { Context::borrow(context).sign(signature, length, room, hash, hash_length) }
}

unsafe extern "C" fn digest_sign_init(
    context: *mut c_void,
    digest: *const c_char,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    let init = context.rsa.default.signature.digest_sign_init;
    // SAFETY: a context and a key of the default provider, and what the core passes.
    let initialised = unsafe { init(context.default(), digest, default_key(key), params) };
    if initialised != 1 {
        return initialised;
    }
    // SAFETY: the core passes null or one of our keys, and an array.
    unsafe {
        context.signs_with(key);
        c_int::from(context.begin_message(params))
    }
}

unsafe extern "C" fn digest_sign_update(
    context: *mut c_void,
    data: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    match &mut context.message {
        // SAFETY: as many bytes as the core says.
        Some(message) => unsafe { message.update_raw(data, length) },
        None => {
            let update = context.rsa.default.signature.digest_sign_update;
            // SAFETY: a context of the default provider, and what the core passes.
            unsafe { update(context.default(), data, length) }
        }
    }
}

unsafe extern "C" fn digest_sign_final(
    context: *mut c_void,
    signature: *mut u8,
    length: *mut usize,
    room: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    let Some(message) = &mut context.message else {
        if !signature.is_null() {
            context.count_refusal();
        }
        let end = context.rsa.default.signature.digest_sign_final;
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
unsafe extern "C" fn digest_sign(
    context: *mut c_void,
    signature: *mut u8,
    length: *mut usize,
    room: usize,
    data: *const u8,
    data_length: usize,
) -> c_int {
    if signature.is_null() {
        // SAFETY: what the core passes.
        return unsafe { digest_sign_final(context, signature, length, room) };
    }
    // SAFETY: what the core passes.
    if unsafe { digest_sign_update(context, data, data_length) } != 1 {
        return 0;
    }
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    let Some(message) = &context.message else {
        context.count_refusal();
        let functions = &context.rsa.default.signature;
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
        unsafe extern "C" fn $name(
            context: *mut c_void,
            $($argument: $type,)?
            key: *mut c_void,
            params: *const Param,
        ) -> c_int {
            // SAFETY: the core passes one of our contexts.
            let context = unsafe { Context::borrow(context) };
            context.leave_to_default();
            let init = context.rsa.default.signature.$name;
            // SAFETY: a context and a key of the default provider, and what the core passes.
            unsafe { init(context.default(), $($argument,)? default_key(key), params) }
        }
    )*};
}

init_default! {
    verify_init();
    verify_recover_init();
    digest_verify_init(digest: *const c_char);
}

/// Functions that only hand over to the default provider's function of the same name.
macro_rules! hand_over {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        unsafe extern "C" fn $name(context: *mut c_void, $($argument: $type),*) -> $result {
            // SAFETY: the core passes one of our contexts.
            let context = unsafe { Context::borrow(context) };
            let function = context.rsa.default.signature.$name;
            // SAFETY: a context of the default provider, and what the core passes.
            unsafe { function(context.default(), $($argument),*) }
        }
    )*};
}

hand_over! {
    verify(signature: *const u8, length: usize, hash: *const u8, hash_length: usize) -> c_int;
    verify_recover(
        output: *mut u8,
        length: *mut usize,
        room: usize,
        signature: *const u8,
        signature_length: usize
    ) -> c_int;
    digest_verify_update(data: *const u8, length: usize) -> c_int;
    digest_verify_final(signature: *const u8, length: usize) -> c_int;
    get_ctx_params(params: *mut Param) -> c_int;
    set_ctx_params(params: *const Param) -> c_int;
    gettable_ctx_md_params() -> *const Param;
    settable_ctx_md_params() -> *const Param;
}

unsafe extern "C" fn get_ctx_md_params(context: *mut c_void, params: *mut Param) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    match &context.message {
        // SAFETY: the core's array.
        Some(message) => unsafe { message.get_params(params) },
        None => {
            let get = context.rsa.default.signature.get_ctx_md_params;
            // SAFETY: a context of the default provider, and the core's array.
            unsafe { get(context.default(), params) }
        }
    }
}

unsafe extern "C" fn set_ctx_md_params(context: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow(context) };
    match &mut context.message {
        // SAFETY: the core's array.
        Some(message) => unsafe { message.set_params(params) },
        None => {
            let set = context.rsa.default.signature.set_ctx_md_params;
            // SAFETY: a context of the default provider, and the core's array.
            unsafe { set(context.default(), params) }
        }
    }
}

/// Tables of parameters, which the core also asks for without a context.
macro_rules! hand_over_tables {
    ($($name:ident)*) => {$(
        unsafe extern "C" fn $name(context: *mut c_void, provider: *mut c_void) -> *const Param {
            // SAFETY: the core passes the context of this provider.
            let Some(rsa) = (unsafe { Provider::rsa(provider) }) else { return std::ptr::null() };
            let context = if context.is_null() {
                context
            } else {
                // SAFETY: one of our contexts.
                unsafe { Context::borrow(context) }.default()
            };
            // SAFETY: contexts of the default provider.
            unsafe { (rsa.default.signature.$name)(context, rsa.default.context) }
        }
    )*};
}

hand_over_tables! { gettable_ctx_params settable_ctx_params }

/// The default provider's key of one of ours.
///
/// # Safety
/// `key` must be null or one of our keys.
unsafe fn default_key(key: *const c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { Key::borrow(key) }.map_or(std::ptr::null_mut(), Key::default_key)
}
