//! RSA keys: those of the default provider, each with the value of the private key for
//! accelerators, or with a reference to a private key that a device holds.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, OnceLock};

use slipstream_keys::rsa::{Components, PrivateKey, Size};
use slipstream_keys::{Key as OffloadKey, Operand, PrivateKey as AnyKey, Reference};
use zeroize::Zeroizing;

use crate::counters::{KEYS_FOR_ACCELERATORS, KEYS_LEFT_TO_SOFTWARE};
use crate::default_provider::DefaultProvider;
use crate::failure::Failure;
use crate::ffi::{Param, SELECT_KEYPAIR, SELECT_PRIVATE_KEY};
use crate::held;
use crate::loaded::LoadedRef;
use crate::object::{DefaultObject, Object};
use crate::param::find;

/// An RSA key as OpenSSL holds it.
pub(super) struct Key {
    pub(super) loaded: LoadedRef,
    default: DefaultObject,
    /// Made when the key is imported, or, if it was not imported, when it first signs or decrypts.
    value: OnceLock<Option<Arc<PrivateKey>>>,
    /// Set if a device holds the private key.
    held: OnceLock<Arc<HeldKey>>,
}

/// A private key that a device holds.
pub(super) struct HeldKey {
    size: Size,
    reference: Reference,
    /// Big-endian, without leading zeros.
    modulus: Box<[u8]>,
}

impl Object for Key {}

impl Key {
    /// The private key for accelerators; `None` if the key is public, or they cannot use it.
    pub(super) fn offload_key(&self) -> Option<OffloadKey<PrivateKey>> {
        match self.held() {
            Some(held) => Some(held.offload_key()),
            None => self.value().cloned().map(OffloadKey::Value),
        }
    }

    /// The value of the private key for accelerators; `None` also if a device holds it.
    pub(super) fn value(&self) -> Option<&Arc<PrivateKey>> {
        if self.held().is_some() {
            return None;
        }
        self.value.get_or_init(|| self.export_value()).as_ref()
    }

    /// The private key, if a device holds it.
    pub(super) fn held(&self) -> Option<&Arc<HeldKey>> {
        self.held.get()
    }

    /// Adapts `selection` to the default provider's key.
    pub(super) fn selection(&self, selection: c_int) -> c_int {
        match self.held() {
            Some(_) => held::public_half(selection),
            None => selection,
        }
    }

    /// The key for the default provider's functions.
    pub(super) fn default_key(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    /// Wraps a key that the default provider has made; `None` for null.
    ///
    /// # Safety
    /// As for [`own`].
    pub(super) unsafe fn wrap(loaded: LoadedRef, data: *mut c_void) -> Option<Self> {
        Some(Self {
            loaded,
            // SAFETY: the caller's promise.
            default: unsafe { own(&loaded.default, data) }?,
            value: OnceLock::new(),
            held: OnceLock::new(),
        })
    }

    /// Imports the parts in `selection`. Returns OpenSSL's result.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    pub(super) unsafe fn import(&self, selection: c_int, params: *const Param) -> c_int {
        // SAFETY: the caller's promise.
        let held = match unsafe { HeldKey::in_params(selection, params) } {
            Ok(held) => held,
            Err(failure) => {
                self.loaded.errors.raise(failure);
                return 0;
            }
        };
        let selected = match held {
            Some(_) => held::public_half(selection),
            None => selection,
        };
        let import = self.loaded.default.rsa.keymgmt.import;
        // SAFETY: a key of the default provider; the caller's promise.
        let imported = unsafe { import(self.default_key(), selected, params) };
        if imported == 1 {
            if let Some(held) = held {
                self.held.get_or_init(|| Arc::new(held));
            } else if selection & SELECT_PRIVATE_KEY != 0 {
                // SAFETY: the caller's promise.
                self.value
                    .get_or_init(|| unsafe { import_value(self.loaded, params) });
            }
        }
        imported
    }

    /// A copy of the parts in `selection`.
    pub(super) fn duplicate(&self, selection: c_int) -> Option<Self> {
        let duplicate = self.loaded.default.rsa.keymgmt.dup;
        // SAFETY: a key of the default provider.
        let mut copy = unsafe {
            let data = duplicate(self.default_key(), self.selection(selection));
            Key::wrap(self.loaded, data)
        }?;
        if selection & SELECT_PRIVATE_KEY != 0 {
            copy.value = self.value.clone();
            copy.held = self.held.clone();
        }
        Some(copy)
    }

    fn export_value(&self) -> Option<Arc<PrivateKey>> {
        unsafe extern "C" fn receive(params: *const Param, argument: *mut c_void) -> c_int {
            // SAFETY: the argument that is passed to `export` below.
            let (loaded, key) = unsafe { &mut *argument.cast::<(LoadedRef, Option<_>)>() };
            // SAFETY: an array that ends with a null key.
            *key = unsafe { import_value(*loaded, params) };
            1
        }
        let mut received: (LoadedRef, Option<Arc<PrivateKey>>) = (self.loaded, None);
        let argument = (&raw mut received).cast();
        let export = self.loaded.default.rsa.keymgmt.export;
        // SAFETY: a key of the default provider; `receive` gets the argument that it expects.
        unsafe { export(self.default_key(), SELECT_KEYPAIR, Some(receive), argument) };
        received.1
    }
}

impl HeldKey {
    /// The held key in `params`; `None` if they have no handle.
    ///
    /// # Errors
    /// If the handle is invalid, or devices do not hold such keys.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn in_params(selection: c_int, params: *const Param) -> Result<Option<Self>, Failure> {
        // SAFETY: the caller's promise.
        let (reference, modulus) = unsafe {
            (
                held::reference(selection, params)?,
                big_endian(params, c"n"),
            )
        };
        reference
            .map(|reference| {
                Self::new(reference, &modulus.unwrap_or_default()).ok_or(Failure::NotHeld)
            })
            .transpose()
    }

    fn new(reference: Reference, modulus: &[u8]) -> Option<Self> {
        let zeros = modulus.iter().take_while(|&&byte| byte == 0).count();
        Some(Self {
            size: Size::of_modulus(modulus)?,
            reference,
            modulus: modulus[zeros..].into(),
        })
    }

    pub(super) fn offload_key(&self) -> OffloadKey<PrivateKey> {
        OffloadKey::Held {
            parameters: self.size,
            reference: self.reference.clone(),
        }
    }

    /// Pads the number in `input` to the length of the modulus. `None` if it is not less than the
    /// modulus.
    pub(super) fn residue(&self, input: &[u8]) -> Option<Operand> {
        let mut residue = Operand::zeroed(self.modulus.len());
        let zeros = self.modulus.len().checked_sub(input.len())?;
        residue.as_mut_slice()[zeros..].copy_from_slice(input);
        (residue.as_slice() < &*self.modulus).then_some(residue)
    }
}

/// Takes over a key of the default provider; `None` for null.
///
/// # Safety
/// `data` must be null or a key that a function of [`crate::ffi::Keymgmt`] has just made.
unsafe fn own(default: &DefaultProvider, data: *mut c_void) -> Option<DefaultObject> {
    // SAFETY: the caller's promise.
    unsafe { DefaultObject::own(data, default.rsa.keymgmt.free) }
}

/// The value of the private key in `params`, prepared for accelerators. `None` if they cannot use
/// it.
///
/// # Safety
/// `params` must be null or an array that ends with a null key.
unsafe fn import_value(loaded: LoadedRef, params: *const Param) -> Option<Arc<PrivateKey>> {
    // SAFETY: the caller's promise.
    unsafe { find(params, c"d") }?;
    let make = || {
        // SAFETY: the caller's promise.
        let number = |name| unsafe { big_endian(params, name) };
        // SAFETY: the caller's promise.
        if !loaded.has_accelerators() || unsafe { find(params, c"rsa-factor3") }.is_some() {
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
        let key = Arc::new(PrivateKey::new(&components).ok()?);
        loaded.prepare(&AnyKey::Rsa(key.clone())).then_some(key)
    };
    let key = make();
    match key {
        Some(_) => KEYS_FOR_ACCELERATORS.add_one(),
        None => KEYS_LEFT_TO_SOFTWARE.add_one(),
    }
    key
}

/// # Safety
/// `params` must be null or an array that ends with a null key.
unsafe fn big_endian(params: *const Param, name: &CStr) -> Option<Zeroizing<Vec<u8>>> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { find(params, name)?.unsigned_bytes() }?;
    // x86-64 is little-endian, and so are its parameters.
    Some(Zeroizing::new(bytes.iter().rev().copied().collect()))
}

#[cfg(test)]
mod tests {
    use slipstream_keys::Handle;

    use super::*;

    fn held(modulus: &[u8]) -> Option<HeldKey> {
        HeldKey::new(Reference::new("engine", Handle(7)), modulus)
    }

    #[test]
    fn a_device_holds_keys_of_its_sizes_only() {
        let size = |modulus: &[u8]| held(modulus).map(|key| key.size);
        assert_eq!(size(&[0x80; 256]), Some(Size::Rsa2048));
        assert_eq!(
            size(&[&[0][..], &[0xff; 512]].concat()),
            Some(Size::Rsa4096)
        );
        assert_eq!(size(&[0x7f; 256]), None, "one bit less");
        assert_eq!(size(&[0x80; 128]), None);
        assert_eq!(size(&[]), None);
        assert_eq!(size(&[0; 256]), None);
    }

    #[test]
    fn a_residue_is_as_long_as_the_modulus_and_less() {
        let key = held(&[0x80; 256]).expect("a size");
        let residue = |input: &[u8]| {
            key.residue(input)
                .map(|residue| residue.as_slice().to_vec())
        };
        let mut one = vec![0; 256];
        one[255] = 1;
        assert_eq!(residue(&[1]), Some(one));
        assert_eq!(residue(&[0x7f; 256]), Some(vec![0x7f; 256]));
        assert_eq!(residue(&[0x80; 256]), None, "the modulus");
        assert_eq!(residue(&[0; 257]), None);
    }
}
