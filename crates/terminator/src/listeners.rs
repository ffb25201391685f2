//! Listening sockets, bound here or passed by systemd.

use std::io;
use std::net::{SocketAddr, TcpListener};

use slipstream_http::keepalive;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::operations::systemd;

/// Completed connections that the kernel queues. It limits this to net.core.somaxconn.
const BACKLOG: i32 = 65_535;

/// One list per event loop, with one socket per address.
pub(crate) type Sockets = Vec<Vec<(TcpListener, SocketAddr)>>;

/// Binds `addresses` once for each of `loops` event loops. A socket that systemd has passed for an
/// address is used instead, by all loops.
///
/// # Errors
/// Returns an error that names the address and the remedy.
pub(crate) fn bind(addresses: &[SocketAddr], loops: usize) -> io::Result<Sockets> {
    let mut passed = passed_sockets()?;
    let mut sockets: Sockets = (0..loops).map(|_| Vec::new()).collect();
    for &address in addresses {
        let position = passed.iter().position(|(_, bound)| *bound == address);
        match position.map(|position| passed.swap_remove(position).0) {
            Some(socket) => {
                prepare(&SockRef::from(&socket))?;
                for of_loop in &mut sockets {
                    of_loop.push((socket.try_clone()?, address));
                }
            }
            None => {
                check_unused(address)?;
                for of_loop in &mut sockets {
                    let socket = listening(address, true).map_err(|error| at(address, &error))?;
                    of_loop.push((socket, address));
                }
            }
        }
    }
    match passed.first() {
        None => Ok(sockets),
        Some((_, address)) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("systemd has passed a socket for {address}, where no listener is configured"),
        )),
    }
}

fn passed_sockets() -> io::Result<Vec<(TcpListener, SocketAddr)>> {
    systemd::listeners()?
        .into_iter()
        .map(|socket| {
            let address = socket.local_addr()?;
            Ok((socket, address))
        })
        .collect()
}

/// Fails if the address is in use. The loops share a port by SO_REUSEPORT, which would also let
/// another process of the same user share it unnoticed.
fn check_unused(address: SocketAddr) -> io::Result<()> {
    listening(address, false)
        .map(drop)
        .map_err(|error| at(address, &error))
}

fn listening(address: SocketAddr, is_shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // IPv4 needs an address of its own.
        socket.set_only_v6(true)?;
    }
    // Connections of an earlier process that are in TIME_WAIT must not prevent a start.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    prepare(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Sets options that connections inherit.
fn prepare(socket: &Socket) -> io::Result<()> {
    // Each write is a complete flight or record.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive())
}

fn at(address: SocketAddr, error: &io::Error) -> io::Error {
    let cure = match error.kind() {
        io::ErrorKind::AddrInUse => {
            ": another process listens there; stop it, or choose another address"
        }
        io::ErrorKind::AddrNotAvailable => ": this machine does not have that address",
        io::ErrorKind::PermissionDenied => {
            ": ports below 1024 need CAP_NET_BIND_SERVICE; start as root with `user` set, or let systemd pass the socket"
        }
        _ => "",
    };
    io::Error::new(
        error.kind(),
        format!("cannot listen on {address}: {error}{cure}"),
    )
}
