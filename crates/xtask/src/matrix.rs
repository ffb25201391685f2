//! The product and its tests on other releases of Debian: `make matrix`.
//!
//! Each release has a folder below `target/matrix`: a root file system with the packages that
//! building and testing need, and a target folder. Commands run in that root, with this machine's
//! Rust and with the checkout at the path that it has outside. So cargo reuses what it has compiled
//! outside, except for what depends on the release's own libraries.

mod enter;
#[cfg(feature = "openssl-source")]
mod openssl;
mod parts;
mod report;
mod root;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build::{cargo, cargo_program, target};
use crate::harness::Outcome;
use crate::process;

use report::{Report, Row};
use root::Root;

pub(crate) use enter::enter;

/// Crates that look at the libraries of the system when they are built. What was compiled outside
/// for another release must not be used for this one.
const DEPEND_ON_THE_SYSTEM: [&str; 4] = ["openssl-sys", "libz-sys", "isal-sys", "nginx-sys"];

/// A release of Debian, and what is kept for it.
struct Release {
    root: Root,
    /// Takes the place of the workspace's target folder.
    target: PathBuf,
}

/// Tests all named releases, and prints one table at the end.
///
/// # Errors
/// If anything has failed for any release; what has is listed in the table and below it.
pub(crate) fn run(releases: &[String]) -> Result<()> {
    if !root::is_possible()? {
        bail!("root file systems of other releases can only be made and entered by root");
    }
    if releases.is_empty() {
        bail!("name releases of Debian, such as trixie or unstable: `make matrix` does");
    }
    // A root has neither the proxies nor the certificates that this machine may need for that.
    process::run(&mut cargo("fetch"))?;
    let mut report = Report::default();
    for name in releases {
        #[cfg(feature = "openssl-source")]
        if name == openssl::NAME {
            openssl::test(&mut report);
            continue;
        }
        test(name, &mut report);
    }
    print!("\n{report}");
    match report.failures() {
        0 => Ok(()),
        failures => bail!("{failures} parts of the matrix have failed"),
    }
}

/// Tests one release. A part that fails keeps none of the others from being run.
fn test(name: &str, report: &mut Report) {
    let release = match Release::prepare(name) {
        Ok(release) => release,
        Err(error) => return report.add(Row::failed(name, "root file system", &error)),
    };
    report.versions(name, &release.root);
    for missing in parts::missing(&release.root) {
        report.note(name, &missing);
    }
    if let Err(error) = release.build() {
        return report.add(Row::failed(name, "build", &error));
    }
    let executables = match parts::build(&release) {
        Ok(executables) => executables,
        Err(error) => return report.add(Row::failed(name, "build of the tests", &error)),
    };
    for part in parts::ALL {
        let mut outcome = Outcome::default();
        let result = parts::run(&release, part, &executables, &mut outcome);
        report.add(Row::of_part(name, part.package, outcome, result.err()));
    }
}

impl Release {
    /// Makes the root file system, unless it is there, and the target folder.
    fn prepare(name: &str) -> Result<Self> {
        let is_name = |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric());
        if name.is_empty() || !is_name(name) {
            bail!("\"{name}\" is no release of Debian, such as trixie or unstable");
        }
        let folder = target().join("matrix").join(name);
        let release = Self {
            root: Root::new(name, &folder),
            target: folder.join("target"),
        };
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        if !release.target.exists() {
            release.seed()?;
        }
        if !release.root.is_complete() {
            release.root.make(&release.target)?;
            // Another version of a library may have come with it.
            forget_the_system(&release.target)?;
            release.root.set_complete()?;
        }
        Ok(release)
    }

    /// Copies what was compiled outside, without what depends on the release.
    ///
    /// The copy gets its name last, so that an interrupted one is not taken for a whole one.
    fn seed(&self) -> Result<()> {
        let copy = self.target.with_extension("new");
        if copy.exists() {
            fs::remove_dir_all(&copy).with_context(|| copy.display().to_string())?;
        }
        for profile in ["debug", "release"] {
            let to = copy.join(profile);
            fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
            for folder in ["build", "deps", ".fingerprint"] {
                let from = target().join(profile).join(folder);
                if from.exists() {
                    process::run(Command::new("cp").arg("-a").arg(&from).arg(&to))?;
                }
            }
        }
        forget_the_system(&copy)?;
        fs::rename(&copy, &self.target).with_context(|| self.target.display().to_string())
    }

    /// Builds the product there, with the module for the release's nginx, as `make build` does.
    fn build(&self) -> Result<()> {
        let task = "run --quiet --locked -p slipstream-xtask -- build";
        process::run(&mut self.command(cargo_program(), task.split(' ')))
    }

    /// A command in the root file system. Its working directory is the workspace's folder.
    fn command<A: Into<OsString>>(
        &self,
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.root.command(&self.target);
        command.arg(program.into());
        command.args(arguments.into_iter().map(Into::into));
        command
    }
}

/// Removes what depends on libraries of the system from a target folder. What depends on it in
/// turn is built anew by cargo.
fn forget_the_system(target: &Path) -> Result<()> {
    for package in DEPEND_ON_THE_SYSTEM {
        for profile in ["dev", "release"] {
            let mut clean = cargo("clean");
            clean.args(["--quiet", "--package", package]);
            clean
                .args(["--profile", profile, "--target-dir"])
                .arg(target);
            process::run(&mut clean)?;
        }
    }
    Ok(())
}
