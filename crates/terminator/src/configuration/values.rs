//! Values as people write them, in the file and on the command line.
//!
//! Errors say what a value must be, in words that follow its name: `must be a time such as "30s"`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::{Address, Backend, Group, Network};

/// The longest time that can be given: a year. Sums of two of them fit any clock.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A time: a whole number and `ms`, `s`, `m` or `h`.
///
/// # Errors
/// If it is none, or longer than a year.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a time such as \"30s\", with ms, s, m or h".to_owned();
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60 * 1000),
        "h" => number.checked_mul(60 * 60 * 1000),
        _ => return Err(wrong()),
    };
    match milliseconds.map(Duration::from_millis) {
        Some(duration) if duration <= LONGEST => Ok(duration),
        _ => Err("must be at most a year, \"8760h\"".to_owned()),
    }
}

/// A number of bytes, with `k` or `m` for multiples of 1024 and 1048576.
///
/// # Errors
/// If it is none.
pub fn size(text: &str) -> Result<usize, String> {
    let wrong = || "must be a size such as \"64k\", in bytes or with k or m".to_owned();
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1024,
        "m" | "M" => 1024 * 1024,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(factor)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(wrong)
}

fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let unit = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = text.strip_suffix(unit)?.parse().ok()?;
    Some((number, unit))
}

/// Where to listen: an address and a port.
///
/// # Errors
/// If it is none, with what would be one.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => {
            Err("must have a port from 1 to 65535, such as \"0.0.0.0:443\"".to_owned())
        }
        Ok(address) => Ok(address),
        Err(_) => Err(listen_cure(text)),
    }
}

/// What somebody may have meant who wrote `text`.
fn listen_cure(text: &str) -> String {
    let port = text.rsplit(':').next().unwrap_or(text);
    if text.parse::<IpAddr>().is_ok() {
        let host = if text.contains(':') {
            format!("[{text}]")
        } else {
            text.to_owned()
        };
        return format!("lacks a port, such as \"{host}:443\"");
    }
    let is_any = matches!(text.strip_suffix(port), Some("" | ":" | "*:"));
    match port.parse::<u16>() {
        Ok(port) if is_any && port > 0 => format!(
            "must have an address: \"0.0.0.0:{port}\" for all of IPv4, \"[::]:{port}\" for all of IPv6"
        ),
        _ => {
            "must be an address with a port from 1 to 65535, such as \"0.0.0.0:443\" or \"[::]:443\""
                .to_owned()
        }
    }
}

/// A range of addresses, such as `10.0.0.0/8`, or a single one.
///
/// # Errors
/// If it is none.
pub fn network(text: &str) -> Result<Network, String> {
    let wrong = || "must be a range of addresses such as \"10.0.0.0/8\"".to_owned();
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        // `+8` is a number to Rust, and a typing error to everybody else.
        Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
            prefix.parse().map_err(|_| wrong())?
        }
        Some(_) => return Err(wrong()),
        None => longest,
    };
    if prefix > longest {
        return Err(format!("must have a prefix of at most {longest} bits"));
    }
    Ok(Network { address, prefix })
}

/// A key exchange, by the name that TLS or OpenSSL has for it.
///
/// # Errors
/// If it is none that is offered.
pub fn group(text: &str) -> Result<Group, String> {
    let aliases = [("secp256r1", Group::P256), ("secp384r1", Group::P384)];
    let names = Group::ALL.map(|group| (group.name(), group));
    names
        .into_iter()
        .chain(aliases)
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, group)| group)
        .ok_or_else(|| format!("must be one of {}", Group::ALL.map(Group::name).join(", ")))
}

/// What goes to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes, whatever they are.
    Bytes,
    /// HTTP requests.
    Http,
}

/// A backend: `host:port`, `unix:path`, `tls://host:port`, `http://...`, or `https://...`.
///
/// # Errors
/// If it is none, with what would be one.
pub fn backend(text: &str) -> Result<(Content, Backend), String> {
    let (content, is_tls, rest) = match text.split_once("://") {
        None => (Content::Bytes, false, text),
        Some(("tls", rest)) => (Content::Bytes, true, rest),
        Some(("http", rest)) => (Content::Http, false, rest),
        Some(("https", rest)) => (Content::Http, true, rest),
        Some((scheme, _)) => {
            return Err(format!(
                "has the unknown scheme \"{scheme}\"; \"host:port\" and \"tls://host:port\" pass bytes on, \
                 \"http://host:port\" and \"https://host:port\" requests"
            ));
        }
    };
    if let Some(path) = rest.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return match (path, is_tls) {
            ("", _) => {
                Err("lacks the path of its socket, such as \"unix:/run/app.sock\"".to_owned())
            }
            (_, true) => Err(
                "cannot have TLS over a Unix socket, where there is no name to verify; \
                 leave TLS out"
                    .to_owned(),
            ),
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

fn host_and_port(text: &str, usual_port: Option<u16>) -> Result<(String, u16), String> {
    let wrong = || {
        "must be a host with a port, such as \"127.0.0.1:8080\", or \"unix:/run/app.sock\"; \
         a path cannot be given"
            .to_owned()
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            // Brackets are for IPv6.
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
            let error = listen(text).unwrap_err();
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
