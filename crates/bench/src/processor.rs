//! Cores: which there are, running on one of them, and how much time a process has had.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::Error;

/// Runs `work` on a thread of its own that never leaves `core`, and waits for it.
///
/// # Errors
/// [`Error::Io`] when the core does not exist or may not be used; whatever `work` returns.
///
/// # Panics
/// When `work` does.
pub fn on_core<T: Send>(
    core: usize,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mut set = CpuSet::new();
            if core < CpuSet::MAX_CPU {
                set.set(core);
            }
            sched_setaffinity(None, &set)
                .map_err(io::Error::from)
                .map_err(Error::io(format!("cannot run on core {core}")))?;
            work()
        });
        worker
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The cores that this process may use, in order.
///
/// # Errors
/// [`Error::Io`] when the system does not say.
pub fn usable_cores() -> Result<Vec<usize>, Error> {
    let set = sched_getaffinity(None)
        .map_err(io::Error::from)
        .map_err(Error::io("cannot read this process's cores"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect())
}

/// The CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("CPU time is not negative");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("below one second");
    Duration::new(seconds, nanoseconds)
}

/// The CPU time that the threads of process `pid` have used, from the scheduler's own account
/// (`/proc/PID/task/TID/schedstat`), which counts nanoseconds where `/proc/PID/stat` counts clock ticks.
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

/// The first field of a schedstat file: time on the CPU in nanoseconds (Documentation/scheduler/sched-stats.rst).
fn parse_schedstat(text: &str) -> Option<Duration> {
    let mut fields = text.split_ascii_whitespace();
    let on_cpu = fields.next()?.parse().ok()?;
    (fields.count() == 2).then(|| Duration::from_nanos(on_cpu))
}

/// The parent in a /proc/PID/stat file: `PID (NAME) STATE PARENT ...` (proc(5)).
fn parse_parent(stat: &str) -> Option<u32> {
    // NAME may hold anything, closing parentheses included.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};

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

    #[test]
    fn work_runs_on_the_core_it_was_given() {
        let core = *usable_cores().unwrap().last().unwrap();
        let seen = on_core(core, usable_cores).unwrap();
        assert_eq!(seen, [core]);
        assert!(matches!(
            on_core(CpuSet::MAX_CPU, || Ok(())),
            Err(Error::Io { .. })
        ));
    }
}
