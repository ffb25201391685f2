//! Dropping of privileges.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, dumpable_behavior, getegid, geteuid, getrlimit, getuid,
    set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// Larger than any entry of a user database.
const MAX_ENTRY_BYTES: usize = 1 << 20;

/// User of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: CString,
    user: libc::uid_t,
    group: libc::gid_t,
}

impl User {
    /// Finds the user called `name`.
    ///
    /// # Errors
    /// Returns an error if there is none, or if the user database cannot be read.
    pub fn find(name: &str) -> io::Result<Self> {
        let absent = || {
            let text = format!(
                "there is no user \"{name}\": create one with `useradd --system`, or name another"
            );
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        let name = CString::new(name).map_err(|_| absent())?;
        let mut buffer = vec![0; 1024];
        loop {
            let mut entry = MaybeUninit::<libc::passwd>::uninit();
            let mut found = std::ptr::null_mut();
            // SAFETY: the name ends with a zero byte; the entry is written into memory of its type,
            // and the texts it points to into the buffer, whose length is given.
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
                0 if found.is_null() => return Err(absent()),
                0 => {
                    // SAFETY: a result other than null says that the entry has been written.
                    let entry = unsafe { entry.assume_init() };
                    return Ok(Self {
                        name,
                        user: entry.pw_uid,
                        group: entry.pw_gid,
                    });
                }
                libc::ERANGE if buffer.len() < MAX_ENTRY_BYTES => {
                    buffer.resize(buffer.len() * 2, 0)
                }
                // Some sources of users return these if there is no such user (getpwnam(3)).
                libc::ENOENT | libc::ESRCH => return Err(absent()),
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Returns the user id.
    pub fn id(&self) -> u32 {
        self.user
    }

    /// Returns the id of the user's first group.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Returns true if the user may read a file with this owner, group and mode.
    pub fn may_read(&self, metadata: &fs::Metadata) -> bool {
        let mode = metadata.mode();
        if self.user == 0 {
            true
        } else if metadata.uid() == self.user {
            mode & 0o400 != 0
        } else if self.groups().contains(&metadata.gid()) {
            mode & 0o040 != 0
        } else {
            mode & 0o004 != 0
        }
    }

    fn groups(&self) -> Vec<libc::gid_t> {
        let mut groups = vec![0; 64];
        loop {
            let mut count = groups.len() as libc::c_int;
            // SAFETY: the name ends with a zero byte, and no more groups are written than the count
            // says there is room for.
            let result = unsafe {
                libc::getgrouplist(
                    self.name.as_ptr(),
                    self.group,
                    groups.as_mut_ptr(),
                    &raw mut count,
                )
            };
            let count = usize::try_from(count).unwrap_or(0);
            if result >= 0 || count <= groups.len() {
                groups.truncate(count);
                return groups;
            }
            groups.resize(count, 0);
        }
    }
}

/// Makes the whole process run as `user` with its groups and without capabilities. Must be called
/// before threads are started: the user of existing threads changes too, but not what they may gain
/// by executing a program.
///
/// # Errors
/// Returns an error if there is no such user, if this process may not switch to it, or if any
/// thread has kept a privilege.
pub fn drop_to(user: &str) -> io::Result<()> {
    let user = User::find(user)?;
    let is_already = getuid().as_raw() == user.user
        && geteuid().as_raw() == user.user
        && getegid().as_raw() == user.group
        && user.user != 0;
    let is_protected = dumpable_behavior()? == DumpableBehavior::NotDumpable;
    if !is_already {
        become_user(&user).map_err(|error| {
            let name = user.name.to_string_lossy();
            let text = format!(
                "cannot become user \"{name}\" ({error}): start as root, or remove the user"
            );
            io::Error::new(error.kind(), text)
        })?;
    }
    // The kernel resets this when the user changes (PR_SET_DUMPABLE(2const)).
    if is_protected {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    set_no_new_privs(true)?;
    if user.user != 0 {
        set_capabilities(
            None,
            CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            },
        )?;
        no_thread_has_kept_rights(&user)?;
    }
    Ok(())
}

/// Calls functions of the C library, since they change all threads (nptl(7)). The system calls
/// would change this thread only.
fn become_user(user: &User) -> io::Result<()> {
    let check = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the name ends with a zero byte; the other arguments are numbers.
    unsafe {
        check(libc::initgroups(CStr::as_ptr(&user.name), user.group))?;
        check(libc::setresgid(user.group, user.group, user.group))?;
        check(libc::setresuid(user.user, user.user, user.user))
    }
}

/// Checks each thread in /proc. A mistake here would go unnoticed for years.
fn no_thread_has_kept_rights(user: &User) -> io::Result<()> {
    for thread in fs::read_dir("/proc/self/task")? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let is_user = |line: &str, id: u32| {
            let mut numbers = line.split_ascii_whitespace().skip(1);
            numbers.all(|number| number.parse() == Ok(id))
        };
        let is_right = status.lines().all(|line| match line.split_once(':') {
            Some(("Uid", _)) => is_user(line, user.user),
            Some(("Gid", _)) => is_user(line, user.group),
            Some(("CapPrm" | "CapEff" | "CapAmb", set)) => {
                set.trim().bytes().all(|digit| digit == b'0')
            }
            _ => true,
        });
        if !is_right {
            let text = "a thread has kept privileges of the user that started it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
    }
    Ok(())
}

/// Returns true if this process may listen at `port`, which is not 0.
pub fn may_bind(port: u16) -> bool {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024);
    let can_bind = || {
        capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE))
    };
    port >= first || can_bind()
}

/// Keeps private keys out of core dumps and away from debuggers of the same user.
///
/// # Errors
/// Returns the error of the system.
pub fn protect_memory() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Returns the number of files that this process may have open.
pub fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Raises the limit of open files to `wanted`, or as far as possible. Returns the new limit.
///
/// # Errors
/// Returns the error of the system.
pub fn raise_descriptor_limit(wanted: u64) -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return Ok(current);
    }
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    if maximum < wanted {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: Some(wanted),
        };
        // Root may raise the maximum too, within the kernel's limit.
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return Ok(wanted);
        }
    }
    let reachable = wanted.min(maximum);
    let raised = Rlimit {
        current: Some(reachable),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)?;
    Ok(reachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(User::find("root").unwrap().id(), 0);
        for name in ["no-such-user-here", "", "a\0b"] {
            let error = User::find(name).unwrap_err();
            assert!(error.to_string().contains("useradd"), "{error}");
        }
    }

    #[test]
    fn a_thread_of_another_user_is_noticed() {
        let other = User {
            user: getuid().as_raw() + 1,
            ..User::find("root").unwrap()
        };
        assert!(no_thread_has_kept_rights(&other).is_err());
    }

    #[test]
    fn the_limit_of_descriptors_is_raised_and_never_lowered() {
        let before = getrlimit(Resource::Nofile).current.unwrap();
        assert_eq!(raise_descriptor_limit(1).unwrap(), before);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(before));
        let raised = raise_descriptor_limit(before + 1).unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(raised));
        assert!(raised >= before);
    }
}
