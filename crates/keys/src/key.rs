//! A private key as an operation names it: a value, or a reference to accelerators that hold it.

use core::fmt;
use std::sync::Arc;

use crate::ec::{self, Curve};
use crate::{Forms, rsa};

/// The value of a private key.
pub trait Value: fmt::Debug {
    /// The public parameters of such a key, which decide the operations that it can share a batch
    /// with: the size of an RSA modulus, the curve.
    type Parameters: Copy + fmt::Debug + PartialEq;

    /// The parameters of this key.
    fn parameters(&self) -> Self::Parameters;

    /// The forms that accelerators have prepared of it.
    fn forms(&self) -> &Forms;
}

/// A private key of one type, or a reference to one.
#[derive(Debug)]
pub enum Key<V: Value> {
    /// The key, which is in this process.
    Value(Arc<V>),
    /// A key that accelerators hold. No software of this process can stand in for them.
    Held {
        /// As [`Value::parameters`].
        parameters: V::Parameters,
        /// The accelerators, and their names for it.
        reference: Reference,
    },
}

/// A private key that is not in this process, by the names that accelerators have for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    holders: Arc<[(Arc<str>, Handle)]>,
}

/// An accelerator's name for a private key that it holds. To another accelerator, or to another
/// client of the same one, the number means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A private key of any type.
#[derive(Clone, Debug)]
pub enum PrivateKey {
    /// RSA.
    Rsa(Arc<rsa::PrivateKey>),
    /// ECDSA.
    Ec(Arc<ec::PrivateKey>),
}

/// The numbers of a private key of any type, borrowed: on the way from a file, or to an
/// accelerator. They have not been checked.
#[derive(Clone, Copy)]
pub enum KeyParts<'a> {
    /// Two primes.
    Rsa(rsa::Components<'a>),
    /// ECDSA.
    Ec {
        /// The curve.
        curve: Curve,
        /// Big-endian, as long as the order.
        private: &'a [u8],
    },
}

impl<V: Value> Key<V> {
    /// As [`Value::parameters`].
    pub fn parameters(&self) -> V::Parameters {
        match self {
            Key::Value(value) => value.parameters(),
            Key::Held { parameters, .. } => *parameters,
        }
    }

    /// The value; `None` if only accelerators have it.
    pub fn value(&self) -> Option<&Arc<V>> {
        match self {
            Key::Value(value) => Some(value),
            Key::Held { .. } => None,
        }
    }

    /// The reference; `None` if this process has the key itself.
    pub fn reference(&self) -> Option<&Reference> {
        match self {
            Key::Value(_) => None,
            Key::Held { reference, .. } => Some(reference),
        }
    }
}

impl<V: Value> Clone for Key<V> {
    fn clone(&self) -> Self {
        match self {
            Key::Value(value) => Key::Value(value.clone()),
            Key::Held {
                parameters,
                reference,
            } => Key::Held {
                parameters: *parameters,
                reference: reference.clone(),
            },
        }
    }
}

impl<V: Value> From<Arc<V>> for Key<V> {
    fn from(value: Arc<V>) -> Self {
        Key::Value(value)
    }
}

impl Reference {
    /// A key that the accelerator `holder` holds under the name `handle`.
    pub fn new(holder: &str, handle: Handle) -> Self {
        Self {
            holders: Arc::new([(holder.into(), handle)]),
        }
    }

    /// The accelerators that hold the key, and their names for it.
    pub fn holders(&self) -> impl Iterator<Item = (&str, Handle)> {
        self.holders.iter().map(|(name, handle)| (&**name, *handle))
    }

    /// The name that the accelerator `holder` has for the key; `None` if it does not hold it.
    pub fn handle_at(&self, holder: &str) -> Option<Handle> {
        self.holders()
            .find_map(|(name, handle)| (name == holder).then_some(handle))
    }
}

impl PrivateKey {
    /// Checks the numbers of a key.
    ///
    /// # Errors
    /// See [`rsa::KeyError`] and [`ec::KeyError`].
    pub fn new(parts: &KeyParts<'_>) -> Result<Self, KeyError> {
        Ok(match parts {
            KeyParts::Rsa(components) => Self::Rsa(Arc::new(rsa::PrivateKey::new(components)?)),
            KeyParts::Ec { curve, private } => {
                Self::Ec(Arc::new(ec::PrivateKey::new(*curve, private)?))
            }
        })
    }

    /// The numbers of the key.
    pub fn parts(&self) -> KeyParts<'_> {
        match self {
            Self::Rsa(key) => KeyParts::Rsa(key.components()),
            Self::Ec(key) => KeyParts::Ec {
                curve: key.curve(),
                private: key.scalar(),
            },
        }
    }
}

impl fmt::Debug for KeyParts<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            KeyParts::Rsa(_) => "Rsa",
            KeyParts::Ec { .. } => "Ec",
        })
    }
}

/// The reason why numbers are no private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The numbers are no RSA key.
    Rsa(rsa::KeyError),
    /// The number is no key on the curve.
    Ec(ec::KeyError),
}

impl From<rsa::KeyError> for KeyError {
    fn from(error: rsa::KeyError) -> Self {
        Self::Rsa(error)
    }
}

impl From<ec::KeyError> for KeyError {
    fn from(error: ec::KeyError) -> Self {
        Self::Ec(error)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(error) => error.fmt(formatter),
            Self::Ec(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_belongs_to_the_accelerator_that_gave_it() {
        let reference = Reference::new("engine", Handle(7));
        assert_eq!(reference.handle_at("engine"), Some(Handle(7)));
        assert_eq!(reference.handle_at("token"), None);
        assert_eq!(
            reference.holders().collect::<Vec<_>>(),
            [("engine", Handle(7))]
        );
    }

    #[test]
    fn a_held_key_is_known_by_its_parameters() {
        let held: Key<ec::PrivateKey> = Key::Held {
            parameters: Curve::P384,
            reference: Reference::new("engine", Handle(1)),
        };
        assert_eq!(held.parameters(), Curve::P384);
        assert!(held.value().is_none() && held.reference().is_some());
        let value = Arc::new(ec::PrivateKey::new(Curve::P256, &[1; 32]).expect("in range"));
        let value = Key::from(value);
        assert_eq!(value.parameters(), Curve::P256);
        assert!(value.value().is_some() && value.reference().is_none());
    }
}
