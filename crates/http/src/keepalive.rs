//! TCP keepalive. It detects a lost network in the middle of a quiet response, or while a backend
//! computes, where nothing else would.

use std::time::Duration;

use socket2::TcpKeepalive;

/// Returns settings that probe a peer after one minute of silence and give up after two.
pub fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(INTERVAL)
        .with_retries(PROBES)
}

/// Silence after which a peer is probed.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
pub(crate) const INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered probes after which the connection has failed.
pub(crate) const PROBES: u32 = 4;
