//! Support for tests that look at memory from a child process.

/// Calls `look` in a child of this process and returns its answer.
///
/// # Panics
/// If there is no child, or if it does not end by itself.
pub fn in_child(look: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the child computes and calls _exit; it takes no lock that another thread may hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork fails");
    if child == 0 {
        let seen = look();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(seen)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status), "the child was killed");
    libc::WEXITSTATUS(status) as u8
}
