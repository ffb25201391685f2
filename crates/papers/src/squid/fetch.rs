//! One request with OpenSSL's client, to see whether the cache answers it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::error::ErrorStack;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};

use crate::Error;

const TIMEOUT: Duration = Duration::from_secs(10);
/// As that of the load: for Squid it is the same object only if it is the same URL.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    head: String,
    pub(super) body: Vec<u8>,
}

impl Response {
    /// Returns true if it came from the cache, by the cache's own account.
    pub(super) fn is_hit(&self) -> bool {
        self.head.lines().any(|line| {
            line.split_once(':').is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("X-Cache") && value.trim_start().starts_with("HIT ")
            })
        })
    }

    /// Its first line.
    pub(super) fn status_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Response> {
        const END: &[u8] = b"\r\n\r\n";
        let end = bytes.windows(END.len()).position(|window| window == END)?;
        Some(Response {
            head: String::from_utf8_lossy(&bytes[..end]).into_owned(),
            body: bytes[end + END.len()..].to_vec(),
        })
    }
}

/// Asks for `/` over TLS.
///
/// # Errors
/// [`Error::Io`] when there is no answer, [`Error::WrongContent`] when it is none of HTTP,
/// [`Error::OpenSsl`].
pub(super) fn fetch(address: SocketAddr) -> Result<Response, Error> {
    let connector = connector().map_err(Error::openssl("cannot make a TLS client"))?;
    let failed = || format!("cannot fetch the object from the server at {address}");
    let socket = TcpStream::connect(address).map_err(Error::io(failed()))?;
    socket
        .set_read_timeout(Some(TIMEOUT))
        .map_err(Error::io(failed()))?;
    let mut stream = connector
        .connect("localhost", socket)
        .map_err(std::io::Error::other)
        .map_err(Error::io(failed()))?;
    let mut bytes = Vec::new();
    stream
        .write_all(REQUEST)
        .and_then(|()| stream.read_to_end(&mut bytes))
        .map_err(Error::io(failed()))?;
    Response::parse(&bytes)
        .ok_or_else(|| Error::WrongContent(format!("the server at {address} answers with no HTTP")))
}

fn connector() -> Result<SslConnector, ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    // The certificate was made for this experiment, and signed by itself.
    builder.set_verify(SslVerifyMode::NONE);
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_is_what_the_cache_calls_one() {
        let response = |cache: &str| {
            let text = format!("HTTP/1.1 200 OK\r\nAge: 0\r\n{cache} from localhost\r\n\r\nHIT me");
            Response::parse(text.as_bytes()).unwrap()
        };
        assert!(response("X-Cache: HIT").is_hit());
        assert!(!response("X-Cache: MISS").is_hit());
        assert!(!response("X-Cache-Lookup: HIT").is_hit());
        assert_eq!(response("X-Cache: HIT").body, b"HIT me");
        assert_eq!(response("X-Cache: HIT").status_line(), "HTTP/1.1 200 OK");
        assert!(Response::parse(b"HTTP/1.1 200 OK\r\n").is_none());
    }
}
