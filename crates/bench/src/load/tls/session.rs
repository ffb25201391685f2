//! A connection's TLS state, and what the connections of a load share.

use std::borrow::Cow;
use std::rc::Rc;

use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;
use openssl::rsa::Padding;
use openssl::x509::X509;
use slipstream_testbed::suite::{Protocol, Suite};

use super::Failure;
use super::exchange::{share, shared_secret};
use super::hello::{
    RANDOM_LENGTH, RANDOM_OFFSET, Reader, SESSION_ID_LENGTH, SESSION_ID_OFFSET, client_hello,
};
use super::keys::{Hasher, Value, derive_secret, extract};
use super::record::{Aead, ContentType, HEADER_LENGTH, MAX_PAYLOAD, Protection, write_plain};
use super::resumption::{Offer, Resumable};
use super::tls12::Tls12;
use super::tls13::Tls13;

/// The length of a handshake message's header: its type and three bytes of length.
pub(super) const MESSAGE_HEADER_LENGTH: usize = 4;
/// The longest handshake message that is taken: certificate chains are shorter.
const MAX_MESSAGE: usize = 1 << 18;
const CLOSE_NOTIFY: u8 = 0;
/// TLS 1.2's premaster secret for RSA: the version and 46 random bytes (RFC 5246 section 7.4.7.1).
const PREMASTER_LENGTH: usize = 48;

/// State that the connections of a load share.
pub(in crate::load) struct Client<'a> {
    pub(super) suite: &'a Suite,
    pub(super) aead: Aead,
    hello: Vec<u8>,
    premaster: [u8; PREMASTER_LENGTH],
    encrypted_premaster: Option<EncryptedPremaster>,
    /// The salt of TLS 1.3's handshake secret, the same for every connection without a pre-shared
    /// key.
    pub(super) handshake_salt: Value,
    keeps_sessions: bool,
    resumable: Option<Rc<Resumable>>,
}

/// The premaster secret encrypted to the key of a certificate.
struct EncryptedPremaster {
    certificates: Vec<u8>,
    ciphertext: Vec<u8>,
}

impl<'a> Client<'a> {
    /// A client that offers `suite` alone. If it `keeps_sessions`, those of TLS 1.2 can be resumed.
    pub(in crate::load) fn new(
        suite: &'a Suite,
        keeps_sessions: bool,
    ) -> Result<Client<'a>, ErrorStack> {
        let mut premaster = [0; PREMASTER_LENGTH];
        rand_bytes(&mut premaster)?;
        premaster[..2].copy_from_slice(&[3, 3]);

        let hash = suite.cipher.hash;
        let empty = Hasher::new(hash).finish();
        let zeros = vec![0; empty.as_bytes().len()];
        let early = extract(hash, &zeros, &zeros);
        Ok(Client {
            suite,
            aead: Aead::new(suite)?,
            hello: client_hello(suite, suite.group.map_or(&[], share), &[]),
            premaster,
            encrypted_premaster: None,
            handshake_salt: derive_secret(hash, &early, "derived", &empty),
            keeps_sessions,
            resumable: None,
        })
    }

    /// Returns true if a full handshake is to leave a session behind; `offered` says whether it
    /// offered one. One session serves all connections until the server refuses it.
    pub(super) fn needs_session(&self, offered: bool) -> bool {
        self.keeps_sessions && (offered || self.resumable.is_none())
    }

    #[cfg(test)]
    pub(super) fn session(&self) -> Option<Rc<Resumable>> {
        self.resumable.clone()
    }

    /// Offers this session from now on.
    pub(super) fn keep_session(&mut self, session: Resumable) {
        self.resumable = Some(Rc::new(session));
    }

    /// Our share of the key exchange and the secret that it makes with the server's.
    pub(super) fn exchange<'b>(
        &self,
        peer: &'b [u8],
    ) -> Result<(&'static [u8], Cow<'b, [u8]>), Failure> {
        let group = self
            .suite
            .group
            .ok_or(Failure::Protocol("a key share that was not asked for"))?;
        Ok((share(group), shared_secret(group, peer)?))
    }

    /// The premaster secret, and the same encrypted to the first of `certificates` (the body of a
    /// Certificate message).
    pub(super) fn premaster(&mut self, certificates: &[u8]) -> Result<(&[u8], &[u8]), Failure> {
        let known = self
            .encrypted_premaster
            .take()
            .filter(|known| known.certificates == certificates);
        let encrypted = match known {
            Some(known) => known,
            None => EncryptedPremaster {
                certificates: certificates.to_vec(),
                ciphertext: encrypt(certificates, &self.premaster)?,
            },
        };
        let encrypted = self.encrypted_premaster.insert(encrypted);
        Ok((&self.premaster, &encrypted.ciphertext))
    }
}

fn encrypt(certificates: &[u8], premaster: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut list = Reader(Reader(certificates).vector::<3>()?);
    let key = X509::from_der(list.vector::<3>()?)?.public_key()?.rsa()?;
    let mut ciphertext = vec![0; key.size() as usize];
    key.public_encrypt(premaster, &mut ciphertext, Padding::PKCS1)?;
    Ok(ciphertext)
}

/// One connection's TLS state. Its buffers are kept when it is started again.
pub(in crate::load) struct Session {
    incoming: Vec<u8>,
    messages: Vec<u8>,
    data: Vec<u8>,
    state: State,
    closed_by_peer: bool,
    pub(super) channel: Channel,
}

/// State that both protocol versions work on.
pub(super) struct Channel {
    pub(super) outgoing: Vec<u8>,
    pub(super) transcript: Hasher,
    pub(super) client_random: [u8; RANDOM_LENGTH],
    pub(super) reading: Option<Protection>,
    pub(super) writing: Option<Protection>,
    pub(super) complete: bool,
    /// True if the server has resumed the session that was offered.
    pub(super) resumed: bool,
}

enum State {
    Tls12(Tls12),
    Tls13(Tls13),
}

impl Session {
    pub(in crate::load) fn new(client: &Client<'_>) -> Session {
        Session {
            incoming: Vec::new(),
            messages: Vec::new(),
            data: Vec::new(),
            state: State::new(client.suite.protocol, None),
            closed_by_peer: false,
            channel: Channel {
                outgoing: Vec::new(),
                transcript: Hasher::new(client.suite.cipher.hash),
                client_random: [0; RANDOM_LENGTH],
                reading: None,
                writing: None,
                complete: false,
                resumed: false,
            },
        }
    }

    /// Begins a handshake: the ClientHello is then [`Session::outgoing`]. With `resume` it offers
    /// to resume a session, if there is one.
    pub(in crate::load) fn start(
        &mut self,
        client: &Client<'_>,
        resume: bool,
    ) -> Result<(), Failure> {
        self.incoming.clear();
        self.messages.clear();
        self.data.clear();
        self.closed_by_peer = false;

        let mut fresh = [0; RANDOM_LENGTH + SESSION_ID_LENGTH];
        rand_bytes(&mut fresh)?;
        let (random, session_id) = fresh.split_at(RANDOM_LENGTH);
        let channel = &mut self.channel;
        channel.outgoing.clear();
        channel.reading = None;
        channel.writing = None;
        channel.complete = false;
        channel.resumed = false;
        channel.client_random.copy_from_slice(random);
        channel.transcript = Hasher::new(client.suite.cipher.hash);

        let session = client.resumable.as_ref().filter(|_| resume);
        let hello = session.map_or(&client.hello, |session| &session.hello);
        write_plain(ContentType::Handshake, hello, &mut channel.outgoing);
        let hello = &mut channel.outgoing[HEADER_LENGTH..];
        hello[RANDOM_OFFSET..][..RANDOM_LENGTH].copy_from_slice(random);
        if client.suite.protocol == Protocol::Tls13 || session.is_some() {
            hello[SESSION_ID_OFFSET..][..SESSION_ID_LENGTH].copy_from_slice(session_id);
        }
        channel.transcript.update(hello);
        let offer = session.map(|session| Offer {
            session: Rc::clone(session),
            session_id: session_id.try_into().expect("its own length"),
        });
        self.state = State::new(client.suite.protocol, offer);
        Ok(())
    }

    /// Takes what has come from the socket.
    pub(in crate::load) fn receive(
        &mut self,
        client: &mut Client<'_>,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        self.incoming.extend_from_slice(bytes);
        // Taken out for the while, as its records are read while the rest of the session changes.
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut consumed = 0;
        while let Some((header, rest)) =
            incoming[consumed..].split_first_chunk_mut::<HEADER_LENGTH>()
        {
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if length > MAX_PAYLOAD {
                return Err(Failure::Protocol("a record that is too long"));
            }
            let Some((payload, _)) = rest.split_at_mut_checked(length) else {
                break;
            };
            self.read_record(client, *header, payload)?;
            consumed += HEADER_LENGTH + length;
        }
        incoming.drain(..consumed);
        self.incoming = incoming;
        Ok(())
    }

    /// Bytes to be sent; the caller removes those that it has sent.
    pub(in crate::load) fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.channel.outgoing
    }

    /// Returns true if the handshake is complete and the server's Finished message has been
    /// checked.
    pub(in crate::load) fn is_complete(&self) -> bool {
        self.channel.complete
    }

    /// Returns true if the handshake is an abbreviated one.
    pub(in crate::load) fn is_resumed(&self) -> bool {
        self.channel.resumed
    }

    /// The application data received so far.
    pub(in crate::load) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The same, for who takes it away.
    pub(in crate::load) fn data_mut(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    /// Returns true if the server has sent its close_notify.
    pub(in crate::load) fn is_closed_by_peer(&self) -> bool {
        self.closed_by_peer
    }

    /// Puts application data into [`Session::outgoing`]. The handshake has to be complete.
    pub(in crate::load) fn send(
        &mut self,
        client: &mut Client<'_>,
        data: &[u8],
    ) -> Result<(), Failure> {
        self.channel
            .protect(client, ContentType::ApplicationData, data)
    }

    /// Puts a close_notify into [`Session::outgoing`]. The handshake has to be complete.
    pub(in crate::load) fn close(&mut self, client: &mut Client<'_>) -> Result<(), Failure> {
        self.channel
            .protect(client, ContentType::Alert, &[1, CLOSE_NOTIFY])
    }

    fn read_record(
        &mut self,
        client: &mut Client<'_>,
        header: [u8; HEADER_LENGTH],
        payload: &mut [u8],
    ) -> Result<(), Failure> {
        let kind = ContentType::from_byte(header[0])?;
        if kind == ContentType::ChangeCipherSpec {
            return match &mut self.state {
                State::Tls12(state) => state.change_cipher_spec(&mut self.channel),
                State::Tls13(_) => Ok(()),
            };
        }
        let (kind, content) = match &mut self.channel.reading {
            Some(protection) => {
                let (kind, range) = client.aead.read(protection, header, payload)?;
                (kind, &payload[range])
            }
            None => (kind, &*payload),
        };
        match kind {
            ContentType::Handshake => self.read_messages(client, content),
            ContentType::Alert => match content {
                [_, CLOSE_NOTIFY] => {
                    self.closed_by_peer = true;
                    Ok(())
                }
                [_, description] => Err(Failure::Alert(*description)),
                _ => Err(Failure::Protocol("an alert of the wrong length")),
            },
            ContentType::ApplicationData if self.channel.complete => {
                self.data.extend_from_slice(content);
                Ok(())
            }
            ContentType::ApplicationData | ContentType::ChangeCipherSpec => {
                Err(Failure::Protocol("a record out of turn"))
            }
        }
    }

    fn read_messages(&mut self, client: &mut Client<'_>, content: &[u8]) -> Result<(), Failure> {
        self.messages.extend_from_slice(content);
        let mut messages = std::mem::take(&mut self.messages);
        let mut consumed = 0;
        while let Some(header) = messages[consumed..].first_chunk::<MESSAGE_HEADER_LENGTH>() {
            let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
            if length > MAX_MESSAGE {
                return Err(Failure::Protocol("a message that is too long"));
            }
            let end = consumed + MESSAGE_HEADER_LENGTH + length;
            let Some(message) = messages.get(consumed..end) else {
                break;
            };
            match &mut self.state {
                State::Tls12(state) => state.handle(client, &mut self.channel, message)?,
                State::Tls13(state) => state.handle(client, &mut self.channel, message)?,
            }
            consumed = end;
        }
        messages.drain(..consumed);
        self.messages = messages;
        Ok(())
    }
}

impl State {
    fn new(protocol: Protocol, offer: Option<Offer>) -> State {
        match protocol {
            Protocol::Tls12 => State::Tls12(Tls12::new(offer)),
            Protocol::Tls13 => State::Tls13(Tls13::default()),
        }
    }
}

impl Channel {
    /// Appends a protected record to what is to be sent.
    pub(super) fn protect(
        &mut self,
        client: &mut Client<'_>,
        kind: ContentType,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let protection = self
            .writing
            .as_mut()
            .ok_or(Failure::Protocol("no keys yet"))?;
        Ok(client
            .aead
            .write(protection, kind, payload, &mut self.outgoing)?)
    }

    /// Appends a ChangeCipherSpec record to what is to be sent.
    pub(super) fn change_cipher_spec(&mut self) {
        write_plain(ContentType::ChangeCipherSpec, &[1], &mut self.outgoing);
    }
}
