//! Sockets of a server, as /proc/net/tcp lists them.

use std::fs;
use std::net::{IpAddr, SocketAddr};

/// A socket of a server.
#[derive(Debug)]
pub struct ServerSocket {
    /// It listens; otherwise it is a connection.
    pub is_listening: bool,
    /// No process has it open any more.
    pub is_orphaned: bool,
    /// Number of connections that wait to be accepted, if the socket listens.
    pub queued: u32,
}

/// The sockets at the address of a server.
///
/// # Panics
/// If the address is not of IPv4.
pub fn sockets(address: SocketAddr) -> Vec<ServerSocket> {
    const LISTENING: &str = "0A";
    let IpAddr::V4(ip) = address.ip() else {
        panic!("{address} is not of IPv4");
    };
    let local = format!(
        "{:08X}:{:04X}",
        u32::from_le_bytes(ip.octets()),
        address.port()
    );
    let table = fs::read_to_string("/proc/net/tcp").expect("/proc can be read");
    table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1).is_some_and(|address| *address == local))
        .map(|fields| ServerSocket {
            is_listening: fields[3] == LISTENING,
            is_orphaned: fields[9] == "0",
            queued: fields[4]
                .split_once(':')
                .and_then(|(_, received)| u32::from_str_radix(received, 16).ok())
                .expect("two queues"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_waits_until_it_is_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let queued = || {
            sockets(address)
                .iter()
                .find(|s| s.is_listening)
                .unwrap()
                .queued
        };
        assert_eq!(queued(), 0);
        let _client = TcpStream::connect(address).unwrap();
        // The client knows of the connection before the server's side does.
        crate::eventually("the connection is complete", || queued() == 1);
        let _server = listener.accept().unwrap();
        assert_eq!(queued(), 0);
    }
}
