//! The module's status page, in the Prometheus text format.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::error::ErrorStack;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};

use crate::Error;

const TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"GET /slipstream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The page of the server at `address`, over TLS if it `is_encrypted`.
///
/// # Errors
/// [`Error::Io`] when it cannot be fetched, [`Error::OpenSsl`].
pub fn fetch(address: SocketAddr, is_encrypted: bool) -> Result<String, Error> {
    let connector = match is_encrypted {
        true => Some(connector().map_err(Error::openssl("cannot make a TLS client"))?),
        false => None,
    };
    get(connector.as_ref(), address).map_err(Error::io(format!(
        "cannot fetch /slipstream from the server at {address}"
    )))
}

/// The sum of the samples whose series, name and labels, is `wanted`.
pub fn total(page: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    page.lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| wanted(series))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

fn connector() -> Result<SslConnector, ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    // The certificate was made for this experiment, and signed by itself.
    builder.set_verify(SslVerifyMode::NONE);
    Ok(builder.build())
}

fn get(connector: Option<&SslConnector>, address: SocketAddr) -> io::Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let Some(connector) = connector else {
        return ask(&mut socket);
    };
    let mut stream = connector
        .connect("localhost", socket)
        .map_err(io::Error::other)?;
    ask(&mut stream)
}

fn ask(stream: &mut (impl Read + Write)) -> io::Result<String> {
    stream.write_all(REQUEST)?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}
