//! Certificates with their keys, and which of them a client gets.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rustls::SignatureAlgorithm;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use webpki::EndEntityCert;

use super::pem;
use super::private_key::PrivateKey;
use crate::configuration::CertificateFiles;
use crate::crypto::Isolation;

/// The certificates of a listener, by the names that clients ask for.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// By lower-case name; that of a wildcard begins with `*.`. Of one name there may be several, with keys of different kinds.
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// For clients that name no server, or one that is not here: those of the names of the first certificate.
    default: Vec<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads `files`. Keys go to `isolation`, if there is one, and otherwise to the provider.
    ///
    /// # Errors
    /// Names the file and says what is wrong with it.
    pub(crate) fn read(
        files: &[CertificateFiles],
        provider: &CryptoProvider,
        isolation: Option<&Isolation>,
    ) -> Result<Self, String> {
        let mut by_name: HashMap<String, Vec<Arc<CertifiedKey>>> = HashMap::new();
        let mut default = Vec::new();
        let mut first_names: Option<Vec<String>> = None;
        for files in files {
            let key = Arc::new(certified_key(files, provider, isolation)?);
            let names = names(&key.cert[0])
                .map_err(|error| format!("{}: {error}", files.certificate.display()))?;
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
            // Signatures of ECDSA cost a server, and certificates with them the network, a fraction of RSA's.
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
        // A client that could check none of them is told so by rustls.
        keys.iter().find(fits).or(keys.first()).cloned()
    }
}

fn certified_key(
    files: &CertificateFiles,
    provider: &CryptoProvider,
    isolation: Option<&Isolation>,
) -> Result<CertifiedKey, String> {
    let file = files.certificate.display();
    let chain = pem::certificates(&files.certificate)?;
    let key = signing_key(&files.key, provider, isolation)?;
    let mut certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // Of some keys the public half is not known.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            let key = files.key.display();
            return Err(format!(
                "{key}: is not the key of the certificate in {file}"
            ));
        }
        Err(error) => return Err(format!("{file}: {error}")),
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
) -> Result<Arc<dyn SigningKey>, String> {
    let at = |error: String| format!("{}: {error}", file.display());
    let key = PrivateKey::read(file)?;
    match isolation {
        Some(isolation) => isolation.signing_key(key.der()).map_err(at),
        None => provider
            .key_provider
            .load_private_key(key.der().clone_key())
            .map_err(|error| at(error.to_string())),
    }
}

/// The DNS names of a certificate, in lower case.
fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, webpki::Error> {
    let parsed = EndEntityCert::try_from(certificate)?;
    Ok(parsed
        .valid_dns_names()
        .map(str::to_ascii_lowercase)
        .collect())
}
