//! Memory that stays in its process: wiped in a child, and neither dumped nor swapped out.

use std::io;
use std::ptr::NonNull;

/// Whole pages of memory, zero at first, and zero again in a child process (MADV_WIPEONFORK, Linux
/// 4.14).
pub struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and any thread may access and unmap it.
unsafe impl Send for Pages {}

impl Pages {
    /// At least `bytes` bytes, aligned to a page.
    ///
    /// # Errors
    /// If the system has no memory, or cannot wipe it in a child.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = Self {
            base: NonNull::new(base.cast()).expect("mmap does not return null"),
            bytes,
        };
        // SAFETY: the pages just mapped.
        if unsafe { libc::madvise(base, bytes, libc::MADV_WIPEONFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Where these are not allowed, the memory is kept as well as any other.
        // SAFETY: the pages just mapped.
        unsafe {
            libc::madvise(base, bytes, libc::MADV_DONTDUMP);
            libc::mlock(base, bytes);
        }
        Ok(pages)
    }

    /// The first byte; readable and writable as long as `self`.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which only `self` knows.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
