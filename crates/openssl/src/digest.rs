//! The digests for which signatures are encoded, and their names in OpenSSL.

use std::ffi::CStr;

/// Room for the name of a digest (`OSSL_MAX_NAME_SIZE`).
pub(crate) const NAME_BYTES: usize = 50;

/// The longest digest in bytes.
pub(crate) const LONGEST: usize = 64;

/// A digest for which signatures are encoded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Md5Sha1,
}

impl Digest {
    pub(crate) const ALL: [Digest; 6] = [
        Self::Sha1,
        Self::Sha224,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
        Self::Md5Sha1,
    ];

    /// The digest that has `name` in OpenSSL; case does not matter.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|digest| {
            digest
                .names()
                .iter()
                .any(|known| known.to_bytes().eq_ignore_ascii_case(name))
        })
    }

    /// The length of a hash in bytes.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Md5Sha1 => 36,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The first name of the digest in OpenSSL, for fetches.
    pub(crate) fn name(self) -> &'static CStr {
        self.names()[0]
    }

    fn names(self) -> &'static [&'static CStr] {
        match self {
            Self::Sha1 => &[c"SHA1", c"SHA-1"],
            Self::Sha224 => &[c"SHA2-224", c"SHA224", c"SHA-224"],
            Self::Sha256 => &[c"SHA2-256", c"SHA256", c"SHA-256"],
            Self::Sha384 => &[c"SHA2-384", c"SHA384", c"SHA-384"],
            Self::Sha512 => &[c"SHA2-512", c"SHA512", c"SHA-512"],
            Self::Md5Sha1 => &[c"MD5-SHA1"],
        }
    }
}
