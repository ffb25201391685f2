//! Checks of certificates, keys, authorities and OCSP responses.

use std::path::Path;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};
use time::OffsetDateTime;
use time::macros::format_description;

use super::Findings;
use crate::configuration::CertificateFiles;
use crate::operations::privileges::User;
use crate::tls::error::TlsError;
use crate::tls::pem;
use crate::tls::private_key::PrivateKey;

impl Findings {
    pub(super) fn check_certificate(&mut self, files: &CertificateFiles, user: Option<&User>) {
        let chain = self.accept(pem::certificates(&files.certificate));
        let key = self.accept(PrivateKey::read(&files.key));
        self.check_key_rights(&files.key, user);
        if let Some(chain) = &chain {
            self.check_validity(&files.certificate, chain);
        }
        if let (Some(chain), Some(key)) = (chain, key) {
            self.check_match(files, chain, &key);
        }
        if let Some(ocsp) = &files.ocsp {
            self.check_ocsp(ocsp);
        }
    }

    pub(super) fn check_authorities(&mut self, path: &Path) {
        self.accept(pem::authorities(path));
    }

    /// Returns the value, or notes the error and returns `None`.
    fn accept<T>(&mut self, read: Result<T, TlsError>) -> Option<T> {
        read.map_err(|error| self.error(error.to_string())).ok()
    }

    fn check_match(
        &mut self,
        files: &CertificateFiles,
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKey,
    ) {
        let certificate = files.certificate.display();
        let shown = files.key.display();
        let key = key.der().clone_key();
        match CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()) {
            Ok(_) => {}
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => self.error(format!(
                "{certificate}: its first certificate does not belong to the key {shown}: name files that belong together, the server's own \
                 certificate first"
            )),
            Err(Error::InvalidCertificate(error)) => self.error(format!(
                "{certificate}: its first certificate cannot be used ({error}): have it reissued"
            )),
            Err(error) => self.error(format!(
                "{shown}: the private key cannot be used ({error}): use RSA, ECDSA (P-256, P-384, P-521) or Ed25519"
            )),
        }
    }

    fn check_validity(&mut self, path: &Path, chain: &[CertificateDer<'static>]) {
        for (index, certificate) in chain.iter().enumerate() {
            let shown = path.display();
            let which = match index {
                0 => "the certificate".to_owned(),
                index => format!("certificate {} of the chain", index + 1),
            };
            match validity(certificate) {
                Ok(()) => {}
                Err(Invalidity::Expired(when)) => self.warning(format!(
                    "{shown}: {which} has expired on {}: renew it",
                    day(when)
                )),
                Err(Invalidity::NotYetValid(when)) => self.warning(format!(
                    "{shown}: {which} is not valid before {}: check the clock of this machine",
                    day(when)
                )),
            }
        }
    }

    fn check_ocsp(&mut self, path: &Path) {
        let Some(content) = self.accept(pem::content(path)) else {
            return;
        };
        if !is_der_sequence(&content) {
            self.error(format!(
                "{}: is not an OCSP response in DER: fetch one with `openssl ocsp -respout`",
                path.display()
            ));
        }
    }
}

enum Invalidity {
    Expired(UnixTime),
    NotYetValid(UnixTime),
}

/// Checks the validity period. webpki checks it first, so that without any authority its error is
/// either about the period or about the unknown issuer.
fn validity(certificate: &CertificateDer<'_>) -> Result<(), Invalidity> {
    let Ok(parsed) = ParsedCertificate::try_from(certificate) else {
        return Ok(());
    };
    let outcome = rustls::client::verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &RootCertStore::empty(),
        &[],
        UnixTime::now(),
        &[],
    );
    match outcome {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Err(Invalidity::Expired(not_after))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => Err(Invalidity::NotYetValid(not_before)),
        _ => Ok(()),
    }
}

fn day(time: UnixTime) -> String {
    i64::try_from(time.as_secs())
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
        .and_then(|time| {
            time.format(format_description!("[year]-[month]-[day]"))
                .ok()
        })
        .unwrap_or_else(|| format!("second {} of Unix time", time.as_secs()))
}

/// Returns true if `content` is a single SEQUENCE (X.690, 8.9).
fn is_der_sequence(content: &[u8]) -> bool {
    let Some(([0x30, first], rest)) = content.split_first_chunk() else {
        return false;
    };
    let length_bytes = match *first {
        length @ 0..=0x7f => return rest.len() == usize::from(length),
        0x81..=0x84 => usize::from(first & 0x7f),
        _ => return false,
    };
    let Some((length, rest)) = rest.split_at_checked(length_bytes) else {
        return false;
    };
    let length = length
        .iter()
        .fold(0, |length, &byte| length << 8 | usize::from(byte));
    rest.len() == length
}
