//! What a key consists of: bytes, a key of the default provider, or both.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use slipstream_lanes::ec::{self, SigningKey};
use slipstream_offload::ahead::{Group, KeyPair};
use slipstream_offload::request::Operand;
use slipstream_offload::{Handle, Kind};

use super::group::{facts, from_name};
use super::{Exchange, Family};
use crate::default_provider::DefaultProvider;
use crate::ffi::{
    Keymgmt, SELECT_DOMAIN_PARAMETERS, SELECT_KEYPAIR, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY,
};
use crate::held::{self, Held};
use crate::object::DefaultObject;
use crate::param::Lent;
use crate::provider::LoadedRef;

/// A key of one of the groups that lanes offer.
#[derive(Clone)]
pub(super) struct Bytes {
    pub(super) group: Group,
    /// As in a [`KeyPair`].
    pub(super) private: Option<Operand>,
    /// As in a [`KeyPair`]: a point that is known to be on the curve.
    pub(super) public: Option<Operand>,
}

impl Bytes {
    /// No key yet, only a group.
    pub(super) fn group(group: Group) -> Self {
        Self {
            group,
            private: None,
            public: None,
        }
    }

    pub(super) fn key_pair(group: Group, pair: KeyPair) -> Self {
        Self {
            group,
            private: Some(pair.private),
            public: Some(pair.public),
        }
    }

    /// `encoded`, if it is a public key: any 32 bytes for X25519 (RFC 7748), else an uncompressed point on the curve. As
    /// the cofactor is 1, that is the full validation of SP 800-56A, section 5.6.2.3.3.
    pub(super) fn public_key(group: Group, encoded: &[u8]) -> Option<Operand> {
        let facts = facts(group);
        let valid = encoded.len() == facts.public_bytes
            && facts
                .curve
                .is_none_or(|curve| ec::check_point(curve, encoded));
        valid.then(|| Operand::new(encoded))
    }

    /// The same as a key of the default provider. `None` if that has no memory.
    pub(super) fn import(&self, default: &DefaultProvider) -> Option<DefaultObject> {
        let facts = facts(self.group);
        let functions = &facts.family.functions(default)?.keymgmt;
        let key = new(default, functions)?;
        let mut group = facts.names[0].to_bytes_with_nul().to_vec();
        let (mut private, mut public) = (self.private.clone(), self.public.clone());
        let mut params = [Lent::END, Lent::END, Lent::END, Lent::END];
        let mut places = params.iter_mut();
        let mut selection = 0;
        let mut add = |param, selected| {
            *places.next().expect("three parameters and the end") = param;
            selection |= selected;
        };
        if facts.family == Family::Ec {
            add(Lent::text(c"group", &mut group), SELECT_DOMAIN_PARAMETERS);
        }
        if let Some(public) = &mut public {
            add(
                Lent::octets(c"pub", public.as_mut_slice()),
                SELECT_PUBLIC_KEY,
            );
        }
        if let Some(private) = &mut private {
            let param = match facts.family {
                Family::X25519 => Lent::octets(c"priv", private.as_mut_slice()),
                Family::Ec => {
                    // Numbers are in the byte order of the machine, which is little-endian.
                    private.as_mut_slice().reverse();
                    Lent::big_number(c"priv", private.as_mut_slice())
                }
            };
            add(param, SELECT_PRIVATE_KEY);
        }
        if selection == 0 {
            return Some(key);
        }
        let params = Lent::as_mut_ptr(&mut params);
        // SAFETY: a key of the default provider, and an array that ends with a null key.
        let imported = unsafe { (functions.import)(key.as_ptr(), selection, params) };
        (imported == 1).then_some(key)
    }

    /// Reads a key of the default provider. `None` if it is of another group.
    fn export(family: Family, functions: &Keymgmt, key: &DefaultObject) -> Option<Self> {
        let group = match family {
            Family::X25519 => Group::X25519,
            Family::Ec => group_of(functions, key)?,
        };
        let facts = facts(group);
        let mut private = Operand::zeroed(facts.private_bytes);
        let mut public = Operand::zeroed(facts.public_bytes);
        // SAFETY: a key of the default provider.
        let has = |selection| unsafe { (functions.has)(key.as_ptr(), selection) } == 1;
        let has_private = has(SELECT_PRIVATE_KEY);
        let has_public = has(SELECT_PUBLIC_KEY);
        let read_private = |private| match family {
            Family::X25519 => Lent::octets(c"priv", private),
            Family::Ec => Lent::big_number(c"priv", private),
        };
        let read = (!has_private || read(functions, key, read_private(private.as_mut_slice())))
            && (!has_public
                || read(
                    functions,
                    key,
                    Lent::octets(c"encoded-pub-key", public.as_mut_slice()),
                ));
        if family == Family::Ec {
            private.as_mut_slice().reverse();
        }
        read.then(|| Self {
            group,
            private: has_private.then_some(private),
            // A key from elsewhere need not have been checked.
            public: has_public
                .then(|| Self::public_key(group, public.as_slice()))
                .flatten(),
        })
    }
}

/// A key that does not change any more: whoever uses it shares it.
pub(super) struct Material {
    pub(super) loaded: LoadedRef,
    pub(super) family: Family,
    /// What it was made of, if that were bytes.
    known: Option<Bytes>,
    /// Else what has been read from the default provider's key.
    read: OnceLock<Option<Bytes>>,
    default: OnceLock<Option<Arc<DefaultObject>>>,
    signing: OnceLock<Option<Arc<SigningKey>>>,
    /// What stands in place of the private key, if a device holds it.
    pub(super) held: Option<Held>,
}

impl Material {
    fn unknown(loaded: LoadedRef, family: Family) -> Self {
        Self {
            loaded,
            family,
            known: None,
            read: OnceLock::new(),
            default: OnceLock::new(),
            signing: OnceLock::new(),
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

    /// The same public key, of which a device holds the private key. `None` if devices do not hold such keys.
    pub(super) fn held_by_device(self, handle: Handle) -> Option<Self> {
        let bytes = self.bytes()?;
        let kind = Kind::Ecdsa(facts(bytes.group).curve?);
        bytes.public.as_ref()?;
        Some(Self {
            held: Some(Held { kind, handle }),
            ..self
        })
    }

    /// `selection` as the default provider's functions take it for the default provider's key.
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

    /// The bytes, in any case; `None` if it is of no group that lanes offer.
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

    /// What the default provider's functions take as key; `None` if there is no memory for it.
    pub(super) fn default_key(&self) -> Option<&Arc<DefaultObject>> {
        let make = || {
            let key = self.known.as_ref()?.import(&self.loaded.default);
            key.map(Arc::new)
        };
        self.default.get_or_init(make).as_ref()
    }

    /// The form that signs here; `None` if there is no private key on a curve that lanes offer.
    pub(super) fn signing_key(&self) -> Option<&Arc<SigningKey>> {
        let make = || {
            let bytes = self.bytes()?;
            let curve = facts(bytes.group).curve?;
            let key = SigningKey::new(curve, bytes.private.as_ref()?.as_slice());
            key.ok().map(Arc::new)
        };
        self.signing.get_or_init(make).as_ref()
    }

    /// The default provider's functions; `None` if curves are not offered.
    pub(super) fn functions(&self) -> Option<&Exchange> {
        self.family.functions(&self.loaded.default)
    }

    /// A copy of what `selection` selects.
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
            copy.signing = self.signing.clone();
            copy.held = self.held;
        }
        Some(copy)
    }
}

/// A key of the default provider without anything in it.
pub(super) fn new(default: &DefaultProvider, functions: &Keymgmt) -> Option<DefaultObject> {
    // SAFETY: the default provider's own context; the key is ours.
    unsafe { DefaultObject::own((functions.new)(default.context), functions.free) }
}

fn group_of(functions: &Keymgmt, key: &DefaultObject) -> Option<Group> {
    // SAFETY: a key of the default provider. One without parameters has no group, and would raise an error.
    if unsafe { (functions.has)(key.as_ptr(), SELECT_DOMAIN_PARAMETERS) } != 1 {
        return None;
    }
    /// Longer than the names that are known here.
    const ROOM: usize = 64;
    let mut name = [0; ROOM];
    if !read(functions, key, Lent::text(c"group", &mut name)) {
        return None;
    }
    from_name(Family::Ec, name.split(|&byte| byte == 0).next()?)
}

/// Reads one parameter. False if the key does not have it.
fn read(functions: &Keymgmt, key: &DefaultObject, param: Lent<'_>) -> bool {
    let mut params = [param, Lent::END];
    let array = Lent::as_mut_ptr(&mut params);
    // SAFETY: a key of the default provider, and an array that ends with a null key.
    let read = unsafe { (functions.get_params)(key.as_ptr(), array) } == 1;
    read && params[0].answered().is_some()
}
