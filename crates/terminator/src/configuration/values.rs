//! Values in the notation of the configuration file and of the command line.
//!
//! Errors say what a value must be, in words that follow its name: `must be a time such as "30s"`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::{Address, Backend, Group, Network};

/// Longest time: a year. The sum of two still fits every clock.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Error of a malformed value. Its text follows the name of the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value is not a time.
    #[error("must be a time such as \"30s\", with ms, s, m or h")]
    Duration,
    /// The time is longer than a year.
    #[error("must be at most a year, \"8760h\"")]
    TooLong,
    /// The value is not a number of bytes.
    #[error("must be a size such as \"64k\", in bytes or with k or m")]
    Size,
    /// The port is 0.
    #[error("must have a port from 1 to 65535, such as \"0.0.0.0:443\"")]
    PortZero,
    /// The value is an address without a port.
    #[error("lacks a port, such as \"{host}:443\"")]
    MissingPort {
        /// The address, in brackets if it is one of IPv6.
        host: String,
    },
    /// The value is a port without an address.
    #[error(
        "must have an address: \"0.0.0.0:{port}\" for all of IPv4, \"[::]:{port}\" for all of IPv6"
    )]
    MissingAddress {
        /// The port.
        port: u16,
    },
    /// The value is not an address with a port.
    #[error(
        "must be an address with a port from 1 to 65535, such as \"0.0.0.0:443\" or \"[::]:443\""
    )]
    Listen,
    /// The value is not a range of addresses.
    #[error("must be a range of addresses such as \"10.0.0.0/8\"")]
    Network,
    /// The prefix is longer than an address.
    #[error("must have a prefix of at most {longest} bits")]
    Prefix {
        /// The number of bits of an address.
        longest: u8,
    },
    /// The value is not a group that is offered.
    #[error("must be one of {}", Group::ALL.map(Group::name).join(", "))]
    Group,
    /// The scheme of a backend is unknown.
    #[error(
        "has the unknown scheme \"{0}\"; \"host:port\" and \"tls://host:port\" forward bytes, \
         \"http://host:port\" and \"https://host:port\" forward requests"
    )]
    Scheme(String),
    /// A backend is a Unix socket without a path.
    #[error("lacks the path of its socket, such as \"unix:/run/app.sock\"")]
    MissingPath,
    /// A backend is a Unix socket, and has TLS.
    #[error("cannot have TLS over a Unix socket, where there is no name to verify; leave TLS out")]
    TlsOverUnixSocket,
    /// The value is not a host with a port.
    #[error(
        "must be a host with a port, such as \"127.0.0.1:8080\", or \"unix:/run/app.sock\"; \
         a path cannot be given"
    )]
    Backend,
}

/// Parses a time: an integer and `ms`, `s`, `m` or `h`.
///
/// # Errors
/// Returns an error if `text` is not a time, or is longer than a year.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let (number, unit) = number_and_unit(text).ok_or(ValueError::Duration)?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60 * 1000),
        "h" => number.checked_mul(60 * 60 * 1000),
        _ => return Err(ValueError::Duration),
    };
    match milliseconds.map(Duration::from_millis) {
        Some(duration) if duration <= MAX_DURATION => Ok(duration),
        _ => Err(ValueError::TooLong),
    }
}

/// Parses a number of bytes. `k` and `m` multiply by 1024 and 1048576.
///
/// # Errors
/// Returns an error if `text` is not a number of bytes.
pub fn size(text: &str) -> Result<usize, ValueError> {
    let (number, unit) = number_and_unit(text).ok_or(ValueError::Size)?;
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1024,
        "m" | "M" => 1024 * 1024,
        _ => return Err(ValueError::Size),
    };
    number
        .checked_mul(factor)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or(ValueError::Size)
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let unit = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = text.strip_suffix(unit)?.parse().ok()?;
    Some((number, unit))
}

/// Parses an address and a port to listen at.
///
/// # Errors
/// Returns an error with a correct example.
pub fn listen(text: &str) -> Result<SocketAddr, ValueError> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err(ValueError::PortZero),
        Ok(address) => Ok(address),
        Err(_) => Err(listen_error(text)),
    }
}

/// Guesses the intended address.
fn listen_error(text: &str) -> ValueError {
    let port = text.rsplit(':').next().unwrap_or(text);
    if text.parse::<IpAddr>().is_ok() {
        let host = if text.contains(':') {
            format!("[{text}]")
        } else {
            text.to_owned()
        };
        return ValueError::MissingPort { host };
    }
    let is_any = matches!(text.strip_suffix(port), Some("" | ":" | "*:"));
    match port.parse::<u16>() {
        Ok(port) if is_any && port > 0 => ValueError::MissingAddress { port },
        _ => ValueError::Listen,
    }
}

/// Parses a range of addresses, such as `10.0.0.0/8`, or a single address.
///
/// # Errors
/// Returns an error if `text` is neither.
pub fn network(text: &str) -> Result<Network, ValueError> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| ValueError::Network)?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        // `parse` would accept `+8`.
        Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
            prefix.parse().map_err(|_| ValueError::Network)?
        }
        Some(_) => return Err(ValueError::Network),
        None => longest,
    };
    if prefix > longest {
        return Err(ValueError::Prefix { longest });
    }
    Ok(Network { address, prefix })
}

/// Parses the name of a key exchange group, as TLS or OpenSSL write it.
///
/// # Errors
/// Returns an error if the group is not offered.
pub fn group(text: &str) -> Result<Group, ValueError> {
    let aliases = [("secp256r1", Group::P256), ("secp384r1", Group::P384)];
    let names = Group::ALL.map(|group| (group.name(), group));
    names
        .into_iter()
        .chain(aliases)
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, group)| group)
        .ok_or(ValueError::Group)
}

/// Kind of data that a backend receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes of any protocol.
    Bytes,
    /// HTTP requests.
    Http,
}

/// Parses a backend: `host:port`, `unix:path`, `tls://host:port`, `http://...` or `https://...`.
///
/// # Errors
/// Returns an error with a correct example.
pub fn backend(text: &str) -> Result<(Content, Backend), ValueError> {
    let (content, is_tls, rest) = match text.split_once("://") {
        None => (Content::Bytes, false, text),
        Some(("tls", rest)) => (Content::Bytes, true, rest),
        Some(("http", rest)) => (Content::Http, false, rest),
        Some(("https", rest)) => (Content::Http, true, rest),
        Some((scheme, _)) => {
            return Err(ValueError::Scheme(scheme.to_owned()));
        }
    };
    if let Some(path) = rest.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return match (path, is_tls) {
            ("", _) => Err(ValueError::MissingPath),
            (_, true) => Err(ValueError::TlsOverUnixSocket),
            (path, false) => {
                let address = Address::Unix(PathBuf::from(path));
                Ok((content, Backend { address, tls: None }))
            }
        };
    }
    let rest = match content {
        Content::Http => rest.strip_suffix('/').unwrap_or(rest),
        Content::Bytes => rest,
    };
    let usual_port = match (content, is_tls) {
        (Content::Http, false) => Some(80),
        (Content::Http, true) => Some(443),
        (Content::Bytes, _) => None,
    };
    let (host, port) = host_and_port(rest, usual_port)?;
    let backend = Backend {
        tls: is_tls.then(|| host.clone()),
        address: Address::Tcp(host, port),
    };
    Ok((content, backend))
}

fn host_and_port(text: &str, usual_port: Option<u16>) -> Result<(String, u16), ValueError> {
    let wrong = || ValueError::Backend;
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            // Brackets are for IPv6 addresses only.
            host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
            (host, port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match (port, usual_port) {
        ("", Some(usual)) => usual,
        _ => {
            let digits = port.strip_prefix(':').ok_or_else(wrong)?;
            digits.parse().map_err(|_| wrong())?
        }
    };
    if port == 0 || ServerName::try_from(host).is_err() {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)));
        }
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "+1s",
            "1.5s",
            "1 s",
            "8761h",
            "18446744073709551615h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        for (text, bytes) in [("0", 0), ("100", 100), ("64k", 65_536), ("1m", 1_048_576)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for text in [
            "",
            "k",
            "1g",
            "-1",
            "99999999999999999999",
            "18446744073709551615m",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_to_listen_at() {
        assert_eq!(listen("[::1]:8443").unwrap().port(), 8443);
        for (text, cure) in [
            ("443", "\"0.0.0.0:443\""),
            (":443", "\"0.0.0.0:443\""),
            ("*:443", "\"[::]:443\""),
            ("10.0.0.1", "\"10.0.0.1:443\""),
            ("::1", "\"[::1]:443\""),
            ("0.0.0.0:0", "from 1 to 65535"),
            ("0.0.0.0:65536", "from 1 to 65535"),
            ("localhost:443", "must be an address"),
            ("", "must be an address"),
        ] {
            let error = listen(text).unwrap_err().to_string();
            assert!(error.contains(cure), "{text}: {error}");
        }
    }

    #[test]
    fn networks() {
        let inside =
            |text: &str, address: &str| network(text).unwrap().contains(address.parse().unwrap());
        assert!(inside("10.0.0.0/8", "10.255.0.1"));
        assert!(!inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("192.0.2.1", "192.0.2.1"));
        assert!(!inside("192.0.2.1", "192.0.2.2"));
        assert!(inside("0.0.0.0/0", "192.0.2.2"));
        assert!(inside("::/0", "2001:db8::1"));
        assert!(inside("2001:db8::/32", "2001:db8::1"));
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10/8",
            "x",
        ] {
            assert!(network(text).is_err(), "{text}");
        }
    }

    #[test]
    fn backends() {
        let tcp = |host: &str, port| Address::Tcp(host.to_owned(), port);
        let unix = || Address::Unix("/run/app.sock".into());
        for (text, content, address, tls) in [
            (
                "127.0.0.1:3128",
                Content::Bytes,
                tcp("127.0.0.1", 3128),
                None,
            ),
            ("[::1]:3128", Content::Bytes, tcp("::1", 3128), None),
            ("unix:/run/app.sock", Content::Bytes, unix(), None),
            (
                "tls://host:8443",
                Content::Bytes,
                tcp("host", 8443),
                Some("host"),
            ),
            (
                "http://127.0.0.1:8080",
                Content::Http,
                tcp("127.0.0.1", 8080),
                None,
            ),
            ("http://app", Content::Http, tcp("app", 80), None),
            (
                "https://host/",
                Content::Http,
                tcp("host", 443),
                Some("host"),
            ),
            (
                "https://[::1]:8443",
                Content::Http,
                tcp("::1", 8443),
                Some("::1"),
            ),
            ("http://unix:/run/app.sock", Content::Http, unix(), None),
        ] {
            let tls = tls.map(str::to_owned);
            assert_eq!(
                backend(text),
                Ok((content, Backend { address, tls })),
                "{text}"
            );
        }
        for text in [
            "",
            "host",
            "host:",
            "host:0",
            "host:x",
            ":80",
            "::1:80",
            "[::1]",
            "[::1]x:80",
            "[host]:80",
            "tls://host",
            "ftp://host:21",
            "http://host/path",
            "http://host:80/path",
            "http://",
            "unix:",
            "https://unix:/run/app.sock",
            "a b:80",
        ] {
            assert!(backend(text).is_err(), "{text}");
        }
    }

    #[test]
    fn groups() {
        for name in Group::ALL {
            assert_eq!(group(name.name()), Ok(name));
        }
        assert_eq!(group("secp256r1"), Ok(Group::P256));
        assert!(group("P-521").is_err());
    }
}
