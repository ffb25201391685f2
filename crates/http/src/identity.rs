//! Headers that tell a backend who its client is.
//!
//! Programs take such headers for facts. Many read them by names in which every character but
//! letters and digits has become `_`, as CGI has it (RFC 3875, 4.1.18). So a header counts as one
//! of them whatever stands between the letters and digits of its name.

use std::net::IpAddr;

use hyper::header::{Entry, HOST, HeaderMap, HeaderName, HeaderValue};

use crate::Connection;
use crate::settings::Network;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Identity of a client, as backends are told.
pub struct Identity {
    address: HeaderValue,
    port: HeaderValue,
    /// Host for requests without a `Host` header.
    host: HeaderValue,
    /// True if the client is a proxy whose word is taken.
    is_trusted: bool,
}

impl Identity {
    /// Returns the identity of the client of `connection`. If it is in one of the networks
    /// `trusted`, backends are told what it says about its own clients.
    pub fn new(connection: &Connection, trusted: &[Network]) -> Self {
        let text = |text: &str| {
            HeaderValue::from_str(text).expect("addresses and names of hosts are visible ASCII")
        };
        let client = connection.client.ip().to_canonical();
        let server = connection.server.ip().to_canonical();
        let host = match (&connection.server_name, server) {
            (Some(name), _) => name.clone(),
            (None, IpAddr::V4(address)) => address.to_string(),
            (None, IpAddr::V6(address)) => format!("[{address}]"),
        };
        Self {
            address: text(&client.to_string()),
            port: connection.server.port().into(),
            host: HeaderValue::from_str(&host).unwrap_or_else(|_| text("localhost")),
            is_trusted: trusted.iter().any(|network| network.contains(client)),
        }
    }

    /// Returns the host that the client must mean if it names none.
    pub fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Replaces what the client says about itself in `headers`, the header of a request for `host`.
    pub fn replace(&self, headers: &mut HeaderMap, host: &HeaderValue) {
        remove(headers, |name| !self.may_pass(name));
        if self.is_trusted {
            self.append(headers);
            let mut add = |name, value: &HeaderValue| {
                headers.entry(name).or_insert_with(|| value.clone());
            };
            add(X_REAL_IP, &self.address);
            add(X_FORWARDED_PROTO, &HeaderValue::from_static("https"));
            add(X_FORWARDED_PORT, &self.port);
            add(X_FORWARDED_HOST, host);
        } else {
            headers.insert(X_FORWARDED_FOR, self.address.clone());
            headers.insert(X_REAL_IP, self.address.clone());
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
            headers.insert(X_FORWARDED_PORT, self.port.clone());
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        headers.insert(HOST, host.clone());
    }

    /// Adds the client's address to those that it names.
    fn append(&self, headers: &mut HeaderMap) {
        join(headers, &X_FORWARDED_FOR, b", ");
        match headers.entry(X_FORWARDED_FOR) {
            Entry::Occupied(mut entry) => {
                let all = [entry.get().as_bytes(), b", ", self.address.as_bytes()].concat();
                if let Ok(all) = HeaderValue::from_bytes(&all) {
                    entry.insert(all);
                }
            }
            Entry::Vacant(entry) => {
                entry.insert(self.address.clone());
            }
        }
    }

    fn may_pass(&self, name: &HeaderName) -> bool {
        match meaning(name) {
            Meaning::Other => true,
            Meaning::Claim => self.is_trusted,
            Meaning::Disguise => false,
        }
    }
}

/// Removes everything that could be taken for a fact about the client from `trailers`. A backend
/// may merge them with the header (RFC 9110, 6.5.1).
pub fn remove_from_trailers(trailers: &mut HeaderMap) {
    remove(trailers, |name| meaning(name) != Meaning::Other);
}

/// Joins several header lines into one.
pub fn join(headers: &mut HeaderMap, name: &HeaderName, separator: &[u8]) {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (values.next(), values.next()) else {
        return;
    };
    let mut all = [first, separator, second].concat();
    for value in values {
        all.extend_from_slice(separator);
        all.extend_from_slice(value);
    }
    if let Ok(all) = HeaderValue::from_bytes(&all) {
        headers.insert(name, all);
    }
}

/// Meaning that a backend may find in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// A fact about the client, which proxies are asked for.
    Claim,
    /// A header that this proxy sets or interprets, spelt as no proxy spells it; or the setting of
    /// a program (`Proxy`, CVE-2016-5385).
    Disguise,
    Other,
}

/// Claims by the letters and digits of their names.
const CLAIMS: [&str; 22] = [
    "cfconnectingip",
    "cfconnectingipv6",
    "clientip",
    "fastlyclientip",
    "forwarded",
    "frontendhttps",
    "remoteaddr",
    "remoteuser",
    "trueclientip",
    "xclientip",
    "xclusterclientip",
    "xenvoyexternaladdress",
    "xhost",
    "xoriginalhost",
    "xoriginalurl",
    "xoriginatingip",
    "xprotocol",
    "xrealip",
    "xremoteuser",
    "xrewriteurl",
    "xscheme",
    "xurlscheme",
];
/// Beginnings of claims: `X-Forwarded-*`, and those about the client's certificate (RFC 9440 and
/// others).
const CLAIM_FAMILIES: [&str; 7] = [
    "clientcert",
    "sslclient",
    "xclientcert",
    "xforwarded",
    "xoriginalforwarded",
    "xremoteaddr",
    "xsslclient",
];
/// Headers that say where a request ends and whom it is for.
const FRAMING: [&str; 3] = ["contentlength", "host", "transferencoding"];

fn meaning(name: &HeaderName) -> Meaning {
    let mut buffer = [0; 32];
    let folded = fold(name.as_str(), &mut buffer);
    let is_claim = CLAIMS.contains(&folded)
        || CLAIM_FAMILIES
            .iter()
            .any(|family| folded.starts_with(family));
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match name.as_str().bytes().all(is_usual) {
        _ if folded == "proxy" => Meaning::Disguise,
        true if is_claim => Meaning::Claim,
        false if is_claim || FRAMING.contains(&folded) => Meaning::Disguise,
        _ => Meaning::Other,
    }
}

/// Returns the letters and digits of `name`, as far as `buffer` has room for them.
fn fold<'a>(name: &str, buffer: &'a mut [u8; 32]) -> &'a str {
    let mut length = 0;
    let kept = name.bytes().filter(u8::is_ascii_alphanumeric);
    for (place, byte) in buffer.iter_mut().zip(kept) {
        *place = byte.to_ascii_lowercase();
        length += 1;
    }
    std::str::from_utf8(&buffer[..length]).unwrap_or_default()
}

fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = headers
        .keys()
        .filter(|&name| is_removed(name))
        .cloned()
        .collect();
    for name in &removed {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_has_one_meaning() {
        let meaning = |name: &str| meaning(&HeaderName::from_bytes(name.as_bytes()).unwrap());
        for name in [
            "X-Real-IP",
            "Forwarded",
            "X-Forwarded-Anything-With-A-Very-Long-Name",
            "SSL-Client-Verify",
        ] {
            assert_eq!(meaning(name), Meaning::Claim, "{name}");
            let other = name.to_uppercase().replacen('-', "_", 1) + "_";
            assert_eq!(meaning(&other), Meaning::Disguise, "{other}");
        }
        for name in ["Proxy", "P_R_O_X_Y", "Content_Length", "ho.st"] {
            assert_eq!(meaning(name), Meaning::Disguise, "{name}");
        }
        for name in [
            "Host",
            "Content-Length",
            "Transfer-Encoding",
            "X_Api_Key",
            "Proxy-Authorization",
            "X-Real-IP-Or-Not-Is-Another-Question",
            "_",
        ] {
            assert_eq!(meaning(name), Meaning::Other, "{name}");
        }
    }
}
