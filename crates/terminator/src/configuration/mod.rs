//! What `slipstream serve` is told: the types here, [read](file) from TOML, and [checked](check).

pub mod check;
pub mod file;
mod listener;
mod section;
pub mod values;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Everything. Made of a file by [`file::read`], or of command-line flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Event loops; one for each core that the process may use if `None`.
    pub workers: Option<usize>,
    /// The user whose rights are enough once sockets are bound and keys are read.
    pub user: Option<String>,
    /// Whose cryptography rustls uses.
    pub crypto: Crypto,
    /// The engine that computes, if not the event loops' own lanes.
    pub engine: Option<Engine>,
    /// How long connections may take to end after SIGTERM or SIGQUIT.
    pub drain_timeout: Duration,
    /// How often certificates are looked at for a change; `None`: only on SIGHUP.
    pub watch: Option<Duration>,
    /// TLS session tickets that a client gets after a full handshake in TLS 1.3; none means that there is no resumption.
    pub tickets: usize,
    /// Where metrics and health are served.
    pub metrics: Option<SocketAddr>,
    /// The access log, if there is one.
    pub access_log: Option<AccessLog>,
    /// What is refused.
    pub limits: Limits,
    /// At least one.
    pub listeners: Vec<Listener>,
}

impl Configuration {
    /// These listeners, and the default for all else.
    pub fn new(listeners: Vec<Listener>) -> Self {
        Self {
            workers: None,
            user: None,
            crypto: Crypto::default(),
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

    /// The files whose content is taken over by a reload: certificates, keys, OCSP responses and authorities.
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

/// Whose cryptography rustls uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Crypto {
    /// Lanes or an engine where they are faster, aws-lc for all else.
    #[default]
    Slipstream,
    /// aws-lc alone: to compare, and where a CPU lacks what lanes need.
    AwsLc,
}

/// A `slipstream engine`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Where it listens.
    pub socket: PathBuf,
    /// Private keys are handed over to it, and wiped here.
    pub isolate_keys: bool,
}

impl Engine {
    /// Where the engine's unit for systemd puts its socket.
    pub const SOCKET: &str = "/run/slipstream/engine.sock";
}

/// Where requests are logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// A file, or standard output.
    pub target: LogTarget,
    /// How.
    pub format: LogFormat,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    StandardOutput,
    /// A file, which is opened anew on SIGHUP.
    File(PathBuf),
}

/// How a line of the access log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// As that of Apache and nginx.
    #[default]
    Combined,
    /// An object per line.
    Json,
}

/// What is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Connections at a time, over all listeners.
    pub connections: usize,
    /// Handshakes at a time; more wait.
    pub handshakes: usize,
    /// New connections of an address per second, if limited; twice as many may come at once.
    pub connections_per_second: Option<u32>,
    /// From the connection to the end of its handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request to the end of its header.
    pub header_timeout: Duration,
    /// Between requests; in a tunnel, between bytes.
    pub idle_timeout: Duration,
    /// The length of a request's header in bytes.
    pub header_bytes: usize,
    /// Requests of one HTTP/2 connection at a time.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            handshakes: 4_096,
            connections_per_second: None,
            handshake_timeout: Duration::from_secs(15),
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            header_bytes: 64 * 1024,
            streams: 128,
        }
    }
}

/// Addresses with the certificates and the service that are offered there.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// At least one.
    pub addresses: Vec<SocketAddr>,
    /// At least one; the first is for clients that name no server, or an unknown one.
    pub certificates: Vec<CertificateFiles>,
    /// TLS 1.2 is offered.
    pub tls12: bool,
    /// TLS 1.3 is offered.
    pub tls13: bool,
    /// Key exchange, the preferred first.
    pub groups: Vec<Group>,
    /// Protocols offered by ALPN, the preferred first. For [`Service::Http`] and [`Service::Files`], `h2` and `http/1.1`.
    pub alpn: Vec<String>,
    /// What is asked of clients.
    pub client_certificates: Option<ClientCertificates>,
    /// Peers that send a PROXY header before TLS; from all others none is taken.
    pub proxy_protocol_from: Vec<Network>,
    /// What is done with a connection.
    pub service: Service,
}

impl Listener {
    /// These addresses, certificates and service, and the default for all else.
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

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain in PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// The private key in PEM (PKCS #8, PKCS #1, SEC 1).
    pub key: PathBuf,
    /// An OCSP response in DER, to be stapled.
    pub ocsp: Option<PathBuf>,
}

/// A key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The hybrid of ML-KEM-768 and X25519.
    X25519MlKem768,
    /// Curve25519.
    X25519,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
}

impl Group {
    /// All, the preferred first.
    pub const ALL: [Group; 4] = [
        Group::X25519MlKem768,
        Group::X25519,
        Group::P256,
        Group::P384,
    ];

    /// Its name, as TLS and OpenSSL have it.
    pub fn name(self) -> &'static str {
        match self {
            Group::X25519MlKem768 => "X25519MLKEM768",
            Group::X25519 => "X25519",
            Group::P256 => "P-256",
            Group::P384 => "P-384",
        }
    }
}

/// What is asked of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Authorities in PEM.
    pub authorities: PathBuf,
    /// Who has none is refused.
    pub required: bool,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address of it.
    pub address: IpAddr,
    /// The number of leading bits that addresses have in common.
    pub prefix: u8,
}

impl Network {
    /// Whether `address` is in it. An IPv4 address that is mapped into IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// What is done with a connection after its handshake.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// Its bytes go to a backend, whatever they are.
    Tcp(Upstream),
    /// Its HTTP requests go to backends.
    Http(Upstream),
    /// Its HTTP requests are answered with files below a directory.
    Files(PathBuf),
}

/// Backends that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// At least one.
    pub backends: Vec<Backend>,
    /// Which is taken.
    pub balance: Balance,
    /// The header that tells a backend who the client is.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How long a connection to a backend may take.
    pub connect_timeout: Duration,
    /// How long a backend may take to answer a request.
    pub response_timeout: Duration,
    /// How often another backend, or the same again, is tried if one cannot be connected to.
    pub retries: u32,
    /// How long a backend that could not be connected to is left alone, if there is another one.
    pub fail_timeout: Duration,
    /// How backends are asked whether they are well.
    pub health: Option<Health>,
    /// Authorities in PEM for backends with TLS; those of Mozilla if `None`.
    pub authorities: Option<PathBuf>,
}

impl Upstream {
    /// These backends, and the default for all else.
    pub fn new(backends: Vec<Backend>) -> Self {
        Self {
            backends,
            balance: Balance::default(),
            proxy_protocol: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            retries: 2,
            fail_timeout: Duration::from_secs(10),
            health: None,
            authorities: None,
        }
    }
}

/// A server that requests or bytes go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Where it is.
    pub address: Address,
    /// TLS is spoken to it, and its certificate is verified for this name.
    pub tls: Option<String>,
}

/// Where a backend is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A name or an address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Which backend is taken for a connection or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest connections or requests of this terminator.
    LeastConnections,
}

/// A version of HAProxy's PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary, with what is known of TLS.
    V2,
}

/// How backends are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How often.
    pub interval: Duration,
    /// A path that is answered with a status of 200 to 399; `None`: a connection suffices.
    pub path: Option<String>,
}
