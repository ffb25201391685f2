//! Settings of services.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Handling of a connection after its handshake.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// Forwards bytes to a backend, in whatever protocol.
    Tcp(Upstream),
    /// Forwards HTTP requests to backends.
    Http(Upstream),
    /// Answers HTTP requests with the files below a directory.
    Files(PathBuf),
}

/// Interchangeable backends of one service.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Backends; at least one.
    pub backends: Vec<Backend>,
    /// Load balancing method.
    pub balance: Balance,
    /// Version of the PROXY header that tells a backend the client's address, if one is sent.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Longest time for a connection to a backend, including TLS.
    pub connect_timeout: Duration,
    /// Longest time for a backend to answer a request.
    pub response_timeout: Duration,
    /// Longest pause of a backend inside the body of a response.
    pub body_timeout: Duration,
    /// Further attempts after a failed connection, to another backend or to the same one.
    pub retries: u32,
    /// Time for which a backend is avoided after a failed connection, if there is another one.
    pub fail_timeout: Duration,
    /// Most open connections of one backend.
    pub max_connections: usize,
    /// Most requests or connections that wait for one of them. Others are refused.
    pub queue: usize,
    /// Longest time to wait for one of them.
    pub queue_timeout: Duration,
    /// Active health checks, if backends are checked.
    pub health: Option<Health>,
    /// File of authorities in PEM that backends with TLS are verified with. `None` selects
    /// Mozilla's.
    pub authorities: Option<PathBuf>,
    /// Clients whose headers about their own clients are passed on. All others' are replaced.
    pub trust_headers_from: Vec<Network>,
}

impl Upstream {
    /// Returns the default settings for `backends`.
    pub fn new(backends: Vec<Backend>) -> Self {
        Self {
            backends,
            balance: Balance::default(),
            proxy_protocol: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            retries: 2,
            fail_timeout: Duration::from_secs(10),
            max_connections: 4096,
            queue: 1024,
            queue_timeout: Duration::from_secs(5),
            health: None,
            authorities: None,
            trust_headers_from: Vec::new(),
        }
    }
}

/// Server that requests or bytes are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Address of the server.
    pub address: Address,
    /// Name that the server's certificate must have. `None` means a connection without TLS.
    pub tls: Option<String>,
}

/// Address of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host name or IP address, and port.
    Tcp(String, u16),
    /// Path of a Unix socket.
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

/// Range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address in the range.
    pub address: IpAddr,
    /// Number of leading bits that all addresses of the range share.
    pub prefix: u8,
}

impl Network {
    /// Returns true if the range contains `address`. An IPv4-mapped IPv6 address counts as IPv4.
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

/// Load balancing method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Balance {
    /// Each backend in turn.
    #[default]
    RoundRobin,
    /// The backend with the fewest connections or requests of this process.
    LeastConnections,
}

/// Version of HAProxy's PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Version 1: a line of text.
    V1,
    /// Version 2: binary, with the facts of the TLS session.
    V2,
}

/// Active health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Time between two checks.
    pub interval: Duration,
    /// Path that a healthy backend answers with a status of 200 to 399. `None` checks that a
    /// connection can be opened.
    pub path: Option<String>,
}

/// Limits of time and size for requests and tunnels.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Longest time from the first byte of a request to the end of its header.
    pub header_timeout: Duration,
    /// Longest time between two requests, or between two bytes of a tunnel.
    pub idle_timeout: Duration,
    /// Longest header of a request in bytes.
    pub header_bytes: usize,
    /// Most concurrent requests of one HTTP/2 connection.
    pub streams: u32,
    /// Most content of responses in bytes that waits for the client of one connection.
    pub unread_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            header_bytes: 64 * 1024,
            streams: 128,
            unread_bytes: 256 * 1024,
        }
    }
}

/// Settings of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Destination of the log.
    pub target: LogTarget,
    /// Format of a line.
    pub format: LogFormat,
}

/// Destination of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    StandardOutput,
    /// A file, which is reopened on SIGHUP.
    File(PathBuf),
}

/// Format of a line of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Combined log format of Apache and nginx.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}
