//! Errors in the files and settings of TLS.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem;
use rustls::server::VerifierBuilderError;
use slipstream_http::settings::Address;

/// Error in a file or a setting of TLS. Its text names the file and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: cannot be read ({source}): {}", .file.display(), remedy(source))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file that should hold certificates holds none.
    #[error(
        "{}: contains no certificate in PEM: if it is DER, convert it with `openssl x509 -inform der`",
        .0.display()
    )]
    NoCertificate(PathBuf),
    /// A file is not PEM (RFC 7468).
    #[error("{}: is malformed PEM ({source}): replace the file", .file.display())]
    MalformedPem {
        /// The file.
        file: PathBuf,
        /// The error of the parser.
        source: pem::Error,
    },
    /// A file of authorities holds certificates that cannot be one.
    #[error(
        "{0}: {refused} of its certificates cannot be an authority: check it with `openssl x509 -in {0} -text`",
        .file.display()
    )]
    UnusableAuthorities {
        /// The file.
        file: PathBuf,
        /// The number of such certificates.
        refused: usize,
    },
    /// A file holds no usable private key.
    #[error("{}: {source}", .file.display())]
    PrivateKey {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: PrivateKeyError,
    },
    /// A private key belongs to another certificate.
    #[error("{}: is not the key of the certificate in {}", .key.display(), .certificate.display())]
    KeyMismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// rustls refuses a certificate or a key.
    #[error("{}: {source}", .file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The names of a certificate cannot be read.
    #[error("{}: {source}", .file.display())]
    Names {
        /// The file of the certificate.
        file: PathBuf,
        /// The error of webpki.
        source: webpki::Error,
    },
    /// No verifier of client certificates can be made of a file of authorities.
    #[error("{}: {source}", .file.display())]
    Verifier {
        /// The file.
        file: PathBuf,
        /// The error of rustls.
        source: VerifierBuilderError,
    },
    /// The engine does not take a private key.
    #[error("{}: {source}", .file.display())]
    Isolation {
        /// The file of the key.
        file: PathBuf,
        /// The error of the engine.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A backend has a name that no certificate can have.
    #[error(
        "backend {address}: {name:?} is not a name that a certificate can have: give a host name or an address"
    )]
    BackendName {
        /// The address of the backend.
        address: Address,
        /// The name.
        name: String,
    },
    /// Keys for session tickets cannot be made.
    #[error("session tickets: {0}")]
    Tickets(#[source] rustls::Error),
    /// rustls refuses the settings of a listener.
    #[error("{0}")]
    Settings(#[source] rustls::Error),
    /// rustls refuses the settings for backends.
    #[error("TLS to backends: {0}")]
    Backends(#[source] rustls::Error),
}

/// Error of a text that should hold a private key in PEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateKeyError {
    /// The text has no block of a private key.
    #[error("contains no private key in PEM: name the file of the key")]
    Missing,
    /// The private key is encrypted.
    #[error("the private key has a passphrase: remove it with `openssl pkey`")]
    Encrypted,
    /// The block is not Base64.
    #[error("the private key is damaged, it is not Base64: replace the file")]
    Damaged,
}

impl TlsError {
    pub(super) fn unusable(file: &Path, source: rustls::Error) -> Self {
        let file = file.to_owned();
        Self::Unusable { file, source }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "correct the path, or put the file there",
        io::ErrorKind::PermissionDenied => "start as root, or change the rights of the file",
        _ => "correct the path",
    }
}
