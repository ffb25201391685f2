//! Memory that two processes map, and that neither can shrink under the other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use slipstream_keys::pages::ForkMark;

use crate::{Word, Words};

/// The seals without which the other process could kill this one by shrinking the file.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A mapping of shared memory. It is left out of core dumps, and a child process does not have it.
#[derive(Debug)]
pub struct Memory {
    address: NonNull<Word>,
    words: usize,
    /// In a child process, something else may be mapped at the address.
    process: ForkMark,
}

impl Memory {
    /// Makes `words` words, all zero. The descriptor is for the other process.
    ///
    /// # Errors
    /// If the system has no memory or no descriptor for it.
    pub fn create(words: usize) -> io::Result<(Self, OwnedFd)> {
        let file = rustix::fs::memfd_create(
            "slipstream-ring",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, bytes(words) as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((Self::map(file.as_fd(), words)?, file))
    }

    /// Maps memory that the other process has [made](Self::create).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is not as long as `words` words or could be shrunk, and
    /// other errors of mapping.
    pub fn open(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let length = rustix::fs::fstat(file)?.st_size;
        let is_sealed = rustix::fs::fcntl_get_seals(file)?.contains(SEALS);
        if u64::try_from(length) != Ok(bytes(words) as u64) || !is_sealed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("shared memory of {length} bytes, sealed: {is_sealed}"),
            ));
        }
        Self::map(file, words)
    }

    fn map(file: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let process = ForkMark::new()?;
        // SAFETY: a new mapping at an address of the kernel's choice. Writes of another process are
        // no race, since this one reads and writes atomics only; both callers have made sure that
        // the file is as long as `words`.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes(words),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let memory = Self {
            address: NonNull::new(address.cast())
                .ok_or_else(|| io::Error::other("a mapping at address zero"))?,
            words,
            process,
        };
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: the mapping just made, whole; neither advice changes its content.
            unsafe { rustix::mm::madvise(address, bytes(words), advice) }?;
        }
        Ok(memory)
    }
}

const fn bytes(words: usize) -> usize {
    words * size_of::<Word>()
}

impl Words for Memory {
    fn words(&self) -> &[Word] {
        // SAFETY: the mapping is page-aligned, that long, lives as long as `self`, and is only
        // accessed as atomics, for which any bytes are a value. Its file is sealed, so no page of
        // it can disappear.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.process.is_forked() {
            return;
        }
        // SAFETY: the mapping of `map`, whole, which nothing borrows any more.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), bytes(self.words)) };
    }
}

// SAFETY: a mapping belongs to no thread, what is in it is atomic, and the mark is only read.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustix::mm::mmap_anonymous;
    use slipstream_keys::fork_test::in_child;

    use super::*;

    #[test]
    fn both_sides_see_the_same() {
        let (ours, file) = Memory::create(1000).expect("memory");
        let theirs = Memory::open(file.as_fd(), 1000).expect("the same memory");
        ours.words()[999].store(7, Ordering::Relaxed);
        assert_eq!(theirs.words()[999].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn nobody_can_shrink_it() {
        let (_ours, file) = Memory::create(1000).expect("memory");
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        let unsealed = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).expect("a file");
        rustix::fs::ftruncate(&unsealed, 8000).expect("a file of this length");
        let refused = Memory::open(unsealed.as_fd(), 1000).expect_err("an unsealed file");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let refused = Memory::open(file.as_fd(), 999).expect_err("another length");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }

    /// The child's memory at the address of the mapping is its own, since it does not inherit that.
    #[test]
    fn a_child_that_drops_it_unmaps_nothing() {
        let (memory, _file) = Memory::create(1000).expect("memory");
        let (address, bytes) = (memory.address.as_ptr(), bytes(1000));
        let mut memory = Some(memory);
        let found = in_child(|| {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping in the place of one that this process does not have.
            let own = unsafe { mmap_anonymous(address.cast(), bytes, rights, flags) };
            let Ok(own) = own else { return 1 };
            drop(memory.take());
            // SAFETY: the mapping just made, a word at its start.
            unsafe {
                own.cast::<u64>().write_volatile(7);
                own.cast::<u64>().read_volatile() as u8
            }
        });
        assert_eq!(found, 7);
        drop(memory);
    }
}
