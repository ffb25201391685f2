//! The uses of a private key that its owner allows.

use std::ops::BitOr;

/// The uses of an RSA key that an engine computes for those who may use it. A key on a curve signs
/// digests, whatever its policy is.
///
/// A key that only signs is used with complete encodings of digests, and with nothing else. So a
/// client that is taken over can sign while it lives, but cannot decrypt what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy(u8);

impl Policy {
    /// Signatures with EMSA-PKCS1-v1_5 (RFC 8017, section 9.2) over SHA-1 and SHA-2, and over MD5
    /// with SHA-1, as TLS 1.0 has it (RFC 4346, section 7.4.3).
    pub const PKCS1: Self = Self(1);
    /// Signatures with EMSA-PSS (RFC 8017, section 9.1) as in TLS 1.3: over SHA-256, SHA-384 and
    /// SHA-512, with MGF1 over the same hash and a salt as long as it (RFC 8446, section 4.2.3).
    pub const PSS: Self = Self(2);
    /// Signatures of every kind.
    pub const SIGNATURES: Self = Self(Self::PKCS1.0 | Self::PSS.0);
    /// The private exponentiation of any residue, which decrypts: for TLS 1.2 with RSA key exchange,
    /// and for an owner that has the key itself.
    pub const ANYTHING: Self = Self(4 | Self::SIGNATURES.0);

    /// Returns true if all uses in `other` are allowed.
    pub fn allows(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn byte(self) -> u8 {
        self.0
    }

    /// Reads what [`byte`](Self::byte) has written; `None` if it cannot be.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        let is_possible = byte != 0 && Self::ANYTHING.0 & byte == byte;
        let policy = is_possible.then_some(Self(byte))?;
        // Whoever may exponentiate may sign.
        (byte & 4 == 0 || policy == Self::ANYTHING).then_some(policy)
    }
}

impl BitOr for Policy {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_one_byte_and_no_other() {
        let known: Vec<u8> = (0..=255)
            .filter(|byte| Policy::from_byte(*byte).is_some())
            .collect();
        assert_eq!(known, [1, 2, 3, 7]);
        for byte in known {
            assert_eq!(Policy::from_byte(byte).map(Policy::byte), Some(byte));
        }
    }

    #[test]
    fn what_signs_does_not_decrypt() {
        assert!(Policy::ANYTHING.allows(Policy::PSS));
        assert!(!Policy::SIGNATURES.allows(Policy::ANYTHING));
        assert!(!Policy::PKCS1.allows(Policy::PSS));
        assert!((Policy::PKCS1 | Policy::PSS).allows(Policy::SIGNATURES));
    }
}
