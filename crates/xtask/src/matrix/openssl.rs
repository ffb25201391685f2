//! OpenSSL 4.0, which no release of Debian has yet: built from the source that the crate
//! `openssl-src` brings, for the provider's tests.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::report::{Report, Row};
use crate::build::{cargo, target};
use crate::harness::{self, Outcome};
use crate::process;

/// Its name among the releases.
pub(super) const NAME: &str = "openssl-4.0";

/// The crates whose tests depend on OpenSSL and on no server.
const PACKAGES: [&str; 2] = ["openssl", "openssl-module"];

/// Builds it, and runs the provider's whole test set with it on this machine.
pub(super) fn test(report: &mut Report) {
    let installed = match build() {
        Ok(installed) => installed,
        Err(error) => return report.add(Row::failed(NAME, "build", &error)),
    };
    report.openssl(NAME, version());
    for package in PACKAGES {
        let mut outcome = Outcome::default();
        let result = run(package, &installed, &mut outcome);
        report.add(Row::of_part(NAME, package, outcome, result.err()));
    }
}

/// Such as 4.0.3: the crate's version is `400.0.2+4.0.3`.
fn version() -> &'static str {
    let version = openssl_src::version();
    version
        .split_once('+')
        .map_or(version, |(_, version)| version)
}

/// Builds libraries and command, and returns the folder in which they are installed. A folder that
/// is there is whole: it gets its name last.
fn build() -> Result<PathBuf> {
    let folder = target().join("openssl").join(version());
    let installed = folder.join("installed");
    if installed.exists() {
        return Ok(installed);
    }
    let build = folder.join("build");
    if build.exists() {
        fs::remove_dir_all(&build).with_context(|| build.display().to_string())?;
    }
    fs::create_dir_all(&build).with_context(|| build.display().to_string())?;
    let source = openssl_src::source_dir();
    process::run(
        Command::new("perl")
            .arg(source.join("Configure"))
            // The crate leaves out the sources of the rest.
            .args([
                "linux-x86_64",
                "no-shared",
                "no-module",
                "no-tests",
                "no-docs",
            ])
            .args(["-fPIC", "--libdir=lib"])
            .arg(option("--prefix=", &installed))
            .arg(option("--openssldir=", &installed.join("ssl")))
            .current_dir(&build),
    )?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let make = |arguments: &[OsString]| {
        process::run(
            Command::new("make")
                .arg("-s")
                .args(arguments)
                .current_dir(&build),
        )
    };
    let jobs = OsString::from(format!("-j{jobs}"));
    // One after the other: each looks for dependencies first.
    make(&[jobs.clone(), "build_libs".into()])?;
    make(&[jobs, "build_programs".into()])?;
    make(&[
        "install_dev".into(),
        option("DESTDIR=", &build.join("staged")),
    ])?;
    let staged = build.join("staged").join(installed.strip_prefix("/")?);
    share(&build, &staged)?;
    fs::rename(&staged, &installed).with_context(|| staged.display().to_string())?;
    Ok(installed)
}

/// Links shared libraries and a command that uses them, as a distribution has them. The crate lacks
/// the script with which OpenSSL does so. In a static command, a provider finds no libcrypto.
fn share(build: &Path, staged: &Path) -> Result<()> {
    let (lib, bin) = (staged.join("lib"), staged.join("bin"));
    fs::create_dir_all(&bin)?;
    for (name, needs) in [
        ("crypto", &["-ldl", "-pthread"][..]),
        ("ssl", &["-lcrypto"]),
    ] {
        let file = format!("lib{name}.so.4");
        let archive = lib.join(format!("lib{name}.a"));
        let mut link = Command::new("cc");
        link.arg("-shared").arg(format!("-Wl,-soname,{file}"));
        link.arg("-o").arg(lib.join(&file));
        link.arg("-Wl,--whole-archive")
            .arg(&archive)
            .arg("-Wl,--no-whole-archive");
        process::run(link.arg("-L").arg(&lib).args(needs))?;
        symlink(&file, lib.join(format!("lib{name}.so")))?;
        // What is linked against this folder uses the shared one.
        fs::remove_file(&archive)?;
    }
    let mut link = Command::new("cc");
    link.arg("-o").arg(bin.join("openssl"));
    for folder in ["apps", "apps/lib"] {
        for entry in fs::read_dir(build.join(folder))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("openssl-bin-") && name.ends_with(".o") {
                link.arg(&path);
            }
        }
    }
    link.arg(build.join("apps/libapps.a"));
    process::run(
        link.arg("-L")
            .arg(&lib)
            .args(["-lssl", "-lcrypto", "-ldl", "-pthread"]),
    )
}

fn run(package: &str, installed: &Path, outcome: &mut Outcome) -> Result<()> {
    let mut path = installed.join("bin").into_os_string();
    if let Some(usual) = env::var_os("PATH") {
        path.push(":");
        path.push(usual);
    }
    let mut test = cargo("test");
    test.args(["--no-fail-fast", "--all-features", "-p"])
        .arg(format!("slipstream-{package}"))
        .arg("--target-dir")
        .arg(installed.with_file_name("target"))
        // What is ignored otherwise needs a command of OpenSSL 4.
        .args(["--", "--include-ignored", "--show-output"])
        .env("OPENSSL_DIR", installed)
        .env("OPENSSL_4", installed.join("bin/openssl"))
        .env("LD_LIBRARY_PATH", installed.join("lib"))
        .env("SLIPSTREAM_REQUIRE_VALGRIND", "1")
        .env("PATH", path);
    harness::run(&mut test, outcome)
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}
