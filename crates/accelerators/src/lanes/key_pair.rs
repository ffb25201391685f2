//! Key pairs with random private keys, up to eight at once.

use std::io;

use arrayvec::ArrayVec;
use slipstream_keys::Group;
use slipstream_lanes::{Backend, LANES, Outcomes, ec, x25519};

/// Room for a key pair, as in a [`KeyPair`](slipstream_keys::KeyPair).
pub(super) struct Room<'a> {
    /// [`Group::private_bytes`].
    pub(super) private: &'a mut [u8],
    /// [`Group::public_bytes`].
    pub(super) public: &'a mut [u8],
}

/// Makes one to eight key pairs by rejection sampling (FIPS 186-5, appendix A.2.2). Each succeeds
/// all but once in 2^32 times. The bytes in the room of the others are no key pair.
///
/// # Errors
/// If the system's generator fails. Then nothing is a key pair.
///
/// # Panics
/// If there are no or more than eight, if `backend` does not compute in `group`, or if there is
/// more or less room than `group` asks for.
pub(super) fn generate(
    backend: Backend,
    group: Group,
    rooms: &mut [Room<'_>],
) -> io::Result<Outcomes> {
    for room in &mut *rooms {
        draw(room.private)?;
    }
    let Some(curve) = group.curve() else {
        return Ok(generate_x25519(backend, rooms));
    };
    let mut operations: ArrayVec<ec::PublicKey<'_>, LANES> = rooms
        .iter_mut()
        .map(|room| ec::PublicKey {
            private: room.private,
            public: room.public,
        })
        .collect();
    Ok(ec::public_keys(backend, curve, &mut operations))
}

fn generate_x25519(backend: Backend, rooms: &mut [Room<'_>]) -> Outcomes {
    const LENGTH: &str = "as long as a key";
    let mut operations: ArrayVec<x25519::PublicKey<'_>, LANES> = rooms
        .iter_mut()
        .map(|room| {
            // Clamped as in RFC 7748, section 5, so that an exported key is the one that OpenSSL
            // would have stored.
            room.private[0] &= 248;
            room.private[31] = room.private[31] & 127 | 64;
            x25519::PublicKey {
                private: (&*room.private).try_into().expect(LENGTH),
                public: (&mut *room.public).try_into().expect(LENGTH),
            }
        })
        .collect();
    x25519::public_keys(backend, &mut operations)
}

/// Fills `bytes` from the system's random generator.
///
/// # Errors
/// If the system's generator fails.
pub fn draw(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}
