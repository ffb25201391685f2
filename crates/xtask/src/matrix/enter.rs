//! Entering a root file system, in a mount namespace of its own: what is mounted there is gone
//! when the command ends, however it ends.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build;
use crate::process;

/// The task that [`command`] starts in the new namespace.
const TASK: &str = "matrix-enter";

/// Variables of this process that a command in the root gets. The others may name what is not
/// there.
const VARIABLES: [&str; 11] = [
    "CI",
    "HOME",
    "LANG",
    "RUST_BACKTRACE",
    "CARGO_BUILD_JOBS",
    "CARGO_TERM_COLOR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SLIPSTREAM_REQUIRE_VALGRIND",
    "DEBIAN_FRONTEND",
];

/// Returns a command that calls [`enter`] in a mount namespace of its own. Its arguments are the
/// program to run in the root and that program's arguments.
pub(super) fn command(root: &Path, target: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]);
    // This program, even if its file is replaced meanwhile.
    command.arg(format!("/proc/{}/exe", std::process::id()));
    command.arg(TASK).arg(root).arg(target);
    command
}

/// Mounts what building needs below a root file system, and becomes a command in it. The arguments
/// are the root, the folder that takes the place of the workspace's target folder there, the
/// program and its arguments.
///
/// # Errors
/// If this is not a mount namespace of its own, or anything cannot be mounted or run.
pub(crate) fn enter(arguments: &[String]) -> Result<()> {
    let [root, target, program, arguments @ ..] = arguments else {
        bail!("usage: {TASK} ROOT TARGET PROGRAM [ARGUMENTS]");
    };
    let namespace = |process: u32| fs::read_link(format!("/proc/{process}/ns/mnt"));
    if namespace(std::process::id())? == namespace(parent_id())? {
        bail!("{TASK} has to be started by unshare --mount, or its mounts would stay");
    }
    let root = Path::new(root);
    for system in ["proc", "dev", "sys"] {
        let system = Path::new("/").join(system);
        mount("--rbind", &system, &below(root, &system))?;
    }
    let sysroot = sysroot()?;
    let cargo_home = cargo_home()?;
    for folder in [build::root(), &sysroot, &cargo_home] {
        mount("--bind", folder, &below(root, folder))?;
    }
    mount("--bind", Path::new(target), &below(root, &build::target()))?;
    // Names are resolved as outside, wherever this machine has moved since the root was made.
    fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).context("/etc/resolv.conf")?;
    let mut command = Command::new("chroot");
    command.arg(root).args(["env", "-C"]).arg(build::root());
    command.arg(program).args(arguments).env_clear();
    for name in VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("CARGO_HOME", &cargo_home);
    command.env("PATH", search_path(&sysroot));
    Err(command.exec()).context("chroot")
}

/// The same absolute path inside the root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn mount(how: &str, from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    let mut mount = Command::new("mount");
    // Each command that is run in the root does all of these, so they are not shown.
    process::output(mount.arg(how).arg(from).arg(to)).map(drop)
}

/// The folder of the Rust toolchain that runs this.
fn sysroot() -> Result<PathBuf> {
    let rustc = Path::new(build::cargo_program()).with_file_name("rustc");
    let printed = process::output(Command::new(rustc).args(["--print", "sysroot"]))?;
    let sysroot = PathBuf::from(printed.trim());
    if sysroot == Path::new("/usr") {
        bail!("Rust is installed in /usr, which every release has of its own: get it by rustup");
    }
    Ok(sysroot)
}

/// The folder with the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CARGO_HOME") {
        return Ok(folder.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

fn search_path(sysroot: &Path) -> OsString {
    let mut path = sysroot.join("bin").into_os_string();
    path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_same_below_the_root() {
        assert_eq!(
            below(Path::new("/r"), Path::new("/a/b")),
            Path::new("/r/a/b")
        );
    }

    #[test]
    fn nothing_is_mounted_outside_of_a_namespace_of_its_own() {
        let folder = std::env::temp_dir().join("slipstream-matrix-no-root");
        let arguments = [folder.to_str().unwrap(), "/nowhere", "true"].map(str::to_owned);
        assert!(enter(&arguments).is_err());
        assert!(!folder.exists());
    }
}
