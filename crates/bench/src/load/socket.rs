//! Sockets of clients.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mio::net::TcpStream;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Starts to connect to `address`, with the `number`th source address where there is a choice.
pub(super) fn connect(address: SocketAddr, number: u32) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    if let Some(source) = source_address(address, number) {
        socket.bind(&SockAddr::from(source))?;
    }
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// A source address for the `number`th connection to a loopback address: one of 65,025, so that the
/// sockets left in TIME_WAIT never use up the ports of one address. Elsewhere the system chooses.
fn source_address(target: SocketAddr, number: u32) -> Option<SocketAddr> {
    const HOSTS: u32 = 255;
    match target.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => {
            let number = number % (HOSTS * HOSTS);
            let third = u8::try_from(number / HOSTS).expect("below 255");
            let fourth = u8::try_from(number % HOSTS).expect("below 255");
            Some(SocketAddr::from((Ipv4Addr::new(127, 1, third, fourth), 0)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn sources_spread_over_the_loopback_network_and_stay_in_it() {
        let server = SocketAddr::from(([127, 0, 0, 1], 443));
        let sources: HashSet<IpAddr> = (0..255 * 255)
            .map(|number| source_address(server, number).unwrap().ip())
            .collect();
        assert_eq!(sources.len(), 255 * 255);
        assert!(sources.iter().all(IpAddr::is_loopback));
        assert_eq!(source_address(server, 255 * 255), source_address(server, 0));
    }

    #[test]
    fn no_source_is_chosen_outside_the_ipv4_loopback_network() {
        assert_eq!(
            source_address(SocketAddr::from(([192, 0, 2, 1], 443)), 7),
            None
        );
        assert_eq!(source_address("[::1]:443".parse().unwrap(), 7), None);
    }
}
