//! Processor cores: listing them, running on one of them, and the CPU time of a thread.

use std::io;
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
pub fn on_core<T: Send, E: From<Error> + Send>(
    core: usize,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
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
/// [`Error::Io`] when the system does not tell.
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

#[cfg(test)]
mod tests {
    use super::*;

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
