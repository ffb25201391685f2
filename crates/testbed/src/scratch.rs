//! A private directory for throw-away keys, configurations and logs.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Error;
use crate::cleanup::{Registration, Remnant};

/// A directory under the system's temporary directory that only its owner can enter (mode 0700),
/// removed with all it holds when dropped.
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

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a file inside it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file inside it that can be run, and returns its path. Another process writes it: a
    /// file that this one has open for writing is inherited by programs that other threads start at
    /// that moment, and cannot be run until they have closed it.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be written.
    pub fn executable(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let (source, path) = (self.file(&format!("{name}.text")), self.file(name));
        fs::write(&source, text).map_err(Error::file("write", &source))?;
        let copied = Command::new("install")
            .args(["-m", "700"])
            .arg(source)
            .arg(&path)
            .status()
            .and_then(|status| match status.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("install: {status}"))),
            });
        copied.map_err(Error::file("write", &path))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
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
