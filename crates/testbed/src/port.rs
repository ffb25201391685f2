//! Ports for servers that take their address from a configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};

use crate::Error;

/// Sockets that keep ports from being given to anybody else.
static HELD: Mutex<Vec<Socket>> = Mutex::new(Vec::new());

/// Reserves a port of 127.0.0.1 for as long as this process lives, and returns its address.
///
/// A socket is bound to the port and never listens. So the kernel gives the port to no connection
/// and to no socket that asks for any port, of this process or another, and a connection to it is
/// refused until a server listens. A server can listen there since both sockets have SO_REUSEADDR,
/// which all servers set.
///
/// # Errors
/// If no port is left.
pub fn unused_address() -> Result<SocketAddr, Error> {
    let reserve = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket.local_addr()?;
        HELD.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(socket);
        Ok(address
            .as_socket()
            .expect("a socket of IPv4 has an address of IPv4"))
    };
    reserve().map_err(Error::io("cannot reserve a port"))
}

/// Reserves several ports ([`unused_address`]).
///
/// # Errors
/// As [`unused_address`].
pub fn unused_addresses(count: usize) -> Result<Vec<SocketAddr>, Error> {
    (0..count).map(|_| unused_address()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::env;
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};
    use std::thread::{self, ScopedJoinHandle};

    use super::*;

    const THREADS: usize = 8;
    const PORTS: usize = 64;
    const PROCESSES: usize = 4;
    /// Behind it a child lists its addresses.
    const FIRST_LINE: &str = "reserved:";

    /// Reserves ports in many threads while as many connect and bind, and then listens at each.
    fn reserve_and_listen() -> Vec<SocketAddr> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let use_port = |_| {
            let stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
            // Any connection: the server's queue is short.
            let accepted = server.accept().unwrap();
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            (stream, accepted, listener)
        };
        let (reserved, others) = thread::scope(|scope| {
            let reserving: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| unused_addresses(PORTS).unwrap()))
                .collect();
            let using: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| (0..PORTS).map(use_port).collect::<Vec<_>>()))
                .collect();
            (join(reserving), join(using))
        });
        let distinct: HashSet<&SocketAddr> = reserved.iter().collect();
        assert_eq!(distinct.len(), THREADS * PORTS);
        for (stream, _, listener) in &others {
            assert!(!distinct.contains(&stream.local_addr().unwrap()));
            assert!(!distinct.contains(&listener.local_addr().unwrap()));
        }
        for address in &reserved {
            let listener = TcpListener::bind(address).unwrap();
            TcpStream::connect(address).unwrap();
            listener.accept().unwrap();
        }
        reserved
    }

    fn join<T>(threads: Vec<ScopedJoinHandle<'_, Vec<T>>>) -> Vec<T> {
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    }

    #[test]
    fn a_connection_is_refused_until_a_server_listens() {
        let address = unused_address().unwrap();
        for _ in 0..2 {
            let error = TcpStream::connect(address).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(address).unwrap();
            TcpStream::connect(address).unwrap();
            drop(listener);
        }
    }

    #[test]
    fn threads_of_several_processes_get_ports_of_their_own() {
        let mut children: Vec<_> = (0..PROCESSES)
            .map(|_| {
                Command::new(env::current_exe().unwrap())
                    .args(["--exact", "port::tests::child_reserves"])
                    .args(["--ignored", "--nocapture"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut all = reserve_and_listen();
        // All are asked before one may end and free its ports.
        for child in &mut children {
            let output = BufReader::new(child.stdout.as_mut().unwrap());
            all.extend(
                output
                    .lines()
                    .map(Result::unwrap)
                    .skip_while(|line| !line.ends_with(FIRST_LINE))
                    .skip(1)
                    .take(THREADS * PORTS)
                    .map(|line| line.parse::<SocketAddr>().unwrap()),
            );
        }
        for mut child in children {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(all.len(), (PROCESSES + 1) * THREADS * PORTS);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    #[ignore = "runs in a child"]
    fn child_reserves() {
        let reserved = reserve_and_listen();
        println!("{FIRST_LINE}");
        for address in reserved {
            println!("{address}");
        }
        // Holds the ports until the parent has asked every child.
        let _ = std::io::stdin().lines().count();
    }
}
