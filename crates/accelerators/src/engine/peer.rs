//! The process that listens at an engine's socket: is it one that may have keys?

use std::ffi::CString;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// The user that an engine may run as, beside root and the user of this process.
///
/// It is given by name or number. A name is looked up whenever a connection is made: a user of
/// systemd's (`DynamicUser=`) exists while its service runs, and may have another number then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineUser(Arc<str>);

/// The directory, root's, in which systemd notes the users of services that run (`DynamicUser=`). The
/// user database knows them only where nss-systemd is installed, which reads this as well.
const DYNAMIC_USERS: &str = "/run/systemd/dynamic-uid";

/// Larger than any entry of a user database.
const MAXIMUM_ENTRY_BYTES: usize = 1 << 20;

impl EngineUser {
    /// The user of the engine's systemd unit.
    pub const DEFAULT: &str = "slipstream-engine";

    /// The user with this name or number, who need not exist yet.
    pub fn new(user: &str) -> Self {
        Self(user.into())
    }

    /// Checks that the process that listens at the other end of `socket`, which is connected to
    /// `path`, runs as this user, as root, or as the user of this process. The kernel knows
    /// (SO_PEERCRED, unix(7)).
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if it runs as another user, with the cure in its text,
    /// and errors of the user database.
    pub(super) fn check(&self, socket: impl AsFd, path: &Path) -> io::Result<()> {
        let peer = socket_peercred(socket)?.uid.as_raw();
        if peer == 0 || peer == geteuid().as_raw() || self.id()? == Some(peer) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{}: user {peer} listens there, who is neither root, nor this process's user, nor the \
                 engine's ({self}); if it is the engine that you have started, name its user in the \
                 configuration",
                path.display()
            ),
        ))
    }

    /// Returns the number of the user; `None` if there is no such user now.
    fn id(&self) -> io::Result<Option<u32>> {
        if let Ok(id) = self.0.parse() {
            return Ok(Some(id));
        }
        let known = look_up(&self.0)?;
        Ok(known.or_else(|| look_up_dynamic(Path::new(DYNAMIC_USERS), &self.0)))
    }
}

impl Default for EngineUser {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl fmt::Display for EngineUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the number of a user of systemd's: a link from `direct:` and the name to the number.
fn look_up_dynamic(directory: &Path, name: &str) -> Option<u32> {
    if name.contains('/') {
        return None;
    }
    let link = directory.join(format!("direct:{name}"));
    std::fs::read_link(link).ok()?.to_str()?.parse().ok()
}

fn look_up(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else {
        return Ok(None);
    };
    let mut buffer = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends with a zero byte; the entry is written into memory of its type, and
        // the texts that it points to into the buffer, whose length is given.
        let result = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        match result {
            0 if found.is_null() => return Ok(None),
            // SAFETY: a result other than null says that the entry has been written.
            0 => return Ok(Some(unsafe { entry.assume_init() }.pw_uid)),
            libc::ERANGE if buffer.len() < MAXIMUM_ENTRY_BYTES => {
                buffer.resize(2 * buffer.len(), 0);
            }
            // Some sources of users return these if there is no such user (getpwnam(3)).
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_or_number() {
        let id = |user| EngineUser::new(user).id().expect("a user database");
        assert_eq!(id("root"), Some(0));
        assert_eq!(id("0"), Some(0));
        assert_eq!(id("65534"), Some(65534));
        assert_eq!(id("nobody-has-this-name"), None);
        assert_eq!(id("with\0zero"), None);
        assert_eq!(id(""), None);
    }

    #[test]
    fn a_user_of_a_service_is_found_without_the_user_database() {
        let name = format!("slipstream-users-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a new directory");
        let link = directory.join("direct:slipstream-engine");
        std::os::unix::fs::symlink("61234", link).expect("a new link");
        let found = |name| look_up_dynamic(&directory, name);
        let expected = [Some(61234), None, None];
        let names = [
            "slipstream-engine",
            "another",
            "../direct:slipstream-engine",
        ];
        let all = names.map(found);
        std::fs::remove_dir_all(&directory).expect("a directory of our own");
        assert_eq!(all, expected);
    }
}
