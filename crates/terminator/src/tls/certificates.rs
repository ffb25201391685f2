//! Certificates with their keys, and their selection by server name.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rustls::SignatureAlgorithm;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use webpki::EndEntityCert;

use super::error::TlsError;
use super::pem;
use super::private_key::PrivateKey;
use crate::configuration::CertificateFiles;
use crate::crypto::Isolation;

/// Certificates of a listener by server name.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// Certificates by lower-case name. Names of wildcard certificates begin with `*.`. A name may
    /// have several certificates, with keys of different kinds.
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Certificates for clients that name no server or an unknown one: those that share a name with
    /// the first certificate.
    default: Vec<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads `files`. Private keys go to `isolation` if there is one, otherwise to the provider.
    ///
    /// # Errors
    /// Returns an error that names the file and the reason.
    pub(crate) fn read(
        files: &[CertificateFiles],
        provider: &CryptoProvider,
        isolation: Option<&Isolation>,
    ) -> Result<Self, TlsError> {
        let mut by_name: HashMap<String, Vec<Arc<CertifiedKey>>> = HashMap::new();
        let mut default = Vec::new();
        let mut first_names: Option<Vec<String>> = None;
        for files in files {
            let key = Arc::new(certified_key(files, provider, isolation)?);
            let names = names(&key.cert[0]).map_err(|source| TlsError::Names {
                file: files.certificate.clone(),
                source,
            })?;
            if first_names
                .as_ref()
                .is_none_or(|first| names.iter().any(|name| first.contains(name)))
            {
                default.push(key.clone());
            }
            for name in &names {
                by_name.entry(name.clone()).or_default().push(key.clone());
            }
            first_names.get_or_insert(names);
        }
        for keys in by_name.values_mut().chain([&mut default]) {
            // ECDSA goes first: its signatures are cheaper for the server, and its certificates are
            // smaller than with RSA.
            keys.sort_by_key(|key| key.key.algorithm() == SignatureAlgorithm::RSA);
        }
        Ok(Self { by_name, default })
    }

    fn of(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        let Some(name) = name else {
            return &self.default;
        };
        let name = name.to_ascii_lowercase();
        let wildcard = || {
            let (_, domain) = name.split_once('.')?;
            self.by_name.get(&format!("*.{domain}"))
        };
        let found = self.by_name.get(&name).or_else(wildcard);
        found.unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.of(hello.server_name());
        let fits = |key: &&Arc<CertifiedKey>| {
            let schemes = hello.signature_schemes();
            key.key.choose_scheme(schemes).is_some()
        };
        // rustls refuses a client that supports none of them.
        keys.iter().find(fits).or(keys.first()).cloned()
    }
}

fn certified_key(
    files: &CertificateFiles,
    provider: &CryptoProvider,
    isolation: Option<&Isolation>,
) -> Result<CertifiedKey, TlsError> {
    let chain = pem::certificates(&files.certificate)?;
    let key = signing_key(&files.key, provider, isolation)?;
    let mut certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // The public half of some keys is not known.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(TlsError::KeyMismatch {
                key: files.key.clone(),
                certificate: files.certificate.clone(),
            });
        }
        Err(error) => return Err(TlsError::unusable(&files.certificate, error)),
    }
    if let Some(ocsp) = &files.ocsp {
        certified.ocsp = Some(pem::content(ocsp)?);
    }
    Ok(certified)
}

fn signing_key(
    file: &Path,
    provider: &CryptoProvider,
    isolation: Option<&Isolation>,
) -> Result<Arc<dyn SigningKey>, TlsError> {
    let key = PrivateKey::read(file)?;
    match isolation {
        Some(isolation) => isolation
            .signing_key(key.der())
            .map_err(|error| TlsError::Isolation {
                file: file.to_owned(),
                source: error.into(),
            }),
        None => provider
            .key_provider
            .load_private_key(key.der().clone_key())
            .map_err(|error| TlsError::unusable(file, error)),
    }
}

/// Returns the DNS names of a certificate in lower case.
fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, webpki::Error> {
    let parsed = EndEntityCert::try_from(certificate)?;
    Ok(parsed
        .valid_dns_names()
        .map(str::to_ascii_lowercase)
        .collect())
}
