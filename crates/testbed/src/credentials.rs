//! Throw-away keys and self-signed certificates, made in process.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, PKeyRef, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder};

use crate::Error;
use crate::scratch::ScratchDirectory;
use crate::suite::KeyType;

/// The files of a key and its certificate.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM (PKCS#8), readable by its owner alone.
    pub key: PathBuf,
}

impl Credentials {
    /// Makes a key and a certificate for `localhost` and 127.0.0.1, valid for a day, in `scratch`.
    ///
    /// # Errors
    /// [`Error::OpenSsl`] when the key cannot be made, [`Error::Io`] when it cannot be written.
    pub fn generate(key_type: KeyType, scratch: &ScratchDirectory) -> Result<Credentials, Error> {
        let name = match key_type {
            KeyType::Rsa2048 => "rsa2048",
            KeyType::EcdsaP256 => "ecdsa-p256",
            KeyType::EcdsaP384 => "ecdsa-p384",
        };
        let key = generate_key(key_type).map_err(Error::openssl("cannot generate a key"))?;
        let certificate = self_sign(&key).map_err(Error::openssl("cannot make a certificate"))?;
        let credentials = Credentials {
            certificate: scratch.file(&format!("{name}.crt")),
            key: scratch.file(&format!("{name}.key")),
        };
        let key = key
            .private_key_to_pem_pkcs8()
            .map_err(Error::openssl("cannot encode a key"))?;
        let certificate = certificate
            .to_pem()
            .map_err(Error::openssl("cannot encode a certificate"))?;
        write_private(&credentials.key, &key)?;
        write_private(&credentials.certificate, &certificate)?;
        Ok(credentials)
    }
}

/// The type of the key in the first certificate of a PEM file. `None` if it cannot be read, or is of
/// a type that is never accelerated. RSA keys of all lengths count as [`KeyType::Rsa2048`].
pub fn key_type_of(certificate: &Path) -> Option<KeyType> {
    let pem = std::fs::read(certificate).ok()?;
    let key = X509::from_pem(&pem).ok()?.public_key().ok()?;
    if key.rsa().is_ok() {
        return Some(KeyType::Rsa2048);
    }
    match key.ec_key().ok()?.group().curve_name()? {
        Nid::X9_62_PRIME256V1 => Some(KeyType::EcdsaP256),
        Nid::SECP384R1 => Some(KeyType::EcdsaP384),
        _ => None,
    }
}

fn generate_key(key_type: KeyType) -> Result<PKey<Private>, ErrorStack> {
    match key_type {
        KeyType::Rsa2048 => PKey::from_rsa(Rsa::generate(2048)?),
        KeyType::EcdsaP256 => ec_key(Nid::X9_62_PRIME256V1),
        KeyType::EcdsaP384 => ec_key(Nid::SECP384R1),
    }
}

/// Makes a key on a curve.
///
/// # Errors
/// OpenSSL's, when it does not know the curve.
pub fn ec_key(curve: Nid) -> Result<PKey<Private>, ErrorStack> {
    let group = EcGroup::from_curve_name(curve)?;
    PKey::from_ec_key(EcKey::generate(&group)?)
}

fn self_sign(key: &PKey<Private>) -> Result<X509, ErrorStack> {
    let name = common_name("localhost")?;
    let mut builder = unsigned_certificate(&name, &name, key)?;
    builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
    let alternative_names = SubjectAlternativeName::new()
        .dns("localhost")
        .ip("127.0.0.1")
        .build(&builder.x509v3_context(None, None))?;
    builder.append_extension(alternative_names)?;
    builder.sign(key, MessageDigest::sha256())?;
    Ok(builder.build())
}

/// A name that consists of a common name.
///
/// # Errors
/// OpenSSL's, when the name is too long.
pub fn common_name(name: &str) -> Result<X509Name, ErrorStack> {
    let mut builder = X509NameBuilder::new()?;
    builder.append_entry_by_text("CN", name)?;
    Ok(builder.build())
}

/// A certificate without extensions and signature, valid for a day, with a random serial number.
///
/// # Errors
/// OpenSSL's.
pub fn unsigned_certificate(
    issuer: &X509Name,
    subject: &X509Name,
    key: &PKeyRef<Private>,
) -> Result<X509Builder, ErrorStack> {
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::ONE, false)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(serial.to_asn1_integer()?.as_ref())?;
    builder.set_issuer_name(issuer)?;
    builder.set_subject_name(subject)?;
    builder.set_pubkey(key)?;
    builder.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
    builder.set_not_after(Asn1Time::days_from_now(1)?.as_ref())?;
    Ok(builder)
}

fn write_private(path: &Path, contents: &[u8]) -> Result<(), Error> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(contents))
        .map_err(Error::file("write", path))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use openssl::pkey::Id;

    use super::*;

    #[test]
    fn the_certificate_is_the_keys_and_only_the_owner_reads_the_key() {
        let scratch = ScratchDirectory::new().unwrap();
        for (key_type, id, bits) in [
            (KeyType::Rsa2048, Id::RSA, 2048),
            (KeyType::EcdsaP256, Id::EC, 256),
            (KeyType::EcdsaP384, Id::EC, 384),
        ] {
            let credentials = Credentials::generate(key_type, &scratch).unwrap();
            let key = PKey::private_key_from_pem(&fs::read(&credentials.key).unwrap()).unwrap();
            let certificate = X509::from_pem(&fs::read(&credentials.certificate).unwrap()).unwrap();
            assert_eq!((key.id(), key.bits()), (id, bits));
            assert!(certificate.public_key().unwrap().public_eq(&key));
            assert!(certificate.verify(&key).unwrap());
            let mode = fs::metadata(&credentials.key).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
