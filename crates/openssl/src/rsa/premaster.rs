//! The premaster secret of TLS 1.2's RSA key exchange, unpadded without an oracle.

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// Bytes of a premaster secret (`SSL_MAX_MASTER_KEY_LENGTH`).
pub(super) const SECRET_BYTES: usize = 48;

/// The versions that a premaster secret may begin with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Versions {
    /// The version that the client offered.
    pub(super) client: u16,
    /// The negotiated version, if clients that send it instead are tolerated
    /// (`SSL_OP_TLS_ROLLBACK_BUG`).
    pub(super) negotiated: Option<u16>,
}

/// Replaces the random bytes in `secret` by the premaster secret of a decrypted block of type 2
/// (RFC 8017, section 7.2.2), if padding, length and version are right. Nothing shows if they are:
/// time and memory accesses depend only on the length of `block` (RFC 5246, section 7.4.7.1).
///
/// # Panics
/// If `block` is shorter than a padded secret.
pub(super) fn select(block: &[u8], versions: Versions, secret: &mut [u8; SECRET_BYTES]) {
    let (padding, decrypted) = block.split_at(block.len() - SECRET_BYTES);
    let [first, kind, filling @ .., separator] = padding else {
        panic!("a block has two bytes before and one after its padding");
    };
    let mut good = first.ct_eq(&0) & kind.ct_eq(&2) & separator.ct_eq(&0);
    for byte in filling {
        good &= !byte.ct_eq(&0);
    }
    good &= is_version(decrypted, versions.client)
        | versions
            .negotiated
            .map_or(Choice::from(0), |version| is_version(decrypted, version));
    for (byte, decrypted) in secret.iter_mut().zip(decrypted) {
        byte.conditional_assign(decrypted, good);
    }
}

fn is_version(secret: &[u8], version: u16) -> Choice {
    let [major, minor] = version.to_be_bytes();
    secret[0].ct_eq(&major) & secret[1].ct_eq(&minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: [u8; SECRET_BYTES] = [0xa5; SECRET_BYTES];
    const TLS12: Versions = Versions {
        client: 0x0303,
        negotiated: None,
    };

    fn block() -> [u8; 256] {
        let mut block = [0x77; 256];
        block[..2].copy_from_slice(&[0, 2]);
        block[256 - SECRET_BYTES - 1] = 0;
        block[256 - SECRET_BYTES..][..2].copy_from_slice(&[3, 3]);
        block
    }

    fn selected(block: &[u8], versions: Versions) -> [u8; SECRET_BYTES] {
        let mut secret = RANDOM;
        select(block, versions, &mut secret);
        secret
    }

    fn secret(block: &[u8]) -> &[u8] {
        &block[block.len() - SECRET_BYTES..]
    }

    #[test]
    fn a_good_block_gives_its_secret() {
        assert_eq!(selected(&block(), TLS12), secret(&block()));
    }

    #[test]
    fn every_damaged_byte_of_the_padding_gives_the_random_secret() {
        for position in 0..256 - SECRET_BYTES + 2 {
            let mut damaged = block();
            let filling = (2..256 - SECRET_BYTES - 1).contains(&position);
            damaged[position] = if filling { 0 } else { damaged[position] ^ 0x10 };
            assert_eq!(selected(&damaged, TLS12), RANDOM, "byte {position}");
        }
    }

    #[test]
    fn the_negotiated_version_counts_only_where_it_is_tolerated() {
        let old = Versions {
            client: 0x0304,
            negotiated: None,
        };
        assert_eq!(selected(&block(), old), RANDOM);
        let tolerated = Versions {
            negotiated: Some(0x0303),
            ..old
        };
        assert_eq!(selected(&block(), tolerated), secret(&block()));
    }
}
