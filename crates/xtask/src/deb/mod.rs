//! Debian packages, for the release of this machine or for another one in a root file system.

mod bom;
mod client;
mod containers;
mod files;
mod lifecycle;
mod nginx;
mod notices;
mod source;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub(crate) use containers::test as test_containers;
pub(crate) use stage::stage;

use source::Source;

use crate::build::target;
use crate::root::{self, Root};
use crate::{packages, process};

/// A release of Debian.
struct Release {
    /// Such as trixie.
    codename: String,
    /// Such as 13; unstable has none.
    number: Option<String>,
}

impl Release {
    fn of_this_machine() -> Result<Self> {
        let file = Path::new("/etc/os-release");
        let codename = root::os_release(file, "VERSION_CODENAME")?;
        Ok(Self {
            codename: codename.context("/etc/os-release has no VERSION_CODENAME")?,
            number: root::os_release(file, "VERSION_ID")?,
        })
    }

    /// Returns this machine's release, or another one as far as its name says.
    fn named(codename: Option<&str>) -> Result<Self> {
        let here = Self::of_this_machine()?;
        Ok(match codename {
            Some(codename) if codename != here.codename => Self {
                codename: codename.to_owned(),
                number: None,
            },
            _ => here,
        })
    }

    /// Returns the end of versions: packages of an older release are older.
    fn suffix(&self) -> String {
        let number = self.number.as_ref();
        number.map_or(String::new(), |number| format!("~deb{number}"))
    }

    /// Returns the folder for everything about its packages.
    fn folder(&self) -> PathBuf {
        target().join("deb").join(&self.codename)
    }

    fn hint(&self) -> String {
        format!("build packages first: make deb RELEASE={}", self.codename)
    }

    /// Returns the folder for the packages alone.
    fn packages(&self) -> PathBuf {
        self.folder().join("packages")
    }
}

/// A place to build in.
enum Place {
    ThisMachine,
    Root(Root),
}

/// Builds the packages for a release, or for that of this machine, and looks for mistakes in them.
/// They are in `target/deb/RELEASE/packages`.
///
/// # Errors
/// If a tool fails, or lintian finds an error.
pub(crate) fn build(release: Option<&str>) -> Result<()> {
    let (release, place) = find(release)?;
    let folder = release.folder();
    let source = build_in(&place, &release, &folder)?;
    lint(&place, &folder, &source)?;
    let packages = release.packages();
    fs::create_dir_all(&packages)?;
    for file in built(&folder)? {
        fs::copy(&file, packages.join(file.file_name().unwrap_or_default()))?;
    }
    // More than a gigabyte, of no further use.
    fs::remove_dir_all(&source.tree)?;
    println!("\nthe packages are in {}", packages.display());
    Ok(())
}

/// Builds the packages once more, in another folder, and compares them with those that [`build`] has
/// made.
///
/// # Errors
/// If a package differs.
pub(crate) fn reproduce(release: Option<&str>) -> Result<()> {
    let (release, place) = find(release)?;
    let again = target()
        .join("deb")
        .join(format!("{}-again", release.codename));
    let first = built(&release.packages()).with_context(|| release.hint())?;
    build_in(&place, &release, &again)?;
    for file in first {
        let name = file.file_name().unwrap_or_default();
        let second = again.join(name);
        ensure!(
            fs::read(&file)? == fs::read(&second)?,
            "{} differs from {}: diffoscope shows where",
            file.display(),
            second.display()
        );
        println!("the same bytes: {}", name.to_string_lossy());
    }
    Ok(())
}

/// Tests the packages that [`build`] has made.
pub(crate) fn test(release: Option<&str>) -> Result<()> {
    packages::install(packages::DEB_TOOLS)?;
    lifecycle::test(&Release::named(release)?)
}

/// Returns the packages in a folder.
fn built(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let file = entry?.path();
        // Packages of debugging symbols end in .deb as well.
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with("_amd64.deb") && !name.contains("-dbgsym_") {
            files.push(file);
        }
    }
    ensure!(
        !files.is_empty(),
        "there are no packages in {}",
        folder.display()
    );
    files.sort();
    Ok(files)
}

fn find(release: Option<&str>) -> Result<(Release, Place)> {
    let here = Release::of_this_machine()?;
    packages::install(packages::DEB_TOOLS)?;
    match release {
        Some(codename) if codename != here.codename => {
            let all: Vec<&str> = [packages::BUILD, packages::DEB].concat();
            let root = Root::make(&target().join("deb/roots").join(codename), codename, &all)?;
            let release = Release {
                codename: codename.to_owned(),
                number: root.os_release("VERSION_ID")?,
            };
            Ok((release, Place::Root(root)))
        }
        _ => {
            packages::install(packages::BUILD)?;
            packages::install(packages::DEB)?;
            Ok((here, Place::ThisMachine))
        }
    }
}

/// Makes the source package in a folder, and builds it there.
fn build_in(place: &Place, release: &Release, folder: &Path) -> Result<Source> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let source = source::make(folder, release)?;
    let mut command = command(place, folder, &source)?;
    process::run(command.args(["dpkg-buildpackage", "-us", "-uc"]))?;
    Ok(source)
}

/// Has lintian look for mistakes in the source package and in the packages.
fn lint(place: &Place, folder: &Path, source: &Source) -> Result<()> {
    let mut command = command(place, folder, source)?;
    process::run(
        command
            .args(["lintian", "--fail-on", "error", "--info"])
            .arg(format!("../slipstream_{}_amd64.changes", source.version)),
    )
}

/// Returns a command that runs in the source package, without a network. It has to be given its
/// words.
fn command(place: &Place, folder: &Path, source: &Source) -> Result<Command> {
    let mut command = match place {
        Place::ThisMachine => {
            let mut command = root::isolated(Path::new("/"));
            command.args(["--dev-bind", "/dev", "/dev", "--proc", "/proc"]);
            command
        }
        Place::Root(root) => {
            let home = std::env::home_dir().context("HOME is not set")?;
            let rust = [".cargo/bin", ".rustup"].map(|folder| home.join(folder));
            let rust: Vec<&Path> = rust.iter().map(PathBuf::as_path).collect();
            root.command(&[folder], &rust)
        }
    };
    command.arg("--chdir").arg(&source.tree);
    Ok(command)
}
