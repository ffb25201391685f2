//! Waiting for what another process does.

use std::thread;
use std::time::{Duration, Instant};

/// Time after which a test gives up waiting: much longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(holds_in_time(&mut condition), "waited in vain: {what}");
}

/// Waits until `condition` holds; `false` if it does not within [`PATIENCE`].
pub(crate) fn holds_in_time(mut condition: impl FnMut() -> bool) -> bool {
    const INTERVAL: Duration = Duration::from_millis(5);
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(INTERVAL);
    }
    true
}
