//! The directories of published files.
//!
//! `/run/slipstream` is root's. A service that runs as another user has a directory of its own in
//! it, which systemd makes, and a person that is not root has one in `$XDG_RUNTIME_DIR`. The
//! variable `SLIPSTREAM_RUN` names another one instead of all of these; a reader takes several that
//! are separated by colons.

use std::env;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The name of the variable that names the directory to be used.
pub const VARIABLE: &str = "SLIPSTREAM_RUN";

const ROOT: &str = "/run/slipstream";
const OF_USERS: &str = "/run/user";
const OF_USER: &str = "slipstream";

/// The directory in which this process publishes.
pub fn own() -> PathBuf {
    let is_root = rustix::process::geteuid().is_root();
    choose(&|name| env::var_os(name).map(PathBuf::from), is_root)
}

fn choose(variable: &dyn Fn(&str) -> Option<PathBuf>, is_root: bool) -> PathBuf {
    if let Some(path) = variable(VARIABLE) {
        return path;
    }
    // systemd separates several by colons.
    let of_service = variable("RUNTIME_DIRECTORY");
    let of_service = of_service.as_deref().and_then(Path::to_str).unwrap_or("");
    if let Some(path) = of_service
        .split(':')
        .map(Path::new)
        .find(|path| path.starts_with(ROOT))
    {
        return path.to_owned();
    }
    match variable("XDG_RUNTIME_DIR") {
        Some(path) if !is_root => path.join(OF_USER),
        _ => ROOT.into(),
    }
}

/// The directories in which processes publish whose figures this one may read.
pub fn all() -> Vec<PathBuf> {
    if let Some(paths) = env::var_os(VARIABLE) {
        return env::split_paths(&paths).collect();
    }
    let mut all = vec![PathBuf::from(ROOT)];
    all.extend(children(Path::new(ROOT)));
    if rustix::process::geteuid().is_root() {
        let users = children(Path::new(OF_USERS));
        all.extend(users.map(|user| user.join(OF_USER)));
    } else if let Some(own) = env::var_os("XDG_RUNTIME_DIR") {
        all.push(PathBuf::from(own).join(OF_USER));
    }
    all
}

fn children(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path())
}

/// Opens the directory in which this process publishes, and makes it if it is missing.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if users other than root and this process's may write it,
/// and errors of the system. The text names the cure.
pub(super) fn open_to_write(path: &Path) -> io::Result<OwnedFd> {
    let named = |error: Errno| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    let directory = match open(path) {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(named(error)),
            }
            open(path)
        }
        other => other,
    };
    let directory = directory.map_err(named)?;
    let status = rustix::fs::fstat(&directory).map_err(named)?;
    let own = rustix::process::geteuid().as_raw();
    let is_trusted = status.st_uid == 0 || status.st_uid == own;
    if !is_trusted || status.st_mode & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} can be written by others: it has to belong to root or to this user, with mode 0755",
                path.display()
            ),
        ));
    }
    Ok(directory)
}

/// Opens a directory, and follows no link at the end of its path.
pub(super) fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_variable_comes_before_a_service_and_a_service_before_a_user() {
        let choose = |variables: &[(&str, &str)], is_root| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| PathBuf::from(value))
            };
            choose(&variable, is_root).to_str().unwrap().to_owned()
        };
        let user = ("XDG_RUNTIME_DIR", "/run/user/7");
        let service = ("RUNTIME_DIRECTORY", "/run/other:/run/slipstream/engine");
        assert_eq!(choose(&[], false), "/run/slipstream");
        assert_eq!(choose(&[user], true), "/run/slipstream");
        assert_eq!(choose(&[user], false), "/run/user/7/slipstream");
        assert_eq!(choose(&[user, service], false), "/run/slipstream/engine");
        assert_eq!(choose(&[user, service, (VARIABLE, "/a")], false), "/a");
        let other = ("RUNTIME_DIRECTORY", "/run/nginx");
        assert_eq!(choose(&[other], true), "/run/slipstream");
    }

    #[test]
    fn a_missing_directory_is_made_and_one_that_others_can_write_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run");
        open_to_write(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o755 & !umask()
        );
        for mode in [0o777, 0o1777, 0o775] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = open_to_write(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let link = scratch.path().join("link");
        symlink("/run", &link).unwrap();
        assert!(open_to_write(&link).is_err());
    }

    fn umask() -> u32 {
        let mask = rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::umask(mask);
        mask.as_raw_mode()
    }
}
