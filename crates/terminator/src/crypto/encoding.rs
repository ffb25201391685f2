//! Encodings between a message and a private-key operation: for RSA (RFC 8017, section
//! 9), digests for ECDSA, and the form of its signatures.

use aws_lc_rs::digest::{self, Algorithm, Context, SHA256, SHA384, SHA512};
use aws_lc_rs::rand;
use rustls::SignatureScheme;
use slipstream_keys::Operand;
use slipstream_keys::ec::Curve;
use slipstream_keys::encoding::{self, digest_info};

/// The RSA schemes, the preferred first, as rustls' own keys have them.
pub(super) static RSA_SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// The one scheme of TLS 1.3 for keys on `curve` (RFC 8446, section 4.2.3).
pub(super) fn ecdsa_scheme(curve: Curve) -> SignatureScheme {
    match curve {
        Curve::P256 => SignatureScheme::ECDSA_NISTP256_SHA256,
        Curve::P384 => SignatureScheme::ECDSA_NISTP384_SHA384,
    }
}

/// The digest of a message that [`ecdsa_scheme`] signs.
pub(super) fn ecdsa_digest(curve: Curve, message: &[u8]) -> digest::Digest {
    let algorithm = match curve {
        Curve::P256 => &SHA256,
        Curve::P384 => &SHA384,
    };
    digest::digest(algorithm, message)
}

/// r and s, of equal length, as `Ecdsa-Sig-Value` (RFC 3279, section 2.2.3) in DER.
///
/// # Panics
/// If a length takes more than one byte.
pub(super) fn ecdsa_signature(numbers: &[u8]) -> Vec<u8> {
    let mut signature = vec![0; encoding::longest_ecdsa(numbers.len() / 2)];
    let length = encoding::ecdsa(numbers, &mut signature);
    signature.truncate(length);
    signature
}

/// An encoding of messages for RSA signatures.
#[derive(Clone, Copy, Debug)]
pub(super) struct RsaEncoding {
    padding: Padding,
    algorithm: &'static Algorithm,
}

#[derive(Clone, Copy, Debug)]
enum Padding {
    /// EMSA-PKCS1-v1_5, with the DER encoding of DigestInfo up to the hash (RFC 8017, section 9.2,
    /// note 1).
    Pkcs1(&'static [u8]),
    /// EMSA-PSS, with MGF1, the same hash, and a salt as long as it (RFC 8446, section 4.2.3).
    Pss,
}

impl RsaEncoding {
    /// `None` if `scheme` is not for RSA.
    pub(super) fn of(scheme: SignatureScheme) -> Option<Self> {
        let (padding, algorithm) = match scheme {
            SignatureScheme::RSA_PSS_SHA256 => (Padding::Pss, &SHA256),
            SignatureScheme::RSA_PSS_SHA384 => (Padding::Pss, &SHA384),
            SignatureScheme::RSA_PSS_SHA512 => (Padding::Pss, &SHA512),
            SignatureScheme::RSA_PKCS1_SHA256 => (Padding::Pkcs1(digest_info::SHA256), &SHA256),
            SignatureScheme::RSA_PKCS1_SHA384 => (Padding::Pkcs1(digest_info::SHA384), &SHA384),
            SignatureScheme::RSA_PKCS1_SHA512 => (Padding::Pkcs1(digest_info::SHA512), &SHA512),
            _ => return None,
        };
        Some(Self { padding, algorithm })
    }

    /// Encodes `message` for a modulus of `length` whole bytes whose top bit is set. `None` if it
    /// does not fit, or if the system has no random bytes.
    pub(super) fn encode(self, message: &[u8], length: usize) -> Option<Operand> {
        let hash = digest::digest(self.algorithm, message);
        match self.padding {
            Padding::Pkcs1(info) => encoding::pkcs1(info, hash.as_ref(), length),
            Padding::Pss => {
                let mut salt = [0; digest::MAX_OUTPUT_LEN];
                let salt = &mut salt[..hash.as_ref().len()];
                rand::fill(salt).ok()?;
                let mut hash_parts = |parts: &[&[u8]], output: &mut [u8]| {
                    output.copy_from_slice(
                        &digest_of(self.algorithm, parts).as_ref()[..output.len()],
                    );
                    Some(())
                };
                let mut mask_hash = hash_parts;
                let mask_hash_bytes = hash.as_ref().len();
                encoding::pss(
                    hash.as_ref(),
                    salt,
                    length,
                    &mut hash_parts,
                    &mut mask_hash,
                    mask_hash_bytes,
                )
            }
        }
    }
}

fn digest_of(algorithm: &'static Algorithm, parts: &[&[u8]]) -> digest::Digest {
    let mut context = Context::new(algorithm);
    for part in parts {
        context.update(part);
    }
    context.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let fits = |scheme, length| {
            let encoding = RsaEncoding::of(scheme).expect("a scheme of RSA");
            encoding.encode(b"message", length).is_some()
        };
        assert!(fits(SignatureScheme::RSA_PKCS1_SHA256, 62));
        assert!(!fits(SignatureScheme::RSA_PKCS1_SHA256, 61));
        assert!(fits(SignatureScheme::RSA_PSS_SHA512, 130));
        assert!(!fits(SignatureScheme::RSA_PSS_SHA512, 129));
    }

    #[test]
    fn salts_differ() {
        let encoding = RsaEncoding::of(SignatureScheme::RSA_PSS_SHA256).expect("a scheme of RSA");
        let encode = || encoding.encode(b"message", 256).expect("room");
        assert_ne!(encode().as_slice(), encode().as_slice());
    }

    #[test]
    fn every_rsa_scheme_has_an_encoding_and_no_other() {
        assert!(
            RSA_SCHEMES
                .into_iter()
                .all(|scheme| RsaEncoding::of(scheme).is_some())
        );
        assert!(RsaEncoding::of(ecdsa_scheme(Curve::P256)).is_none());
    }
}
