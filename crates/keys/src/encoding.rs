//! Encodings of RSA signatures (RFC 8017, section 9) and of ECDSA signatures. Hashes are computed
//! by the caller's library.

use crate::Operand;

/// Computes the hash of some parts, one after the other, into the second argument; `None` if it
/// cannot.
pub type Hash<'a> = dyn FnMut(&[&[u8]], &mut [u8]) -> Option<()> + 'a;

/// The DER encoding of DigestInfo up to the hash (RFC 8017 section 9.2, note 1).
pub mod digest_info {
    /// The encoding for SHA-1.
    pub static SHA1: &[u8] = b"\x30\x21\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00\x04\x14";
    /// The encoding for SHA-224.
    pub static SHA224: &[u8] =
        b"\x30\x2d\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x04\x05\x00\x04\x1c";
    /// The encoding for SHA-256.
    pub static SHA256: &[u8] =
        b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";
    /// The encoding for SHA-384.
    pub static SHA384: &[u8] =
        b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30";
    /// The encoding for SHA-512.
    pub static SHA512: &[u8] =
        b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40";
}

/// EMSA-PKCS1-v1_5 (RFC 8017 section 9.2) for a modulus of `length` bytes: 00 01 FF..FF 00, `info`
/// and `hash`. `None` if that does not fit.
pub fn pkcs1(info: &[u8], hash: &[u8], length: usize) -> Option<Operand> {
    let padding = length
        .checked_sub(3 + info.len() + hash.len())
        .filter(|&bytes| bytes >= 8)?;
    let mut encoded = Operand::zeroed(length);
    let bytes = encoded.as_mut_slice();
    bytes[1] = 1;
    bytes[2..2 + padding].fill(0xff);
    let (place, tail) = bytes[3 + padding..].split_at_mut(info.len());
    place.copy_from_slice(info);
    tail.copy_from_slice(hash);
    Some(encoded)
}

/// EMSA-PSS (RFC 8017 section 9.1.1) for a modulus of `length` whole bytes whose top bit is set.
/// `mask_hash` is that of MGF1, and `mask_hash_bytes` its length. `None` if that does not fit, or
/// if a hash cannot be computed.
pub fn pss(
    hash: &[u8],
    salt: &[u8],
    length: usize,
    hash_parts: &mut Hash<'_>,
    mask_hash: &mut Hash<'_>,
    mask_hash_bytes: usize,
) -> Option<Operand> {
    let masked = length
        .checked_sub(hash.len() + 1)
        .filter(|&db| db > salt.len())?;
    let mut encoded = Operand::zeroed(length);
    let (db, tail) = encoded.as_mut_slice().split_at_mut(masked);
    let (hash_of_all, trailer) = tail.split_at_mut(hash.len());
    hash_parts(&[&[0; 8], hash, salt], hash_of_all)?;
    trailer[0] = 0xbc;
    let (padding, salt_in_db) = db.split_at_mut(masked - salt.len());
    padding[padding.len() - 1] = 1;
    salt_in_db.copy_from_slice(salt);
    mask(hash_of_all, db, mask_hash, mask_hash_bytes)?;
    db[0] &= 0x7f;
    Some(encoded)
}

/// The length in bytes of the longest ECDSA signature with numbers of `bytes` bytes.
pub fn longest_ecdsa(bytes: usize) -> usize {
    2 + 2 * (2 + 1 + bytes)
}

/// Writes r and s, of equal length, as `Ecdsa-Sig-Value` (RFC 3279 section 2.2.3) in DER, and
/// returns its length.
///
/// # Panics
/// If there is no room for it, or the lengths of r and s take more than one byte.
pub fn ecdsa(numbers: &[u8], signature: &mut [u8]) -> usize {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    let mut end = 2;
    for number in numbers.chunks_exact(numbers.len() / 2) {
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        let number = &number[zeros.min(number.len() - 1)..];
        // Numbers are signed: one whose highest bit is set would be negative.
        let sign = usize::from(number[0] >= 0x80);
        signature[end] = INTEGER;
        signature[end + 1] = short_length(sign + number.len());
        signature[end + 2] = 0;
        let start = end + 2 + sign;
        end = start + number.len();
        signature[start..end].copy_from_slice(number);
    }
    signature[0] = SEQUENCE;
    signature[1] = short_length(end - 2);
    end
}

/// MGF1 (RFC 8017 appendix B.2.1), added to `data`.
fn mask(seed: &[u8], data: &mut [u8], hash: &mut Hash<'_>, hash_bytes: usize) -> Option<()> {
    const LONGEST_HASH: usize = 64;
    for (counter, block) in (0_u32..).zip(data.chunks_mut(hash_bytes)) {
        let mut mask = [0; LONGEST_HASH];
        let mask = &mut mask[..block.len()];
        hash(&[seed, &counter.to_be_bytes()], mask)?;
        for (byte, mask) in block.iter_mut().zip(mask) {
            *byte ^= *mask;
        }
    }
    Some(())
}

/// A length of DER in the short form.
fn short_length(bytes: usize) -> u8 {
    assert!(bytes < 0x80, "a long length");
    bytes as u8
}

#[cfg(test)]
mod tests {
    use crate::ec::Curve;

    use super::*;

    #[test]
    fn pkcs1_lays_out_padding_prefix_and_hash() {
        let encoded = pkcs1(digest_info::SHA1, &[7; 20], 256).expect("fits");
        let bytes = encoded.as_slice();
        let padding = 256 - 3 - 15 - 20;
        assert_eq!(bytes[..2], [0, 1]);
        assert!(bytes[2..2 + padding].iter().all(|&byte| byte == 0xff));
        assert_eq!(bytes[2 + padding..][..3], [0, 0x30, 0x21]);
        assert_eq!(bytes[236..], [7; 20]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(pkcs1(&[], &[0; 245], 256).is_some());
        assert!(pkcs1(&[], &[0; 246], 256).is_none());
        let pss = |salt: usize, length| {
            let salt = vec![0; salt];
            let mut hash = |_: &[&[u8]], _: &mut [u8]| Some(());
            let mut mask = |_: &[&[u8]], _: &mut [u8]| Some(());
            super::pss(&[0; 64], &salt, length, &mut hash, &mut mask, 64).is_some()
        };
        assert!(pss(64, 130) && !pss(64, 129) && pss(0, 66) && !pss(0, 65));
    }

    #[test]
    fn a_hash_that_fails_is_no_encoding() {
        let mut fails = |_: &[&[u8]], _: &mut [u8]| None;
        let mut works = |_: &[&[u8]], _: &mut [u8]| Some(());
        assert!(pss(&[0; 32], &[0; 32], 256, &mut fails, &mut works, 32).is_none());
        assert!(pss(&[0; 32], &[0; 32], 256, &mut works, &mut fails, 32).is_none());
    }

    fn encoded(numbers: &[u8]) -> Vec<u8> {
        let mut signature = vec![0xaa; longest_ecdsa(48)];
        let length = ecdsa(numbers, &mut signature);
        signature[..length].to_vec()
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be_and_never_negative() {
        assert_eq!(encoded(&[1, 2, 3, 4]), [0x30, 8, 2, 2, 1, 2, 2, 2, 3, 4]);
        assert_eq!(
            encoded(&[0x80, 0, 0, 0x7f]),
            [0x30, 8, 2, 3, 0, 0x80, 0, 2, 1, 0x7f]
        );
        assert_eq!(encoded(&[0, 0xff, 0, 1]), [0x30, 7, 2, 2, 0, 0xff, 2, 1, 1]);
        assert_eq!(encoded(&[0, 0xff, 0, 0]), [0x30, 7, 2, 2, 0, 0xff, 2, 1, 0]);
    }

    #[test]
    fn the_longest_signature_is_as_long_as_openssl_says() {
        for (curve, bytes) in [(Curve::P256, 72), (Curve::P384, 104)] {
            assert_eq!(longest_ecdsa(curve.bytes()), bytes);
            assert_eq!(encoded(&vec![0xff; 2 * curve.bytes()]).len(), bytes);
        }
    }
}
