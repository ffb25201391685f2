//! Encryption and decryption: the default provider's, except that the decryption of TLS 1.2's RSA
//! key exchange is computed in lanes where it can be paused, or by the device that holds the key.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use slipstream_lanes::rsa::PrivateKey;
use slipstream_offload::request::Operand;
use slipstream_offload::{Kind, Operation};
use zeroize::Zeroizing;

use super::key::{HeldKey, Key};
use super::premaster::{self, SECRET_BYTES, Versions};
use crate::failure::Failure;
use crate::ffi::{self, Dispatch, Param, RSA_PKCS1_WITH_TLS_PADDING, Table};
use crate::job;
use crate::object::{self, DefaultObject, Object};
use crate::param::Lent;
use crate::provider::{LoadedRef, Provider};

/// An encryption or decryption as OpenSSL holds it.
struct Context {
    loaded: LoadedRef,
    /// The default provider's context.
    default: DefaultObject,
    /// The key, while it decrypts.
    key: Decryption,
}

/// What decrypts for TLS.
#[derive(Clone)]
enum Decryption {
    /// The default provider, which decrypts all else as well.
    Default,
    /// Lanes, or the default provider.
    Lanes(Arc<PrivateKey>),
    /// The device that holds the key, and nobody else.
    Device(Arc<HeldKey>),
}

impl Object for Context {}

impl Decryption {
    fn with(key: &Key) -> Self {
        match (key.held(), key.lanes()) {
            (Some(held), _) => Self::Device(held.clone()),
            (None, Some(lanes)) => Self::Lanes(lanes.clone()),
            (None, None) => Self::Default,
        }
    }
}

impl Context {
    /// # Safety
    /// `default` must be null or what a function of [`ffi::AsymCipher`] has just made.
    unsafe fn own(loaded: LoadedRef, default: *mut c_void) -> Option<Self> {
        Some(Self {
            loaded,
            // SAFETY: the caller's promise.
            default: unsafe {
                DefaultObject::own(default, loaded.default.rsa.asym_cipher.freectx)
            }?,
            key: Decryption::Default,
        })
    }

    fn default(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    /// The premaster secret in `input`, or random bytes if there is none; never an error that
    /// depends on what was decrypted. `None` if the default provider has to do it: it is not such a
    /// decryption, it is publicly invalid, or lanes are not available now.
    fn decrypt_in_lanes(&self, input: &[u8]) -> Option<Zeroizing<[u8; SECRET_BYTES]>> {
        let Decryption::Lanes(key) = &self.key else {
            return None;
        };
        // A caller must learn nothing about the bytes beyond their being less than the modulus.
        if input.len() != key.size().bytes() || input >= key.modulus_bytes() {
            return None;
        }
        let mut versions = None;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        let decrypted = job::compute(self.loaded, key.backend(), Kind::Rsa(key.size()), || {
            versions = Some(self.tls_versions()?);
            getrandom::fill(&mut *secret).ok()?;
            Some(Operation::RsaPrivate {
                key: key.clone(),
                input: Operand::new(input),
            })
        })?;
        premaster::select(decrypted.as_slice(), versions?, &mut secret);
        Some(secret)
    }

    /// As [`Context::decrypt_in_lanes`], by the device. The errors depend on nothing that was decrypted.
    fn decrypt_at_device(
        &self,
        key: &HeldKey,
        input: &[u8],
        room: usize,
    ) -> Result<Zeroizing<[u8; SECRET_BYTES]>, Failure> {
        let versions = self.tls_versions().ok_or(Failure::NotComputed)?;
        if room < SECRET_BYTES {
            return Err(Failure::NoRoom);
        }
        let residue = key.residue(input).ok_or(Failure::BadCiphertext)?;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut *secret).map_err(|_| Failure::NoRandomBytes)?;
        let decrypted = job::ask_device(key.held, residue).ok_or(Failure::NoAnswer)?;
        premaster::select(decrypted.as_slice(), versions, &mut secret);
        Ok(secret)
    }

    /// `None` unless it is for TLS.
    fn tls_versions(&self) -> Option<Versions> {
        let (mut pad_mode, mut client, mut negotiated) = (0, 0, 0);
        let mut params = [
            Lent::integer(c"pad-mode", &mut pad_mode),
            Lent::unsigned(c"tls-client-version", &mut client),
            Lent::unsigned(c"tls-negotiated-version", &mut negotiated),
            Lent::END,
        ];
        let params = Lent::as_mut_ptr(&mut params);
        // SAFETY: a context of the default provider and an array that ends with a null key.
        let read =
            unsafe { (self.loaded.default.rsa.asym_cipher.get_ctx_params)(self.default(), params) };
        if read != 1 || pad_mode != RSA_PKCS1_WITH_TLS_PADDING || client == 0 {
            return None;
        }
        // The default provider looks at the two low bytes.
        let negotiated = (negotiated != 0).then_some(negotiated as u16);
        Some(Versions {
            client: client as u16,
            negotiated,
        })
    }
}

/// The functions of `OSSL_OP_ASYM_CIPHER`.
pub(crate) static FUNCTIONS: Table<Dispatch, { ffi::AsymCipher::LENGTH }> = ffi::AsymCipher {
    newctx,
    encrypt_init,
    encrypt,
    decrypt_init,
    decrypt,
    freectx: object::free::<Context>,
    dupctx,
    get_ctx_params,
    gettable_ctx_params,
    set_ctx_params,
    settable_ctx_params,
}
.table();

unsafe extern "C" fn newctx(provider: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the default provider's own context.
    object::into_raw(unsafe {
        let default = (loaded.default.rsa.asym_cipher.newctx)(loaded.default.context);
        Context::own(loaded, default)
    })
}

unsafe extern "C" fn dupctx(context: *mut c_void) -> *mut c_void {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow_mut(context) };
    // SAFETY: a context of the default provider.
    let copy = unsafe {
        let default = (context.loaded.default.rsa.asym_cipher.dupctx)(context.default());
        Context::own(context.loaded, default)
    };
    object::into_raw(copy.map(|copy| Context {
        key: context.key.clone(),
        ..copy
    }))
}

unsafe extern "C" fn encrypt_init(
    context: *mut c_void,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow_mut(context) };
    context.key = Decryption::Default;
    // SAFETY: the core passes null or one of our keys.
    let key = unsafe { Key::borrow(key) }.map_or(std::ptr::null_mut(), Key::default_key);
    let init = context.loaded.default.rsa.asym_cipher.encrypt_init;
    // SAFETY: a context and a key of the default provider, and the core's array.
    unsafe { init(context.default(), key, params) }
}

unsafe extern "C" fn decrypt_init(
    context: *mut c_void,
    key: *mut c_void,
    params: *const Param,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow_mut(context) };
    // SAFETY: the core passes null or one of our keys.
    let key = unsafe { Key::borrow(key) };
    let default_key = key.map_or(std::ptr::null_mut(), Key::default_key);
    let init = context.loaded.default.rsa.asym_cipher.decrypt_init;
    // SAFETY: a context and a key of the default provider, and the core's array.
    let initialised = unsafe { init(context.default(), default_key, params) };
    if initialised == 1 {
        context.key = key.map_or(Decryption::Default, Decryption::with);
    }
    initialised
}

unsafe extern "C" fn decrypt(
    context: *mut c_void,
    output: *mut u8,
    length: *mut usize,
    room: usize,
    input: *const u8,
    input_length: usize,
) -> c_int {
    // SAFETY: the core passes one of our contexts.
    let context = unsafe { Context::borrow_mut(context) };
    // SAFETY: the core passes as many bytes as it says.
    let ciphertext = unsafe { ffi::bytes(input, input_length) };
    let secret = match &context.key {
        // Only the length is asked for.
        _ if output.is_null() => None,
        Decryption::Device(key) => {
            match context.decrypt_at_device(key, ciphertext.unwrap_or_default(), room) {
                Ok(secret) => Some(secret),
                Err(failure) => {
                    context.loaded.errors.raise(failure);
                    return 0;
                }
            }
        }
        _ if room < SECRET_BYTES => None,
        _ => ciphertext.and_then(|bytes| context.decrypt_in_lanes(bytes)),
    };
    if let Some(secret) = secret {
        // SAFETY: the core's buffer, which has room for a secret.
        unsafe {
            output.copy_from_nonoverlapping(secret.as_ptr(), SECRET_BYTES);
            *length = SECRET_BYTES;
        }
        return 1;
    }
    let decrypt = context.loaded.default.rsa.asym_cipher.decrypt;
    // SAFETY: a context of the default provider, and what the core passes.
    unsafe { decrypt(context.default(), output, length, room, input, input_length) }
}

/// Functions that only hand over to the default provider's function of the same name.
macro_rules! hand_over {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(context: *mut c_void, $($argument: $type),*) -> c_int {
            // SAFETY: the core passes one of our contexts.
            let context = unsafe { Context::borrow_mut(context) };
            let function = context.loaded.default.rsa.asym_cipher.$name;
            // SAFETY: a context of the default provider, and what the core passes.
            unsafe { function(context.default(), $($argument),*) }
        }
    )*};
}

hand_over! {
    encrypt(
        output: *mut u8,
        length: *mut usize,
        room: usize,
        input: *const u8,
        input_length: usize
    );
    get_ctx_params(params: *mut Param);
    set_ctx_params(params: *const Param);
}

/// Tables of parameters, which the core also asks for without a context.
macro_rules! hand_over_tables {
    ($($name:ident)*) => {$(
        unsafe extern "C" fn $name(context: *mut c_void, provider: *mut c_void) -> *const Param {
            // SAFETY: the core passes the context of this provider.
            let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
                return std::ptr::null();
            };
            // SAFETY: null or one of our contexts.
            let context = unsafe { Context::borrow(context) };
            let context = context.map_or(std::ptr::null_mut(), Context::default);
            // SAFETY: contexts of the default provider.
            unsafe { (loaded.default.rsa.asym_cipher.$name)(context, loaded.default.context) }
        }
    )*};
}

hand_over_tables! { gettable_ctx_params settable_ctx_params }
