//! Memory by whole pages: for secrets that stay in their process, and for tables that nobody writes
//! to any more.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

/// Whole pages of memory, zero at first, and zero again in a child process (MADV_WIPEONFORK, Linux
/// 4.14). They are neither dumped nor swapped out.
#[derive(Debug)]
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
        let pages = Self {
            base: map(bytes)?,
            bytes,
        };
        let base = pages.base.as_ptr().cast();
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

/// A page that the kernel wipes in a child process: it detects a fork without a system call.
#[derive(Debug)]
pub struct ForkMark(Pages);

const SAME_PROCESS: u8 = 1;

impl ForkMark {
    /// A mark of the calling process.
    ///
    /// # Errors
    /// As [`Pages::new`].
    pub fn new() -> io::Result<Self> {
        let pages = Pages::new(1)?;
        // SAFETY: one byte, writable, that only `pages` refers to.
        unsafe { pages.base().as_ptr().write_volatile(SAME_PROCESS) };
        Ok(Self(pages))
    }

    /// Returns true in a child of the process that made the mark.
    pub fn is_forked(&self) -> bool {
        // SAFETY: the page stays mapped and readable as long as `self`. Volatile, since the kernel
        // changes it.
        let mark = unsafe { self.0.base().as_ptr().read_volatile() };
        mark != SAME_PROCESS
    }
}

/// Values in pages of their own that cannot be written to: a stray write ends the process instead
/// of changing them. A child process inherits them.
pub struct ReadOnly<T> {
    base: NonNull<T>,
    count: usize,
}

// SAFETY: the values belong to this one alone, and nothing writes to them.
unsafe impl<T: Send> Send for ReadOnly<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ReadOnly<T> {}

impl<T: Copy> ReadOnly<T> {
    /// A copy of `values`.
    ///
    /// # Errors
    /// If the system has no memory, or cannot make it read-only.
    ///
    /// # Panics
    /// If there are no values, or if they are aligned to more than a page.
    pub fn copy_of(values: &[T]) -> io::Result<Self> {
        assert!(size_of_val(values) > 0, "no values");
        assert!(align_of::<T>() <= 4096, "pages are aligned to 4096 bytes");
        let pages = Self {
            base: map(size_of_val(values))?.cast(),
            count: values.len(),
        };
        // SAFETY: new memory of that length, aligned to a page, and so apart from `values`.
        unsafe {
            let target = pages.base.as_ptr();
            target.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        let (base, bytes) = (pages.base.as_ptr().cast(), size_of_val(values));
        // SAFETY: the pages just mapped.
        match unsafe { libc::mprotect(base, bytes, libc::PROT_READ) } {
            0 => Ok(pages),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl<T> Deref for ReadOnly<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the values that were written in `copy_of`, mapped as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl<T> Drop for ReadOnly<T> {
    fn drop(&mut self) {
        let bytes = self.count * size_of::<T>();
        // SAFETY: the mapping made in `copy_of`, which only `self` knows.
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// Maps new pages, all zero.
fn map(bytes: usize) -> io::Result<NonNull<u8>> {
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
    Ok(NonNull::new(base.cast()).expect("mmap does not return null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let mark = ForkMark::new().expect("a page");
        assert!(!mark.is_forked());
        let seen = crate::fork_test::in_child(|| u8::from(mark.is_forked()));
        assert_eq!(seen, 1);
        assert!(!mark.is_forked());
    }

    #[test]
    fn values_that_are_read_only_cannot_be_written_to() {
        let values: Vec<u64> = (0..1000).collect();
        let pages = ReadOnly::copy_of(&values).expect("pages");
        assert_eq!(*pages, *values);
        let start = format!("{:x}-", pages.as_ptr().expose_provenance());
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the maps of this process");
        let mapping = maps.lines().find(|line| line.starts_with(&start));
        let (_, rights) = mapping.and_then(|line| line.split_once(' ')).expect("one");
        assert!(rights.starts_with("r--p"), "{rights}");
    }
}
