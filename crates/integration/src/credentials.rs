//! Keys and certificates, made as they are needed.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, PKeyRef, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Rsa;
use openssl::symm::Cipher;
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
    SubjectKeyIdentifier,
};
use openssl::x509::{X509, X509Name};
use slipstream_testbed::credentials::{common_name, ec_key, unsigned_certificate};
use slipstream_testbed::scratch::ScratchDirectory;

/// Types of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// RSA with this many bits.
    Rsa(u32),
    /// RSA with 2048 bits, for RSASSA-PSS only (RFC 4055 section 1.2).
    RsaPss2048,
    /// Elliptic curve P-256.
    EcdsaP256,
    /// Elliptic curve P-384.
    EcdsaP384,
}

impl KeyType {
    /// Makes a key that no other call has returned.
    ///
    /// # Panics
    /// If OpenSSL cannot.
    pub fn generate(self) -> PKey<Private> {
        let key = match self {
            KeyType::Rsa(bits) => Rsa::generate(bits).and_then(PKey::from_rsa),
            KeyType::RsaPss2048 => PkeyCtx::new_id(Id::RSA_PSS).and_then(|mut context| {
                context.keygen_init()?;
                context.set_rsa_keygen_bits(2048)?;
                context.keygen()
            }),
            KeyType::EcdsaP256 => ec_key(Nid::X9_62_PRIME256V1),
            KeyType::EcdsaP384 => ec_key(Nid::SECP384R1),
        };
        key.expect("OpenSSL makes a key")
    }

    /// The key of this type that this process uses for most certificates: large ones take long to
    /// find.
    fn shared(self) -> PKey<Private> {
        static KEYS: Mutex<Option<HashMap<KeyType, PKey<Private>>>> = Mutex::new(None);
        let mut keys = KEYS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        keys.get_or_insert_default()
            .entry(self)
            .or_insert_with(|| self.generate())
            .clone()
    }
}

/// A key and its certificate, in files and in memory.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The certificate, PEM.
    pub certificate_file: PathBuf,
    /// The private key, PEM.
    pub key_file: PathBuf,
    /// The certificate.
    pub certificate: X509,
    /// The private key.
    pub key: PKey<Private>,
}

/// A certificate authority, with a directory for the files of what it issues.
pub struct Authority {
    scratch: ScratchDirectory,
    name: X509Name,
    key: PKey<Private>,
    certificate: X509,
    issued: AtomicUsize,
}

impl Authority {
    /// Makes an authority with a self-signed certificate, and a name that no other has.
    ///
    /// # Panics
    /// If OpenSSL or the file system cannot.
    pub fn new() -> Self {
        let scratch = ScratchDirectory::new().expect("a scratch directory");
        let key = KeyType::EcdsaP256.generate();
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name =
            common_name(&format!("slipstream test authority {number}")).expect("a short name");
        let mut builder = unsigned_certificate(&name, &name, &key).expect("a certificate");
        let identifier = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None));
        let extensions = [
            BasicConstraints::new().critical().ca().build(),
            KeyUsage::new().key_cert_sign().crl_sign().build(),
            identifier,
        ];
        for extension in extensions {
            builder
                .append_extension(extension.expect("an extension"))
                .expect("room for an extension");
        }
        builder
            .sign(&key, MessageDigest::sha256())
            .expect("a signature");
        let authority = Self {
            scratch,
            name,
            key,
            certificate: builder.build(),
            issued: AtomicUsize::new(0),
        };
        authority.write(
            "authority.crt",
            &authority.certificate.to_pem().expect("PEM"),
        );
        authority.write(
            "authority.key",
            &authority.key.private_key_to_pem_pkcs8().expect("PEM"),
        );
        authority
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> &X509 {
        &self.certificate
    }

    /// The file of the authority's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.scratch.file("authority.crt")
    }

    /// The file of the authority's private key.
    pub fn key_file(&self) -> PathBuf {
        self.scratch.file("authority.key")
    }

    /// The directory of all files, which only this user can read.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Issues a certificate for servers of these `names` and for clients, for this process's usual
    /// key of a type.
    ///
    /// # Panics
    /// If OpenSSL or the file system cannot.
    pub fn issue(&self, key_type: KeyType, names: &[&str]) -> Credentials {
        self.issue_for(&key_type.shared(), names)
    }

    /// As [`Authority::issue`], for a given key.
    ///
    /// # Panics
    /// If OpenSSL or the file system cannot.
    pub fn issue_for(&self, key: &PKey<Private>, names: &[&str]) -> Credentials {
        let pem = key.private_key_to_pem_pkcs8().expect("PEM");
        self.issue_with(key, &pem, names)
    }

    /// As [`Authority::issue`], with the key file encrypted.
    ///
    /// # Panics
    /// If OpenSSL or the file system cannot.
    pub fn issue_encrypted(
        &self,
        key_type: KeyType,
        passphrase: &str,
        names: &[&str],
    ) -> Credentials {
        let key = key_type.shared();
        let pem = key
            .private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), passphrase.as_bytes())
            .expect("PEM");
        self.issue_with(&key, &pem, names)
    }

    /// Writes a file of the test's own into the directory.
    ///
    /// # Panics
    /// If the file system cannot.
    pub fn write(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.scratch.file(name);
        fs::write(&path, contents).expect("a file in the scratch directory");
        let only_owner = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&path, only_owner).expect("permissions of an own file");
        path
    }

    fn issue_with(&self, key: &PKeyRef<Private>, key_pem: &[u8], names: &[&str]) -> Credentials {
        let subject = common_name(names[0]).expect("a short name");
        let mut builder = unsigned_certificate(&self.name, &subject, key).expect("a certificate");
        let mut alternative_names = SubjectAlternativeName::new();
        for name in names {
            alternative_names.dns(name);
        }
        let context = builder.x509v3_context(Some(&self.certificate), None);
        let alternative_names = alternative_names.build(&context);
        // Python since 3.13 asks for it.
        let issuer = AuthorityKeyIdentifier::new().keyid(true).build(&context);
        let usage = ExtendedKeyUsage::new().server_auth().client_auth().build();
        for extension in [alternative_names, issuer, usage] {
            builder
                .append_extension(extension.expect("an extension"))
                .expect("room for an extension");
        }
        builder
            .sign(&self.key, MessageDigest::sha256())
            .expect("a signature");
        let certificate = builder.build();
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        Credentials {
            certificate_file: self.write(
                &format!("{number}.crt"),
                &certificate.to_pem().expect("PEM"),
            ),
            key_file: self.write(&format!("{number}.key"), key_pem),
            certificate,
            key: key.to_owned(),
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_the_authoritys_and_fit_their_keys() {
        let authority = Authority::new();
        for key_type in [KeyType::Rsa(2048), KeyType::RsaPss2048, KeyType::EcdsaP256] {
            let credentials = authority.issue(key_type, &["localhost"]);
            assert!(credentials.certificate.verify(&authority.key).unwrap());
            let key = fs::read(&credentials.key_file).unwrap();
            let key = PKey::private_key_from_pem(&key).unwrap();
            assert!(
                credentials
                    .certificate
                    .public_key()
                    .unwrap()
                    .public_eq(&key)
            );
        }
        let pss = authority.issue(KeyType::RsaPss2048, &["localhost"]);
        assert_eq!(pss.key.id(), Id::RSA_PSS);
    }

    #[test]
    fn an_encrypted_key_takes_its_passphrase() {
        let authority = Authority::new();
        let credentials = authority.issue_encrypted(KeyType::Rsa(2048), "secret", &["localhost"]);
        let pem = fs::read(&credentials.key_file).unwrap();
        assert!(PKey::private_key_from_pem_passphrase(&pem, b"wrong").is_err());
        assert!(PKey::private_key_from_pem_passphrase(&pem, b"secret").is_ok());
    }
}
