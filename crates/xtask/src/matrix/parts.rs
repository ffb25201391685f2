//! The tests that are run for each release: those that depend on nginx, OpenSSL or the servers of
//! the distribution.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Release;
use crate::build::{cargo_program, root};
use crate::harness::{self, Outcome};
use crate::process;

/// The tests of a crate.
pub(super) struct Part {
    /// The crate, without its prefix.
    pub(super) package: &'static str,
}

/// All parts. What depends least on the rest comes first.
pub(super) const ALL: &[Part] = &[
    Part { package: "openssl" },
    Part {
        package: "openssl-module",
    },
    Part { package: "testbed" },
    Part { package: "bench" },
    Part { package: "cli" },
    Part {
        package: "integration",
    },
];

/// Tests that a release cannot run without a package that some have not: the package and a part of
/// the tests' names.
const NEEDS: [(&str, &str); 1] = [("varnish", "varnish")];

/// A test program that was built.
pub(super) struct Executable {
    package: PathBuf,
    name: String,
    path: PathBuf,
}

/// Builds the tests of all parts with the selection of packages of `make test`, of which cargo
/// reuses what it has.
pub(super) fn build(release: &Release) -> Result<Vec<Executable>> {
    let mut names = BTreeSet::new();
    for part in ALL {
        names.extend(test_targets(&part.folder())?);
    }
    let options = "test --locked --workspace --exclude slipstream-nginx --all-features --no-run \
                   --message-format=json-render-diagnostics";
    let mut command = release.command(cargo_program(), options.split(' '));
    for name in names {
        command.arg("--test").arg(name);
    }
    process::show(&command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("unshare")?;
    let output = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
    let mut executables = Vec::new();
    for line in output.lines() {
        executables.extend(executable(&line?));
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("the tests cannot be built: {status}");
    }
    Ok(executables)
}

/// Runs the tests of a part, and adds what they say to `outcome`. A test program that fails keeps
/// none of the others from being run.
///
/// # Errors
/// If any of them has failed, or there is none.
pub(super) fn run(
    release: &Release,
    part: &Part,
    executables: &[Executable],
    outcome: &mut Outcome,
) -> Result<()> {
    let folder = part.folder();
    let mut failed = Vec::new();
    let mut is_empty = true;
    for executable in executables.iter().filter(|one| one.package == folder) {
        is_empty = false;
        let mut command = release.command("env", ["-C"]);
        command.arg(&folder).arg(&executable.path);
        // Only the distribution's nginx is built for a release, and what is skipped is to be seen.
        command.args(["--skip", "::published", "--show-output"]);
        for (package, tests) in NEEDS {
            if release.root.version(package).is_none() {
                command.args(["--skip", tests]);
            }
        }
        let mut one = Outcome::default();
        if let Err(error) = harness::run(&mut command, &mut one) {
            eprintln!("{error:#}");
            failed.push(executable.name.as_str());
        }
        for name in one.failed.iter_mut().chain(&mut one.skipped) {
            *name = format!("{}::{name}", executable.name);
        }
        outcome.add(one);
    }
    if is_empty {
        bail!("{} has no tests", part.package);
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Names what the release cannot run for want of a package.
pub(super) fn missing(root: &super::Root) -> Vec<String> {
    NEEDS
        .iter()
        .filter(|(package, _)| root.version(package).is_none())
        .map(|(package, tests)| format!("tests named *{tests}*: there is no package {package}"))
        .collect()
}

impl Part {
    fn folder(&self) -> PathBuf {
        root().join("crates").join(self.package)
    }
}

/// Returns the names of the test programs of a package, as cargo finds them.
fn test_targets(package: &Path) -> Result<Vec<String>> {
    let folder = package.join("tests");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").is_file()
        {
            let name = path.file_stem().unwrap_or_default();
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Reads the path of a test program from one of cargo's messages.
fn executable(message: &str) -> Option<Executable> {
    #[derive(Deserialize)]
    struct Message {
        manifest_path: PathBuf,
        target: Target,
        executable: Option<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let message: Message = serde_json::from_str(message).ok()?;
    let is_test = message.target.kind.iter().any(|kind| kind == "test");
    Some(Executable {
        package: message.manifest_path.parent()?.to_owned(),
        name: message.target.name,
        path: message.executable.filter(|_| is_test)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_tests() {
        for part in ALL {
            let names = test_targets(&part.folder()).unwrap();
            assert!(!names.is_empty(), "{}", part.package);
        }
        let openssl = test_targets(&ALL[0].folder()).unwrap();
        assert!(
            ["device", "provider"]
                .iter()
                .all(|name| openssl.contains(&(*name).to_owned()))
        );
    }

    #[test]
    fn test_programs_are_found_in_the_messages_of_cargo() {
        let message = |kind: &str, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/w/crates/a/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"device\"}},\
                 \"executable\":{executable}}}"
            )
        };
        let found = executable(&message("test", "\"/t/device-1\"")).unwrap();
        assert_eq!(found.package, Path::new("/w/crates/a"));
        assert_eq!(
            (found.name.as_str(), found.path),
            ("device", "/t/device-1".into())
        );
        assert!(executable(&message("bin", "\"/t/a\"")).is_none());
        assert!(executable(&message("test", "null")).is_none());
        assert!(executable("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }
}
