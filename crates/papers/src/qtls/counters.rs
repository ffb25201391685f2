//! The module's own counters of operations that it has offloaded, and of those that it has left to
//! OpenSSL.

use std::net::SocketAddr;

use serde::Serialize;
use slipstream_testbed::status;

use crate::Error;

/// Counters of the module since the server was started, from its status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Operations computed by the device or in lanes.
    pub offloaded: u64,
    /// Operations left to OpenSSL, for whatever reason.
    pub software: u64,
    /// Number of times that the accelerator was polled.
    pub polls: u64,
    /// Polls that brought nothing although operations were in flight.
    pub ineffective_polls: u64,
}

impl Counters {
    /// Fetches them from the server at `address`.
    pub(super) fn fetch(address: SocketAddr) -> Result<Counters, Error> {
        let page = status::fetch(address, true)?;
        Ok(parse(&page))
    }

    /// The share of the operations that was offloaded; not a number if there were none.
    pub fn offloaded_share(&self) -> f64 {
        self.offloaded as f64 / (self.offloaded + self.software) as f64
    }
}

/// Adds up the samples of a page in the Prometheus text format.
fn parse(page: &str) -> Counters {
    let total = |name: &str| -> u64 {
        let is_of_family = |series: &str| series.split('{').next() == Some(name);
        status::total(page, is_of_family)
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
