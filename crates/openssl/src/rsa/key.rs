//! RSA keys: the default provider's, each with its form for lanes, or with the handle of a private key that a device
//! holds.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, OnceLock};

use slipstream_lanes::rsa::{Components, PrivateKey, Size};
use slipstream_offload::calibration::example_key;
use slipstream_offload::request::Operand;
use slipstream_offload::{Handle, Kind};
use zeroize::Zeroizing;

use crate::counts::{KEYS_WITH_LANES, KEYS_WITHOUT_LANES};
use crate::default_provider::DefaultProvider;
use crate::failure::Failure;
use crate::ffi::{Param, SELECT_KEYPAIR, SELECT_PRIVATE_KEY};
use crate::held::{self, Held};
use crate::object::{DefaultObject, Object};
use crate::param::{Lent, find};
use crate::provider::LoadedRef;

/// An RSA key as OpenSSL holds it.
pub(super) struct Key {
    pub(super) loaded: LoadedRef,
    default: DefaultObject,
    /// Made when the key is imported, or when a key from elsewhere first signs or decrypts.
    lanes: OnceLock<Option<Arc<PrivateKey>>>,
    /// Set if a device has the private key.
    held: OnceLock<Arc<HeldKey>>,
}

/// A private key that a device holds.
pub(super) struct HeldKey {
    pub(super) held: Held,
    /// Big-endian.
    modulus: Box<[u8]>,
}

impl Object for Key {}

impl Key {
    /// The form for lanes; `None` if the key is public, or not one that lanes can use.
    pub(super) fn lanes(&self) -> Option<&Arc<PrivateKey>> {
        if self.held().is_some() {
            return None;
        }
        self.lanes.get_or_init(|| self.export_to_lanes()).as_ref()
    }

    /// The handle, if a device has the private key.
    pub(super) fn held(&self) -> Option<&Arc<HeldKey>> {
        self.held.get()
    }

    /// `selection` as the default provider's functions take it for the default provider's key.
    pub(super) fn selection(&self, selection: c_int) -> c_int {
        match self.held() {
            Some(_) => held::public_half(selection),
            None => selection,
        }
    }

    /// What the default provider's functions take as key.
    pub(super) fn default_key(&self) -> *mut c_void {
        self.default.as_ptr()
    }

    /// A key of ours round one that the default provider has made; `None` for null.
    ///
    /// # Safety
    /// As for [`own`].
    pub(super) unsafe fn wrap(loaded: LoadedRef, data: *mut c_void) -> Option<Self> {
        Some(Self {
            loaded,
            // SAFETY: the caller's promise.
            default: unsafe { own(&loaded.default, data) }?,
            lanes: OnceLock::new(),
            held: OnceLock::new(),
        })
    }

    /// Imports what `selection` selects. Answers as OpenSSL does.
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
                self.lanes
                    .get_or_init(|| unsafe { import_to_lanes(self.loaded, params) });
            }
        }
        imported
    }

    /// A copy of what `selection` selects.
    pub(super) fn duplicate(&self, selection: c_int) -> Option<Self> {
        let duplicate = self.loaded.default.rsa.keymgmt.dup;
        // SAFETY: a key of the default provider.
        let mut copy = unsafe {
            let data = duplicate(self.default_key(), self.selection(selection));
            Key::wrap(self.loaded, data)
        }?;
        if selection & SELECT_PRIVATE_KEY != 0 {
            copy.lanes = self.lanes.clone();
            copy.held = self.held.clone();
        }
        Some(copy)
    }

    fn export_to_lanes(&self) -> Option<Arc<PrivateKey>> {
        unsafe extern "C" fn receive(params: *const Param, argument: *mut c_void) -> c_int {
            // SAFETY: the argument that is passed to `export` below.
            let (loaded, key) = unsafe { &mut *argument.cast::<(LoadedRef, Option<_>)>() };
            // SAFETY: an array that ends with a null key.
            *key = unsafe { import_to_lanes(*loaded, params) };
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
    /// What `params` name with a handle, if they do.
    ///
    /// # Errors
    /// If a device does not hold such keys.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn in_params(selection: c_int, params: *const Param) -> Result<Option<Self>, Failure> {
        // SAFETY: the caller's promise.
        let (handle, modulus) =
            unsafe { (held::handle(selection, params)?, big_endian(params, c"n")) };
        handle
            .map(|handle| Self::new(handle, &modulus.unwrap_or_default()).ok_or(Failure::NotHeld))
            .transpose()
    }

    fn new(handle: Handle, modulus: &[u8]) -> Option<Self> {
        let zeros = modulus.iter().take_while(|&&byte| byte == 0).count();
        let modulus = &modulus[zeros..];
        let bits = 8 * modulus.len() - modulus.first()?.leading_zeros() as usize;
        let kind = Kind::Rsa(Size::from_bits(bits)?);
        Some(Self {
            held: Held { kind, handle },
            modulus: modulus.into(),
        })
    }

    /// The number in `input` as the device takes it; `None` if it is not less than the modulus.
    pub(super) fn residue(&self, input: &[u8]) -> Option<Operand> {
        let mut residue = Operand::zeroed(self.modulus.len());
        let zeros = self.modulus.len().checked_sub(input.len())?;
        residue.as_mut_slice()[zeros..].copy_from_slice(input);
        (residue.as_slice() < &*self.modulus).then_some(residue)
    }
}

/// A key of the default provider, to be freed.
///
/// # Safety
/// `data` must be null or what a function of [`ffi::Keymgmt`] has just made.
unsafe fn own(default: &DefaultProvider, data: *mut c_void) -> Option<DefaultObject> {
    // SAFETY: the caller's promise.
    unsafe { DefaultObject::own(data, default.rsa.keymgmt.free) }
}

/// The published example key of `size`, as the default provider's.
pub(super) fn example(default: &DefaultProvider, size: Size) -> Option<DefaultObject> {
    let functions = &default.rsa.keymgmt;
    // SAFETY: the default provider's own context.
    let key = unsafe { own(default, (functions.new)(default.context)) }?;
    let example = example_key(size);
    let components = &example.components;
    let mut numbers = [
        (c"n", components.modulus),
        (c"e", components.public_exponent),
        (c"d", example.private_exponent),
        (c"rsa-factor1", components.prime1),
        (c"rsa-factor2", components.prime2),
        (c"rsa-exponent1", components.exponent1),
        (c"rsa-exponent2", components.exponent2),
        (c"rsa-coefficient1", components.coefficient),
    ]
    .map(|(name, bytes)| (name, bytes.iter().rev().copied().collect::<Vec<u8>>()));
    let mut params: Vec<Lent<'_>> = numbers
        .iter_mut()
        .map(|(name, bytes)| Lent::big_number(name, bytes))
        .chain([Lent::END])
        .collect();
    let params = Lent::as_mut_ptr(&mut params);
    // SAFETY: a new key of the default provider and an array that ends with a null key.
    let imported = unsafe { (functions.import)(key.as_ptr(), SELECT_KEYPAIR, params) };
    (imported == 1).then_some(key)
}

/// The form for lanes of the private key in `params`, if there is one that lanes can use.
///
/// # Safety
/// `params` must be null or an array that ends with a null key.
unsafe fn import_to_lanes(loaded: LoadedRef, params: *const Param) -> Option<Arc<PrivateKey>> {
    // SAFETY: the caller's promise.
    unsafe { find(params, c"d") }?;
    let key = loaded.backend().and_then(|backend| {
        // SAFETY: the caller's promise.
        let number = |name| unsafe { big_endian(params, name) };
        // SAFETY: the caller's promise.
        if unsafe { find(params, c"rsa-factor3") }.is_some() {
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
        PrivateKey::new(backend, &components).ok()
    });
    match key {
        Some(_) => KEYS_WITH_LANES.add_one(),
        None => KEYS_WITHOUT_LANES.add_one(),
    }
    key.map(Arc::new)
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
    use super::*;

    fn held(modulus: &[u8]) -> Option<HeldKey> {
        HeldKey::new(Handle(7), modulus)
    }

    #[test]
    fn a_device_holds_keys_of_its_sizes_only() {
        let kind = |modulus: &[u8]| held(modulus).map(|key| key.held.kind);
        assert_eq!(kind(&[0x80; 256]), Some(Kind::Rsa(Size::Rsa2048)));
        assert_eq!(
            kind(&[&[0][..], &[0xff; 512]].concat()),
            Some(Kind::Rsa(Size::Rsa4096))
        );
        assert_eq!(kind(&[0x7f; 256]), None, "one bit less");
        assert_eq!(kind(&[0x80; 128]), None);
        assert_eq!(kind(&[]), None);
        assert_eq!(kind(&[0; 256]), None);
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
