//! The handshake of TLS 1.2 (RFC 5246 section 7.3), with RSA or ephemeral key exchange (RFC 8422)
//! and the extended master secret (RFC 7627); the full one, and the abbreviated one of a session
//! with a ticket (RFC 5077).

use super::Failure;
use super::hello::{RANDOM_LENGTH, Reader, ServerHello, with_length};
use super::keys::{Value, prf};
use super::record::{ContentType, Protection, write_plain};
use super::resumption::{Offer, Resumable};
use super::session::{Channel, Client, MESSAGE_HEADER_LENGTH};

const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const SERVER_HELLO_DONE: u8 = 14;
const CLIENT_KEY_EXCHANGE: u8 = 16;
const FINISHED: u8 = 20;

const NAMED_CURVE: u8 = 3;
pub(super) const MASTER_SECRET_LENGTH: usize = 48;
const VERIFY_DATA_LENGTH: usize = 12;
/// The secret part of AES-GCM's nonce (RFC 5288 section 3).
const SALT_LENGTH: usize = 4;
const MAX_KEY_BLOCK: usize = 2 * (32 + SALT_LENGTH);

/// Facts about the server that the handshake has brought so far.
#[derive(Default)]
pub(super) struct Tls12 {
    /// The session that the ClientHello has offered.
    offer: Option<Offer>,
    server_random: [u8; RANDOM_LENGTH],
    extended_master_secret: bool,
    certificates: Vec<u8>,
    key_share: Option<Vec<u8>>,
    ticket: Vec<u8>,
    master_secret: Option<[u8; MASTER_SECRET_LENGTH]>,
    /// The server's keys, until its ChangeCipherSpec puts them to use.
    pending: Option<Protection>,
}

impl Tls12 {
    /// The state once a ClientHello with this offer has been sent.
    pub(super) fn new(offer: Option<Offer>) -> Tls12 {
        Tls12 {
            offer,
            ..Tls12::default()
        }
    }

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
                if let Some(offer) = &self.offer
                    && let Some(master) = offer.accepted_by(&hello)?
                {
                    channel.resumed = true;
                    self.master_secret = Some(master);
                    self.derive_keys(client, channel, &master);
                }
            }
            CERTIFICATE if !channel.resumed => self.certificates = body.to_vec(),
            SERVER_KEY_EXCHANGE if !channel.resumed => {
                // The signature that follows is not looked at.
                let mut reader = Reader(body);
                let curve_type = reader.take(1)?;
                let group = client.suite.group.map(|group| group.number());
                if curve_type != [NAMED_CURVE] || Some(reader.number()?) != group {
                    return Err(Failure::Protocol("another group"));
                }
                self.key_share = Some(reader.vector::<1>()?.to_vec());
            }
            NEW_SESSION_TICKET => {
                let mut reader = Reader(body);
                reader.take(4)?; // For how long it can be used.
                self.ticket = reader.vector::<2>()?.to_vec();
            }
            SERVER_HELLO_DONE if !channel.resumed => {
                channel.transcript.update(message);
                return self.answer(client, channel);
            }
            FINISHED => return self.finish(client, channel, message),
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
        self.derive_keys(client, channel, &master);
        send_finished(client, channel, &master)
    }

    /// The keys of this connection (RFC 5246 section 6.3).
    fn derive_keys(
        &mut self,
        client: &Client<'_>,
        channel: &mut Channel,
        master: &[u8; MASTER_SECRET_LENGTH],
    ) {
        let cipher = client.suite.cipher;
        let mut block = [0; MAX_KEY_BLOCK];
        let block = &mut block[..2 * (cipher.key_length + SALT_LENGTH)];
        let seed: [&[u8]; 2] = [&self.server_random, &channel.client_random];
        prf(cipher.hash, master, b"key expansion", &seed, block);
        let (keys, salts) = block.split_at(2 * cipher.key_length);
        let (own_key, peer_key) = keys.split_at(cipher.key_length);
        let (own_salt, peer_salt) = salts.split_at(SALT_LENGTH);
        channel.writing = Some(Protection::new(own_key, own_salt));
        self.pending = Some(Protection::new(peer_key, peer_salt));
    }

    /// Checks the server's Finished message. It ends a full handshake; in an abbreviated one ours
    /// comes after it.
    fn finish(
        &mut self,
        client: &mut Client<'_>,
        channel: &mut Channel,
        message: &[u8],
    ) -> Result<(), Failure> {
        let (Some(master), Some(_)) = (&self.master_secret, &channel.reading) else {
            return Err(Failure::Protocol("Finished out of turn"));
        };
        let transcript = channel.transcript.current();
        let expected = verify_data(client, master, b"server finished", &transcript);
        if message[MESSAGE_HEADER_LENGTH..] != expected {
            return Err(Failure::Finished);
        }
        if channel.resumed {
            channel.transcript.update(message);
            send_finished(client, channel, master)?;
        } else if !self.ticket.is_empty() && client.needs_session(self.offer.is_some()) {
            let extended = self.extended_master_secret;
            client.keep_session(Resumable::new(client, &self.ticket, master, extended));
        }
        channel.complete = true;
        Ok(())
    }
}

/// Sends ChangeCipherSpec and Finished.
fn send_finished(
    client: &mut Client<'_>,
    channel: &mut Channel,
    master: &[u8; MASTER_SECRET_LENGTH],
) -> Result<(), Failure> {
    channel.change_cipher_spec();
    let transcript = channel.transcript.current();
    let mut finished = vec![FINISHED];
    with_length::<3>(&mut finished, |body| {
        body.extend(verify_data(client, master, b"client finished", &transcript));
    });
    channel.transcript.update(&finished);
    channel.protect(client, ContentType::Handshake, &finished)
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
