//! Processes, as /proc describes them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use slipstream_testbed::process::process_cpu_time;
pub(crate) use slipstream_testbed::process::process_id;
pub use slipstream_testbed::process::{children, is_running, is_stopped, started};

/// Checks that processes sleep when nobody comes.
///
/// One that does not uses as much of the time as it gets, whenever one looks. So it is enough that
/// they have slept in one of several periods: in another they may have had something to finish, or
/// a virtual machine may count to them what it was kept waiting itself.
///
/// # Panics
/// If one of them does not, or is gone.
pub fn expect_rest(processes: &[u32], period: Duration) {
    const PERIODS: usize = 5;
    let times = || {
        let times = processes.iter().map(|&process| process_cpu_time(process));
        times
            .collect::<Result<Vec<_>, _>>()
            .expect("running processes")
    };
    let mut used = Vec::new();
    for _ in 0..PERIODS {
        let before = times();
        thread::sleep(period);
        used = times()
            .into_iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        if used.iter().all(|&used| used < period / 50) {
            return;
        }
    }
    panic!("of {period:?} used for nothing: {used:?}");
}

/// Returns the number of file descriptors that the process has open.
///
/// # Panics
/// If the process is gone.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap_or_else(|error| panic!("process {pid}: {error}"))
        .count()
}

/// The memory of the process that is resident and not shared with a file, in bytes.
///
/// # Panics
/// If the process is gone.
pub fn anonymous_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_else(|error| panic!("process {pid}: {error}"));
    let kilobytes: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|value| value.split_ascii_whitespace().next()?.parse().ok())
        .expect("Linux tells the resident memory of a process");
    kilobytes * 1024
}

/// Tells nginx to finish what it has begun, and then to exit.
///
/// # Panics
/// If there is no such process.
pub fn quit(pid: u32) {
    signal(pid, Signal::QUIT);
}

/// Sends a signal.
///
/// # Panics
/// If there is no such process.
pub fn signal(pid: u32, signal: Signal) {
    send(pid, signal);
}

pub(crate) fn send(process: u32, signal: Signal) {
    kill_process(process_id(process), signal)
        .unwrap_or_else(|error| panic!("cannot signal process {process}: {error}"));
}

/// All that process `pid` can read of its memory.
///
/// # Panics
/// If this process may not see it.
pub fn memory(pid: u32) -> Vec<u8> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process that can be seen");
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("a process that can be read");
    let mut all = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (range, permissions) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let range = range.split_once('-').and_then(|(start, end)| {
            let address = |text| u64::from_str_radix(text, 16).ok();
            Some((address(start)?, address(end)?))
        });
        let (start, end) = range.expect("a line of maps starts with a range");
        if permissions.starts_with('r') {
            let mut part = vec![0; (end - start) as usize];
            // The kernel's own pages, and devices, cannot be read.
            if memory.read_exact_at(&mut part, start).is_ok() {
                all.append(&mut part);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_zombie_does_not_run() {
        let mut child = Command::new("true").spawn().unwrap();
        crate::eventually("the child has exited", || !is_running(child.id()));
        child.wait().unwrap();
        assert!(is_running(std::process::id()));
    }

    #[test]
    fn a_process_is_stopped_until_it_goes_on() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!is_stopped(child.id()));
        signal(child.id(), Signal::STOP);
        crate::eventually("the child is stopped", || is_stopped(child.id()));
        assert!(is_running(child.id()));
        signal(child.id(), Signal::CONT);
        crate::eventually("the child goes on", || !is_stopped(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_as_old_as_it_is() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let (younger, older) = (started(child.id()), started(std::process::id()));
        assert!(older.is_some() && younger >= older);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn whoever_spins_does_not_rest() {
        const PERIOD: Duration = Duration::from_millis(200);
        let mut sleeping = Command::new("sleep").arg("1000").spawn().unwrap();
        expect_rest(&[sleeping.id()], PERIOD);
        let mut spinning = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        // It is not while the machine does not run it.
        crate::eventually("the one that spins is found", || {
            std::panic::catch_unwind(|| expect_rest(&[spinning.id()], PERIOD)).is_err()
        });
        for child in [&mut sleeping, &mut spinning] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn descriptors_and_memory_of_this_process_are_seen() {
        let before = descriptors(std::process::id());
        let files: Vec<fs::File> = (0..64)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        // Other tests of this program open and close files of their own.
        assert!(descriptors(std::process::id()) >= before + files.len() - 32);

        const BYTES: usize = 64 << 20;
        let before = anonymous_memory(std::process::id());
        let memory = std::hint::black_box(vec![1_u8; BYTES]);
        let grown = anonymous_memory(std::process::id()) - before;
        assert!(grown > memory.len() as u64 / 2, "{grown}");
    }
}
