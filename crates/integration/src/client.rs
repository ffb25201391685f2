//! A TLS client on the system's OpenSSL, whose offer a test decides.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use openssl::pkey::{PKey, Public};
use openssl::ssl::{
    self, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSession,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;

use crate::http::Response;
use crate::socket::Socket;
use crate::{Credentials, PATIENCE};

/// The offer of a client. Certificates are verified only against [`Offer::roots`].
#[derive(Clone, Debug, Default)]
pub struct Offer {
    version: Option<SslVersion>,
    ciphers: Option<String>,
    groups: Option<String>,
    signature_algorithms: Option<String>,
    name: Option<String>,
    roots: Option<X509>,
    credentials: Option<Credentials>,
    without_tickets: bool,
}

impl Offer {
    /// TLS 1.2 only (RFC 5246).
    pub fn tls12() -> Self {
        Self::only(SslVersion::TLS1_2)
    }

    /// TLS 1.3 only (RFC 8446).
    pub fn tls13() -> Self {
        Self::only(SslVersion::TLS1_3)
    }

    /// TLS 1.2 with RSA key exchange (RFC 5246 section 8.1.1).
    pub fn rsa_key_exchange() -> Self {
        Self::tls12().ciphers("AES128-GCM-SHA256")
    }

    /// Restricts the cipher suites of TLS 1.2, in OpenSSL's notation.
    pub fn ciphers(self, ciphers: &str) -> Self {
        Self {
            ciphers: Some(ciphers.to_owned()),
            ..self
        }
    }

    /// Restricts the groups, in OpenSSL's notation; in TLS 1.3 a key share is sent for the first.
    pub fn groups(self, groups: &str) -> Self {
        Self {
            groups: Some(groups.to_owned()),
            ..self
        }
    }

    /// Restricts the signature algorithms, in OpenSSL's notation.
    pub fn signature_algorithms(self, algorithms: &str) -> Self {
        Self {
            signature_algorithms: Some(algorithms.to_owned()),
            ..self
        }
    }

    /// Sends this server name (RFC 6066 section 3).
    pub fn name(self, name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            ..self
        }
    }

    /// Verifies the server's certificate, and its name if one is sent.
    pub fn roots(self, authority: &X509) -> Self {
        Self {
            roots: Some(authority.clone()),
            ..self
        }
    }

    /// Sends this certificate if the server asks for one.
    pub fn credentials(self, credentials: &Credentials) -> Self {
        Self {
            credentials: Some(credentials.clone()),
            ..self
        }
    }

    /// Takes no tickets, so that sessions of TLS 1.2 are resumed by their ID (RFC 5246 section
    /// 7.3).
    pub fn without_tickets(self) -> Self {
        Self {
            without_tickets: true,
            ..self
        }
    }

    fn only(version: SslVersion) -> Self {
        Self {
            version: Some(version),
            ..Self::default()
        }
    }

    fn context(&self, sessions: Sessions) -> Result<SslContext, openssl::error::ErrorStack> {
        let mut builder = SslContextBuilder::new(SslMethod::tls_client())?;
        builder.set_min_proto_version(self.version)?;
        builder.set_max_proto_version(self.version)?;
        if let Some(ciphers) = &self.ciphers {
            builder.set_cipher_list(ciphers)?;
        }
        if let Some(groups) = &self.groups {
            builder.set_groups_list(groups)?;
        }
        if let Some(algorithms) = &self.signature_algorithms {
            builder.set_sigalgs_list(algorithms)?;
        }
        if let Some(roots) = &self.roots {
            builder.set_verify(SslVerifyMode::PEER);
            builder.cert_store_mut().add_cert(roots.clone())?;
        } else {
            builder.set_verify(SslVerifyMode::NONE);
        }
        if let Some(credentials) = &self.credentials {
            builder.set_certificate(&credentials.certificate)?;
            builder.set_private_key(&credentials.key)?;
        }
        if self.without_tickets {
            builder.set_options(SslOptions::NO_TICKET);
        }
        builder.set_session_cache_mode(SslSessionCacheMode::CLIENT);
        builder.set_new_session_callback(move |_, session| sessions.put(session));
        Ok(builder.build())
    }
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    name: Option<String>,
    context: SslContext,
    sessions: Sessions,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed below TLS, or the response could not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The handshake failed.
    #[error("{0}")]
    Handshake(#[from] ssl::Error),
}

impl Client {
    /// A client of the server at `address`.
    ///
    /// # Panics
    /// If OpenSSL does not know what is offered.
    pub fn new(address: SocketAddr, offer: &Offer) -> Self {
        let sessions = Sessions::default();
        Self {
            address,
            name: offer.name.clone(),
            context: offer
                .context(sessions.clone())
                .expect("OpenSSL knows what the test offers"),
            sessions,
        }
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects and completes a handshake.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(&self) -> Result<Connection, ClientError> {
        self.handshake(self.open()?)
    }

    /// Opens a TCP connection, and sends nothing yet.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn open(&self) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    /// Completes a handshake on an open connection.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn handshake(&self, socket: TcpStream) -> Result<Connection, ClientError> {
        self.complete(SslStream::new(self.ssl(), socket.into()).expect("a TLS stream"))
    }

    /// Fetches one page over a connection of its own.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get(&self, path: &str) -> Result<Response, ClientError> {
        Ok(self.connect()?.get(path)?)
    }

    /// The session that the server has issued last, by any connection of this client. TLS 1.3
    /// servers issue sessions after the handshake, so a response has to be read first.
    ///
    /// # Panics
    /// If there is none.
    pub fn session(&self) -> Session {
        Session {
            client: self.clone(),
            session: self
                .sessions
                .take()
                .expect("the server has issued a session"),
        }
    }

    pub(crate) fn ssl(&self) -> Ssl {
        let mut ssl = Ssl::new(&self.context).expect("a TLS object");
        if let Some(name) = &self.name {
            ssl.set_hostname(name).expect("a server name");
            ssl.param_mut().set_host(name).expect("a server name");
        }
        ssl
    }

    pub(crate) fn complete(
        &self,
        mut stream: SslStream<Socket>,
    ) -> Result<Connection, ClientError> {
        stream.connect()?;
        Ok(Connection {
            stream,
            host: self.name.clone().unwrap_or_else(|| "localhost".to_owned()),
        })
    }
}

/// A session that a server has issued to a client.
pub struct Session {
    client: Client,
    session: SslSession,
}

impl Session {
    /// Completes a handshake that resumes this session if the server agrees.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(&self) -> Result<Connection, ClientError> {
        self.client.complete(self.stream()?)
    }

    /// Sends a ClientHello with this session, and `data` as early data (RFC 8446 section 2.3).
    ///
    /// # Errors
    /// [`ClientError`].
    ///
    /// # Panics
    /// If `data` is longer than a record, or than the server allows.
    pub fn send_early_data(&self, data: &[u8]) -> Result<EarlyConnection, ClientError> {
        let mut stream = self.stream()?;
        let written = stream.write_early_data(data)?;
        assert_eq!(written, data.len(), "early data is one record");
        Ok(EarlyConnection {
            client: self.client.clone(),
            stream,
        })
    }

    fn stream(&self) -> io::Result<SslStream<Socket>> {
        let mut ssl = self.client.ssl();
        // SAFETY: the session was issued to a connection of this client, hence of this context.
        unsafe { ssl.set_session(&self.session) }.expect("the handshake has not begun");
        Ok(SslStream::new(ssl, self.client.open()?.into()).expect("a TLS stream"))
    }
}

/// A connection that has sent early data, and whose handshake is not complete.
pub struct EarlyConnection {
    client: Client,
    stream: SslStream<Socket>,
}

impl EarlyConnection {
    /// Completes the handshake.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn finish(self) -> Result<Connection, ClientError> {
        self.client.complete(self.stream)
    }
}

/// A connection whose handshake is complete.
pub struct Connection {
    stream: SslStream<Socket>,
    host: String,
}

impl Connection {
    /// Fetches a page; the connection stays open.
    ///
    /// # Errors
    /// Errors of the connection, and [`io::ErrorKind::InvalidData`] for anything that is not a
    /// response.
    pub fn get(&mut self, path: &str) -> io::Result<Response> {
        self.send(&self.request("GET", path, b""))?;
        self.read_response()
    }

    /// Sends `body` to a page; the connection stays open.
    ///
    /// # Errors
    /// As [`Connection::get`].
    pub fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Response> {
        self.send(&self.request("POST", path, body))?;
        self.read_response()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the response to what was sent before.
    ///
    /// # Errors
    /// As [`Connection::get`].
    pub fn read_response(&mut self) -> io::Result<Response> {
        Response::read(&mut self.stream)
    }

    /// Reads what the server says, until it closes the connection or it fails.
    pub fn rest(mut self) -> String {
        let mut rest = Vec::new();
        // What has come before an error counts.
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// The TLS stream, for what it says about the handshake.
    pub fn stream(&mut self) -> &mut SslStream<Socket> {
        &mut self.stream
    }

    /// The server's certificate.
    ///
    /// # Panics
    /// If it has sent none.
    pub fn certificate(&self) -> X509 {
        self.stream
            .ssl()
            .peer_certificate()
            .expect("a server sends a certificate")
    }

    /// The version that was agreed.
    ///
    /// # Panics
    /// If there is none.
    pub fn version(&self) -> SslVersion {
        self.stream
            .ssl()
            .version2()
            .expect("the handshake is complete")
    }

    /// The server's ephemeral key; `None` with RSA key exchange.
    pub fn temporary_key(&self) -> Option<PKey<Public>> {
        self.stream.ssl().peer_tmp_key().ok()
    }

    /// Returns true if the handshake has resumed a session.
    pub fn is_resumed(&self) -> bool {
        self.stream.ssl().session_reused()
    }

    fn request(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        request(method, path, &self.host, body)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // OpenSSL does not resume the session of a connection that has ended otherwise. The server
        // may be gone.
        let _ = self.stream.shutdown();
    }
}

/// Runs `work` on `count` threads that start together, and returns what they return.
///
/// # Panics
/// If `work` does.
pub fn concurrently<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(count);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(number)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    })
}

/// The sessions that servers have issued to a client.
#[derive(Clone, Default)]
struct Sessions(Arc<Mutex<Option<SslSession>>>);

impl Sessions {
    fn put(&self, session: SslSession) {
        *self.0.lock().expect("no panic while it is locked") = Some(session);
    }

    fn take(&self) -> Option<SslSession> {
        self.0.lock().expect("no panic while it is locked").take()
    }
}

fn request(method: &str, path: &str, host: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
    if !body.is_empty() {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    request
}
