//! What the module says of itself: how many operations it has offloaded, and how many it has left to OpenSSL.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::error::ErrorStack;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use serde::Serialize;

use crate::Error;

const TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST: &[u8] = b"GET /slipstream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Counters of the module since the server was started, from its status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Operations computed by the device or in lanes.
    pub offloaded: u64,
    /// Operations left to OpenSSL, for whatever reason.
    pub software: u64,
    /// How often the accelerator was polled.
    pub polls: u64,
    /// Polls that brought nothing although operations were in flight.
    pub ineffective_polls: u64,
}

impl Counters {
    /// Fetches them from the server at `address`.
    pub(super) fn fetch(address: SocketAddr) -> Result<Counters, Error> {
        let connector = connector().map_err(Error::openssl("cannot make a TLS client"))?;
        get(&connector, address)
            .map(|page| parse(&page))
            .map_err(Error::io(format!(
                "cannot fetch /slipstream from the server at {address}"
            )))
    }

    /// The share of the operations that was offloaded; not a number if there were none.
    pub fn offloaded_share(&self) -> f64 {
        self.offloaded as f64 / (self.offloaded + self.software) as f64
    }
}

fn connector() -> Result<SslConnector, ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    // The certificate was made for this experiment, and signed by itself.
    builder.set_verify(SslVerifyMode::NONE);
    Ok(builder.build())
}

fn get(connector: &SslConnector, address: SocketAddr) -> io::Result<String> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut stream = connector
        .connect("localhost", socket)
        .map_err(io::Error::other)?;
    stream.write_all(REQUEST)?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Adds up what a page in the Prometheus text format has.
fn parse(page: &str) -> Counters {
    let total = |name: &str| -> u64 {
        page.lines()
            .filter_map(|line| {
                let (series, value) = line.rsplit_once(' ')?;
                let family = series.split('{').next()?;
                (family == name).then(|| value.trim().parse::<u64>().ok())?
            })
            .sum()
    };
    Counters {
        offloaded: total("slipstream_device_operations_total")
            + total("slipstream_lane_operations_total"),
        software: total("slipstream_software_operations_total"),
        polls: total("slipstream_polls_total"),
        ineffective_polls: total("slipstream_ineffective_polls_total"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_family_are_added_up_and_others_left_out() {
        let page = "HTTP/1.1 200 OK\r\nServer: nginx 7\r\n\r\n\
            # HELP slipstream_polls_total How often the accelerator was polled.\n\
            slipstream_polls_total 120\n\
            slipstream_ineffective_polls_total 20\n\
            slipstream_device_operations_total{operation=\"rsa2048\"} 30\n\
            slipstream_device_operations_total{operation=\"x25519\"} 3\n\
            slipstream_lane_operations_total{operation=\"rsa2048\"} 1\n\
            slipstream_software_operations_total{reason=\"lost\"} 5\n\
            slipstream_software_operations_total{reason=\"fault\"} 6\n";
        let counters = parse(page);
        assert_eq!(
            counters,
            Counters {
                offloaded: 34,
                software: 11,
                polls: 120,
                ineffective_polls: 20,
            }
        );
        assert!((counters.offloaded_share() - 34.0 / 45.0).abs() < 1e-9);
        assert!(parse("").offloaded_share().is_nan());
    }
}
