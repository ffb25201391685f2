//! Detection of changed files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// State of several files. A later one differs if a file has been written, replaced (as Kubernetes
/// does, with a link to another folder) or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot(Vec<Option<FileState>>);

/// Properties that differ between versions of a file. The change time is not among them, since a
/// new name or owner changes it as well.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
    length: u64,
}

impl Snapshot {
    /// Reads the state of `files`.
    pub fn of(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|path| file_state(path)).collect())
    }
}

/// Reads the state of a file, following links. Returns `None` if it cannot be read.
fn file_state(path: &Path) -> Option<FileState> {
    let metadata = fs::metadata(path).ok()?;
    Some(FileState {
        device: metadata.dev(),
        inode: metadata.ino(),
        seconds: metadata.mtime(),
        nanoseconds: metadata.mtime_nsec(),
        length: metadata.len(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_written_replaced_or_removed_file_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("one"), folder.path().join("other")];
        let absent = Snapshot::of(&files);
        fs::write(&files[0], "1").unwrap();
        let first = Snapshot::of(&files);
        assert_ne!(first, absent);
        assert_eq!(Snapshot::of(&files), first);

        fs::write(&files[0], "12").unwrap();
        let longer = Snapshot::of(&files);
        assert_ne!(longer, first);

        let new = folder.path().join("new");
        fs::write(&new, "34").unwrap();
        fs::rename(&new, &files[0]).unwrap();
        let replaced = Snapshot::of(&files);
        assert_ne!(replaced, longer);

        fs::remove_file(&files[0]).unwrap();
        assert_eq!(Snapshot::of(&files), absent);
    }

    #[test]
    fn a_link_to_another_folder_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| folder.path().join(name);
        for version in ["..one", "..other"] {
            fs::create_dir(below(version)).unwrap();
            fs::write(below(version).join("tls.crt"), version).unwrap();
        }
        symlink("..one", below("..data")).unwrap();
        symlink("..data/tls.crt", below("tls.crt")).unwrap();
        let files = [below("tls.crt")];
        let before = Snapshot::of(&files);
        symlink("..other", below("..new")).unwrap();
        fs::rename(below("..new"), below("..data")).unwrap();
        assert_ne!(Snapshot::of(&files), before);
    }
}
