//! Keys as bytes, and the conversion to keys of the default provider and back.

use slipstream_accelerators::lanes::check_point;
use slipstream_keys::{Group, KeyPair, Operand};

use super::facts::{facts, from_name};
use crate::default_provider::{DefaultProvider, Family};
use crate::ffi::{Keymgmt, SELECT_DOMAIN_PARAMETERS, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY};
use crate::object::DefaultObject;
use crate::param::Lent;

/// A key of a group that accelerators compute with.
#[derive(Clone)]
pub(crate) struct Bytes {
    pub(crate) group: Group,
    /// The private half, as in a [`KeyPair`].
    pub(crate) private: Option<Operand>,
    /// The public half, as in a [`KeyPair`]: a point that has been checked to be on the curve.
    pub(crate) public: Option<Operand>,
}

impl Bytes {
    /// A group without a key.
    pub(crate) fn group(group: Group) -> Self {
        Self {
            group,
            private: None,
            public: None,
        }
    }

    pub(crate) fn key_pair(group: Group, pair: KeyPair) -> Self {
        Self {
            group,
            private: Some(pair.private),
            public: Some(pair.public),
        }
    }

    /// Returns `encoded` if it is a public key: any 32 bytes for X25519 (RFC 7748), else an
    /// uncompressed point on the curve. As the cofactor is 1, that is the full validation of SP
    /// 800-56A, section 5.6.2.3.3.
    pub(crate) fn public_key(group: Group, encoded: &[u8]) -> Option<Operand> {
        let facts = facts(group);
        let valid = encoded.len() == facts.public_bytes
            && facts.curve.is_none_or(|curve| check_point(curve, encoded));
        valid.then(|| Operand::new(encoded))
    }

    /// The same key as a key of the default provider. `None` if that has no memory.
    pub(crate) fn import(&self, default: &DefaultProvider) -> Option<DefaultObject> {
        let facts = facts(self.group);
        let functions = &default.exchange(facts.family)?.keymgmt;
        let key = empty_key(default, functions)?;
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
    pub(crate) fn export(family: Family, functions: &Keymgmt, key: &DefaultObject) -> Option<Self> {
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
            // The key may come from a caller that has not checked it.
            public: has_public
                .then(|| Self::public_key(group, public.as_slice()))
                .flatten(),
        })
    }
}

/// An empty key of the default provider. `None` if that has no memory.
pub(crate) fn empty_key(default: &DefaultProvider, functions: &Keymgmt) -> Option<DefaultObject> {
    // SAFETY: the default provider's own context; the key is ours.
    unsafe { DefaultObject::own((functions.new)(default.context), functions.free) }
}

fn group_of(functions: &Keymgmt, key: &DefaultObject) -> Option<Group> {
    // SAFETY: a key of the default provider. One without parameters has no group, and would raise
    // an error.
    if unsafe { (functions.has)(key.as_ptr(), SELECT_DOMAIN_PARAMETERS) } != 1 {
        return None;
    }
    /// More than the longest name of a group here.
    const ROOM: usize = 64;
    let mut name = [0; ROOM];
    if !read(functions, key, Lent::text(c"group", &mut name)) {
        return None;
    }
    from_name(Family::Ec, name.split(|&byte| byte == 0).next()?)
}

/// Reads one parameter. Returns false if the key does not have it.
fn read(functions: &Keymgmt, key: &DefaultObject, param: Lent<'_>) -> bool {
    let mut params = [param, Lent::END];
    let array = Lent::as_mut_ptr(&mut params);
    // SAFETY: a key of the default provider, and an array that ends with a null key.
    let read = unsafe { (functions.get_params)(key.as_ptr(), array) } == 1;
    read && params[0].answered().is_some()
}
