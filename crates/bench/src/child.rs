//! A program that an experiment has started: it ends when it is dropped, and with this program at the latest.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group,
    set_parent_process_death_signal, waitid,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::cleanup::{Registration, Remnant};

/// How long a program may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a program is looked at that is to start or to stop.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A program with a process group of its own, which its descendants belong to as well. Dropping it sends SIGTERM, waits,
/// and then kills what is left of the group.
pub(crate) struct ChildGroup {
    leader: Child,
    _registration: Registration,
}

impl ChildGroup {
    /// Starts the program, on one core if there is a `core`. It gets SIGTERM from the kernel when the calling thread ends:
    /// this must be one that lives as long as the program is needed.
    ///
    /// # Errors
    /// The operating system's, when the program cannot be run or may not use the core.
    pub(crate) fn spawn(command: &mut Command, core: Option<usize>) -> io::Result<ChildGroup> {
        let cores = core.map(|core| {
            let mut set = CpuSet::new();
            if core < CpuSet::MAX_CPU {
                set.set(core);
            }
            set
        });
        // A terminal's Ctrl-C is this program's to act on, and stopping can reach all of the group.
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes two system calls (prctl, sched_setaffinity) and neither
        // allocates nor takes a lock, so the state that other threads may have left their locks in does not matter.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::TERM))?;
                if let Some(cores) = &cores {
                    sched_setaffinity(None, cores)?;
                }
                Ok(())
            });
        }
        let leader = command.spawn()?;
        let registration = Registration::new(Remnant::ProcessGroup(process_id(&leader)));
        Ok(ChildGroup {
            leader,
            _registration: registration,
        })
    }

    /// The process id of the program, which is also that of its group.
    pub(crate) fn id(&self) -> u32 {
        self.leader.id()
    }

    /// Whether the program has ended. It is not reaped: its process id stays its own until the group is dropped.
    pub(crate) fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // There is no status to wait for if someone else has reaped it.
        !matches!(
            waitid(WaitId::Pid(process_id(&self.leader)), options),
            Ok(None)
        )
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // Errors are ignored: a process that is gone cannot be signalled, and that is what is wanted.
        let _ = kill_process(process_id(&self.leader), Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.has_exited() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        // Also after an orderly end: descendants outlive a program that crashed.
        let _ = kill_process_group(process_id(&self.leader), Signal::KILL);
        let _ = self.leader.wait();
    }
}

fn process_id(child: &Child) -> Pid {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("the id of a child is positive")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::processor::usable_cores;

    #[test]
    fn a_program_runs_on_its_core_and_ends_with_its_owner() {
        let core = *usable_cores().unwrap().last().unwrap();
        let mut command = Command::new("sleep");
        let child = ChildGroup::spawn(command.arg("60"), Some(core)).unwrap();
        let id = child.id();
        assert!(!child.has_exited());
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .unwrap();
        assert_eq!(allowed.trim(), core.to_string());
        drop(child);
        assert!(!fs::exists(format!("/proc/{id}")).unwrap());
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        let mut command = Command::new("true");
        assert!(ChildGroup::spawn(&mut command, Some(CpuSet::MAX_CPU)).is_err());
    }
}
