//! The full handshake of TLS 1.2 (RFC 5246 section 7.3), with RSA or ephemeral key exchange (RFC 8422) and the extended
//! master secret (RFC 7627).

use super::Failure;
use super::hello::{RANDOM_LENGTH, Reader, ServerHello, with_length};
use super::keys::{Value, prf};
use super::record::{ContentType, Protection, write_plain};
use super::session::{Channel, Client, MESSAGE_HEADER_LENGTH};

const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const SERVER_HELLO_DONE: u8 = 14;
const CLIENT_KEY_EXCHANGE: u8 = 16;
const FINISHED: u8 = 20;

const NAMED_CURVE: u8 = 3;
const MASTER_SECRET_LENGTH: usize = 48;
const VERIFY_DATA_LENGTH: usize = 12;
/// The secret part of AES-GCM's nonce (RFC 5288 section 3).
const SALT_LENGTH: usize = 4;
const MAX_KEY_BLOCK: usize = 2 * (32 + SALT_LENGTH);

/// What has been learned of the server so far.
#[derive(Default)]
pub(super) struct Tls12 {
    server_random: [u8; RANDOM_LENGTH],
    extended_master_secret: bool,
    certificates: Vec<u8>,
    key_share: Option<Vec<u8>>,
    master_secret: Option<[u8; MASTER_SECRET_LENGTH]>,
    /// The server's keys, until its ChangeCipherSpec puts them to use.
    pending: Option<Protection>,
}

impl Tls12 {
    /// Handles a message from the server, header included.
    pub(super) fn handle(
        &mut self,
        client: &mut Client<'_>,
        channel: &mut Channel,
        message: &[u8],
    ) -> Result<(), Failure> {
        let (header, body) = message.split_at(MESSAGE_HEADER_LENGTH);
        match header[0] {
            SERVER_HELLO => {
                let hello = ServerHello::parse(body, client.suite)?;
                self.server_random.copy_from_slice(hello.random);
                self.extended_master_secret = hello.extended_master_secret;
            }
            CERTIFICATE => self.certificates = body.to_vec(),
            SERVER_KEY_EXCHANGE => {
                // The signature that follows is not looked at.
                let mut reader = Reader(body);
                let curve_type = reader.take(1)?;
                let group = client.suite.group.map(|group| group.number());
                if curve_type != [NAMED_CURVE] || Some(reader.number()?) != group {
                    return Err(Failure::Protocol("another group"));
                }
                self.key_share = Some(reader.vector::<1>()?.to_vec());
            }
            NEW_SESSION_TICKET => {}
            SERVER_HELLO_DONE => {
                channel.transcript.update(message);
                return self.answer(client, channel);
            }
            FINISHED => return self.finish(client, channel, body),
            _ => {
                return Err(Failure::Protocol(
                    "a message that is not part of the handshake",
                ));
            }
        }
        channel.transcript.update(message);
        Ok(())
    }

    /// The server protects what it sends from here on.
    pub(super) fn change_cipher_spec(&mut self, channel: &mut Channel) -> Result<(), Failure> {
        match self.pending.take() {
            Some(protection) => channel.reading = Some(protection),
            None => return Err(Failure::Protocol("ChangeCipherSpec out of turn")),
        }
        Ok(())
    }

    /// Sends ClientKeyExchange, ChangeCipherSpec and Finished.
    fn answer(&mut self, client: &mut Client<'_>, channel: &mut Channel) -> Result<(), Failure> {
        let hash = client.suite.cipher.hash;
        let mut message = vec![CLIENT_KEY_EXCHANGE];
        let premaster = match (&self.key_share, client.suite.group) {
            (Some(peer), Some(_)) => {
                let (share, premaster) = client.exchange(peer)?;
                with_length::<3>(&mut message, |body| {
                    with_length::<1>(body, |body| body.extend(share));
                });
                premaster.to_vec()
            }
            (None, None) => {
                let (premaster, encrypted) = client.premaster(&self.certificates)?;
                with_length::<3>(&mut message, |body| {
                    with_length::<2>(body, |body| body.extend(encrypted));
                });
                premaster.to_vec()
            }
            _ => return Err(Failure::Protocol("another key exchange")),
        };
        channel.transcript.update(&message);
        write_plain(ContentType::Handshake, &message, &mut channel.outgoing);

        let mut master = [0; MASTER_SECRET_LENGTH];
        let client_random = channel.client_random;
        if self.extended_master_secret {
            let session = channel.transcript.current();
            let label = b"extended master secret";
            prf(hash, &premaster, label, &[session.as_bytes()], &mut master);
        } else {
            let seed: [&[u8]; 2] = [&client_random, &self.server_random];
            prf(hash, &premaster, b"master secret", &seed, &mut master);
        }
        self.master_secret = Some(master);

        let key_length = client.suite.cipher.key_length;
        let mut block = [0; MAX_KEY_BLOCK];
        let block = &mut block[..2 * (key_length + SALT_LENGTH)];
        let seed: [&[u8]; 2] = [&self.server_random, &client_random];
        prf(hash, &master, b"key expansion", &seed, block);
        let (keys, salts) = block.split_at(2 * key_length);
        channel.writing = Some(Protection::new(&keys[..key_length], &salts[..SALT_LENGTH]));
        self.pending = Some(Protection::new(&keys[key_length..], &salts[SALT_LENGTH..]));

        channel.change_cipher_spec();
        let transcript = channel.transcript.current();
        let mut finished = vec![FINISHED];
        with_length::<3>(&mut finished, |body| {
            body.extend(verify_data(
                client,
                &master,
                b"client finished",
                &transcript,
            ));
        });
        channel.transcript.update(&finished);
        channel.protect(client, ContentType::Handshake, &finished)
    }

    fn finish(
        &mut self,
        client: &Client<'_>,
        channel: &mut Channel,
        body: &[u8],
    ) -> Result<(), Failure> {
        let (Some(master), Some(_)) = (&self.master_secret, &channel.reading) else {
            return Err(Failure::Protocol("Finished out of turn"));
        };
        let transcript = channel.transcript.current();
        if body != verify_data(client, master, b"server finished", &transcript) {
            return Err(Failure::Finished);
        }
        channel.complete = true;
        Ok(())
    }
}

fn verify_data(
    client: &Client<'_>,
    master: &[u8],
    label: &[u8],
    transcript: &Value,
) -> [u8; VERIFY_DATA_LENGTH] {
    let mut data = [0; VERIFY_DATA_LENGTH];
    let seed = [transcript.as_bytes()];
    prf(client.suite.cipher.hash, master, label, &seed, &mut data);
    data
}
