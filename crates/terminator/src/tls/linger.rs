//! Lingering close, for a client that is still sending.
//!
//! Linux answers data on a closed socket with a reset. A client that receives one loses what it has
//! not read yet: the response, or the alert with the reason for the close.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::operations::limits::ConnectionPermit;

/// Longest time that a client may go on sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes that a client may go on sending.
const MAX_LINGER_BYTES: u64 = 16 << 20;

/// Closes `tcp`, to which everything has been written. Unless the client has ended too, a task of
/// its own reads and discards the client's bytes for a while, and keeps `permit` until then.
pub(super) fn close(mut tcp: TcpStream, permit: ConnectionPermit) {
    let has_ended = match tcp.try_read(&mut [0; 1024]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    // Outside a runtime, which is being shut down, the socket is closed at once.
    if has_ended || tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    tokio::spawn(async move {
        // The socket may be shut down already.
        let _ = tcp.shutdown().await;
        let rest = async {
            let mut rest = tcp.take(MAX_LINGER_BYTES);
            let mut bytes = [0; 4096];
            while rest.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
        };
        let _ = timeout(LINGER_TIMEOUT, rest).await;
        drop(permit);
    });
}
