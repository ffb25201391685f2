//! Configuration of `slipstream serve`: its types, [parsed](mod@file) from TOML, and [checked](check).

pub mod check;
pub mod file;
mod listener;
mod section;
pub mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use slipstream_accelerators::engine::EngineUser;
pub use slipstream_http::settings::{
    AccessLog, Address, Backend, Balance, Health, Limits as HttpLimits, LogFormat, LogTarget,
    Network, ProxyProtocol, Service, Upstream,
};

/// Complete configuration. Made by [`file::read`], or from command-line options.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Number of event loops. `None` means one per core that the process may use.
    pub workers: Option<usize>,
    /// Unprivileged user to switch to after binding sockets and reading keys.
    pub user: Option<String>,
    /// Cryptography that rustls uses.
    pub crypto: Crypto,
    /// Lanes of the event loops.
    pub lanes: Lanes,
    /// Engine that computes instead of the event loops' own lanes, if any.
    pub engine: Option<Engine>,
    /// Longest time for connections to end after SIGTERM or SIGQUIT.
    pub drain_timeout: Duration,
    /// Interval at which files are checked for changes. `None` reloads on SIGHUP only.
    pub watch: Option<Duration>,
    /// TLS 1.3 session tickets per full handshake. Zero disables resumption.
    pub tickets: usize,
    /// Address at which metrics and health are served.
    pub metrics: Option<SocketAddr>,
    /// Access log, if one is written.
    pub access_log: Option<AccessLog>,
    /// Limits of connections, handshakes and requests.
    pub limits: Limits,
    /// Listeners; at least one.
    pub listeners: Vec<Listener>,
}

impl Configuration {
    /// Returns the default configuration with these listeners.
    pub fn new(listeners: Vec<Listener>) -> Self {
        Self {
            workers: None,
            user: None,
            crypto: Crypto::default(),
            lanes: Lanes::default(),
            engine: None,
            drain_timeout: Duration::from_secs(30),
            watch: Some(Duration::from_secs(5)),
            tickets: 2,
            metrics: None,
            access_log: None,
            limits: Limits::default(),
            listeners,
        }
    }

    /// Returns the files that a reload reads again: certificates, keys, OCSP responses and
    /// authorities.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for listener in &self.listeners {
            for certificate in &listener.certificates {
                files.extend([certificate.certificate.clone(), certificate.key.clone()]);
                files.extend(certificate.ocsp.clone());
            }
            let clients = listener.client_certificates.as_ref();
            files.extend(clients.map(|clients| clients.authorities.clone()));
            if let Service::Tcp(upstream) | Service::Http(upstream) = &listener.service {
                files.extend(upstream.authorities.clone());
            }
        }
        files
    }
}

/// Cryptography that rustls uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Crypto {
    /// Lanes or an engine where they are faster, aws-lc for everything else.
    #[default]
    Slipstream,
    /// aws-lc only: for comparisons, and for CPUs without the instructions that lanes need.
    AwsLc,
}

/// Lanes of the event loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lanes {
    /// The best that this CPU has, if it has any.
    #[default]
    Auto,
    /// None: an engine computes, or aws-lc if there is no engine.
    Off,
}

/// Settings of a `slipstream engine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Path of its socket.
    pub socket: PathBuf,
    /// True if private keys are handed over to the engine and wiped here.
    pub isolate_keys: bool,
    /// User that it may run as, beside root and this process's own.
    pub user: EngineUser,
}

impl Engine {
    /// Path of the socket that the engine's systemd unit creates.
    pub const SOCKET: &str = "/run/slipstream/engine.sock";
}

/// Limits of connections, handshakes and requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Most concurrent connections, over all listeners.
    pub connections: usize,
    /// Most concurrent connections of one address. IPv6 addresses count by their first 64 bits.
    pub connections_per_address: usize,
    /// Most handshakes that are computed at a time; further ones wait.
    pub handshakes: usize,
    /// Most new connections of one address per second, if limited. A burst may be twice as large.
    pub connections_per_second: Option<u32>,
    /// Most requests whose response has not ended, over all listeners.
    pub requests: usize,
    /// Content of responses in bytes that waits for clients, above which each connection gets a
    /// small share only.
    pub unread_bytes_total: usize,
    /// Longest time from the connection to the end of its handshake.
    pub handshake_timeout: Duration,
    /// Limits after the handshake.
    pub http: HttpLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            connections_per_address: 1_024,
            handshakes: 4_096,
            connections_per_second: None,
            requests: 16_384,
            unread_bytes_total: 256 * 1024 * 1024,
            handshake_timeout: Duration::from_secs(15),
            http: HttpLimits::default(),
        }
    }
}

/// Addresses, with the certificates and the service that they offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Addresses; at least one.
    pub addresses: Vec<SocketAddr>,
    /// Certificates; at least one. The first is for clients that name no server or an unknown one.
    pub certificates: Vec<CertificateFiles>,
    /// True if TLS 1.2 is offered.
    pub tls12: bool,
    /// True if TLS 1.3 is offered.
    pub tls13: bool,
    /// Key exchange groups in order of preference.
    pub groups: Vec<Group>,
    /// Protocols that ALPN offers, in order of preference. For [`Service::Http`] and
    /// [`Service::Files`], only `h2` and `http/1.1` are possible.
    pub alpn: Vec<String>,
    /// Verification of client certificates, if they are requested.
    pub client_certificates: Option<ClientCertificates>,
    /// Peers whose connections begin with a PROXY header. Headers of other peers are refused.
    pub proxy_protocol_from: Vec<Network>,
    /// Service for the connections.
    pub service: Service,
}

impl Listener {
    /// Returns the default listener with these addresses, certificates and service.
    pub fn new(
        addresses: Vec<SocketAddr>,
        certificates: Vec<CertificateFiles>,
        service: Service,
    ) -> Self {
        let alpn: &[&str] = match service {
            Service::Tcp(_) => &[],
            Service::Http(_) | Service::Files(_) => &["h2", "http/1.1"],
        };
        Self {
            addresses,
            certificates,
            tls12: true,
            tls13: true,
            groups: Group::ALL.to_vec(),
            alpn: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
            client_certificates: None,
            proxy_protocol_from: Vec::new(),
            service,
        }
    }
}

/// Files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate chain in PEM, the end-entity certificate first.
    pub certificate: PathBuf,
    /// Private key in PEM (PKCS #8, PKCS #1 or SEC 1).
    pub key: PathBuf,
    /// OCSP response in DER, which is stapled.
    pub ocsp: Option<PathBuf>,
}

/// Key exchange group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Hybrid of ML-KEM-768 and X25519.
    X25519MlKem768,
    /// X25519.
    X25519,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
}

impl Group {
    /// All groups in order of preference.
    pub const ALL: [Group; 4] = [
        Group::X25519MlKem768,
        Group::X25519,
        Group::P256,
        Group::P384,
    ];

    /// Returns the name that TLS and OpenSSL use.
    pub fn name(self) -> &'static str {
        match self {
            Group::X25519MlKem768 => "X25519MLKEM768",
            Group::X25519 => "X25519",
            Group::P256 => "P-256",
            Group::P384 => "P-384",
        }
    }
}

/// Verification of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// File of authorities in PEM.
    pub authorities: PathBuf,
    /// True if clients without a certificate are refused.
    pub required: bool,
}
