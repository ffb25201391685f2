//! PROXY protocol, versions 1 and 2 (HAProxy, proxy-protocol.txt): headers are written for backends
//! and read from load balancers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::Connection;
use crate::settings::ProxyProtocol;
use crate::subject::common_name;

/// Returns the header for a backend. A value of more than 512 bytes is left out; no valid client
/// sends one.
pub fn write(version: ProxyProtocol, connection: &Connection) -> Vec<u8> {
    let (client, server) = same_family(connection.client, connection.server);
    match version {
        ProxyProtocol::V1 => {
            let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            format!(
                "PROXY {family} {} {} {} {}\r\n",
                client.ip(),
                server.ip(),
                client.port(),
                server.port()
            )
            .into_bytes()
        }
        ProxyProtocol::V2 => {
            let mut content = addresses_v2(client, server);
            if let Some(protocol) = &connection.alpn {
                append_value(&mut content, TYPE_ALPN, protocol);
            }
            if let Some(name) = &connection.server_name {
                append_value(&mut content, TYPE_AUTHORITY, name.as_bytes());
            }
            append_value(&mut content, TYPE_SSL, &tls_value(connection));
            let family = if client.is_ipv4() {
                STREAM_IPV4
            } else {
                STREAM_IPV6
            };
            let mut header = SIGNATURE.to_vec();
            header.extend([VERSION_2 | COMMAND_PROXY, family]);
            let length = u16::try_from(content.len()).expect("a few values of at most 512 bytes");
            header.extend(length.to_be_bytes());
            header.extend(content);
            header
        }
    }
}

/// Returns the header for a connection of the proxy itself, such as a health check.
pub fn local(version: ProxyProtocol) -> &'static [u8] {
    match version {
        ProxyProtocol::V1 => b"PROXY UNKNOWN\r\n",
        ProxyProtocol::V2 => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    }
}

/// Content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Addresses of client and server. `None` if the load balancer speaks for itself (`LOCAL`),
    /// does not know them (`UNKNOWN`), or sends addresses other than TCP.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Length of the header in bytes.
    pub length: usize,
}

/// Error of bytes that are not the beginning of a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a PROXY header")]
pub struct Malformed;

/// Longest accepted header in bytes.
pub const MAX_LENGTH: usize = 4096;

/// Reads the header at the beginning of `bytes`. Returns `None` if more bytes are needed.
///
/// # Errors
/// Returns an error if `bytes` do not begin with a header, or if it is longer than [`MAX_LENGTH`].
pub fn read(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    if bytes.starts_with(SIGNATURE) {
        read_v2(bytes)
    } else if bytes.starts_with(LINE_START) {
        read_v1(bytes)
    } else if SIGNATURE.starts_with(bytes) || LINE_START.starts_with(bytes) {
        Ok(None)
    } else {
        Err(Malformed)
    }
}

const LINE_START: &[u8] = b"PROXY ";
/// Longest header of version 1, including the end of the line (section 2.1).
const MAX_LINE_LENGTH: usize = 107;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const FIXED_LENGTH: usize = 16;
const VERSION_2: u8 = 0x20;
const COMMAND_LOCAL: u8 = 0;
const COMMAND_PROXY: u8 = 1;
const STREAM_IPV4: u8 = 0x11;
const STREAM_IPV6: u8 = 0x21;
/// Unspecified, UDP over IPv4 and IPv6, Unix streams and datagrams.
const OTHER_FAMILIES: [u8; 5] = [0x00, 0x12, 0x22, 0x31, 0x32];

const TYPE_ALPN: u8 = 0x01;
const TYPE_AUTHORITY: u8 = 0x02;
const TYPE_SSL: u8 = 0x20;
const TYPE_SSL_VERSION: u8 = 0x21;
const TYPE_SSL_COMMON_NAME: u8 = 0x22;
const TYPE_SSL_CIPHER: u8 = 0x23;
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERTIFICATE_CONNECTION: u8 = 0x02;
const CLIENT_CERTIFICATE_SESSION: u8 = 0x04;

/// Converts both addresses to one family: IPv4 if both can be expressed in it, IPv6 otherwise.
fn same_family(client: SocketAddr, server: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical =
        |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (client, server) = (canonical(client), canonical(server));
    if client.is_ipv4() == server.is_ipv4() {
        return (client, server);
    }
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    (mapped(client), mapped(server))
}

fn addresses_v2(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    for address in [client.ip(), server.ip()] {
        match address {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
    }
    bytes.extend(client.port().to_be_bytes());
    bytes.extend(server.port().to_be_bytes());
    bytes
}

/// Returns the value of type `PP2_TYPE_SSL` (section 2.2.6).
fn tls_value(connection: &Connection) -> Vec<u8> {
    let (client, verify) = match connection.client_certificate {
        Some(_) => (
            CLIENT_SSL | CLIENT_CERTIFICATE_CONNECTION | CLIENT_CERTIFICATE_SESSION,
            0_u32,
        ),
        None => (CLIENT_SSL, 1),
    };
    let mut value = vec![client];
    value.extend(verify.to_be_bytes());
    append_value(
        &mut value,
        TYPE_SSL_VERSION,
        connection.tls_version.as_bytes(),
    );
    append_value(
        &mut value,
        TYPE_SSL_CIPHER,
        connection.cipher_suite.as_bytes(),
    );
    if let Some(name) = connection
        .client_certificate
        .as_ref()
        .and_then(|certificate| common_name(certificate))
    {
        append_value(&mut value, TYPE_SSL_COMMON_NAME, name.as_bytes());
    }
    value
}

/// Appends type, length and value. Leaves out a value of more than 512 bytes, so that the header
/// stays shorter than [`MAX_LENGTH`].
fn append_value(header: &mut Vec<u8>, kind: u8, value: &[u8]) {
    const MAX_VALUE_LENGTH: usize = 512;
    if let Ok(length) = u16::try_from(value.len())
        && value.len() <= MAX_VALUE_LENGTH
    {
        header.push(kind);
        header.extend(length.to_be_bytes());
        header.extend(value);
    }
}

fn read_v1(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let start = &bytes[..bytes.len().min(MAX_LINE_LENGTH)];
    let Some(end) = start.iter().position(|&byte| byte == b'\n') else {
        return if start.len() == MAX_LINE_LENGTH {
            Err(Malformed)
        } else {
            Ok(None)
        };
    };
    let line = start[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let line = std::str::from_utf8(&line[LINE_START.len()..]).map_err(|_| Malformed)?;
    let mut words = line.split(' ');
    let addresses = match words.next() {
        Some("UNKNOWN") => None,
        Some(family @ ("TCP4" | "TCP6")) => {
            let mut word = || words.next().ok_or(Malformed);
            let (client, server) = (ip(family, word()?)?, ip(family, word()?)?);
            let (client_port, server_port) = (port(word()?)?, port(word()?)?);
            if words.next().is_some() {
                return Err(Malformed);
            }
            Some((
                SocketAddr::new(client, client_port),
                SocketAddr::new(server, server_port),
            ))
        }
        _ => return Err(Malformed),
    };
    Ok(Some(ProxyHeader {
        addresses,
        length: end + 1,
    }))
}

fn ip(family: &str, word: &str) -> Result<IpAddr, Malformed> {
    match family {
        "TCP4" => word.parse::<Ipv4Addr>().map(IpAddr::V4),
        _ => word.parse::<Ipv6Addr>().map(IpAddr::V6),
    }
    .map_err(|_| Malformed)
}

/// Parses a port without sign and leading zeroes, which `parse` would accept.
fn port(word: &str) -> Result<u16, Malformed> {
    let is_canonical =
        word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    if is_canonical {
        word.parse().map_err(|_| Malformed)
    } else {
        Err(Malformed)
    }
}

fn read_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let Some(&[command, family, high, low]) = bytes
        .get(SIGNATURE.len()..)
        .and_then(|rest| rest.first_chunk())
    else {
        return Ok(None);
    };
    let command = match command {
        byte if byte == VERSION_2 | COMMAND_LOCAL => COMMAND_LOCAL,
        byte if byte == VERSION_2 | COMMAND_PROXY => COMMAND_PROXY,
        _ => return Err(Malformed),
    };
    let has_addresses = family == STREAM_IPV4 || family == STREAM_IPV6;
    if !has_addresses && !OTHER_FAMILIES.contains(&family) {
        return Err(Malformed);
    }
    let length = FIXED_LENGTH + usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_LENGTH {
        return Err(Malformed);
    }
    let Some(content) = bytes.get(FIXED_LENGTH..length) else {
        return Ok(None);
    };
    // Addresses of a load balancer's own connections, and of other families, must be skipped
    // (section 2.2).
    let addresses = if command == COMMAND_PROXY && has_addresses {
        let (addresses, values) = if family == STREAM_IPV4 {
            let (bytes, values) = content.split_first_chunk::<12>().ok_or(Malformed)?;
            (split_addresses::<4>(bytes), values)
        } else {
            let (bytes, values) = content.split_first_chunk::<36>().ok_or(Malformed)?;
            (split_addresses::<16>(bytes), values)
        };
        check_values(values)?;
        Some(addresses)
    } else {
        None
    };
    Ok(Some(ProxyHeader { addresses, length }))
}

/// Splits `bytes` into two addresses of `N` bytes each and two ports.
fn split_addresses<const N: usize>(bytes: &[u8]) -> (SocketAddr, SocketAddr)
where
    IpAddr: From<[u8; N]>,
{
    let ip = |index: usize| -> IpAddr {
        let octets: [u8; N] = bytes[index * N..][..N].try_into().expect("N bytes");
        octets.into()
    };
    let port = |index: usize| {
        let start = 2 * N + 2 * index;
        u16::from_be_bytes([bytes[start], bytes[start + 1]])
    };
    (
        SocketAddr::new(ip(0), port(0)),
        SocketAddr::new(ip(1), port(1)),
    )
}

/// Checks that the lengths of the values add up. The values are not used, but a wrong length makes
/// the rest of the header untrustworthy.
fn check_values(mut values: &[u8]) -> Result<(), Malformed> {
    while !values.is_empty() {
        let (&[_, high, low], rest) = values.split_first_chunk().ok_or(Malformed)?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        values = rest.get(length..).ok_or(Malformed)?;
    }
    Ok(())
}
