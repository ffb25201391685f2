//! The root file system of a release, made by mmdebstrap.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::enter;
use crate::packages;
use crate::process;
use crate::root::bootstrap;

/// Arguments of mmdebstrap. apt-get keeps its settings in the root.
const OPTIONS: [&str; 4] = [
    "--mode=root",
    "--variant=apt",
    "--skip=cleanup/apt/lists",
    "--aptopt=APT::Install-Recommends \"false\"",
];

/// Packages that a root needs beside those of [`packages`], which a whole system has.
const BASE: [&str; 2] = ["ca-certificates", "procps"];

/// Tests say that they skip this browser where it is missing. It and what it depends on would be
/// half of a root.
const LEFT_OUT: [&str; 1] = ["chromium"];

/// A root file system, which may not exist yet.
pub(super) struct Root {
    release: String,
    folder: PathBuf,
    /// Exists if the root is complete, and lists the packages that were asked for.
    stamp: PathBuf,
}

/// Returns true if this process may make root file systems.
pub(super) fn is_possible() -> Result<bool> {
    packages::install(packages::MATRIX)?;
    Ok(packages::is_root())
}

impl Root {
    /// The root of a release, below the folder of that release.
    pub(super) fn new(release: &str, folder: &Path) -> Self {
        Self {
            release: release.to_owned(),
            folder: folder.join("root"),
            stamp: folder.join("root.packages"),
        }
    }

    /// Returns true if it was made with the packages that are asked for now.
    pub(super) fn is_complete(&self) -> bool {
        fs::read_to_string(&self.stamp).is_ok_and(|made_with| made_with == stamp())
    }

    /// Makes it anew.
    pub(super) fn make(&self, target: &Path) -> Result<()> {
        self.remove()?;
        bootstrap(&self.release, &self.folder, &BASE, &OPTIONS)?;
        // No package may start its server: it would listen on this machine's addresses.
        let policy = self.folder.join("usr/sbin/policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 101\n")
            .with_context(|| policy.display().to_string())?;
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o755))?;
        process::run(
            self.command(target)
                .args(["apt-get", "install", "-y", "-q"])
                .args(["-o", "Dpkg::Options::=--force-unsafe-io"])
                .args(self.available(target)?)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    }

    /// Says that it is complete.
    pub(super) fn set_complete(&self) -> Result<()> {
        fs::write(&self.stamp, stamp()).with_context(|| self.stamp.display().to_string())
    }

    /// Returns a command that runs its arguments in the root.
    pub(super) fn command(&self, target: &Path) -> Command {
        enter::command(&self.folder, target)
    }

    /// Returns the version of an installed package as its authors count: 3.5.7 for
    /// `3.5.7-1~deb13u2`.
    pub(super) fn version(&self, package: &str) -> Option<String> {
        let database = self.folder.join("var/lib/dpkg");
        let output = Command::new("dpkg-query")
            .arg("--admindir")
            .arg(database)
            .args(["-W", "-f", "${db:Status-Status} ${Version}", package])
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.strip_prefix("installed ").map(of_the_authors)
    }

    /// Returns those of the wanted packages that the release has.
    fn available(&self, target: &Path) -> Result<Vec<&'static str>> {
        let mut names = self.command(target);
        let names = process::output(names.args(["apt-cache", "pkgnames"]))?;
        let (available, missing): (Vec<&str>, Vec<&str>) = wanted()
            .into_iter()
            .partition(|wanted| names.lines().any(|name| name == *wanted));
        if !missing.is_empty() {
            eprintln!("{} has no {}", self.release, missing.join(", no "));
        }
        Ok(available)
    }

    /// Removes what there is, a part of a root perhaps.
    fn remove(&self) -> Result<()> {
        if self.stamp.exists() {
            fs::remove_file(&self.stamp).with_context(|| self.stamp.display().to_string())?;
        }
        if !self.folder.exists() {
            return Ok(());
        }
        let folder = self.folder.canonicalize()?;
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        if let Some(mount) = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .find(|mount| Path::new(mount).starts_with(&folder))
        {
            bail!("{mount} is mounted, so its root is not removed: umount it first");
        }
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
    }
}

/// The packages of all tasks that run in a root.
fn wanted() -> Vec<&'static str> {
    [packages::BUILD, packages::DEMO, packages::TEST]
        .concat()
        .into_iter()
        .filter(|package| !LEFT_OUT.contains(package))
        .collect()
}

fn stamp() -> String {
    [&BASE, &wanted()[..]].concat().join("\n")
}

/// Removes the epoch and the distribution's revision from a version.
fn of_the_authors(version: &str) -> String {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(first, _)| first);
    let end = version.find(['+', '~']).unwrap_or(version.len());
    version[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_shown_without_the_distributions_part() {
        for (version, shown) in [
            ("1.26.3-3+deb13u7", "1.26.3"),
            ("1:2.4.66-1~deb13u1", "2.4.66"),
            ("3.0.11-1+deb13u3", "3.0.11"),
            ("7.2", "7.2"),
            ("6.13+dfsg-1", "6.13"),
        ] {
            assert_eq!(of_the_authors(version), shown);
        }
    }

    #[test]
    fn a_root_is_complete_if_it_has_the_packages_asked_for_now() {
        let folder = std::env::temp_dir().join(format!("slipstream-root-{}", std::process::id()));
        fs::create_dir_all(folder.join("root")).unwrap();
        let root = Root::new("trixie", &folder);
        assert!(!root.is_complete());
        root.set_complete().unwrap();
        assert!(root.is_complete());
        fs::write(&root.stamp, "nginx").unwrap();
        assert!(!root.is_complete());
        root.remove().unwrap();
        assert!(!root.folder.exists() && !root.stamp.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
