//! What finds out that the network of a peer has gone, where nothing else would: in the middle of a quiet response, or while a backend
//! thinks.

use std::time::Duration;

use socket2::TcpKeepalive;

/// The first question after a minute of silence; two minutes of silence are the end.
pub(crate) fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(INTERVAL)
        .with_retries(PROBES)
}

/// How long nothing may come from a host before it is asked whether it is there.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
pub(crate) const INTERVAL: Duration = Duration::from_secs(15);
/// After so many without an answer the connection has failed.
pub(crate) const PROBES: u32 = 4;
