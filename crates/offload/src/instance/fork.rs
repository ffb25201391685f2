//! Detection of a fork without a system call.

use std::io;
use std::ptr::NonNull;

/// A page that the kernel wipes in a child process (MADV_WIPEONFORK, Linux 4.14).
pub(super) struct Mark {
    page: NonNull<u8>,
}

const BYTES: usize = 4096;
const SAME_PROCESS: u8 = 1;

impl Mark {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mark = Self {
            page: NonNull::new(page.cast()).expect("mmap does not return null"),
        };
        // SAFETY: the page just mapped.
        if unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the page is writable and owned by `mark`.
        unsafe { mark.page.as_ptr().write_volatile(SAME_PROCESS) };
        Ok(mark)
    }

    pub(super) fn is_forked(&self) -> bool {
        // SAFETY: the page stays mapped and readable as long as `self`. Volatile, since the kernel
        // changes it.
        let mark = unsafe { self.page.as_ptr().read_volatile() };
        mark != SAME_PROCESS
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which only `self` knows.
        unsafe { libc::munmap(self.page.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let mark = Mark::new().expect("a page");
        assert!(!mark.is_forked());
        // SAFETY: the child calls only _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(mark.is_forked())) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert!(!mark.is_forked());
    }
}
