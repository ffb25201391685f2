//! The ClientHello that is sent and the ServerHello that comes back (RFC 5246 section 7.4.1, RFC
//! 8446 section 4.1).

use slipstream_testbed::suite::{KeyType, Protocol, Suite};

use super::Failure;

/// Offset of the random value in a ClientHello, behind the handshake header and the version.
pub(super) const RANDOM_OFFSET: usize = 6;
pub(super) const RANDOM_LENGTH: usize = 32;
/// Offset of the session id. A TLS 1.3 client sends one so that middleboxes see what they know (RFC
/// 8446, appendix D.4), as common clients do; in TLS 1.2 it goes with a ticket, and a server that
/// resumes sends it back (RFC 5077 section 3.4).
pub(super) const SESSION_ID_OFFSET: usize = RANDOM_OFFSET + RANDOM_LENGTH + 1;
pub(super) const SESSION_ID_LENGTH: usize = 32;

const CLIENT_HELLO: u8 = 1;
const VERSION_TLS12: [u8; 2] = [3, 3];
const VERSION_TLS13: [u8; 2] = [3, 4];

const SUPPORTED_GROUPS: u16 = 10;
const EC_POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
const EXTENDED_MASTER_SECRET: u16 = 23;
const SESSION_TICKET: u16 = 35;
const SUPPORTED_VERSIONS: u16 = 43;
const PSK_KEY_EXCHANGE_MODES: u16 = 45;
const KEY_SHARE: u16 = 51;
const RENEGOTIATION_INFO: u16 = 0xff01;

/// The schemes that are offered (RFC 8446 section 4.2.3), those of the suite's key alone: a server
/// with keys of several types would else choose which of them is measured.
fn signature_schemes(key: KeyType) -> &'static [u16] {
    match key {
        // PSS and PKCS#1 with SHA-256, 384 and 512, in the order of browsers.
        KeyType::Rsa2048 => &[0x0804, 0x0401, 0x0805, 0x0501, 0x0806, 0x0601],
        KeyType::EcdsaP256 => &[0x0403],
        KeyType::EcdsaP384 => &[0x0503],
    }
}

/// The random value by which a ServerHello says that it asks for another ClientHello (RFC 8446
/// section 4.1.3).
const HELLO_RETRY_REQUEST: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];

/// A ClientHello for `suite` that asks for tickets, with the random value and the session id left
/// 0. In TLS 1.2 it offers to resume the session of `ticket`, unless that is empty.
pub(super) fn client_hello(suite: &Suite, key_share: &[u8], ticket: &[u8]) -> Vec<u8> {
    let mut hello = vec![CLIENT_HELLO, 0, 0, 0];
    hello.extend(VERSION_TLS12);
    hello.extend([0; RANDOM_LENGTH]);
    match suite.protocol {
        Protocol::Tls12 if ticket.is_empty() => hello.push(0),
        Protocol::Tls12 | Protocol::Tls13 => {
            hello.push(32);
            hello.extend([0; SESSION_ID_LENGTH]);
        }
    }
    with_length::<2>(&mut hello, |hello| {
        hello.extend(suite.cipher.number.to_be_bytes())
    });
    hello.extend([1, 0]); // The null compression, alone.
    with_length::<2>(&mut hello, |hello| {
        extensions(hello, suite, key_share, ticket);
    });
    let length = u32::try_from(hello.len() - 4).expect("short").to_be_bytes();
    hello[1..4].copy_from_slice(&length[1..]);
    hello
}

/// The contents of a ServerHello.
pub(super) struct ServerHello<'a> {
    pub(super) random: &'a [u8],
    /// The client's own if the server resumes a session of TLS 1.2, and always in TLS 1.3.
    pub(super) session_id: &'a [u8],
    /// The server's share of the key exchange (TLS 1.3).
    pub(super) key_share: Option<&'a [u8]>,
    pub(super) extended_master_secret: bool,
}

impl<'a> ServerHello<'a> {
    /// Parses the body of a ServerHello and checks that it accepts `suite`.
    pub(super) fn parse(body: &'a [u8], suite: &Suite) -> Result<ServerHello<'a>, Failure> {
        let mut reader = Reader(body);
        reader.take(2)?;
        let random = reader.take(RANDOM_LENGTH)?;
        if random.starts_with(&HELLO_RETRY_REQUEST) {
            return Err(Failure::Protocol("HelloRetryRequest"));
        }
        let session_id = reader.vector::<1>()?;
        if reader.number()? != suite.cipher.number {
            return Err(Failure::Protocol("another cipher suite"));
        }
        reader.take(1)?;

        let mut hello = ServerHello {
            random,
            session_id,
            key_share: None,
            extended_master_secret: false,
        };
        let mut version = VERSION_TLS12.as_slice();
        // TLS 1.2 may leave the extensions out altogether.
        let mut extensions = match reader.0 {
            [] => Reader(&[]),
            _ => Reader(reader.vector::<2>()?),
        };
        while !extensions.0.is_empty() {
            let kind = extensions.number()?;
            let mut body = Reader(extensions.vector::<2>()?);
            match kind {
                SUPPORTED_VERSIONS => version = body.take(2)?,
                EXTENDED_MASTER_SECRET => hello.extended_master_secret = true,
                KEY_SHARE => {
                    if Some(body.number()?) != suite.group.map(|group| group.number()) {
                        return Err(Failure::Protocol("another group"));
                    }
                    hello.key_share = Some(body.vector::<2>()?);
                }
                _ => {}
            }
        }
        let offered = match suite.protocol {
            Protocol::Tls12 => VERSION_TLS12,
            Protocol::Tls13 => VERSION_TLS13,
        };
        if version != offered {
            return Err(Failure::Protocol("another protocol version"));
        }
        Ok(hello)
    }
}

/// Reads the parts of a message in turn.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Failure> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Failure::Protocol("a message that is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of two bytes.
    pub(super) fn number(&mut self) -> Result<u16, Failure> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A vector whose length stands in the `WIDTH` bytes before it.
    pub(super) fn vector<const WIDTH: usize>(&mut self) -> Result<&'a [u8], Failure> {
        let length = self
            .take(WIDTH)?
            .iter()
            .fold(0, |length, &byte| length << 8 | usize::from(byte));
        self.take(length)
    }
}

/// Writes what `write` does with its length, of `WIDTH` bytes, before it.
pub(super) fn with_length<const WIDTH: usize>(
    message: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = message.len();
    message.extend([0; WIDTH]);
    write(message);
    let length = message.len() - start - WIDTH;
    let bytes = length.to_be_bytes();
    let (high, low) = bytes.split_at(bytes.len() - WIDTH);
    assert!(
        high.iter().all(|&byte| byte == 0),
        "a vector of {length} bytes"
    );
    message[start..start + WIDTH].copy_from_slice(low);
}

fn extensions(hello: &mut Vec<u8>, suite: &Suite, key_share: &[u8], ticket: &[u8]) {
    extension(hello, SIGNATURE_ALGORITHMS, |body| {
        with_length::<2>(body, |list| {
            list.extend(
                signature_schemes(suite.key)
                    .iter()
                    .flat_map(|scheme| scheme.to_be_bytes()),
            );
        });
    });
    if let Some(group) = suite.group {
        extension(hello, SUPPORTED_GROUPS, |body| {
            with_length::<2>(body, |list| list.extend(group.number().to_be_bytes()));
        });
    }
    match suite.protocol {
        Protocol::Tls12 => {
            extension(hello, RENEGOTIATION_INFO, |body| body.push(0));
            extension(hello, EC_POINT_FORMATS, |body| body.extend([1, 0]));
            extension(hello, EXTENDED_MASTER_SECRET, |_| ());
            extension(hello, SESSION_TICKET, |body| body.extend(ticket));
        }
        Protocol::Tls13 => {
            extension(hello, SUPPORTED_VERSIONS, |body| {
                with_length::<1>(body, |list| list.extend(VERSION_TLS13));
            });
            // psk_dhe_ke: without it a server issues no tickets.
            extension(hello, PSK_KEY_EXCHANGE_MODES, |body| body.extend([1, 1]));
            if let Some(group) = suite.group {
                extension(hello, KEY_SHARE, |body| {
                    with_length::<2>(body, |shares| {
                        shares.extend(group.number().to_be_bytes());
                        with_length::<2>(shares, |share| share.extend(key_share));
                    });
                });
            }
        }
    }
}

fn extension(hello: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    hello.extend(kind.to_be_bytes());
    with_length::<2>(hello, body);
}

#[cfg(test)]
mod tests {
    use slipstream_testbed::suite::SUITES;

    use super::*;

    #[test]
    fn the_lengths_of_a_client_hello_add_up() {
        let offers = SUITES
            .iter()
            .flat_map(|suite| [(suite, [].as_slice()), (suite, &[8; 200])]);
        for (suite, ticket) in offers {
            let hello = client_hello(suite, &[7; 32], ticket);
            let mut reader = Reader(&hello);
            assert_eq!(reader.take(1).unwrap(), [CLIENT_HELLO]);
            let mut body = Reader(reader.vector::<3>().unwrap());
            assert!(reader.0.is_empty(), "{}", suite.name);
            body.take(2 + RANDOM_LENGTH).unwrap();
            body.vector::<1>().unwrap();
            assert_eq!(
                body.vector::<2>().unwrap(),
                suite.cipher.number.to_be_bytes()
            );
            body.vector::<1>().unwrap();
            let mut extensions = Reader(body.vector::<2>().unwrap());
            assert!(body.0.is_empty(), "{}", suite.name);
            while !extensions.0.is_empty() {
                extensions.number().unwrap();
                extensions.vector::<2>().unwrap();
            }
        }
    }

    #[test]
    fn a_truncated_server_hello_is_refused_at_every_length() {
        let suite = Suite::find("tls13-rsa2048").unwrap();
        let mut body = vec![3, 3];
        body.extend([9; 32]);
        body.push(0);
        body.extend(suite.cipher.number.to_be_bytes());
        body.push(0);
        with_length::<2>(&mut body, |body| {
            extension(body, SUPPORTED_VERSIONS, |body| body.extend(VERSION_TLS13));
            extension(body, KEY_SHARE, |body| {
                body.extend([0, 0x1d]);
                with_length::<2>(body, |share| share.extend([5; 32]));
            });
        });
        let hello = ServerHello::parse(&body, suite).unwrap();
        assert_eq!(hello.key_share, Some([5; 32].as_slice()));
        for length in 0..body.len() {
            assert!(
                ServerHello::parse(&body[..length], suite).is_err(),
                "{length}"
            );
        }
        body[2..6].copy_from_slice(&HELLO_RETRY_REQUEST);
        assert!(ServerHello::parse(&body, suite).is_err());
    }
}
