//! The reader's side. What it reads was written by another process, and may be anything.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::process::{exists, is_alive, name_of_user, namespace, user};
use super::{HEAD, Head, LAYOUT, LIMIT, NOTE, directory, text, unpack};

/// The figures of a process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The program.
    pub program: String,
    /// The version of the product that it runs.
    pub version: String,
    /// The process; 0 while it is being started.
    pub process: u32,
    /// The time at which the process was started, in ticks since the system was.
    pub start: u64,
    /// The reason why the process accelerates nothing, or less than it was asked for.
    pub note: Option<String>,
    /// Writers that are alive.
    pub writers: u64,
    /// The figures by name, summed over all writers. Counters include writers that have ended.
    pub figures: BTreeMap<String, u64>,
    /// The time at which they were read.
    pub read: Instant,
}

/// The reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Another user's.
    #[error("not yours to read: run as root or as {0}")]
    Denied(String),
    /// A layout that this program does not know.
    #[error(
        "{program} {process} runs slipstream {version}, whose figures this command cannot read: use the command of that version"
    )]
    Foreign {
        /// The program.
        program: String,
        /// Its process.
        process: u32,
        /// The version that it runs.
        version: String,
    },
    /// A content that no program writes.
    #[error("not written by slipstream ({0}): remove it")]
    Malformed(&'static str),
    /// An error of the system.
    #[error("{0}")]
    System(String),
}

/// A file of a process that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The path of the file, or of a directory that cannot be read.
    pub path: PathBuf,
    /// Its content.
    pub content: Result<Published, Unreadable>,
}

/// A process that has not named itself for this long has not been started.
const START: Duration = Duration::from_secs(60);

/// Reads the files in `directories`, of those that exist. Files of processes that have ended are
/// left out, and removed if this process may do so.
pub fn list(directories: &[PathBuf]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = directories
        .iter()
        .flat_map(|path| in_directory(path))
        .collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

fn in_directory(path: &Path) -> Vec<Entry> {
    let directory = match directory::open(path) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Vec::new(),
        Err(error) => {
            let owner = fs::symlink_metadata(path).ok().map(|status| owner(&status));
            return vec![Entry {
                path: path.to_owned(),
                content: Err(unreadable(error.into(), owner)),
            }];
        }
    };
    let names = fs::read_dir(path).into_iter().flatten().flatten();
    let files = names.filter(|name| name.file_type().is_ok_and(|kind| kind.is_file()));
    let entries = files.filter_map(|file| {
        let name = file.file_name();
        let verdict = match read(&directory, &name) {
            Ok(copy) => judge(&copy),
            Err(error) => {
                let owner = file.metadata().ok().map(|status| owner(&status));
                Verdict::Show(Err(unreadable(error, owner)))
            }
        };
        let content = match verdict {
            Verdict::Show(content) => content,
            Verdict::LeaveOut => return None,
            Verdict::Remove => {
                // Root and its user may; others only leave it out.
                let _ = rustix::fs::unlinkat(&directory, &name, AtFlags::empty());
                return None;
            }
        };
        let path = path.join(&name);
        Some(Entry { path, content })
    });
    entries.collect()
}

/// A copy of a file.
struct Copy {
    bytes: Vec<u8>,
    owner: u32,
    age: Duration,
}

/// Copies a file, since the memory of a mapping could disappear.
fn read(directory: &OwnedFd, name: &std::ffi::OsStr) -> io::Result<Copy> {
    // A pipe does not block it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let file = fs::File::from(file);
    let status = file.metadata()?;
    if !status.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    let limit = LIMIT * size_of::<u64>();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    let changed = status.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(Copy {
        bytes,
        owner: std::os::unix::fs::MetadataExt::uid(&status),
        age: changed.elapsed().unwrap_or_default(),
    })
}

/// The consequence of what a file says.
enum Verdict {
    /// It is shown.
    Show(Result<Published, Unreadable>),
    /// It is left out: its process is being started, or lives in another namespace.
    LeaveOut,
    /// Its process has ended.
    Remove,
}

fn judge(copy: &Copy) -> Verdict {
    let malformed = |reason| Verdict::Show(Err(Unreadable::Malformed(reason)));
    let words = words(&copy.bytes);
    let Some(head) = Head::read(&words) else {
        // Its writer has not come to the first word yet.
        return match words.first() {
            None | Some(0) => Verdict::LeaveOut,
            Some(_) => malformed("its first word differs"),
        };
    };
    if head.namespace != namespace() {
        return Verdict::LeaveOut;
    }
    if head.process == 0 {
        return match copy.age > START {
            true => Verdict::Remove,
            false => Verdict::LeaveOut,
        };
    }
    let Ok(process) = u32::try_from(head.process) else {
        return malformed("no such process");
    };
    if !is_alive(process, head.start) {
        return Verdict::Remove;
    }
    if copy.owner != 0 && user(process).is_some_and(|user| user != copy.owner) {
        return malformed("it names a process of another user");
    }
    Verdict::Show(decode(&words, |owner| {
        u32::try_from(owner).is_ok_and(exists)
    }))
}

/// Reads the content of a file.
///
/// # Errors
/// [`Unreadable::Foreign`] for another layout, [`Unreadable::Malformed`].
pub fn parse(bytes: &[u8]) -> Result<Published, Unreadable> {
    decode(&words(bytes), |process| process != 0)
}

fn decode(words: &[u64], is_writer: impl Fn(u64) -> bool) -> Result<Published, Unreadable> {
    let malformed = |reason| move || Unreadable::Malformed(reason);
    let head = Head::read(words).ok_or_else(malformed("its first word differs"))?;
    let program = unpack(&head.program).ok_or_else(malformed("no name of a program"))?;
    let version = unpack(&head.version).ok_or_else(malformed("no version"))?;
    let process = u32::try_from(head.process).map_err(|_| Unreadable::Malformed("no process"))?;
    if head.layout != LAYOUT {
        return Err(Unreadable::Foreign {
            program,
            process,
            version,
        });
    }
    let places = head.places().ok_or_else(malformed("it is too large"))?;
    if words.len() < places.end {
        return Err(Unreadable::Malformed("its end is missing"));
    }
    let note = text(&words[HEAD..HEAD + NOTE]).ok_or_else(malformed("its note is no text"))?;
    let text: Vec<u8> = words[places.names..][..head.names as usize]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let names = names(&text, places.figures)?;
    let mut sums = words[places.totals..][..places.figures].to_vec();
    let counters = head.counters as usize;
    let mut writers = 0;
    for slot in 0..places.slots {
        let owner = words[places.owners + slot];
        if owner == 0 {
            continue;
        }
        let is_alive = is_writer(owner);
        writers += u64::from(is_alive);
        // What a writer that was killed has counted stays.
        let used = match is_alive {
            true => places.figures,
            false => counters,
        };
        let values = &words[places.slot(slot)][..used];
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum = sum.wrapping_add(*value);
        }
    }
    Ok(Published {
        program,
        version,
        process,
        start: head.start,
        note: Some(note).filter(|note| !note.is_empty()),
        writers,
        figures: names.into_iter().map(str::to_owned).zip(sums).collect(),
        read: Instant::now(),
    })
}

/// Splits the names, and checks that they can be shown.
fn names(text: &[u8], figures: usize) -> Result<Vec<&str>, Unreadable> {
    let text = str::from_utf8(text).map_err(|_| Unreadable::Malformed("its names are no text"))?;
    let names: Vec<&str> = text.lines().filter(|name| !name.is_empty()).collect();
    let is_plain = |name: &&str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_{}=\",.+-".contains(&byte))
    };
    if names.len() != figures || !names.iter().all(is_plain) {
        return Err(Unreadable::Malformed("its names do not fit its figures"));
    }
    Ok(names)
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

fn owner(status: &fs::Metadata) -> String {
    name_of_user(std::os::unix::fs::MetadataExt::uid(status))
}

fn unreadable(error: io::Error, owner: Option<String>) -> Unreadable {
    match (error.kind(), owner) {
        (io::ErrorKind::PermissionDenied, Some(owner)) => Unreadable::Denied(owner),
        _ => Unreadable::System(error.to_string()),
    }
}
