//! Accepting of connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::connection::{self, Accepted};

/// Pause after the system has run out of a resource.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts the connections of `socket` until the loop is drained. Then accepts those that the
/// kernel has completed.
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

/// Accepts connections that the kernel has completed: for their clients they are open. Under load
/// new ones keep coming, so this is limited in time.
async fn accept_rest(
    listener: &tokio::net::TcpListener,
    address: SocketAddr,
    shared: &Arc<Shared>,
) {
    // A completed connection is there at once.
    const INSTANT: Duration = Duration::from_millis(1);
    const MOMENT: Duration = Duration::from_millis(100);
    let end = Instant::now() + MOMENT;
    while Instant::now() < end
        && let Ok(Ok((stream, client))) = timeout(INSTANT, listener.accept()).await
    {
        admit(stream, client, address, shared);
    }
}

/// Returns true for errors of a single connection that has ended before it was accepted.
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
    let Some(listener) = site.listener(address) else {
        // The address is no longer served.
        return;
    };
    let admitted = match listener.takes_proxy_header(client.ip()) {
        // The client's address is not known before the header, and a load balancer opens the
        // connections of many clients.
        true => shared.limiter.admit_unnamed(),
        false => shared.limiter.admit(client.ip()),
    };
    match admitted {
        Ok(permit) => {
            let accepted = Accepted {
                stream,
                client,
                address,
                permit,
            };
            connection::spawn(accepted, site, shared.clone());
        }
        Err(refusal) => shared.metrics.refused[refusal.index()].add(1),
    }
}
