//! PEM files. Errors name the file, the reason and the remedy.

use std::fs;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::error::TlsError;

/// Returns the content of a file.
///
/// # Errors
/// Returns an error that names the file and the remedy.
pub(crate) fn content(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|source| TlsError::Unreadable {
        file: file.to_owned(),
        source,
    })
}

/// Returns the certificates of a PEM file (RFC 7468); at least one.
///
/// # Errors
/// Returns an error that names the file and the remedy.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = content(file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsError::NoCertificate(file.to_owned()))
        }
        Ok(certificates) => Ok(certificates),
        Err(source) => Err(TlsError::MalformedPem {
            file: file.to_owned(),
            source,
        }),
    }
}

/// Returns the authorities of a PEM file: as a store for verification, and as certificates.
///
/// # Errors
/// Returns an error that names the file and the remedy.
pub(crate) fn authorities(
    file: &Path,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsError> {
    let certificates = certificates(file)?;
    let mut store = RootCertStore::empty();
    match store.add_parsable_certificates(certificates.iter().cloned()) {
        (_, 0) => Ok((store, certificates)),
        (_, refused) => Err(TlsError::UnusableAuthorities {
            file: file.to_owned(),
            refused,
        }),
    }
}
