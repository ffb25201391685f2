//! The record layer with AES-GCM (RFC 5246 section 6.2 with RFC 5288; RFC 8446 section 5).

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use slipstream_testbed::suite::{self, Protocol};

use super::Failure;

pub(super) const HEADER_LENGTH: usize = 5;
/// The most that a protected record may hold (RFC 5246 section 6.2.3; TLS 1.3 allows less).
pub(super) const MAX_PAYLOAD: usize = (1 << 14) + 2048;
const NONCE_LENGTH: usize = 12;
const TAG_LENGTH: usize = 16;
/// The part of the nonce that TLS 1.2 sends with each record; the rest is a secret.
const EXPLICIT_NONCE_LENGTH: usize = 8;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentType {
    ChangeCipherSpec = 20,
    Alert = 21,
    Handshake = 22,
    ApplicationData = 23,
}

impl ContentType {
    pub(super) fn from_byte(byte: u8) -> Result<ContentType, Failure> {
        match byte {
            20 => Ok(ContentType::ChangeCipherSpec),
            21 => Ok(ContentType::Alert),
            22 => Ok(ContentType::Handshake),
            23 => Ok(ContentType::ApplicationData),
            _ => Err(Failure::Protocol("a record of an unknown type")),
        }
    }
}

/// Appends a record that is not protected.
pub(super) fn write_plain(kind: ContentType, payload: &[u8], output: &mut Vec<u8>) {
    output.extend(header(kind, payload.len()));
    output.extend(payload);
}

/// AES-GCM, fetched once. Each record brings its own key: one context serves all connections.
pub(super) struct Aead {
    protocol: Protocol,
    cipher: Cipher,
    context: CipherCtx,
}

/// The keys of one direction of one connection.
pub(super) struct Protection {
    key: [u8; 32],
    key_length: usize,
    /// In TLS 1.2 the 4 secret bytes of the nonce, in TLS 1.3 all 12.
    iv: [u8; NONCE_LENGTH],
    sequence: u64,
}

impl Protection {
    pub(super) fn new(key: &[u8], iv: &[u8]) -> Protection {
        let mut protection = Protection {
            key: [0; 32],
            key_length: key.len(),
            iv: [0; NONCE_LENGTH],
            sequence: 0,
        };
        protection.key[..key.len()].copy_from_slice(key);
        protection.iv[..iv.len()].copy_from_slice(iv);
        protection
    }

    fn key(&self) -> &[u8] {
        &self.key[..self.key_length]
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }
}

impl Aead {
    pub(super) fn new(suite: &suite::Suite) -> Result<Aead, ErrorStack> {
        let name = match suite.cipher.key_length {
            16 => "AES-128-GCM",
            _ => "AES-256-GCM",
        };
        Ok(Aead {
            protocol: suite.protocol,
            cipher: Cipher::fetch(None, name, None)?,
            context: CipherCtx::new()?,
        })
    }

    /// Appends a protected record.
    pub(super) fn write(
        &mut self,
        protection: &mut Protection,
        kind: ContentType,
        payload: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), ErrorStack> {
        let sequence = protection.next_sequence();
        let start = output.len();
        let (nonce, additional) = match self.protocol {
            Protocol::Tls12 => {
                let length = EXPLICIT_NONCE_LENGTH + payload.len() + TAG_LENGTH;
                output.extend(header(kind, length));
                output.extend(sequence.to_be_bytes());
                (
                    tls12_nonce(protection, sequence.to_be_bytes()),
                    tls12_additional(sequence, kind, payload.len()).to_vec(),
                )
            }
            Protocol::Tls13 => {
                let length = payload.len() + 1 + TAG_LENGTH;
                output.extend(header(ContentType::ApplicationData, length));
                (tls13_nonce(protection, sequence), output[start..].to_vec())
            }
        };
        let body = output.len();
        output.extend(payload);
        if self.protocol == Protocol::Tls13 {
            output.push(kind as u8);
        }
        let length = output.len() - body;
        output.extend([0; TAG_LENGTH]);

        self.context
            .encrypt_init(Some(&self.cipher), Some(protection.key()), Some(&nonce))?;
        self.context.cipher_update(&additional, None)?;
        self.context
            .cipher_update_inplace(&mut output[body..], length)?;
        self.context.cipher_final(&mut [])?;
        self.context.tag(&mut output[body + length..])
    }

    /// Decrypts the record of `header` in place; returns its true kind and where in `payload` its
    /// content is.
    pub(super) fn read(
        &mut self,
        protection: &mut Protection,
        header: [u8; HEADER_LENGTH],
        payload: &mut [u8],
    ) -> Result<(ContentType, std::ops::Range<usize>), Failure> {
        const TOO_SHORT: Failure = Failure::Protocol("a protected record that is too short");
        let sequence = protection.next_sequence();
        let kind = ContentType::from_byte(header[0])?;
        let start = match self.protocol {
            Protocol::Tls12 => EXPLICIT_NONCE_LENGTH,
            Protocol::Tls13 => 0,
        };
        let end = payload.len().checked_sub(TAG_LENGTH).ok_or(TOO_SHORT)?;
        let length = end.checked_sub(start).ok_or(TOO_SHORT)?;
        let (nonce, additional) = match self.protocol {
            Protocol::Tls12 => {
                let explicit = payload[..start].try_into().expect("its own length");
                (
                    tls12_nonce(protection, explicit),
                    tls12_additional(sequence, kind, length).to_vec(),
                )
            }
            Protocol::Tls13 => (tls13_nonce(protection, sequence), header.to_vec()),
        };
        self.context
            .decrypt_init(Some(&self.cipher), Some(protection.key()), Some(&nonce))?;
        self.context.cipher_update(&additional, None)?;
        self.context
            .cipher_update_inplace(&mut payload[start..end], length)?;
        self.context.set_tag(&payload[end..])?;
        self.context.cipher_final(&mut [])?;
        if self.protocol == Protocol::Tls12 {
            return Ok((kind, start..end));
        }
        // The true type is the last byte that is not padding.
        let last = payload[..end]
            .iter()
            .rposition(|&byte| byte != 0)
            .ok_or(Failure::Protocol("a record of padding alone"))?;
        Ok((ContentType::from_byte(payload[last])?, 0..last))
    }
}

fn header(kind: ContentType, length: usize) -> [u8; HEADER_LENGTH] {
    let [high, low] = u16::try_from(length)
        .expect("messages of a client are short")
        .to_be_bytes();
    [kind as u8, 3, 3, high, low]
}

fn tls12_nonce(
    protection: &Protection,
    explicit: [u8; EXPLICIT_NONCE_LENGTH],
) -> [u8; NONCE_LENGTH] {
    let mut nonce = protection.iv;
    nonce[NONCE_LENGTH - EXPLICIT_NONCE_LENGTH..].copy_from_slice(&explicit);
    nonce
}

fn tls12_additional(sequence: u64, kind: ContentType, length: usize) -> [u8; 13] {
    let mut additional = [0; 13];
    additional[..8].copy_from_slice(&sequence.to_be_bytes());
    additional[8..].copy_from_slice(&header(kind, length));
    additional
}

fn tls13_nonce(protection: &Protection, sequence: u64) -> [u8; NONCE_LENGTH] {
    let mut nonce = protection.iv;
    for (byte, counter) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= counter;
    }
    nonce
}

#[cfg(test)]
mod tests {
    use slipstream_testbed::suite::SUITES;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_damage_is_noticed() {
        for suite in SUITES {
            let mut aead = Aead::new(suite).unwrap();
            let keys = || Protection::new(&vec![1; suite.cipher.key_length], &[2; 4]);
            let (mut writer, mut reader) = (keys(), keys());
            for payload in [b"first".as_slice(), b"second"] {
                let mut record = Vec::new();
                aead.write(&mut writer, ContentType::Handshake, payload, &mut record)
                    .unwrap();
                let (header, body) = record.split_at_mut(HEADER_LENGTH);
                let header: [u8; HEADER_LENGTH] = (&*header).try_into().unwrap();
                let (kind, content) = aead.read(&mut reader, header, body).unwrap();
                assert_eq!(kind, ContentType::Handshake);
                assert_eq!(&body[content], payload);
            }
            let mut record = Vec::new();
            aead.write(&mut writer, ContentType::Alert, &[1, 0], &mut record)
                .unwrap();
            let (header, body) = record.split_at_mut(HEADER_LENGTH);
            let header: [u8; HEADER_LENGTH] = (&*header).try_into().unwrap();
            body[8] ^= 1;
            assert!(
                aead.read(&mut reader, header, body).is_err(),
                "{}",
                suite.name
            );
            assert!(aead.read(&mut reader, header, &mut body[..3]).is_err());
        }
    }
}
