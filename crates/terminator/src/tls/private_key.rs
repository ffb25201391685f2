//! Private keys from files, read without leaving a copy in memory.

use std::path::Path;

use base64ct::{Base64, Encoding};
use rustls::pki_types::PrivateKeyDer;
use zeroize::{Zeroize, Zeroizing};

use super::error::{PrivateKeyError, TlsError};
use super::pem;

/// Private key that is wiped when dropped.
pub(crate) struct PrivateKey(PrivateKeyDer<'static>);

impl PrivateKey {
    /// Reads the first private key of a PEM file (RFC 7468): PKCS #8, PKCS #1 or SEC 1.
    ///
    /// # Errors
    /// Returns an error that names the file, the reason and the remedy.
    pub(crate) fn read(file: &Path) -> Result<Self, TlsError> {
        let text = Zeroizing::new(pem::content(file)?);
        Self::parse(&text).map_err(|source| TlsError::PrivateKey {
            file: file.to_owned(),
            source,
        })
    }

    /// Returns the key.
    pub(crate) fn der(&self) -> &PrivateKeyDer<'static> {
        &self.0
    }

    /// Parses the first private key of a text.
    ///
    /// # Errors
    /// Returns an error that names the reason and the remedy.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, PrivateKeyError> {
        let (label, body) = block(text).ok_or(PrivateKeyError::Missing)?;
        let is_encrypted = label == b"ENCRYPTED PRIVATE KEY" || body.contains(&b':');
        if is_encrypted {
            return Err(PrivateKeyError::Encrypted);
        }
        let der = decode(body).ok_or(PrivateKeyError::Damaged)?;
        Ok(Self(match label {
            b"RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(der.into()),
            b"EC PRIVATE KEY" => PrivateKeyDer::Sec1(der.into()),
            _ => PrivateKeyDer::Pkcs8(der.into()),
        }))
    }
}

impl Drop for PrivateKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Returns label and body of the first private key.
fn block(text: &[u8]) -> Option<(&[u8], &[u8])> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    const DASHES: &[u8] = b"-----";
    let mut rest = text;
    loop {
        rest = &rest[find(rest, BEGIN)? + BEGIN.len()..];
        let label = &rest[..find(rest, DASHES)?];
        let body = &rest[label.len() + DASHES.len()..];
        let body = &body[..find(body, DASHES)?];
        if label.ends_with(b"PRIVATE KEY") {
            return Some((label, body));
        }
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

/// Decodes Base64 into a buffer of fixed size. A growing one would leave copies in memory.
fn decode(body: &[u8]) -> Option<Vec<u8>> {
    let mut packed = Zeroizing::new(Vec::with_capacity(body.len()));
    packed.extend(body.iter().filter(|byte| !byte.is_ascii_whitespace()));
    let mut der = vec![0; packed.len() / 4 * 3];
    match Base64::decode(&*packed, &mut der).map(<[u8]>::len) {
        Ok(length) if length > 0 => {
            der.truncate(length);
            Some(der)
        }
        _ => {
            der.zeroize();
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_private_key_is_found() {
        let text = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n\
            text\r\n-----BEGIN EC PRIVATE KEY-----\r\nAQID\r\nBAU=\r\n-----END EC PRIVATE KEY-----\n\
            -----BEGIN PRIVATE KEY-----\nBg==\n-----END PRIVATE KEY-----\n";
        let key = PrivateKey::parse(text).unwrap();
        assert!(matches!(key.der(), PrivateKeyDer::Sec1(_)));
        assert_eq!(key.der().secret_der(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_malformed_key_is_refused() {
        let refused = |text: &str| PrivateKey::parse(text.as_bytes()).err();
        let block = |label: &str, body: &str| {
            refused(&format!(
                "-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"
            ))
            .unwrap()
        };
        assert_eq!(refused(""), Some(PrivateKeyError::Missing));
        let unfinished = refused("-----BEGIN PRIVATE KEY-----\nAQID");
        assert_eq!(unfinished, Some(PrivateKeyError::Missing));
        assert_eq!(block("CERTIFICATE", "AQID"), PrivateKeyError::Missing);
        assert_eq!(block("PRIVATE KEY", "A!ID"), PrivateKeyError::Damaged);
        assert_eq!(block("PRIVATE KEY", ""), PrivateKeyError::Damaged);
        let encrypted = block("ENCRYPTED PRIVATE KEY", "AQID");
        assert_eq!(encrypted, PrivateKeyError::Encrypted);
        let header = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAQID";
        let encrypted = block("RSA PRIVATE KEY", header);
        assert_eq!(encrypted, PrivateKeyError::Encrypted);
    }
}
