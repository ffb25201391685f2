//! What Linux tells about a process, from /proc.

use std::fs;
use std::os::unix::fs::FileExt;

pub use slipstream_bench::processor::children;

/// Whether the process runs: it exists, and is not a zombie.
pub fn is_running(pid: u32) -> bool {
    // `PID (NAME) STATE ...`, where NAME may hold anything.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}

/// How many file descriptors the process has open.
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
    crate::nginx::send(pid, rustix::process::Signal::QUIT);
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
