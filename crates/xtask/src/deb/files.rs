//! The files of a root file system, to find what a package has left behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::root::Root;

/// Files that any installation of any package changes.
const OF_THE_PACKAGE_MANAGER: &[&str] = &[
    "etc/ld.so.cache",
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log/apt",
    "var/log/dpkg.log",
];

/// The user and the group stay, with whatever may belong to them, as Debian's rules want it.
const OF_USERS: &[&str] = &[
    "etc/.pwd.lock",
    "etc/group",
    "etc/group-",
    "etc/gshadow",
    "etc/gshadow-",
    "etc/passwd",
    "etc/passwd-",
    "etc/shadow",
    "etc/shadow-",
];

/// Mode, owner, group, and length or target.
type Facts = (u32, u32, u32, String);

/// The files of a root file system, but for those that do not belong to packages.
pub(super) struct Files(BTreeMap<PathBuf, Facts>);

impl Files {
    /// Lists them.
    pub(super) fn below(root: &Root) -> Result<Self> {
        let mut files = BTreeMap::new();
        add(&root.path("/"), Path::new(""), &mut files)?;
        ensure!(files.len() > 1000, "a root file system has more files");
        Ok(Self(files))
    }

    /// Compares them with those of another moment.
    ///
    /// # Errors
    /// Names all differences.
    pub(super) fn must_equal(&self, before: &Self) -> Result<()> {
        let mut differences = Vec::new();
        for (path, facts) in &self.0 {
            match before.0.get(path) {
                None => differences.push(format!("left behind: /{}", path.display())),
                Some(old) if old != facts => differences.push(format!(
                    "changed: /{}: {old:?} to {facts:?}",
                    path.display()
                )),
                Some(_) => {}
            }
        }
        let missing = before.0.keys().filter(|path| !self.0.contains_key(*path));
        differences.extend(missing.map(|path| format!("missing: /{}", path.display())));
        ensure!(
            differences.is_empty(),
            "the packages do not leave the machine as it was:\n{}",
            differences.join("\n")
        );
        Ok(())
    }
}

fn add(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Facts>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let is = |known: &&str| path == Path::new(known);
        if OF_THE_PACKAGE_MANAGER.iter().chain(OF_USERS).any(is) {
            continue;
        }
        let metadata = entry.metadata()?;
        let content = match metadata.file_type() {
            kind if kind.is_symlink() => fs::read_link(entry.path())?.display().to_string(),
            kind if kind.is_file() => metadata.len().to_string(),
            _ => String::new(),
        };
        let facts = (metadata.mode(), metadata.uid(), metadata.gid(), content);
        files.insert(path.clone(), facts);
        if metadata.is_dir() {
            add(root, &path, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, u32)]) -> Files {
        let facts = |mode: u32| (mode, 0, 0, String::new());
        let entries = list
            .iter()
            .map(|(path, mode)| (PathBuf::from(path), facts(*mode)));
        Files(entries.collect())
    }

    #[test]
    fn every_difference_is_named() {
        let before = files(&[("etc/a", 0o644), ("etc/b", 0o644)]);
        assert!(
            files(&[("etc/a", 0o644), ("etc/b", 0o644)])
                .must_equal(&before)
                .is_ok()
        );
        let after = files(&[("etc/a", 0o600), ("etc/c", 0o644)]);
        let error = after
            .must_equal(&before)
            .expect_err("three differences")
            .to_string();
        for difference in ["changed: /etc/a", "missing: /etc/b", "left behind: /etc/c"] {
            assert!(error.contains(difference), "{error}");
        }
    }
}
