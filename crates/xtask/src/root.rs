//! Root file systems of Debian releases, made by mmdebstrap and entered by bubblewrap.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The mirror that root file systems are made from, unless the variable `MIRROR` names another.
const MIRROR: &str = "http://deb.debian.org/debian";

/// Makes the root file system of a release in a folder, with these packages. `more` are other
/// arguments of mmdebstrap.
///
/// # Errors
/// If mmdebstrap fails, which needs root or user namespaces, and a mirror.
pub(crate) fn bootstrap(
    release: &str,
    folder: &Path,
    packages: &[&str],
    more: &[&str],
) -> Result<()> {
    let mirror = std::env::var("MIRROR").unwrap_or_else(|_| MIRROR.to_owned());
    process::run(
        Command::new("mmdebstrap")
            .args(more)
            .arg(format!("--include={}", packages.join(",")))
            // The lists of a snapshot, and of unstable where a mirror lags behind, are older than
            // they say they are valid.
            .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
            .arg(release)
            .arg(folder)
            .arg(mirror),
    )
}

/// A folder with the root file system of a release.
pub(crate) struct Root {
    folder: PathBuf,
}

impl Root {
    /// Makes a root file system with the packages that are named, if the folder does not have one
    /// already.
    ///
    /// # Errors
    /// As [`bootstrap`].
    pub(crate) fn make(folder: &Path, release: &str, packages: &[&str]) -> Result<Self> {
        let root = Self {
            folder: folder.to_owned(),
        };
        let stamp = root.path("etc/slipstream-packages");
        let wanted = packages.join(" ");
        if fs::read_to_string(&stamp).is_ok_and(|packages| packages == wanted) {
            return Ok(root);
        }
        root.remove()?;
        let parent = folder.parent().context("a root has a folder")?;
        fs::create_dir_all(parent)?;
        bootstrap(release, folder, packages, &["--quiet", "--variant=minbase"])?;
        fs::write(stamp, wanted)?;
        Ok(root)
    }

    /// Copies it to another folder.
    pub(crate) fn copy(&self, folder: &Path) -> Result<Self> {
        let copy = Self {
            folder: folder.to_owned(),
        };
        copy.remove()?;
        process::run(
            Command::new("cp")
                .args(["-a", "--reflink=auto"])
                .args([&self.folder, folder]),
        )?;
        Ok(copy)
    }

    /// Removes its files.
    pub(crate) fn remove(&self) -> Result<()> {
        match self.folder.exists() {
            true => process::run(Command::new("rm").arg("-rf").arg(&self.folder)),
            false => Ok(()),
        }
    }

    /// Returns a path as it is seen from outside.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.folder.join(inside.trim_start_matches('/'))
    }

    /// Returns the value of a key of its /etc/os-release.
    pub(crate) fn os_release(&self, key: &str) -> Result<Option<String>> {
        os_release(&self.path("etc/os-release"), key)
    }

    /// Returns a command that runs inside, as root, without a network. `shared` are folders of this
    /// machine that it may write to, `read_only` those that it may read. It has to be given a
    /// program and its arguments.
    pub(crate) fn command(&self, shared: &[&Path], read_only: &[&Path]) -> Command {
        let mut command = isolated(&self.folder);
        command.args(["--unshare-pid", "--proc", "/proc", "--dev", "/dev"]);
        command.args(["--tmpfs", "/run", "--tmpfs", "/tmp"]);
        for folder in shared {
            command.arg("--bind").args([folder, folder]);
        }
        for folder in read_only {
            command.arg("--ro-bind").args([folder, folder]);
        }
        in_plain_english(&mut command);
        command
    }

    /// Returns a command that runs inside with the processes and the network of this machine, so
    /// that a server and its client can meet. It has to be given a program and its arguments.
    pub(crate) fn command_on_this_machine(&self) -> Command {
        let mut command = bubblewrap(&self.folder);
        command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        in_plain_english(&mut command);
        command
    }
}

/// Returns a command that sees a folder as its root, and a network of its own with nothing in it
/// but a loopback device.
pub(crate) fn isolated(root: &Path) -> Command {
    let mut command = bubblewrap(root);
    command.arg("--unshare-net");
    command
}

fn bubblewrap(root: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command
        .arg("--bind")
        .arg(root)
        .args(["/", "--die-with-parent"]);
    // bubblewrap drops root's capabilities otherwise, and dpkg changes owners of files.
    command.args(["--cap-add", "ALL"]);
    command
}

/// The output of tools is looked into, and nobody is there to answer questions.
fn in_plain_english(command: &mut Command) {
    command
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive");
}

/// Returns the value of a key of a file such as /etc/os-release.
pub(crate) fn os_release(file: &Path, key: &str) -> Result<Option<String>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    Ok(value.map(|value| value.trim_matches('"').to_owned()))
}
