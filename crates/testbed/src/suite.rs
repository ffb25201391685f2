//! Kinds of TLS handshakes that a port can be restricted to.

/// One kind of full handshake: the version, cipher, group and key that client and server are
/// restricted to. Adding one is one entry in [`SUITES`].
#[derive(Debug)]
pub struct Suite {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// A description in one line.
    pub description: &'static str,
    /// The only protocol version offered and accepted.
    pub protocol: Protocol,
    /// The only cipher suite.
    pub cipher: &'static Cipher,
    /// The only key exchange group. RSA key exchange has none.
    pub group: Option<Group>,
    /// The server's key.
    pub key: KeyType,
}

/// A TLS protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// A cipher suite with AES-GCM (RFC 5288, RFC 8446 section B.4).
#[derive(Debug, PartialEq, Eq)]
pub struct Cipher {
    /// OpenSSL's name for it, which nginx takes too.
    pub name: &'static str,
    /// Its number on the wire.
    pub number: u16,
    /// The length of the AES key in bytes.
    pub key_length: usize,
    /// The hash of the transcript and the key derivation.
    pub hash: Hash,
}

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

/// A group for the key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// X25519 (RFC 7748).
    X25519,
    /// X25519 and ML-KEM-768 side by side (draft-ietf-tls-ecdhe-mlkem), in TLS 1.3 only.
    X25519MlKem768,
    /// P-256, secp256r1 (FIPS 186-4 section D.1.2.3).
    P256,
    /// P-384, secp384r1 (FIPS 186-4 section D.1.2.4).
    P384,
}

/// The type and size of a server's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// ECDSA with P-256.
    EcdsaP256,
    /// ECDSA with P-384.
    EcdsaP384,
}

const AES128_GCM_SHA256: Cipher = Cipher {
    name: "AES128-GCM-SHA256",
    number: 0x009c,
    key_length: 16,
    hash: Hash::Sha256,
};

const ECDHE_RSA_AES128_GCM_SHA256: Cipher = Cipher {
    name: "ECDHE-RSA-AES128-GCM-SHA256",
    number: 0xc02f,
    key_length: 16,
    hash: Hash::Sha256,
};

const ECDHE_ECDSA_AES128_GCM_SHA256: Cipher = Cipher {
    name: "ECDHE-ECDSA-AES128-GCM-SHA256",
    number: 0xc02b,
    key_length: 16,
    hash: Hash::Sha256,
};

const TLS_AES_256_GCM_SHA384: Cipher = Cipher {
    name: "TLS_AES_256_GCM_SHA384",
    number: 0x1302,
    key_length: 32,
    hash: Hash::Sha384,
};

/// All suites.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "tls12-rsakx",
        description: "TLS 1.2, RSA-2048 key exchange, AES-128-GCM",
        protocol: Protocol::Tls12,
        cipher: &AES128_GCM_SHA256,
        group: None,
        key: KeyType::Rsa2048,
    },
    Suite {
        name: "tls12-ecdhe-rsa-x25519",
        description: "TLS 1.2, X25519 signed with RSA-2048, AES-128-GCM",
        protocol: Protocol::Tls12,
        cipher: &ECDHE_RSA_AES128_GCM_SHA256,
        group: Some(Group::X25519),
        key: KeyType::Rsa2048,
    },
    Suite {
        name: "tls12-ecdhe-rsa-p256",
        description: "TLS 1.2, P-256 signed with RSA-2048, AES-128-GCM",
        protocol: Protocol::Tls12,
        cipher: &ECDHE_RSA_AES128_GCM_SHA256,
        group: Some(Group::P256),
        key: KeyType::Rsa2048,
    },
    Suite {
        name: "tls12-ecdhe-ecdsa-p256",
        description: "TLS 1.2, P-256 signed with ECDSA P-256, AES-128-GCM",
        protocol: Protocol::Tls12,
        cipher: &ECDHE_ECDSA_AES128_GCM_SHA256,
        group: Some(Group::P256),
        key: KeyType::EcdsaP256,
    },
    Suite {
        name: "tls12-ecdhe-ecdsa-p384",
        description: "TLS 1.2, P-384 signed with ECDSA P-384, AES-128-GCM",
        protocol: Protocol::Tls12,
        cipher: &ECDHE_ECDSA_AES128_GCM_SHA256,
        group: Some(Group::P384),
        key: KeyType::EcdsaP384,
    },
    Suite {
        name: "tls13-rsa2048",
        description: "TLS 1.3, X25519, RSA-2048 certificate, AES-256-GCM",
        protocol: Protocol::Tls13,
        cipher: &TLS_AES_256_GCM_SHA384,
        group: Some(Group::X25519),
        key: KeyType::Rsa2048,
    },
    Suite {
        name: "tls13-rsa2048-p256",
        description: "TLS 1.3, P-256, RSA-2048 certificate, AES-256-GCM",
        protocol: Protocol::Tls13,
        cipher: &TLS_AES_256_GCM_SHA384,
        group: Some(Group::P256),
        key: KeyType::Rsa2048,
    },
    Suite {
        name: "tls13-rsa2048-mlkem768",
        description: "TLS 1.3, X25519MLKEM768, RSA-2048 certificate, AES-256-GCM",
        protocol: Protocol::Tls13,
        cipher: &TLS_AES_256_GCM_SHA384,
        group: Some(Group::X25519MlKem768),
        key: KeyType::Rsa2048,
    },
    Suite {
        name: "tls13-ecdsa-p256",
        description: "TLS 1.3, X25519, ECDSA P-256 certificate, AES-256-GCM",
        protocol: Protocol::Tls13,
        cipher: &TLS_AES_256_GCM_SHA384,
        group: Some(Group::X25519),
        key: KeyType::EcdsaP256,
    },
    Suite {
        name: "tls13-ecdsa-p256-mlkem768",
        description: "TLS 1.3, X25519MLKEM768, ECDSA P-256 certificate, AES-256-GCM",
        protocol: Protocol::Tls13,
        cipher: &TLS_AES_256_GCM_SHA384,
        group: Some(Group::X25519MlKem768),
        key: KeyType::EcdsaP256,
    },
    Suite {
        name: "tls13-ecdsa-p384",
        description: "TLS 1.3, X25519, ECDSA P-384 certificate, AES-256-GCM",
        protocol: Protocol::Tls13,
        cipher: &TLS_AES_256_GCM_SHA384,
        group: Some(Group::X25519),
        key: KeyType::EcdsaP384,
    },
];

impl Suite {
    /// The suite of this name.
    pub fn find(name: &str) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// The reason why a server that runs with `openssl` (such as `OpenSSL 3.0.22 25 Aug 2026`) has
    /// no such handshake, or `None` if it has one or the version cannot be read.
    pub fn lacked_by(&self, openssl: &str) -> Option<&'static str> {
        let version = openssl.strip_prefix("OpenSSL ")?;
        let mut parts = version.split('.').map(str::parse::<u32>);
        let version = (parts.next()?.ok()?, parts.next()?.ok()?);
        match self.group? {
            Group::X25519MlKem768 if version < (3, 5) => {
                Some("OpenSSL has X25519MLKEM768 from 3.5 on")
            }
            _ => None,
        }
    }
}

impl Protocol {
    /// Its name in nginx's `ssl_protocols`.
    pub fn nginx_name(self) -> &'static str {
        match self {
            Protocol::Tls12 => "TLSv1.2",
            Protocol::Tls13 => "TLSv1.3",
        }
    }
}

impl Group {
    /// OpenSSL's name for it, which nginx takes too.
    pub fn name(self) -> &'static str {
        match self {
            Group::X25519 => "X25519",
            Group::X25519MlKem768 => "X25519MLKEM768",
            Group::P256 => "P-256",
            Group::P384 => "P-384",
        }
    }

    /// Its number on the wire (IANA's TLS Supported Groups).
    pub fn number(self) -> u16 {
        match self {
            Group::X25519 => 0x001d,
            Group::X25519MlKem768 => 0x11ec,
            Group::P256 => 0x0017,
            Group::P384 => 0x0018,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_post_quantum_group_is_lacked_by_openssl_before_3_5_only() {
        let suite = |name| Suite::find(name).unwrap();
        let hybrid = suite("tls13-ecdsa-p256-mlkem768");
        for (openssl, lacks) in [
            ("OpenSSL 3.0.22 25 Aug 2026", true),
            ("OpenSSL 3.4.1 11 Feb 2025", true),
            ("OpenSSL 3.5.7 1 Sep 2026", false),
            ("OpenSSL 4.0.0 14 Apr 2026", false),
            ("BoringSSL", false),
        ] {
            assert_eq!(hybrid.lacked_by(openssl).is_some(), lacks, "{openssl}");
            assert!(suite("tls13-ecdsa-p256").lacked_by(openssl).is_none());
            assert!(suite("tls12-rsakx").lacked_by(openssl).is_none());
        }
    }
}
