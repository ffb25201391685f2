//! The socket that clients connect to.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::net::{SocketAddrUnix, SocketFlags};
use slipstream_accelerators::engine::protocol::socket;

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode: by the time this is dropped, another engine's socket may have the same
    /// path.
    identity: (u64, u64),
    allow: Vec<u32>,
}

impl Listener {
    /// Listens at `path`, for root, the user of this process and those of `allow`. Replaces a
    /// socket that no process listens on any more.
    ///
    /// # Errors
    /// As [`Engine::start`](crate::Engine::start).
    pub(crate) fn bind(path: &Path, allow: &[u32]) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = socket::new()?;
        let address = SocketAddrUnix::new(path)
            .map_err(|error| explain(path, "not a path for a socket", error.into()))?;
        rustix::net::bind(&socket, &address)
            .map_err(|error| explain(path, "cannot listen", error.into()))?;
        // The kernel asks the connecting user for the right to write. `accept` checks the user in
        // any case.
        let mode = if allow.is_empty() { 0o600 } else { 0o666 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        rustix::net::listen(&socket, BACKLOG)?;
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            allow: allow.to_vec(),
        })
    }

    /// Accepts the next connection. Returns it with its user, and true if that user may use the
    /// engine.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none, and other errors of accepting.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, u32, bool)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let connection = rustix::net::accept_with(&self.socket, flags)?;
        let user = rustix::net::sockopt::socket_peercred(&connection)?
            .uid
            .as_raw();
        let own = rustix::process::geteuid().as_raw();
        let is_allowed = user == 0 || user == own || self.allow.contains(&user);
        Ok((connection, user, is_allowed))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let metadata = fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|now| (now.dev(), now.ino()) == self.identity) {
            // A failure cannot be reported from here. The next engine replaces a socket that is
            // left.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return check_directory(path),
        Err(error) => return Err(explain(path, "cannot listen", error)),
    };
    if !metadata.file_type().is_socket() {
        let error = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(explain(path, "is not a socket; name another path", error));
    }
    match socket::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| explain(path, "cannot replace", error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(explain(path, "belongs to another user", error))
        }
        // An engine that is too busy to accept is alive as well.
        Ok(_) | Err(_) => Err(explain(
            path,
            "an engine listens there already; stop it, or name another path",
            io::ErrorKind::AddrInUse.into(),
        )),
    }
}

fn check_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    if directory.is_dir() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "{}: there is no directory {directory}; make it with: install -d -m 755 {directory}",
            path.display(),
            directory = directory.display(),
        ),
    ))
}

fn explain(path: &Path, text: &str, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("{}: {text} ({error})", path.display()),
    )
}
