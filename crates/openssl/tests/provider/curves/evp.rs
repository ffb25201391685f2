//! Keys, generations and exchanges of OpenSSL's high-level interface.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};

use foreign_types_shared::ForeignType;
use openssl::pkey::{PKey, Private};
use openssl_sys as sys;

use crate::common::{DEFAULT, Outcome, call};

unsafe extern "C" {
    fn EVP_PKEY_CTX_new_from_name(
        library: *mut c_void,
        name: *const c_char,
        query: *const c_char,
    ) -> *mut sys::EVP_PKEY_CTX;
    fn EVP_PKEY_CTX_new_from_pkey(
        library: *mut c_void,
        key: *mut sys::EVP_PKEY,
        query: *const c_char,
    ) -> *mut sys::EVP_PKEY_CTX;
    fn EVP_PKEY_CTX_dup(context: *const sys::EVP_PKEY_CTX) -> *mut sys::EVP_PKEY_CTX;
    fn EVP_PKEY_CTX_set_group_name(context: *mut sys::EVP_PKEY_CTX, name: *const c_char) -> c_int;
    fn EVP_PKEY_CTX_ctrl_str(
        context: *mut sys::EVP_PKEY_CTX,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int;
    fn EVP_PKEY_generate(context: *mut sys::EVP_PKEY_CTX, key: *mut *mut sys::EVP_PKEY) -> c_int;
    fn EVP_PKEY_paramgen_init(context: *mut sys::EVP_PKEY_CTX) -> c_int;
    fn EVP_PKEY_get1_encoded_public_key(
        key: *mut sys::EVP_PKEY,
        encoded: *mut *mut c_uchar,
    ) -> usize;
    fn EVP_PKEY_set1_encoded_public_key(
        key: *mut sys::EVP_PKEY,
        encoded: *const c_uchar,
        length: usize,
    ) -> c_int;
    fn EVP_PKEY_copy_parameters(to: *mut sys::EVP_PKEY, from: *const sys::EVP_PKEY) -> c_int;
    fn EVP_PKEY_public_check(context: *mut sys::EVP_PKEY_CTX) -> c_int;
    fn EVP_PKEY_check(context: *mut sys::EVP_PKEY_CTX) -> c_int;
    fn EVP_PKEY_derive_set_peer(context: *mut sys::EVP_PKEY_CTX, peer: *mut sys::EVP_PKEY)
    -> c_int;
    fn EVP_PKEY_eq(one: *const sys::EVP_PKEY, other: *const sys::EVP_PKEY) -> c_int;
    fn EVP_PKEY_dup(key: *mut sys::EVP_PKEY) -> *mut sys::EVP_PKEY;
    fn EVP_PKEY_get0_provider(key: *const sys::EVP_PKEY) -> *const c_void;
    fn OSSL_PROVIDER_get0_name(provider: *const c_void) -> *const c_char;
    fn EVP_PKEY_get_group_name(
        key: *const sys::EVP_PKEY,
        name: *mut c_char,
        room: usize,
        length: *mut usize,
    ) -> c_int;
    fn EVP_PKEY_get_int_param(
        key: *const sys::EVP_PKEY,
        name: *const c_char,
        out: *mut c_int,
    ) -> c_int;
    fn EVP_PKEY_todata(
        key: *const sys::EVP_PKEY,
        selection: c_int,
        params: *mut *mut sys::OSSL_PARAM,
    ) -> c_int;
    fn EVP_PKEY_fromdata_init(context: *mut sys::EVP_PKEY_CTX) -> c_int;
    fn EVP_PKEY_fromdata(
        context: *mut sys::EVP_PKEY_CTX,
        key: *mut *mut sys::EVP_PKEY,
        selection: c_int,
        params: *mut sys::OSSL_PARAM,
    ) -> c_int;
    fn EVP_PKEY_is_a(key: *const sys::EVP_PKEY, name: *const c_char) -> c_int;
}

/// `EVP_PKEY_KEYPAIR`, without and with the private key.
pub const PUBLIC_KEY: c_int = 0x86;
pub const KEYPAIR: c_int = 0x87;

/// An `EVP_PKEY`.
pub struct Key(*mut sys::EVP_PKEY);

impl Key {
    /// Of a key type, and a group unless that is the only one.
    pub fn generate(name: &CStr, group: Option<&CStr>, query: &CStr) -> Self {
        let context = Context::of_type(name, query);
        // SAFETY: a context.
        assert_eq!(unsafe { sys::EVP_PKEY_keygen_init(context.0) }, 1);
        context.generate_of(group)
    }

    /// Only the parameters.
    pub fn parameters(name: &CStr, group: &CStr, query: &CStr) -> Self {
        let context = Context::of_type(name, query);
        // SAFETY: a context.
        assert_eq!(unsafe { EVP_PKEY_paramgen_init(context.0) }, 1);
        context.generate_of(Some(group))
    }

    /// A new key with the parameters of this one.
    pub fn generate_alike(&self, query: &CStr) -> Self {
        let context = Context::of(self, query);
        // SAFETY: a context.
        assert_eq!(unsafe { sys::EVP_PKEY_keygen_init(context.0) }, 1);
        context.generate_of(None)
    }

    /// An empty key with the parameters of this one.
    pub fn copy_parameters(&self) -> Self {
        // SAFETY: a new key, and another.
        unsafe {
            let copy = Self(sys::EVP_PKEY_new());
            assert_eq!(EVP_PKEY_copy_parameters(copy.0, self.0), 1);
            copy
        }
    }

    /// What `selection` selects of this key, imported into the provider with `query`.
    pub fn transfer(&self, name: &CStr, selection: c_int, query: &CStr) -> Self {
        let context = Context::of_type(name, query);
        let mut params = std::ptr::null_mut();
        let mut key = std::ptr::null_mut();
        // SAFETY: a key, a context, and the array that is made and freed here.
        unsafe {
            assert_eq!(EVP_PKEY_todata(self.0, selection, &mut params), 1);
            assert_eq!(EVP_PKEY_fromdata_init(context.0), 1);
            assert_eq!(EVP_PKEY_fromdata(context.0, &mut key, selection, params), 1);
            sys::OSSL_PARAM_free(params);
        }
        Self(key)
    }

    pub fn from_der(der: &[u8]) -> Self {
        Self::from_pkey(PKey::private_key_from_der(der).expect("a key"))
    }

    pub fn from_pkey(key: PKey<Private>) -> Self {
        let pointer = key.as_ptr();
        std::mem::forget(key);
        Self(pointer.cast())
    }

    pub fn to_pkey(&self) -> PKey<Private> {
        // SAFETY: a key; the copy of the reference is owned.
        unsafe {
            assert_eq!(sys::EVP_PKEY_up_ref(self.0), 1);
            PKey::from_ptr(self.0.cast())
        }
    }

    pub fn to_der(&self) -> Vec<u8> {
        self.to_pkey().private_key_to_pkcs8().expect("DER")
    }

    pub fn duplicate(&self) -> Self {
        // SAFETY: a key.
        let copy = unsafe { EVP_PKEY_dup(self.0) };
        assert!(!copy.is_null());
        Self(copy)
    }

    pub fn encoded_public_key(&self) -> Option<Vec<u8>> {
        let mut encoded = std::ptr::null_mut();
        // SAFETY: a key; what is answered is copied and freed.
        unsafe {
            let length = EVP_PKEY_get1_encoded_public_key(self.0, &mut encoded);
            let _ = openssl::error::ErrorStack::get();
            let bytes = (length > 0).then(|| std::slice::from_raw_parts(encoded, length).to_vec());
            sys::OPENSSL_free(encoded.cast());
            bytes
        }
    }

    pub fn set_encoded_public_key(&self, encoded: &[u8]) -> bool {
        let (data, length) = (encoded.as_ptr(), encoded.len());
        // SAFETY: a key and as many bytes as said.
        let set = unsafe { EVP_PKEY_set1_encoded_public_key(self.0, data, length) };
        let _ = openssl::error::ErrorStack::get();
        set == 1
    }

    pub fn provider(&self) -> &str {
        // SAFETY: a key; the provider's name stays.
        let name =
            unsafe { CStr::from_ptr(OSSL_PROVIDER_get0_name(EVP_PKEY_get0_provider(self.0))) };
        name.to_str().expect("a name")
    }

    pub fn group(&self) -> Option<String> {
        let mut name = [0; 80];
        let mut length = 0;
        // SAFETY: a key, and room as long as said.
        let found = unsafe {
            EVP_PKEY_get_group_name(self.0, name.as_mut_ptr().cast(), name.len(), &mut length)
        };
        let _ = openssl::error::ErrorStack::get();
        (found == 1).then(|| String::from_utf8(name[..length].to_vec()).expect("a name"))
    }

    pub fn int(&self, name: &CStr) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: a key and room for a number.
        let found = unsafe { EVP_PKEY_get_int_param(self.0, name.as_ptr(), &mut value) };
        let _ = openssl::error::ErrorStack::get();
        (found == 1).then_some(value)
    }

    pub fn is_a(&self, name: &CStr) -> bool {
        // SAFETY: a key and a text that ends with NUL.
        unsafe { EVP_PKEY_is_a(self.0, name.as_ptr()) == 1 }
    }

    pub fn equals(&self, other: &Self) -> bool {
        // SAFETY: keys.
        let equal = unsafe { EVP_PKEY_eq(self.0, other.0) };
        let _ = openssl::error::ErrorStack::get();
        equal == 1
    }

    pub fn public_check(&self, query: &CStr) -> bool {
        let context = Context::of(self, query);
        // SAFETY: a context.
        let valid = unsafe { EVP_PKEY_public_check(context.0) };
        let _ = openssl::error::ErrorStack::get();
        valid == 1
    }

    pub fn check(&self, query: &CStr) -> bool {
        let context = Context::of(self, query);
        // SAFETY: a context.
        let valid = unsafe { EVP_PKEY_check(context.0) };
        let _ = openssl::error::ErrorStack::get();
        valid == 1
    }

    /// The secret with the public key of `peer`.
    pub fn derive(&self, peer: &Self, query: &CStr) -> Outcome {
        let context = Context::of(self, query);
        match context.derive_init() && context.set_peer(peer) {
            true => context.derive(),
            false => Err((0, Vec::new())),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { sys::EVP_PKEY_free(self.0) };
    }
}

/// An `EVP_PKEY_CTX`.
pub struct Context(*mut sys::EVP_PKEY_CTX);

impl Context {
    pub fn of(key: &Key, query: &CStr) -> Self {
        // SAFETY: a key and a text that ends with NUL.
        let context =
            unsafe { EVP_PKEY_CTX_new_from_pkey(std::ptr::null_mut(), key.0, query.as_ptr()) };
        assert!(!context.is_null());
        Self(context)
    }

    fn of_type(name: &CStr, query: &CStr) -> Self {
        let (library, name) = (std::ptr::null_mut(), name.as_ptr());
        // SAFETY: texts that end with NUL.
        let context = unsafe { EVP_PKEY_CTX_new_from_name(library, name, query.as_ptr()) };
        assert!(!context.is_null());
        Self(context)
    }

    fn generate_of(self, group: Option<&CStr>) -> Key {
        let mut key = std::ptr::null_mut();
        // SAFETY: an initialised context, a text that ends with NUL, and room for a key.
        unsafe {
            if let Some(group) = group {
                assert_eq!(EVP_PKEY_CTX_set_group_name(self.0, group.as_ptr()), 1);
            }
            assert_eq!(EVP_PKEY_generate(self.0, &mut key), 1);
        }
        Key(key)
    }

    pub fn duplicate(&self) -> Self {
        // SAFETY: a context.
        let copy = unsafe { EVP_PKEY_CTX_dup(self.0) };
        assert!(!copy.is_null());
        Self(copy)
    }

    pub fn derive_init(&self) -> bool {
        // SAFETY: a context.
        let initialised = unsafe { sys::EVP_PKEY_derive_init(self.0) };
        let _ = openssl::error::ErrorStack::get();
        initialised == 1
    }

    pub fn set_peer(&self, peer: &Key) -> bool {
        // SAFETY: a context and a key.
        let set = unsafe { EVP_PKEY_derive_set_peer(self.0, peer.0) };
        let _ = openssl::error::ErrorStack::get();
        set == 1
    }

    pub fn set(&self, name: &CStr, value: &CStr) -> bool {
        // SAFETY: a context and texts that end with NUL.
        let set = unsafe { EVP_PKEY_CTX_ctrl_str(self.0, name.as_ptr(), value.as_ptr()) };
        let _ = openssl::error::ErrorStack::get();
        set > 0
    }

    /// As libssl does it: first the size, then the secret.
    pub fn derive(&self) -> Outcome {
        let mut length = 0;
        // SAFETY: a context; only the size is asked for.
        let sized = unsafe { sys::EVP_PKEY_derive(self.0, std::ptr::null_mut(), &mut length) };
        match sized {
            1 => self.derive_into(length),
            _ => call(0, |_, _| sized),
        }
    }

    /// Into `room` bytes.
    pub fn derive_into(&self, room: usize) -> Outcome {
        call(room, |secret, length| {
            // SAFETY: a context, and room as long as said.
            unsafe { sys::EVP_PKEY_derive(self.0, secret, length) }
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { sys::EVP_PKEY_CTX_free(self.0) };
    }
}

/// A key type and a group.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    pub key_type: &'static CStr,
    pub name: &'static CStr,
    pub secret_bytes: usize,
}

impl Group {
    pub fn generate(self, query: &CStr) -> Key {
        Key::generate(self.key_type, Some(self.name), query)
    }

    pub fn is_x25519(self) -> bool {
        self.name == c"x25519"
    }

    /// A key with nothing but this public key, in the default provider.
    pub fn public_key(self, encoded: &[u8]) -> Key {
        let key = Key::parameters(self.key_type, self.name, DEFAULT);
        assert!(key.set_encoded_public_key(encoded));
        key
    }
}

/// The groups that lanes offer.
pub const GROUPS: [Group; 3] = [
    Group {
        key_type: c"X25519",
        name: c"x25519",
        secret_bytes: 32,
    },
    Group {
        key_type: c"EC",
        name: c"prime256v1",
        secret_bytes: 32,
    },
    Group {
        key_type: c"EC",
        name: c"secp384r1",
        secret_bytes: 48,
    },
];

/// Other groups, of key types that are ours and others.
pub const OTHERS: [Group; 6] = [
    group(c"EC", c"secp521r1", 66),
    group(c"EC", c"secp256k1", 32),
    group(c"EC", c"brainpoolP256r1", 32),
    group(c"EC", c"secp224r1", 28),
    group(c"EC", c"sect283k1", 36),
    group(c"X448", c"x448", 56),
];

const fn group(key_type: &'static CStr, name: &'static CStr, secret_bytes: usize) -> Group {
    Group {
        key_type,
        name,
        secret_bytes,
    }
}
