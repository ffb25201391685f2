//! The generation of a virtual machine, where its host shows one to processes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The devices that show the generation of a machine.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// A virtual clock (linux/vmclock-abi.h).
    pub(super) vmclock: PathBuf,
    /// A system generation ID: a driver that is in the kernels of some providers, and that aws-lc
    /// looks for, too. Its page begins with a counter of 32 bits.
    pub(super) sysgenid: PathBuf,
}

/// A page of memory that the host, or the kernel, writes to when the machine has been copied.
pub(in crate::lanes) struct Generation {
    page: NonNull<u8>,
    format: Format,
}

#[derive(Clone, Copy)]
enum Format {
    VmClock { has_counter: bool },
    SysGenId,
}

// SAFETY: the page is only read, by atomic loads, and never unmapped while the value lives.
unsafe impl Send for Generation {}

// SAFETY: as above.
unsafe impl Sync for Generation {}

const PAGE: usize = 4096;

/// "VCLK".
const MAGIC: u32 = 0x4b4c_4356;

/// The bit of the flags that says that there is a counter of generations.
const HAS_COUNTER: u64 = 1 << 8;

/// Offsets in `struct vmclock_abi`, version 1.
mod offset {
    pub(super) const MAGIC: usize = 0;
    pub(super) const SIZE: usize = 4;
    pub(super) const VERSION: usize = 8;
    pub(super) const SEQUENCE: usize = 12;
    pub(super) const DISRUPTION_MARKER: usize = 16;
    pub(super) const FLAGS: usize = 24;
    pub(super) const GENERATION: usize = 104;
}

/// A page that is being written is read again this often.
const ATTEMPTS: usize = 8;

impl Default for Paths {
    fn default() -> Self {
        Self {
            vmclock: "/dev/vmclock0".into(),
            sysgenid: "/dev/sysgenid".into(),
        }
    }
}

impl Generation {
    /// The generation of this machine, looked for once. `None` if the machine shows none, or not to
    /// this process.
    pub(super) fn of_this_machine() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Generation>> = OnceLock::new();
        let found = FOUND.get_or_init(|| Generation::open(&Paths::default()));
        found.as_ref()
    }

    /// Maps the first of the devices that is there and in a format that is known.
    pub(super) fn open(paths: &Paths) -> Option<Self> {
        let vmclock = map(&paths.vmclock).ok().map(|page| Self {
            page,
            format: Format::VmClock { has_counter: false },
        });
        let vmclock = vmclock.and_then(Self::checked);
        vmclock.or_else(|| {
            let page = map(&paths.sysgenid).ok()?;
            let format = Format::SysGenId;
            Some(Self { page, format })
        })
    }

    /// The same page if it is a virtual clock's.
    fn checked(mut self) -> Option<Self> {
        let word = |offset| u32::from_le(self.word32(offset).load(Ordering::Relaxed));
        let size = word(offset::SIZE) as usize;
        let is_known = word(offset::MAGIC) == MAGIC
            && word(offset::VERSION) as u16 == 1
            && size >= offset::FLAGS + 8;
        let flags = u64::from_le(self.word64(offset::FLAGS).load(Ordering::Relaxed));
        let has_counter = flags & HAS_COUNTER != 0 && size >= offset::GENERATION + 8;
        self.format = Format::VmClock { has_counter };
        is_known.then_some(self)
    }

    /// Returns numbers that are others after the machine has been copied; `None` while they are
    /// being written.
    ///
    /// A virtual clock without a counter of generations still marks disruptions: also those of a
    /// machine that was moved.
    pub(super) fn read(&self) -> Option<[u64; 2]> {
        let Format::VmClock { has_counter } = self.format else {
            let counter = self.word32(0).load(Ordering::Acquire);
            return Some([counter.into(), 0]);
        };
        for _ in 0..ATTEMPTS {
            let before = self.word32(offset::SEQUENCE).load(Ordering::Acquire);
            let marker = self
                .word64(offset::DISRUPTION_MARKER)
                .load(Ordering::Relaxed);
            let counter = match has_counter {
                true => self.word64(offset::GENERATION).load(Ordering::Relaxed),
                false => 0,
            };
            // The words are read before the number that tells if they have been written meanwhile.
            fence(Ordering::Acquire);
            let after = self.word32(offset::SEQUENCE).load(Ordering::Relaxed);
            if before == after && before & 1 == 0 {
                return Some([marker, counter]);
            }
        }
        None
    }

    fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= PAGE && offset.is_multiple_of(4));
        // SAFETY: within the mapped page, which lives as long as `self`, and aligned.
        unsafe { AtomicU32::from_ptr(self.page.add(offset).cast().as_ptr()) }
    }

    fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= PAGE && offset.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.page.add(offset).cast().as_ptr()) }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // SAFETY: the page that `map` has mapped, which only `self` knows.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE) };
    }
}

/// Maps the page of a device for reading.
fn map(path: &Path) -> io::Result<NonNull<u8>> {
    let device = File::open(path)?;
    // Behind the end of a regular file, a page cannot be read. A device has no length.
    let metadata = device.metadata()?;
    if metadata.is_file() && metadata.len() < PAGE as u64 {
        return Err(io::Error::other("shorter than a page"));
    }
    // SAFETY: a new mapping at an address of the kernel's choice. It stays when the file is closed.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            device.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(page.cast()).ok_or_else(|| io::Error::other("a mapping at address zero"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::FileExt;

    use tempfile::TempDir;

    use super::*;

    /// Devices of a test: files of a page.
    pub(in crate::lanes) struct Devices {
        folder: TempDir,
        paths: Paths,
    }

    impl Devices {
        pub(in crate::lanes) fn new() -> Self {
            let folder = TempDir::new().expect("a folder");
            let paths = Paths {
                vmclock: folder.path().join("vmclock0"),
                sysgenid: folder.path().join("sysgenid"),
            };
            Self { folder, paths }
        }

        /// A clock without a counter of generations.
        fn vmclock(&self) -> File {
            let file = page(&self.paths.vmclock);
            write(&file, offset::MAGIC, &MAGIC.to_le_bytes());
            write(&file, offset::SIZE, &4096_u32.to_le_bytes());
            write(&file, offset::VERSION, &1_u16.to_le_bytes());
            file
        }

        /// A clock with such a counter.
        pub(in crate::lanes) fn counting_vmclock(&self) -> File {
            let file = self.vmclock();
            write(&file, offset::FLAGS, &HAS_COUNTER.to_le_bytes());
            file
        }

        pub(in crate::lanes) fn open(&self) -> Option<Generation> {
            Generation::open(&self.paths)
        }
    }

    /// As a host does it: an odd number while it writes.
    pub(in crate::lanes) fn count_up(vmclock: &File, generation: u64) {
        write(vmclock, offset::SEQUENCE, &1_u32.to_le_bytes());
        write(vmclock, offset::GENERATION, &generation.to_le_bytes());
        write(vmclock, offset::SEQUENCE, &2_u32.to_le_bytes());
    }

    fn page(path: &Path) -> File {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .expect("a file");
        file.set_len(PAGE as u64).expect("a page");
        file
    }

    fn write(file: &File, offset: usize, bytes: &[u8]) {
        file.write_all_at(bytes, offset as u64).expect("written");
    }

    #[test]
    fn the_counter_of_a_virtual_clock_is_read() {
        let devices = Devices::new();
        let file = devices.counting_vmclock();
        let generation = devices.open().expect("a clock");
        let first = generation.read();
        assert!(first.is_some());
        assert_eq!(generation.read(), first);
        count_up(&file, 7);
        assert!(
            generation
                .read()
                .is_some_and(|second| Some(second) != first)
        );
    }

    #[test]
    fn without_a_counter_a_disruption_is_seen() {
        let devices = Devices::new();
        let file = devices.vmclock();
        let generation = devices.open().expect("a clock");
        let first = generation.read();
        // The flags say that these bytes are something else.
        write(&file, offset::GENERATION, &[5]);
        assert_eq!(generation.read(), first);
        write(&file, offset::DISRUPTION_MARKER, &[5]);
        assert_ne!(generation.read(), first);
    }

    #[test]
    fn a_page_that_is_being_written_is_not_read() {
        let devices = Devices::new();
        let file = devices.counting_vmclock();
        let generation = devices.open().expect("a clock");
        write(&file, offset::SEQUENCE, &[3]);
        assert_eq!(generation.read(), None);
        write(&file, offset::SEQUENCE, &[4]);
        assert!(generation.read().is_some());
    }

    #[test]
    fn a_system_generation_id_stands_in_for_a_clock_that_is_not_known() {
        let devices = Devices::new();
        assert!(devices.open().is_none());
        let vmclock = devices.vmclock();
        write(&vmclock, offset::VERSION, &[2]);
        assert!(devices.open().is_none());
        let file = page(&devices.folder.path().join("sysgenid"));
        let generation = devices.open().expect("an ID");
        let first = generation.read();
        write(&file, 0, &[1]);
        assert!(
            generation
                .read()
                .is_some_and(|second| Some(second) != first)
        );
    }

    #[test]
    fn a_file_without_a_page_is_no_device() {
        let devices = Devices::new();
        let file = page(&devices.paths.sysgenid);
        file.set_len(100).expect("shorter");
        assert!(devices.open().is_none());
    }
}
