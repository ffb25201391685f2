//! A session of TLS 1.2 that is resumed with a ticket (RFC 5077).
//!
//! Tickets, and not session ids: a plain nginx gives tickets, and keeps no cache of sessions.

use std::rc::Rc;

use super::Failure;
use super::exchange::share;
use super::hello::{SESSION_ID_LENGTH, ServerHello, client_hello};
use super::session::Client;
use super::tls12::MASTER_SECRET_LENGTH;

/// A session that can be resumed.
pub(super) struct Resumable {
    /// The ClientHello that offers it, with the random value and the session id left 0.
    pub(super) hello: Vec<u8>,
    master_secret: [u8; MASTER_SECRET_LENGTH],
    extended_master_secret: bool,
}

impl Resumable {
    pub(super) fn new(
        client: &Client<'_>,
        ticket: &[u8],
        master_secret: &[u8; MASTER_SECRET_LENGTH],
        extended_master_secret: bool,
    ) -> Resumable {
        let key_share = client.suite.group.map_or(&[][..], share);
        Resumable {
            hello: client_hello(client.suite, key_share, ticket),
            master_secret: *master_secret,
            extended_master_secret,
        }
    }
}

/// A session that a ClientHello has offered.
pub(super) struct Offer {
    pub(super) session: Rc<Resumable>,
    /// Its only purpose is that the server sends it back when it resumes (RFC 5077 section 3.4).
    pub(super) session_id: [u8; SESSION_ID_LENGTH],
}

impl Offer {
    /// The session's master secret if the server resumes it.
    pub(super) fn accepted_by(
        &self,
        hello: &ServerHello<'_>,
    ) -> Result<Option<[u8; MASTER_SECRET_LENGTH]>, Failure> {
        if hello.session_id != self.session_id {
            return Ok(None);
        }
        // RFC 7627 section 5.3.
        if hello.extended_master_secret != self.session.extended_master_secret {
            return Err(Failure::Protocol(
                "a session resumed with another master secret",
            ));
        }
        Ok(Some(self.session.master_secret))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use openssl::ssl::{SslAcceptor, SslFiletype, SslMethod, SslVersion};
    use slipstream_testbed::credentials::Credentials;
    use slipstream_testbed::scratch::ScratchDirectory;
    use slipstream_testbed::suite::{KeyType, Suite};

    use super::super::session::Session;
    use super::*;

    #[test]
    fn a_session_is_resumed_when_asked_for_and_both_sides_know() {
        let mut server = Server::new();
        for name in ["tls12-rsakx", "tls12-ecdhe-rsa-p256"] {
            let mut client = Client::new(Suite::find(name).unwrap(), true).unwrap();
            assert_eq!(server.serve(&mut client, false), Ok(false), "{name}");
            assert_eq!(server.serve(&mut client, true), Ok(true), "{name}");
            assert_eq!(server.serve(&mut client, false), Ok(false), "{name}");
            assert_eq!(server.serve(&mut client, true), Ok(true), "{name}");
        }
    }

    #[test]
    fn nothing_is_offered_by_a_client_that_keeps_no_session() {
        let mut server = Server::new();
        let mut client = Client::new(Suite::find("tls12-rsakx").unwrap(), false).unwrap();
        for _ in 0..2 {
            assert_eq!(server.serve(&mut client, true), Ok(false));
        }
    }

    #[test]
    fn a_refused_session_gives_way_to_the_next() {
        let mut client = Client::new(Suite::find("tls12-ecdhe-rsa-p256").unwrap(), true).unwrap();
        assert_eq!(Server::new().serve(&mut client, true), Ok(false));
        // A server that cannot read the other's tickets.
        let mut server = Server::new();
        assert_eq!(server.serve(&mut client, true), Ok(false));
        assert_eq!(server.serve(&mut client, true), Ok(true));
    }

    #[test]
    fn a_resumed_session_with_other_secrets_or_another_transcript_is_refused() {
        let mut server = Server::new();
        let suite = Suite::find("tls12-ecdhe-rsa-p256").unwrap();
        let mut client = Client::new(suite, true).unwrap();
        assert_eq!(server.serve(&mut client, false), Ok(false));
        let failure = server.serve_with(&mut client, true, |session| {
            session
                .channel
                .transcript
                .update(b"what the server has not seen");
        });
        assert_eq!(failure, Err(Failure::Finished.to_string()));

        let session = client.session().unwrap();
        client.keep_session(Resumable {
            hello: session.hello.clone(),
            master_secret: [7; MASTER_SECRET_LENGTH],
            extended_master_secret: true,
        });
        assert!(server.serve(&mut client, true).is_err());
        client.keep_session(Resumable {
            hello: session.hello.clone(),
            master_secret: session.master_secret,
            extended_master_secret: false,
        });
        assert!(server.serve(&mut client, true).is_err());
    }

    /// OpenSSL's server.
    struct Server(SslAcceptor);

    impl Server {
        fn new() -> Server {
            let scratch = ScratchDirectory::new().unwrap();
            let credentials = Credentials::generate(KeyType::Rsa2048, &scratch).unwrap();
            let mut builder =
                SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
            builder
                .set_max_proto_version(Some(SslVersion::TLS1_2))
                .unwrap();
            builder
                .set_cipher_list("AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256")
                .unwrap();
            builder.set_groups_list("P-256").unwrap();
            builder
                .set_private_key_file(&credentials.key, SslFiletype::PEM)
                .unwrap();
            builder
                .set_certificate_file(&credentials.certificate, SslFiletype::PEM)
                .unwrap();
            Server(builder.build())
        }

        fn serve(&mut self, client: &mut Client<'_>, resume: bool) -> Result<bool, String> {
            self.serve_with(client, resume, |_| ())
        }

        /// One handshake and one byte of data: whether the session was resumed, as both sides
        /// agree, or why the client gave up. `meddle` is called once the ServerHello has been read.
        fn serve_with(
            &mut self,
            client: &mut Client<'_>,
            resume: bool,
            meddle: impl FnOnce(&mut Session),
        ) -> Result<bool, String> {
            let (ours, theirs) = UnixStream::pair().unwrap();
            thread::scope(|scope| {
                let server = scope.spawn(|| {
                    let mut stream = self.0.accept(theirs).ok()?;
                    stream.write_all(b"!").ok()?;
                    Some(stream.ssl().session_reused())
                });
                let resumed = connect(client, ours, resume, meddle)?;
                assert_eq!(server.join().unwrap(), Some(resumed));
                Ok(resumed)
            })
        }
    }

    fn connect(
        client: &mut Client<'_>,
        mut socket: UnixStream,
        resume: bool,
        meddle: impl FnOnce(&mut Session),
    ) -> Result<bool, String> {
        let mut meddle = Some(meddle);
        let mut session = Session::new(client);
        session.start(client, resume).unwrap();
        while session.data().is_empty() {
            socket.write_all(session.outgoing()).unwrap();
            session.outgoing().clear();
            // A record at a time, so that the ServerHello of an abbreviated handshake comes alone.
            let mut record = vec![0; 5];
            socket.read_exact(&mut record).unwrap();
            let length = u16::from_be_bytes([record[3], record[4]]);
            record.resize(5 + usize::from(length), 0);
            socket.read_exact(&mut record[5..]).unwrap();
            session
                .receive(client, &record)
                .map_err(|failure| failure.to_string())?;
            if let Some(meddle) = meddle.take() {
                meddle(&mut session);
            }
        }
        assert!(session.is_complete());
        Ok(session.is_resumed())
    }
}
