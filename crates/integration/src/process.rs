//! What Linux tells about a process, from /proc.

use std::fs;

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
