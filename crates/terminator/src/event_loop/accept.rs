//! Connections come in.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::connection::{self, Newcomer};

/// How long nothing is accepted after the system has run out of something.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts the connections of `socket` until the loop is drained: then those that the kernel has completed are accepted still.
pub(super) async fn run(socket: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let listener = match tokio::net::TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("slipstream serve: {address}: {error}");
            return;
        }
    };
    let mut draining = shared.draining.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = draining.wait_for(|&draining| draining) => break,
        };
        match accepted {
            Ok((stream, client)) => admit(stream, client, address, &shared),
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                eprintln!("slipstream serve: {address}: cannot accept: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    accept_rest(&listener, address, &shared).await;
}

/// A client whose connection the kernel has completed has been let in, as far as the client knows. Under load others keep coming: they
/// are taken for a moment only.
async fn accept_rest(
    listener: &tokio::net::TcpListener,
    address: SocketAddr,
    shared: &Arc<Shared>,
) {
    // An instant suffices for what is completed.
    const INSTANT: Duration = Duration::from_millis(1);
    const MOMENT: Duration = Duration::from_millis(100);
    let end = Instant::now() + MOMENT;
    while Instant::now() < end
        && let Ok(Ok((stream, client))) = timeout(INSTANT, listener.accept()).await
    {
        admit(stream, client, address, shared);
    }
}

/// Errors that are the client's, who has gone before it was accepted.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn admit(stream: TcpStream, client: SocketAddr, address: SocketAddr, shared: &Arc<Shared>) {
    shared.metrics.connections.add(1);
    let site = shared.site.borrow().clone();
    let Some(door) = site.door(address) else {
        // The address is served no more.
        return;
    };
    let admitted = match door.takes_proxy_header(client.ip()) {
        // A balancer's connections are not its own.
        true => shared.limiter.admit_unnamed(),
        false => shared.limiter.admit(client.ip()),
    };
    match admitted {
        Ok(permit) => {
            let newcomer = Newcomer {
                stream,
                client,
                address,
                permit,
            };
            connection::spawn(newcomer, site, shared.clone());
        }
        Err(refusal) => shared.metrics.refused[refusal.index()].add(1),
    }
}
