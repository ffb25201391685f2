//! Facts about processes, from /proc.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::Error;

/// The CPU time that the threads of process `pid` have used, from the scheduler's own account
/// (`/proc/PID/task/TID/schedstat`), which counts nanoseconds where `/proc/PID/stat` counts clock
/// ticks.
///
/// # Errors
/// [`Error::Process`] when the process is gone or the kernel keeps no such account.
pub fn process_cpu_time(pid: u32) -> Result<Duration, Error> {
    let failed = |reason: String| Error::Process { pid, reason };
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| failed(format!("no longer running ({error})")))?;
    let mut total = Duration::ZERO;
    for thread in threads {
        let path = thread
            .map_err(|error| failed(format!("no longer running ({error})")))?
            .path()
            .join("schedstat");
        let text = fs::read_to_string(&path).map_err(|error| {
            failed(format!(
                "cannot read {} ({error}); the kernel needs CONFIG_SCHED_INFO",
                path.display()
            ))
        })?;
        total += parse_schedstat(&text)
            .ok_or_else(|| failed(format!("unexpected text in {}: {text:?}", path.display())))?;
    }
    Ok(total)
}

/// The children of process `pid`.
///
/// # Errors
/// [`Error::Io`] when /proc cannot be read.
pub fn children(pid: u32) -> Result<Vec<u32>, Error> {
    // Not from /proc/PID/task/TID/children, which not every kernel is built with.
    let processes = fs::read_dir("/proc").map_err(Error::file("read", Path::new("/proc")))?;
    let children = processes
        .flatten()
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter(|&process: &u32| {
            fs::read_to_string(format!("/proc/{process}/stat"))
                .is_ok_and(|stat| parse_parent(&stat) == Some(pid))
        })
        .collect();
    Ok(children)
}

/// The process id `id` in the form that signals are sent to.
///
/// # Panics
/// If `id` is none that a process can have: 0, or beyond the range of signed numbers.
pub fn process_id(id: u32) -> Pid {
    i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .expect("the id of a process is positive")
}

/// Returns true if the process exists and is not a zombie.
pub fn is_running(pid: u32) -> bool {
    let fields = fields(&folder(pid));
    fields.is_some_and(|fields| !fields[0].starts_with(['Z', 'X']))
}

/// Returns true once SIGSTOP has come into effect: a signal is sent before the process, which may
/// be running on another core, has received it.
pub fn is_stopped(pid: u32) -> bool {
    let is_stopped = |thread: &Path| fields(thread).is_some_and(|fields| fields[0] == "T");
    fs::read_dir(folder(pid).join("task")).is_ok_and(|mut threads| {
        threads.all(|thread| thread.is_ok_and(|thread| is_stopped(&thread.path())))
    })
}

/// Start time of the process, for comparison with others: process IDs begin anew when the last has
/// been given out. `None` if the process is gone.
pub fn started(pid: u32) -> Option<u64> {
    // Field 22 (proc_pid_stat(5)), of which the first two are left out.
    fields(&folder(pid))?[19].parse().ok()
}

fn folder(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The fields of a process or of a thread, from its state on.
fn fields(folder: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    after_name(&stat).map(|fields| fields.split_ascii_whitespace().map(str::to_owned).collect())
}

/// The fields behind the name in `PID (NAME) STATE PARENT ...` (proc(5)).
fn after_name(stat: &str) -> Option<&str> {
    // NAME may hold anything, closing parentheses included.
    stat.rsplit_once(')').map(|(_, fields)| fields)
}

/// The first field of a schedstat file: time on the CPU in nanoseconds
/// (Documentation/scheduler/sched-stats.rst).
fn parse_schedstat(text: &str) -> Option<Duration> {
    let mut fields = text.split_ascii_whitespace();
    let on_cpu = fields.next()?.parse().ok()?;
    (fields.count() == 2).then(|| Duration::from_nanos(on_cpu))
}

/// The parent in a /proc/PID/stat file.
fn parse_parent(stat: &str) -> Option<u32> {
    after_name(stat)?
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};
    use std::thread;

    use super::*;

    #[test]
    fn schedstat_is_read_in_nanoseconds() {
        assert_eq!(
            parse_schedstat("1167700 42 7\n"),
            Some(Duration::from_nanos(1_167_700))
        );
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("12 x"), None);
        assert_eq!(parse_schedstat("x 1 2"), None);
    }

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parse_parent("17 (nginx: worker) S 16 17 17"), Some(16));
        assert_eq!(parse_parent("17 (a) S 99 (b) R 16 17"), Some(16));
        assert_eq!(parse_parent("17 nginx"), None);
    }

    #[test]
    fn the_account_of_a_busy_process_grows_and_that_of_a_dead_one_is_an_error() {
        // Not this process, whose threads are tests that come and go.
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -t 60; while :; do :; done"])
            .spawn()
            .unwrap();
        let pid = child.id();
        let used = || process_cpu_time(pid).unwrap();
        let before = used();
        while used() < before + Duration::from_millis(15) {
            thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(process_cpu_time(pid), Err(Error::Process { .. })));
    }

    #[test]
    fn a_child_is_listed_under_its_parent() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let listed = children(process::id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(listed.contains(&child.id()));
    }
}
