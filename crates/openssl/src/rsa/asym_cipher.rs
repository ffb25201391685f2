//! Encryption and decryption: the default provider's, except that the decryption of TLS 1.2's RSA
//! key exchange is offloaded if the caller can be paused, and always goes to the device that holds
//! the key.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use slipstream_keys::rsa::PrivateKey;
use slipstream_keys::{Key as OffloadKey, Operand};
use slipstream_offload::{Kind, Operation};
use zeroize::Zeroizing;

use super::key::{HeldKey, Key};
use super::premaster::{self, SECRET_BYTES, Versions};
use crate::failure::Failure;
use crate::ffi::{self, Dispatch, Param, RSA_PKCS1_WITH_TLS_PADDING, Table};
use crate::job;
use crate::loaded::{LoadedRef, Provider};
use crate::object::{self, DefaultObject, Object};
use crate::param::Lent;

/// An encryption or decryption as OpenSSL holds it.
struct Context {
    loaded: LoadedRef,
    /// The default provider's context.
    default: DefaultObject,
    /// The key, while it decrypts.
    key: Decryption,
}

/// The way in which a ciphertext of TLS is decrypted.
#[derive(Clone)]
enum Decryption {
    /// By the default provider.
    Default,
    /// By an accelerator, or by the default provider.
    Offloaded(Arc<PrivateKey>),
    /// By the device that holds the key.
    Held(Arc<HeldKey>),
}

impl Object for Context {}

impl Decryption {
    fn with(key: &Key) -> Self {
        match (key.held(), key.value()) {
            (Some(held), _) => Self::Held(held.clone()),
            (None, Some(value)) => Self::Offloaded(value.clone()),
            (None, None) => Self::Default,
        }
    }
}

impl Context {
    /// # Safety
    /// `default` must be null or a context that a function of [`ffi::AsymCipher`] has just made.
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

    /// Decrypts `input` by an accelerator. Returns the premaster secret, or random bytes if the
    /// decrypted block is invalid: no error depends on the block. `None` if the default provider
    /// has to decrypt: it is not a decryption for TLS, `input` is publicly invalid, or no
    /// accelerator computes it now.
    fn decrypt_offloaded(&self, input: &[u8]) -> Option<Zeroizing<[u8; SECRET_BYTES]>> {
        let Decryption::Offloaded(key) = &self.key else {
            return None;
        };
        // A caller must learn nothing about the bytes beyond their being less than the modulus.
        if input.len() != key.size().bytes() || input >= key.modulus() {
            return None;
        }
        let route = job::admit(self.loaded, Kind::Rsa(key.size()))
            .map_err(job::refuse)
            .ok()?;
        let versions = self.tls_versions()?;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut *secret).ok()?;
        let operation = Operation::Rsa {
            key: OffloadKey::Value(key.clone()),
            input: Operand::new(input),
        };
        let decrypted = job::compute(self.loaded, route, operation)?;
        premaster::select(decrypted.as_slice(), versions, &mut secret);
        Some(secret)
    }

    /// Decrypts `input` by the device that holds the key. Returns a secret as
    /// [`Context::decrypt_offloaded`] does.
    ///
    /// # Errors
    /// None of them depends on the decrypted block.
    fn decrypt_held(
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
        let operation = Operation::Rsa {
            key: key.offload_key(),
            input: residue,
        };
        let decrypted = job::compute_held(operation).ok_or(Failure::NoAnswer)?;
        premaster::select(decrypted.as_slice(), versions, &mut secret);
        Ok(secret)
    }

    /// The versions that the premaster secret may begin with; `None` if the decryption is not for
    /// TLS.
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
        // The default provider compares the two low bytes.
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
    // SAFETY: the core passes a buffer of this length.
    let ciphertext = unsafe { ffi::bytes(input, input_length) };
    let secret = match &context.key {
        // Only the length is asked for.
        _ if output.is_null() => None,
        Decryption::Held(key) => {
            match context.decrypt_held(key, ciphertext.unwrap_or_default(), room) {
                Ok(secret) => Some(secret),
                Err(failure) => {
                    context.loaded.errors.raise(failure);
                    return 0;
                }
            }
        }
        _ if room < SECRET_BYTES => None,
        _ => ciphertext.and_then(|bytes| context.decrypt_offloaded(bytes)),
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
    // SAFETY: a context of the default provider, and the core's arguments.
    unsafe { decrypt(context.default(), output, length, room, input, input_length) }
}

/// Functions that call the default provider's function of the same name, and nothing else.
macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        unsafe extern "C" fn $name(context: *mut c_void, $($argument: $type),*) -> c_int {
            // SAFETY: the core passes one of our contexts.
            let context = unsafe { Context::borrow_mut(context) };
            let function = context.loaded.default.rsa.asym_cipher.$name;
            // SAFETY: a context of the default provider, and the core's arguments.
            unsafe { function(context.default(), $($argument),*) }
        }
    )*};
}

forward! {
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

/// Tables of parameters. The core may ask for them without a context.
macro_rules! forward_tables {
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

forward_tables! { gettable_ctx_params settable_ctx_params }
