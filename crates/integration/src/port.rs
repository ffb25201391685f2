//! Ports for servers.

use std::net::SocketAddr;

/// Reserves a loopback address for as long as this process lives
/// ([`slipstream_testbed::port::unused_address`]).
///
/// # Panics
/// If no port is left.
pub fn unused_address() -> SocketAddr {
    slipstream_testbed::port::unused_address().expect("a port is free")
}
