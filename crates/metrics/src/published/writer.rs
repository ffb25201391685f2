//! The writer's side: memory in which figures are counted, and the file behind it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FallocateFlags, Gid, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::{HEAD, Head, LAYOUT, NOTE, PROCESS, Places, START, directory, list, pack, process};

/// A description of the figures of a process.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The program, at most 32 letters, digits or `.+-_`.
    pub program: &'static str,
    /// The version of the product, in the same characters.
    pub version: &'static str,
    /// The names of figures that only grow.
    pub counters: Vec<String>,
    /// The names of figures that grow and shrink. They end with the writer of their slot.
    pub gauges: Vec<String>,
    /// The number of writers: workers, or threads.
    pub slots: usize,
}

/// Memory in which figures are counted, shared with processes that are forked. It is never unmapped.
#[derive(Debug)]
pub struct Region {
    words: &'static [AtomicU64],
    places: Places,
    file: Option<File>,
}

#[derive(Debug)]
struct File {
    directory: OwnedFd,
    path: PathBuf,
    name: CString,
}

/// Attempts at a name that is free: a process that was killed may have left a file.
const ATTEMPTS: u32 = 64;

impl Region {
    /// Makes a file in `directory`, and memory that is mapped from it. Only the calling user may
    /// write it; `group` may read it, too.
    ///
    /// The file names `process`, or none if that is `None`: then the process that the figures are
    /// of has to be [named](Self::name) within a minute.
    ///
    /// # Errors
    /// If the directory cannot be written, or others can write it; if the system has no room. The
    /// text names the cure.
    pub fn publish(
        path: &Path,
        layout: &Layout,
        process: Option<u32>,
        group: Option<u32>,
    ) -> io::Result<Self> {
        let (head, places) = layout.head();
        let (directory, file, name) = create(path, layout.program)?;
        let words = prepare(&file, places.end, group).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&directory, &name, AtFlags::empty());
        })?;
        let region = Self {
            words,
            places,
            file: Some(File {
                directory,
                path: path.to_owned(),
                name,
            }),
        };
        region.describe(&head, layout);
        if let Some(process) = process {
            region.name(process);
        }
        // Removes what processes that were killed have left.
        list(&[path.to_owned()]);
        Ok(region)
    }

    /// Makes memory that is published nowhere.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn anonymous(layout: &Layout) -> io::Result<Self> {
        let (_, places) = layout.head();
        Ok(Self {
            words: map(None, places.end)?,
            places,
            file: None,
        })
    }

    /// As [`publish`](Self::publish) for the calling process, or else
    /// [anonymous](Self::anonymous) memory, and the reason.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn publish_or_count(
        path: &Path,
        layout: &Layout,
        group: Option<u32>,
    ) -> io::Result<(Self, Option<io::Error>)> {
        match Self::publish(path, layout, Some(std::process::id()), group) {
            Ok(region) => Ok((region, None)),
            Err(error) => Ok((Self::anonymous(layout)?, Some(error))),
        }
    }

    /// Names the process that the figures are of.
    pub fn name(&self, process: u32) {
        if self.file.is_none() {
            return;
        }
        let start = process::start(process).unwrap_or(0);
        self.words[START].store(start, Ordering::Relaxed);
        self.words[PROCESS].store(process.into(), Ordering::Release);
    }

    /// Publishes the reason why nothing is accelerated, or less than was asked for; an empty text
    /// takes it back. ASCII, at most 256 characters: others are replaced, and more is cut off.
    pub fn note(&self, text: &str) {
        let shown = |character: char| match character {
            ' '..='~' => character,
            _ => '?',
        };
        let text: String = text.chars().map(shown).collect();
        for (word, note) in self.words[HEAD..].iter().zip(pack::<NOTE>(&text)) {
            word.store(note, Ordering::Relaxed);
        }
    }

    /// Returns true if the figures are published for `process`.
    pub fn names(&self, process: u32) -> bool {
        self.file.is_some() && self.words[PROCESS].load(Ordering::Relaxed) == u64::from(process)
    }

    /// The figures of writers that have ended.
    pub fn totals(&self) -> &'static [AtomicU64] {
        &self.words[self.places.totals..][..self.places.figures]
    }

    /// For each slot the process that writes it, or 0.
    pub fn owners(&self) -> &'static [AtomicU64] {
        &self.words[self.places.owners..][..self.places.slots]
    }

    /// The figures of a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn slot(&self, index: usize) -> &'static [AtomicU64] {
        assert!(index < self.places.slots);
        &self.words[self.places.slot(index)]
    }

    /// Removes the file, and its directory if it was the last one there. The memory stays.
    pub fn remove(&self) {
        if let Some(file) = &self.file {
            // If it cannot be removed, a reader sees that its process has ended.
            let _ = rustix::fs::unlinkat(&file.directory, &file.name, AtFlags::empty());
            // Fails if there are others, or if it is a service's.
            let _ = rustix::fs::rmdir(&file.path);
        }
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    fn describe(&self, head: &Head, layout: &Layout) {
        let mut names = String::new();
        for name in layout.names() {
            names.push_str(name);
            names.push('\n');
        }
        let names = names.as_bytes().chunks(8).map(|bytes| {
            let mut padded = [b'\n'; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(padded)
        });
        // The first word comes last: a reader leaves out a file that is not complete.
        for (place, word) in (self.places.names..)
            .zip(names)
            .chain((1..).zip(head.words().into_iter().skip(1)))
        {
            self.words[place].store(word, Ordering::Relaxed);
        }
        self.words[0].store(head.words()[0], Ordering::Release);
    }
}

impl Layout {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.counters.iter().chain(&self.gauges).map(String::as_str)
    }

    fn head(&self) -> (Head, Places) {
        let text: usize = self.names().map(|name| name.len() + 1).sum();
        let head = Head {
            layout: LAYOUT,
            process: 0,
            start: 0,
            namespace: process::namespace(),
            program: pack(self.program),
            version: pack(self.version),
            counters: self.counters.len() as u64,
            gauges: self.gauges.len() as u64,
            slots: self.slots as u64,
            names: text.div_ceil(8) as u64,
        };
        let places = head.places().expect("a program has fewer figures");
        (head, places)
    }
}

/// Makes a file that did not exist, and the directory if need be.
fn create(path: &Path, program: &str) -> io::Result<(OwnedFd, OwnedFd, CString)> {
    let process = std::process::id();
    let mut attempt = 0;
    loop {
        let directory = directory::open_to_write(path)?;
        let name = match attempt {
            0 => format!("{program}.{process}"),
            _ => format!("{program}.{process}.{attempt}"),
        };
        let name = CString::new(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = flags | OFlags::CLOEXEC;
        match rustix::fs::openat(&directory, &name, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok((directory, file, name)),
            // The name is taken, or another process has just removed the directory.
            Err(Errno::EXIST | Errno::NOENT) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => {
                let error = io::Error::from(error);
                let text = format!("{}: {error}", path.display());
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
}

/// Gives a new file its readers and its room, and maps it.
fn prepare(file: &OwnedFd, words: usize, group: Option<u32>) -> io::Result<&'static [AtomicU64]> {
    if let Some(group) = group {
        rustix::fs::fchown(file, None, Some(Gid::from_raw(group)))?;
        rustix::fs::fchmod(file, Mode::from_raw_mode(0o640))?;
    }
    // With all of its room taken now, no later access can fail.
    let length = (words * size_of::<u64>()) as u64;
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length)?;
    map(Some(file), words)
}

fn map(file: Option<&OwnedFd>, words: usize) -> io::Result<&'static [AtomicU64]> {
    let length = words * size_of::<AtomicU64>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let null = std::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice. It is only accessed as atomics,
    // so that writes of other processes are no race.
    let address = unsafe {
        match file {
            Some(file) => rustix::mm::mmap(null, length, access, MapFlags::SHARED, file.as_fd(), 0),
            None => rustix::mm::mmap_anonymous(null, length, access, MapFlags::SHARED),
        }
    }?;
    // SAFETY: the mapping is page-aligned, that long and never unmapped; any bytes are a value of
    // an atomic. A file of it has all of its room, and only this user or root can take that away.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), words) })
}
