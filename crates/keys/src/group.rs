//! Groups for key exchange, and key pairs in them.

use crate::Operand;
use crate::ec::Curve;

/// Length of an X25519 private key, public key and shared secret in bytes (RFC 7748).
pub(crate) const X25519_BYTES: usize = 32;

/// A group in which keys are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// X25519 (RFC 7748).
    X25519,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
}

impl Group {
    /// Every group, in the order of [`Group::index`].
    pub const ALL: [Group; 3] = [Group::X25519, Group::P256, Group::P384];

    /// Position in tables that hold one entry per group.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The NIST curve; `None` for X25519.
    pub const fn curve(self) -> Option<Curve> {
        match self {
            Group::X25519 => None,
            Group::P256 => Some(Curve::P256),
            Group::P384 => Some(Curve::P384),
        }
    }

    /// Length of a private key in bytes.
    pub const fn private_bytes(self) -> usize {
        match self.curve() {
            None => X25519_BYTES,
            Some(curve) => curve.bytes(),
        }
    }

    /// Length of a public key in bytes.
    pub const fn public_bytes(self) -> usize {
        match self.curve() {
            None => X25519_BYTES,
            Some(curve) => curve.point_bytes(),
        }
    }

    /// Length of a shared secret in bytes.
    pub const fn secret_bytes(self) -> usize {
        self.private_bytes()
    }
}

/// An ephemeral key pair.
#[derive(Debug)]
pub struct KeyPair {
    /// X25519: 32 bytes, clamped. A curve: the scalar, big-endian, as long as the order.
    pub private: Operand,
    /// X25519: 32 bytes. A curve: the uncompressed point (SEC 1, section 2.3.3).
    pub public: Operand,
}

impl KeyPair {
    /// The pair in `bytes`, private key first; `None` unless they are as long as a pair of `group`.
    pub fn from_bytes(group: Group, bytes: &[u8]) -> Option<Self> {
        let (private, public) = bytes.split_at_checked(group.private_bytes())?;
        (public.len() == group.public_bytes()).then(|| Self {
            private: Operand::new(private),
            public: Operand::new(public),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_group_is_its_place() {
        for (place, group) in Group::ALL.into_iter().enumerate() {
            assert_eq!(group.index(), place, "{group:?}");
        }
    }

    #[test]
    fn a_pair_is_as_long_as_its_group_says() {
        let bytes: Vec<u8> = (0..97).collect();
        let pair = KeyPair::from_bytes(Group::P256, &bytes).expect("32 and 65 bytes");
        assert_eq!(pair.private.as_slice(), &bytes[..32]);
        assert_eq!(pair.public.as_slice(), &bytes[32..]);
        assert!(KeyPair::from_bytes(Group::P256, &bytes[1..]).is_none());
        assert!(KeyPair::from_bytes(Group::X25519, &bytes[..31]).is_none());
    }
}
