//! Processes, as /proc tells of them.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The time at which a process was started, in ticks since the system was; `None` if that cannot be
/// read, or if the process has ended and only not been waited for.
pub(super) fn start(process: u32) -> Option<u64> {
    start_in(&stat(process)?)
}

fn stat(process: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{process}/stat")).ok()
}

/// The field 22 of proc(5). The second one is a name in parentheses, which may hold anything.
fn start_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!["Z", "X"].contains(&state)).then_some(start)
}

/// The namespace in which this process sees the numbers of others; 0 if that cannot be read.
pub(super) fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Returns true if the process runs. One of which /proc does not tell, as it does with `hidepid`,
/// runs if it can be signalled, or if it must not be.
pub(super) fn is_alive(process: u32, started: u64) -> bool {
    match stat(process) {
        Some(stat) => start_in(&stat) == Some(started),
        None => exists(process),
    }
}

/// Returns true if there is a process with this number.
pub(super) fn exists(process: u32) -> bool {
    let Some(pid) = i32::try_from(process)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return false;
    };
    !matches!(
        rustix::process::test_kill_process(pid),
        Err(rustix::io::Errno::SRCH)
    )
}

/// The user that a process runs as; `None` if that cannot be read.
pub(super) fn user(process: u32) -> Option<u32> {
    // The owner of its folder is root if it must not be dumped.
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The name of a user, or its number.
pub fn name_of_user(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| user.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_another_start_is_another_process() {
        let process = std::process::id();
        let started = start(process).expect("/proc tells of this process");
        assert!(is_alive(process, started));
        assert!(!is_alive(process, started + 1));
        assert!(!exists(0));
        assert_eq!(user(process), Some(rustix::process::getuid().as_raw()));
    }

    #[test]
    fn the_name_of_a_program_does_not_shift_the_fields() {
        let fields: Vec<String> = (4..30).map(|field| field.to_string()).collect();
        let stat = format!("1 (a) b (c) S {}", fields.join(" "));
        assert_eq!(start_in(&stat), Some(22));
        assert_eq!(start_in(&stat.replace(") S ", ") Z ")), None);
        assert_eq!(start_in("1 (a"), None);
    }
}
