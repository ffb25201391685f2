//! A private directory for throw-away keys, configurations and logs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Error;
use crate::cleanup::{Registration, Remnant};

/// A directory under the system's temporary directory that only its owner can enter (mode 0700), removed
/// with all it holds when dropped.
pub struct ScratchDirectory {
    directory: TempDir,
    _registration: Registration,
}

impl ScratchDirectory {
    /// Creates the directory.
    ///
    /// # Errors
    /// [`Error::Io`] when the system's temporary directory cannot be written to.
    pub fn new() -> Result<ScratchDirectory, Error> {
        let directory = tempfile::Builder::new()
            .prefix("slipstream-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(Error::io("cannot create a temporary directory"))?;
        let registration = Registration::new(Remnant::Directory(directory.path().to_path_buf()));
        Ok(ScratchDirectory {
            directory,
            _registration: registration,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a file inside it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file inside it that can be run. Another process writes it: a file that this one has open for writing is inherited by what other
    /// tests start just then, and cannot be run until they have become other programs.
    #[cfg(test)]
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        let (source, path) = (self.file(&format!("{name}.text")), self.file(name));
        std::fs::write(&source, text).unwrap();
        let mut copy = std::process::Command::new("install");
        let copied = copy.args(["-m", "700"]).arg(source).arg(&path).status();
        assert!(copied.unwrap().success());
        path
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn is_private_and_goes_away_with_its_contents() {
        let scratch = ScratchDirectory::new().unwrap();
        let path = scratch.path().to_path_buf();
        fs::write(scratch.file("key.pem"), "secret").unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        drop(scratch);
        assert!(!path.exists());
    }
}
