//! The material of a key: bytes, a key of the default provider, or both.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use slipstream_keys::ec::{Curve, PrivateKey};
use slipstream_keys::{Key as OffloadKey, Operand, PrivateKey as AnyKey, Reference};

use crate::default_provider::{ExchangeFunctions, Family};
use crate::ffi::{SELECT_DOMAIN_PARAMETERS, SELECT_KEYPAIR, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY};
use crate::group::{Bytes, facts};
use crate::held;
use crate::loaded::LoadedRef;
use crate::object::DefaultObject;

/// The material of a key. It does not change, and is shared by all operations with the key.
pub(super) struct Material {
    pub(super) loaded: LoadedRef,
    pub(super) family: Family,
    /// The bytes, if it was made of bytes.
    known: Option<Bytes>,
    /// The bytes that have been read from the default provider's key, if it was not.
    read: OnceLock<Option<Bytes>>,
    default: OnceLock<Option<Arc<DefaultObject>>>,
    /// The value of the private key, for accelerators.
    value: OnceLock<Option<Arc<PrivateKey>>>,
    /// The reference in place of the private key, if a device holds it.
    held: Option<(Curve, Reference)>,
}

impl Material {
    fn unknown(loaded: LoadedRef, family: Family) -> Self {
        Self {
            loaded,
            family,
            known: None,
            read: OnceLock::new(),
            default: OnceLock::new(),
            value: OnceLock::new(),
            held: None,
        }
    }

    pub(super) fn from_bytes(loaded: LoadedRef, bytes: Bytes) -> Self {
        let family = facts(bytes.group).family;
        Self {
            known: Some(bytes),
            ..Self::unknown(loaded, family)
        }
    }

    pub(super) fn from_default(loaded: LoadedRef, family: Family, key: Arc<DefaultObject>) -> Self {
        Self {
            default: OnceLock::from(Some(key)),
            ..Self::unknown(loaded, family)
        }
    }

    /// The same public key, with a reference to the private key at a device. `None` if devices do
    /// not hold such keys.
    pub(super) fn held_by_device(self, reference: Reference) -> Option<Self> {
        let bytes = self.bytes()?;
        let curve = facts(bytes.group).curve?;
        bytes.public.as_ref()?;
        Some(Self {
            held: Some((curve, reference)),
            ..self
        })
    }

    /// The reference to the private key, if a device holds it.
    pub(super) fn held(&self) -> Option<&Reference> {
        self.held.as_ref().map(|(_, reference)| reference)
    }

    /// The private key for accelerators, if a device holds it.
    pub(super) fn held_key(&self) -> Option<OffloadKey<PrivateKey>> {
        self.held
            .as_ref()
            .map(|(curve, reference)| OffloadKey::Held {
                parameters: *curve,
                reference: reference.clone(),
            })
    }

    /// Adapts `selection` to the default provider's key.
    pub(super) fn selection(&self, selection: c_int) -> c_int {
        match self.held {
            Some(_) => held::public_half(selection),
            None => selection,
        }
    }

    /// The bytes, if it was made of them.
    pub(super) fn known(&self) -> Option<&Bytes> {
        self.known.as_ref()
    }

    /// The bytes, which are read if they are not known. `None` if accelerators do not compute with
    /// the group.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        if self.known.is_some() {
            return self.known.as_ref();
        }
        let read = self.read.get_or_init(|| {
            let functions = &self.functions()?.keymgmt;
            Bytes::export(self.family, functions, self.default_key()?)
        });
        read.as_ref()
    }

    /// The key for the default provider's functions; `None` if there is no memory for it.
    pub(super) fn default_key(&self) -> Option<&Arc<DefaultObject>> {
        let make = || {
            let key = self.known.as_ref()?.import(&self.loaded.default);
            key.map(Arc::new)
        };
        self.default.get_or_init(make).as_ref()
    }

    /// The value of the private key, prepared for accelerators; `None` if they cannot use it.
    pub(super) fn value(&self) -> Option<&Arc<PrivateKey>> {
        let make = || {
            let bytes = self.bytes()?;
            let curve = facts(bytes.group).curve?;
            let key = PrivateKey::new(curve, bytes.private.as_ref()?.as_slice()).ok()?;
            let key = Arc::new(key);
            self.loaded.prepare(&AnyKey::Ec(key.clone())).then_some(key)
        };
        self.value.get_or_init(make).as_ref()
    }

    /// The default provider's functions; `None` if curves are not offered.
    pub(super) fn functions(&self) -> Option<&ExchangeFunctions> {
        self.loaded.default.exchange(self.family)
    }

    /// A copy of the parts in `selection`.
    pub(super) fn duplicate(&self, selection: c_int) -> Option<Self> {
        if let Some(known) = &self.known
            && (self.family == Family::X25519 || selection & SELECT_DOMAIN_PARAMETERS != 0)
        {
            let part = |part: &Option<Operand>, of| part.clone().filter(|_| selection & of != 0);
            let bytes = Bytes {
                group: known.group,
                private: part(&known.private, SELECT_PRIVATE_KEY),
                public: part(&known.public, SELECT_PUBLIC_KEY),
            };
            return Some(Self::from_bytes(self.loaded, bytes));
        }
        let functions = &self.functions()?.keymgmt;
        let key = self.default_key()?;
        // SAFETY: a key of the default provider; the copy is ours.
        let copy = unsafe {
            let copy = (functions.dup)(key.as_ptr(), self.selection(selection));
            DefaultObject::own(copy, functions.free)
        }?;
        let mut copy = Self::from_default(self.loaded, self.family, Arc::new(copy));
        if selection & SELECT_KEYPAIR == SELECT_KEYPAIR {
            copy.value = self.value.clone();
            copy.held = self.held.clone();
        }
        Some(copy)
    }
}
