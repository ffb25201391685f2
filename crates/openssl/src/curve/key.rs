//! A key as OpenSSL holds it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use slipstream_keys::{Group, Reference};

use super::material::Material;
use crate::counters::{KEYS_FOR_ACCELERATORS, KEYS_LEFT_TO_SOFTWARE};
use crate::default_provider::{ExchangeFunctions, Family};
use crate::failure::Failure;
use crate::ffi::{Param, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY};
use crate::group::{Bytes, empty_key, facts};
use crate::held;
use crate::loaded::LoadedRef;
use crate::object::{DefaultObject, Object};
use crate::param::{entries_mut, find};

/// A key. Its material can be replaced; an operation that has begun goes on with the earlier
/// material.
///
/// As with OpenSSL's own keys, callers have to ensure that a key is not used while it is changed.
pub(super) struct Key {
    material: Arc<Material>,
}

impl Object for Key {}

impl Key {
    pub(super) fn new(material: Material) -> Self {
        Self {
            material: Arc::new(material),
        }
    }

    /// An empty key. `None` if the default provider has no memory.
    pub(super) fn empty(loaded: LoadedRef, family: Family) -> Option<Self> {
        let functions = loaded.default.exchange(family)?;
        let key = empty_key(&loaded.default, &functions.keymgmt)?;
        Some(Self::from_default(loaded, family, key))
    }

    /// A key that the default provider has made.
    pub(super) fn from_default(loaded: LoadedRef, family: Family, key: DefaultObject) -> Self {
        Self::new(Material::from_default(loaded, family, Arc::new(key)))
    }

    pub(super) fn material(&self) -> &Arc<Material> {
        &self.material
    }

    /// The key for the default provider's functions; `None` if there is no memory for it.
    pub(super) fn default_key(&self) -> Option<*mut c_void> {
        Some(self.material.default_key()?.as_ptr())
    }

    /// The default provider's functions, and the key for them.
    pub(super) fn as_default(&self) -> Option<(&ExchangeFunctions, *mut c_void)> {
        Some((self.material.functions()?, self.default_key()?))
    }

    /// Returns true if the key has all parts in `selection`; `None` if only the default provider
    /// can tell.
    pub(super) fn has(&self, selection: c_int) -> Option<bool> {
        let known = self.material.known()?;
        Some(
            (selection & SELECT_PUBLIC_KEY == 0 || known.public.is_some())
                && (selection & SELECT_PRIVATE_KEY == 0 || known.private.is_some()),
        )
    }

    /// Returns true if the key is valid; `None` if only the default provider can tell. Public keys
    /// that are known as bytes have been checked before.
    pub(super) fn is_valid(&self, selection: c_int) -> Option<bool> {
        let public = self.material.known()?.public.is_some();
        (public && selection == SELECT_PUBLIC_KEY).then_some(true)
    }

    /// Imports the parts in `selection`. Returns OpenSSL's result.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    pub(super) unsafe fn import(&mut self, selection: c_int, params: *const Param) -> c_int {
        let loaded = self.material.loaded;
        // SAFETY: the caller's promise.
        let reference = match unsafe { held::reference(selection, params) } {
            Ok(reference) => reference,
            Err(failure) => {
                loaded.errors.raise(failure);
                return 0;
            }
        };
        let selected = match &reference {
            Some(_) => held::public_half(selection),
            None => selection,
        };
        let imported = self.change(|functions, key| {
            // SAFETY: a key of the default provider; the caller's promise.
            unsafe { (functions.keymgmt.import)(key, selected, params) }
        });
        match reference {
            _ if imported != 1 => imported,
            Some(reference) => {
                let Some(held) = self.held_by_device(reference) else {
                    loaded.errors.raise(Failure::NotHeld);
                    return 0;
                };
                self.material = Arc::new(held);
                1
            }
            None => {
                if selection & SELECT_PRIVATE_KEY != 0 {
                    self.prepare_to_sign();
                }
                1
            }
        }
    }

    /// Sets parameters. Returns OpenSSL's result.
    ///
    /// # Safety
    /// As for [`Key::import`].
    pub(super) unsafe fn set_params(&mut self, params: *const Param) -> c_int {
        // SAFETY: the caller's promise.
        if let Some(bytes) = unsafe { self.with_encoded_public_key(params) } {
            self.material = Arc::new(Material::from_bytes(self.material.loaded, bytes));
            return 1;
        }
        // SAFETY: the caller's promise.
        let is_replaced = unsafe { find(params, c"encoded-pub-key") }.is_some();
        let held = self.material.held().filter(|_| !is_replaced).cloned();
        let set = self.change(|functions, key| match functions.keymgmt.set_params {
            // SAFETY: a key of the default provider; the caller's promise.
            Some(set) => unsafe { set(key, params) },
            None => 0,
        });
        if let Some(reference) = held
            && let Some(held) = self.held_by_device(reference)
        {
            self.material = Arc::new(held);
        }
        set
    }

    /// Answers parameters from the bytes. Returns false if only the default provider can answer
    /// them.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key, and that is ours to answer.
    pub(super) unsafe fn answer(&self, params: *mut Param) -> bool {
        let Some(known) = self.material.known() else {
            return false;
        };
        // SAFETY: the caller's promise.
        unsafe { entries_mut(params).all(|param| answer(known, param)) }
    }

    /// Changes the default provider's key, and forgets everything else that was known of it.
    fn change(&mut self, change: impl FnOnce(&ExchangeFunctions, *mut c_void) -> c_int) -> c_int {
        let material = &self.material;
        let (Some(functions), Some(key)) = (material.functions(), material.default_key()) else {
            return 0;
        };
        let result = change(functions, key.as_ptr());
        let changed = Material::from_default(material.loaded, material.family, key.clone());
        self.material = Arc::new(changed);
        result
    }

    /// A key that a device holds, with the default provider's key as the public half.
    fn held_by_device(&self, reference: Reference) -> Option<Material> {
        let Material { loaded, family, .. } = *self.material;
        let key = self.material.default_key()?.clone();
        Material::from_default(loaded, family, key).held_by_device(reference)
    }

    /// Prepares a private key for accelerators, and counts it.
    fn prepare_to_sign(&self) {
        if self.material.family == Family::Ec {
            match self.material.value() {
                Some(_) => KEYS_FOR_ACCELERATORS.add_one(),
                None => KEYS_LEFT_TO_SOFTWARE.add_one(),
            }
        }
    }

    /// A key with the public key in `params`, if they set nothing else and it is valid.
    ///
    /// # Safety
    /// As for [`Key::import`].
    unsafe fn with_encoded_public_key(&self, params: *const Param) -> Option<Bytes> {
        let known = self.material.known()?;
        // OpenSSL keeps the private key of such a key, although it no longer fits.
        if known.private.is_some() && known.group != Group::X25519 {
            return None;
        }
        // SAFETY: the caller's promise: the entry after an entry with a key can be read.
        let param = unsafe {
            let param = params.as_ref().filter(|param| !param.key.is_null())?;
            (*params.add(1)).key.is_null().then_some(param)
        }?;
        // SAFETY: names are texts that end with NUL; the core's parameter.
        let encoded = unsafe {
            let name = CStr::from_ptr(param.key);
            (name == c"encoded-pub-key").then(|| param.octets())?
        }?;
        Some(Bytes {
            public: Some(Bytes::public_key(known.group, encoded)?),
            ..Bytes::group(known.group)
        })
    }
}

/// Answers one parameter. Returns false if only the default provider can answer or refuse it.
///
/// # Safety
/// `param` must come from a caller who gave it to be answered.
unsafe fn answer(known: &Bytes, param: &mut Param) -> bool {
    let facts = facts(known.group);
    // SAFETY: names are texts that end with NUL.
    let name = unsafe { CStr::from_ptr(param.key) }.to_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        match (name, &known.public) {
            (b"bits", _) => param.answer_int(facts.bits),
            (b"security-bits", _) => param.answer_int(facts.security_bits),
            (b"max-size", _) => param.answer_int(facts.max_size),
            (b"encoded-pub-key" | b"pub", Some(public)) => param.answer_octets(public.as_slice()),
            (b"group", _) if facts.family == Family::Ec => param.answer_utf8(facts.names[0]),
            _ => false,
        }
    }
}
