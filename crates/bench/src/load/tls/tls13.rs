//! The full handshake of TLS 1.3 (RFC 8446 section 2), without client certificates and
//! HelloRetryRequest.

use slipstream_testbed::suite::Suite;

use super::Failure;
use super::hello::{ServerHello, with_length};
use super::keys::{Hasher, MAX_HASH, Value, derive_secret, expand_label, extract, hmac};
use super::record::{ContentType, Protection};
use super::session::{Channel, Client, MESSAGE_HEADER_LENGTH};

const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const CERTIFICATE: u8 = 11;
const CERTIFICATE_VERIFY: u8 = 15;
const FINISHED: u8 = 20;

const IV_LENGTH: usize = 12;

/// The secrets of the handshake, from the ServerHello on.
#[derive(Default)]
pub(super) struct Tls13 {
    secrets: Option<Secrets>,
}

struct Secrets {
    handshake: Value,
    client: Value,
    server: Value,
}

impl Tls13 {
    /// Handles a message from the server, header included.
    pub(super) fn handle(
        &mut self,
        client: &mut Client<'_>,
        channel: &mut Channel,
        message: &[u8],
    ) -> Result<(), Failure> {
        let (header, body) = message.split_at(MESSAGE_HEADER_LENGTH);
        match (header[0], &self.secrets) {
            (SERVER_HELLO, None) => {
                channel.transcript.update(message);
                let secrets = agree(client, channel, body)?;
                channel.reading = Some(protection(client.suite, &secrets.server));
                channel.writing = Some(protection(client.suite, &secrets.client));
                self.secrets = Some(secrets);
                Ok(())
            }
            // The certificate and its signature are hashed and not looked at.
            (ENCRYPTED_EXTENSIONS | CERTIFICATE | CERTIFICATE_VERIFY, Some(_)) => {
                channel.transcript.update(message);
                Ok(())
            }
            (FINISHED, Some(secrets)) if !channel.complete => {
                finish(client, channel, secrets, message)
            }
            (NEW_SESSION_TICKET, Some(_)) if channel.complete => Ok(()),
            _ => Err(Failure::Protocol(
                "a message that is not part of the handshake",
            )),
        }
    }
}

/// Derives the handshake secrets from the body of a ServerHello that is in the transcript (RFC 8446
/// section 7.1).
fn agree(client: &Client<'_>, channel: &Channel, body: &[u8]) -> Result<Secrets, Failure> {
    let hash = client.suite.cipher.hash;
    let share = ServerHello::parse(body, client.suite)?
        .key_share
        .ok_or(Failure::Protocol("no key share"))?;
    let (_, shared) = client.exchange(share)?;
    let handshake = extract(hash, client.handshake_salt.as_bytes(), &shared);
    let transcript = channel.transcript.current();
    Ok(Secrets {
        client: derive_secret(hash, &handshake, "c hs traffic", &transcript),
        server: derive_secret(hash, &handshake, "s hs traffic", &transcript),
        handshake,
    })
}

/// Checks the server's Finished message, sends ours and changes to the keys for application data.
fn finish(
    client: &mut Client<'_>,
    channel: &mut Channel,
    secrets: &Secrets,
    message: &[u8],
) -> Result<(), Failure> {
    let suite = client.suite;
    let hash = suite.cipher.hash;
    let expected = verify_data(suite, &secrets.server, &channel.transcript.current());
    if message[MESSAGE_HEADER_LENGTH..] != *expected.as_bytes() {
        return Err(Failure::Finished);
    }
    channel.transcript.update(message);

    let transcript = channel.transcript.current();
    let mut finished = vec![FINISHED];
    with_length::<3>(&mut finished, |body| {
        body.extend(verify_data(suite, &secrets.client, &transcript).as_bytes());
    });
    channel.change_cipher_spec();
    channel.protect(client, ContentType::Handshake, &finished)?;

    let empty = Hasher::new(hash).finish();
    let derived = derive_secret(hash, &secrets.handshake, "derived", &empty);
    let zeros = &[0; MAX_HASH][..derived.as_bytes().len()];
    let master = extract(hash, derived.as_bytes(), zeros);
    let secret = |label| derive_secret(hash, &master, label, &transcript);
    channel.writing = Some(protection(suite, &secret("c ap traffic")));
    channel.reading = Some(protection(suite, &secret("s ap traffic")));
    channel.complete = true;
    Ok(())
}

fn protection(suite: &Suite, secret: &Value) -> Protection {
    let hash = suite.cipher.hash;
    let mut key = [0; 32];
    let key = &mut key[..suite.cipher.key_length];
    let mut iv = [0; IV_LENGTH];
    expand_label(hash, secret, "key", &[], key);
    expand_label(hash, secret, "iv", &[], &mut iv);
    Protection::new(key, &iv)
}

fn verify_data(suite: &Suite, secret: &Value, transcript: &Value) -> Value {
    let hash = suite.cipher.hash;
    let mut key = [0; MAX_HASH];
    let key = &mut key[..transcript.as_bytes().len()];
    expand_label(hash, secret, "finished", &[], key);
    hmac(hash, key, &[transcript.as_bytes()])
}
