//! A connection that is closed while its client is still sending.
//!
//! Linux answers what comes then with a reset, and a client that sees one forgets what it has not read yet: the response, or the
//! alert, that says why the connection was closed.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a client may go on.
const PATIENCE: Duration = Duration::from_secs(2);
/// And how much it may send.
const MOST_BYTES: u64 = 16 << 20;

/// Closes `tcp`, of which everything has been sent. Unless the client has ended, too, what it still sends is read and thrown away
/// for a while, in a task of its own.
pub(super) fn close(mut tcp: TcpStream) {
    let has_ended = match tcp.try_read(&mut [0; 1024]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    // Whoever is not in a runtime any more closes everything at once.
    if has_ended || tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    tokio::spawn(async move {
        // It may be shut down already.
        let _ = tcp.shutdown().await;
        let rest = async {
            let mut rest = tcp.take(MOST_BYTES);
            let mut bytes = [0; 4096];
            while rest.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
        };
        let _ = timeout(PATIENCE, rest).await;
    });
}
