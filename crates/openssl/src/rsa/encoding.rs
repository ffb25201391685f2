//! Encodings of hashes for signatures, as OpenSSL makes them: EMSA-PKCS1-v1_5, EMSA-PSS, and the
//! bare type-1 padding for a signature without a digest.

use std::ffi::c_int;

use slipstream_keys::Operand;
use slipstream_keys::encoding::{self, digest_info};
use zeroize::Zeroizing;

use crate::digest::{Digest, NAME_BYTES};
use crate::ffi::{RSA_PKCS1_PADDING, RSA_PKCS1_PSS_PADDING};
use crate::hasher::Hashes;
use crate::loaded::LoadedRef;
use crate::param::Lent;

/// The encoding that a signature context of the default provider would use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// EMSA-PKCS1-v1_5, or without a digest its padding round the caller's bytes.
    Pkcs1 { digest: Option<Digest> },
    /// EMSA-PSS. The salt length is a number of bytes or, if it is negative, one of OpenSSL's
    /// rules.
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
    /// Reads the encoding from a context of the default provider, which has checked the parameters.
    /// `None` if only the default provider has this encoding.
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
                let mut salt = Zeroizing::new([0; slipstream_keys::OPERAND_BYTES]);
                let salt = &mut salt[..salt_length];
                getrandom::fill(salt).ok()?;
                encode_pss(loaded, digest, mask_digest, hash, salt, length)
            }
        }
    }
}

fn encode_pkcs1(digest: Option<Digest>, hash: &[u8], length: usize) -> Option<Operand> {
    if digest.is_some_and(|digest| digest.length() != hash.len()) {
        return None;
    }
    encoding::pkcs1(digest.map_or(&[][..], info), hash, length)
}

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
    let mut hashes = Hashes::new(loaded, digest)?;
    let mut mask_hashes = Hashes::new(loaded, mask_digest)?;
    encoding::pss(
        hash,
        salt,
        length,
        &mut |parts, output| hashes.hash(parts, output),
        &mut |parts, output| mask_hashes.hash(parts, output),
        mask_digest.length(),
    )
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

/// The bytes of DigestInfo before the hash. MD5-SHA1, of TLS 1.1 and older, has none.
fn info(digest: Digest) -> &'static [u8] {
    match digest {
        Digest::Md5Sha1 => &[],
        Digest::Sha1 => digest_info::SHA1,
        Digest::Sha224 => digest_info::SHA224,
        Digest::Sha256 => digest_info::SHA256,
        Digest::Sha384 => digest_info::SHA384,
        Digest::Sha512 => digest_info::SHA512,
    }
}

/// The text in `buffer`, up to the first NUL.
fn text(buffer: &[u8]) -> &[u8] {
    buffer.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_of_the_wrong_length_is_refused() {
        assert!(encode_pkcs1(Some(Digest::Sha256), &[0; 31], 256).is_none());
        assert!(encode_pkcs1(Some(Digest::Sha256), &[0; 32], 256).is_some());
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
