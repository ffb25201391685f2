//! Key pairs with random private keys, up to eight at once.

use std::io;

use arrayvec::ArrayVec;
use slipstream_lanes::ec::{self, Curve};
use slipstream_lanes::{Backend, LANES, x25519};

use crate::request::Operand;

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
    pub fn private_bytes(self) -> usize {
        self.curve().map_or(x25519::KEY_BYTES, Curve::bytes)
    }

    /// Length of a public key in bytes.
    pub fn public_bytes(self) -> usize {
        self.curve().map_or(x25519::KEY_BYTES, Curve::point_bytes)
    }

    /// Whether `backend` computes in this group.
    pub fn is_offered(self, backend: Backend) -> bool {
        match self.curve() {
            None => x25519::offered(backend),
            Some(_) => ec::offered(backend),
        }
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

/// Room for a [`KeyPair`].
pub(crate) struct Room<'a> {
    /// [`Group::private_bytes`].
    pub(crate) private: &'a mut [u8],
    /// [`Group::public_bytes`].
    pub(crate) public: &'a mut [u8],
}

/// Makes one to eight key pairs by rejection sampling (FIPS 186-5, appendix A.2.2), and tells for each whether it is one:
/// all but once in 2^32 times. What is in the room of the others is no key pair.
///
/// # Errors
/// If the system's generator fails. Then nothing is a key pair.
///
/// # Panics
/// If there are no or more than eight, if `backend` does not compute in `group`, or if there is more or less room than
/// `group` asks for.
pub(crate) fn generate(
    backend: Backend,
    group: Group,
    rooms: &mut [Room<'_>],
) -> io::Result<ArrayVec<bool, LANES>> {
    for room in &mut *rooms {
        draw(room.private)?;
    }
    let Some(curve) = group.curve() else {
        generate_x25519(backend, rooms);
        return Ok(rooms.iter().map(|_| true).collect());
    };
    let mut operations: ArrayVec<ec::PublicKey<'_>, LANES> = rooms
        .iter_mut()
        .map(|room| ec::PublicKey {
            private: room.private,
            public: room.public,
        })
        .collect();
    let outcomes = ec::public_keys(backend, curve, &mut operations);
    Ok(outcomes.iter().map(Result::is_ok).collect())
}

fn generate_x25519(backend: Backend, rooms: &mut [Room<'_>]) {
    const LENGTH: &str = "as long as a key";
    let mut operations: ArrayVec<x25519::PublicKey<'_>, LANES> = rooms
        .iter_mut()
        .map(|room| {
            // As RFC 7748 section 5 decodes it: whoever exports the key finds what OpenSSL would have stored.
            room.private[0] &= 248;
            room.private[31] = room.private[31] & 127 | 64;
            x25519::PublicKey {
                private: (&*room.private).try_into().expect(LENGTH),
                public: (&mut *room.public).try_into().expect(LENGTH),
            }
        })
        .collect();
    x25519::public_keys(backend, &mut operations);
}

/// Random bytes of the system's generator.
pub(crate) fn draw(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
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
}
