//! Event descriptors (`eventfd(2)`).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

/// Makes a descriptor that is not readable yet. No call with it blocks.
///
/// # Errors
/// If the system has no descriptors left.
pub fn new() -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(rustix::event::eventfd(0, flags)?)
}

/// Makes `event` readable.
pub fn signal(event: BorrowedFd<'_>) {
    // It fails only if the counter is full, and then it is readable.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Makes `event` unreadable. Returns true if it was readable.
pub fn drain(event: BorrowedFd<'_>) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}
