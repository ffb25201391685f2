//! Encoding a hash for a signature (RFC 8017 section 9): EMSA-PKCS1-v1_5 and EMSA-PSS, and the
//! bare type-1 padding that OpenSSL uses where no digest is named.

use std::ffi::c_int;

use slipstream_offload::request::Operand;
use zeroize::Zeroizing;

use crate::digest::{Digest, Hashes, LONGEST, NAME_BYTES};
use crate::ffi::{RSA_PKCS1_PADDING, RSA_PKCS1_PSS_PADDING};
use crate::param::Lent;
use crate::provider::LoadedRef;

/// How a signature context of the default provider would encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// EMSA-PKCS1-v1_5, or its padding round the caller's own bytes.
    Pkcs1 { digest: Option<Digest> },
    /// EMSA-PSS. The salt length is a number of bytes or, if negative, one of OpenSSL's rules.
    Pss {
        digest: Digest,
        mask_digest: Digest,
        salt_length: c_int,
    },
}

/// `RSA_PSS_SALTLEN_DIGEST`: as long as the hash.
const SALT_LENGTH_DIGEST: c_int = -1;
/// `RSA_PSS_SALTLEN_AUTO`: as long as possible, when signing.
const SALT_LENGTH_AUTO: c_int = -2;
/// `RSA_PSS_SALTLEN_MAX`: as long as possible.
const SALT_LENGTH_MAX: c_int = -3;
/// `RSA_PSS_SALTLEN_AUTO_DIGEST_MAX`: as long as the hash, or as possible if that is less.
const SALT_LENGTH_AUTO_DIGEST_MAX: c_int = -4;

impl Scheme {
    /// Reads it back from a context of the default provider, which has checked all of it. `None`
    /// if only the default provider knows how to encode that.
    ///
    /// # Safety
    /// `context` must be an initialised signature context of the default provider.
    pub(super) unsafe fn of(loaded: LoadedRef, context: *mut std::ffi::c_void) -> Option<Self> {
        let mut pad_mode = 0;
        let mut salt_length = 0;
        let mut digest = [0; NAME_BYTES];
        let mut mask_digest = [0; NAME_BYTES];
        let mut params = [
            Lent::integer(c"pad-mode", &mut pad_mode),
            Lent::integer(c"saltlen", &mut salt_length),
            Lent::text(c"digest", &mut digest),
            Lent::text(c"mgf1-digest", &mut mask_digest),
            Lent::END,
        ];
        // SAFETY: the caller's promise; an array that ends with a null key.
        let read = unsafe {
            (loaded.default.rsa.signature.get_ctx_params)(context, Lent::as_mut_ptr(&mut params))
        };
        if read != 1 {
            return None;
        }
        let digest = text(&digest);
        match pad_mode {
            RSA_PKCS1_PADDING if digest.is_empty() => Some(Self::Pkcs1 { digest: None }),
            RSA_PKCS1_PADDING => Some(Self::Pkcs1 {
                digest: Some(Digest::from_name(digest)?),
            }),
            RSA_PKCS1_PSS_PADDING => {
                let mask_digest = match text(&mask_digest) {
                    [] => digest,
                    other => other,
                };
                Some(Self::Pss {
                    digest: Digest::from_name(digest)?,
                    mask_digest: Digest::from_name(mask_digest)?,
                    salt_length,
                })
            }
            _ => None,
        }
    }

    /// Encodes `hash` for a modulus of `length` whole bytes whose top bit is set. `None` if the
    /// default provider would refuse it, or if the system has no random bytes.
    pub(super) fn encode(self, loaded: LoadedRef, hash: &[u8], length: usize) -> Option<Operand> {
        match self {
            Self::Pkcs1 { digest } => encode_pkcs1(digest, hash, length),
            Self::Pss {
                digest,
                mask_digest,
                salt_length,
            } => {
                let salt_length = salt_bytes(salt_length, digest, length)?;
                let mut salt = Zeroizing::new([0; slipstream_offload::request::OPERAND_BYTES]);
                let salt = &mut salt[..salt_length];
                getrandom::fill(salt).ok()?;
                encode_pss(loaded, digest, mask_digest, hash, salt, length)
            }
        }
    }
}

/// RFC 8017 section 9.2: 00 01 FF..FF 00 and the DigestInfo.
fn encode_pkcs1(digest: Option<Digest>, hash: &[u8], length: usize) -> Option<Operand> {
    if digest.is_some_and(|digest| digest.length() != hash.len()) {
        return None;
    }
    let prefix = digest.map_or(&[][..], digest_info_prefix);
    let padding = length
        .checked_sub(3 + prefix.len() + hash.len())
        .filter(|&bytes| bytes >= 8)?;
    let mut encoded = Operand::zeroed(length);
    let bytes = encoded.as_mut_slice();
    bytes[1] = 1;
    bytes[2..2 + padding].fill(0xff);
    let (info, tail) = bytes[3 + padding..].split_at_mut(prefix.len());
    info.copy_from_slice(prefix);
    tail.copy_from_slice(hash);
    Some(encoded)
}

/// RFC 8017 section 9.1.1, for emBits = 8 * length - 1.
fn encode_pss(
    loaded: LoadedRef,
    digest: Digest,
    mask_digest: Digest,
    hash: &[u8],
    salt: &[u8],
    length: usize,
) -> Option<Operand> {
    if hash.len() != digest.length() {
        return None;
    }
    let masked = length
        .checked_sub(digest.length() + 1)
        .filter(|&db| db > salt.len())?;
    let mut encoded = Operand::zeroed(length);
    let (db, tail) = encoded.as_mut_slice().split_at_mut(masked);
    let (digest_of_all, trailer) = tail.split_at_mut(digest.length());
    Hashes::new(loaded, digest)?.hash(&[&[0; 8], hash, salt], digest_of_all)?;
    trailer[0] = 0xbc;
    let (padding, salt_in_db) = db.split_at_mut(masked - salt.len());
    padding[padding.len() - 1] = 1;
    salt_in_db.copy_from_slice(salt);
    mask(loaded, mask_digest, digest_of_all, db)?;
    db[0] &= 0x7f;
    Some(encoded)
}

/// MGF1 (RFC 8017 appendix B.2.1), added to `data`.
fn mask(loaded: LoadedRef, digest: Digest, seed: &[u8], data: &mut [u8]) -> Option<()> {
    let mut hashes = Hashes::new(loaded, digest)?;
    for (counter, block) in (0_u32..).zip(data.chunks_mut(digest.length())) {
        let mut mask = [0; LONGEST];
        let mask = &mut mask[..block.len()];
        hashes.hash(&[seed, &counter.to_be_bytes()], mask)?;
        block
            .iter_mut()
            .zip(mask)
            .for_each(|(byte, mask)| *byte ^= *mask);
    }
    Some(())
}

fn salt_bytes(rule: c_int, digest: Digest, length: usize) -> Option<usize> {
    let most = length.checked_sub(digest.length() + 2)?;
    let bytes = match rule {
        SALT_LENGTH_DIGEST => digest.length(),
        SALT_LENGTH_AUTO | SALT_LENGTH_MAX => most,
        SALT_LENGTH_AUTO_DIGEST_MAX => most.min(digest.length()),
        _ => usize::try_from(rule).ok()?,
    };
    (bytes <= most).then_some(bytes)
}

/// The DER encoding of DigestInfo up to the hash (RFC 8017 section 9.2, note 1). MD5-SHA1, of TLS
/// 1.1 and older, has none.
fn digest_info_prefix(digest: Digest) -> &'static [u8] {
    match digest {
        Digest::Md5Sha1 => &[],
        Digest::Sha1 => b"\x30\x21\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00\x04\x14",
        Digest::Sha224 => {
            b"\x30\x2d\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x04\x05\x00\x04\x1c"
        }
        Digest::Sha256 => {
            b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"
        }
        Digest::Sha384 => {
            b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"
        }
        Digest::Sha512 => {
            b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"
        }
    }
}

/// Up to the first NUL.
fn text(buffer: &[u8]) -> &[u8] {
    buffer.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkcs1_refuses_a_hash_of_the_wrong_length_and_one_that_does_not_fit() {
        assert!(encode_pkcs1(Some(Digest::Sha256), &[0; 31], 256).is_none());
        assert!(encode_pkcs1(None, &[0; 245], 256).is_some());
        assert!(encode_pkcs1(None, &[0; 246], 256).is_none());
    }

    #[test]
    fn pkcs1_lays_out_padding_prefix_and_hash() {
        let encoded = encode_pkcs1(Some(Digest::Sha1), &[7; 20], 256).expect("fits");
        let bytes = encoded.as_slice();
        let padding = 256 - 3 - 15 - 20;
        assert_eq!(bytes[..2], [0, 1]);
        assert!(bytes[2..2 + padding].iter().all(|&byte| byte == 0xff));
        assert_eq!(bytes[2 + padding..][..3], [0, 0x30, 0x21]);
        assert_eq!(bytes[236..], [7; 20]);
    }

    #[test]
    fn salt_lengths_follow_the_rules_of_openssl() {
        let most = 256 - 32 - 2;
        let salt = |rule| salt_bytes(rule, Digest::Sha256, 256);
        assert_eq!(
            [-1, -2, -3, -4].map(salt),
            [Some(32), Some(most), Some(most), Some(32)]
        );
        assert_eq!(
            [0, 20, most as c_int].map(salt),
            [Some(0), Some(20), Some(most)]
        );
        assert_eq!([-5, most as c_int + 1].map(salt), [None, None]);
    }
}
