//! Certificates from files. What is wrong with one is told in full: the file, the reason and the cure.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The content of a file.
///
/// # Errors
/// Names the file and the cure.
pub(crate) fn content(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| {
        let cure = match error.kind() {
            ErrorKind::NotFound => "correct the path, or put the file there",
            ErrorKind::PermissionDenied => "start as root, or change the rights of the file",
            _ => "correct the path",
        };
        format!("{}: cannot be read ({error}): {cure}", file.display())
    })
}

/// The certificates of a PEM file (RFC 7468): one at least.
///
/// # Errors
/// Names the file and the cure.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let content = content(file)?;
    let shown = file.display();
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(format!(
            "{shown}: holds no certificate in PEM: if it is DER, convert it with `openssl x509 -inform der`"
        )),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!(
            "{shown}: is malformed PEM ({error}): write the file anew"
        )),
    }
}

/// The certificates of a PEM file, each of which can be an authority, and what verifies with them.
///
/// # Errors
/// Names the file and the cure.
pub(crate) fn authorities(
    file: &Path,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    let certificates = certificates(file)?;
    let mut store = RootCertStore::empty();
    match store.add_parsable_certificates(certificates.iter().cloned()) {
        (_, 0) => Ok((store, certificates)),
        (_, refused) => {
            let shown = file.display();
            Err(format!(
                "{shown}: {refused} of its certificates cannot be an authority: check it with `openssl x509 -in {shown} -text`"
            ))
        }
    }
}
