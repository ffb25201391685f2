//! Ports for servers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// A loopback address that nothing uses, and that is not given out again by this process.
///
/// Its port is below those that the system gives to clients, so no connection of another test takes
/// it before the server listens.
///
/// # Panics
/// If no port is left.
pub fn unused_address() -> SocketAddr {
    const FIRST: u16 = 16_384;
    const COUNT: u16 = 16_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run side by side start at different places.
    let start = (std::process::id() % u32::from(COUNT)) as u16;
    (0..COUNT)
        .map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = FIRST + (start + step % COUNT) % COUNT;
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        })
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a port is free")
}
