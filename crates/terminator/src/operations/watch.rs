//! Files that are looked at for a change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What files looked like. Made anew, it differs if one of them has been written, replaced (as Kubernetes does, by a link to another
/// folder), or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot(Vec<Option<Look>>);

/// What tells one version of a file from another. The change time is not part of it: it also changes with a new name or owner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
    length: u64,
}

impl Snapshot {
    /// What `files` look like now.
    pub fn of(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|path| look(path)).collect())
    }
}

/// Of the file that links lead to; `None` if it cannot be looked at.
fn look(path: &Path) -> Option<Look> {
    let metadata = fs::metadata(path).ok()?;
    Some(Look {
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
    fn what_is_written_replaced_or_removed_is_seen() {
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
    fn a_link_to_another_folder_is_seen() {
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
