//! A program that is stopped when its value is dropped, and when this program ends at the latest.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Signal, WaitId, WaitIdOptions, kill_process, kill_process_group,
    set_parent_process_death_signal, waitid,
};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::Error;
use crate::cleanup::{Registration, Remnant, check_interrupted};
use crate::process::process_id;

/// Time that a program may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that a program may take to start: a module or an engine may calibrate itself first.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two looks at a program that is starting or stopping.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A program with a process group of its own, which its descendants belong to as well. Dropping it
/// sends SIGTERM, waits, and then kills what is left of the group.
pub struct ChildGroup {
    leader: Child,
    _registration: Registration,
}

impl ChildGroup {
    /// Starts the program, on one core if there is a `core`. It gets SIGTERM from the kernel when
    /// the calling thread ends: this must be one that lives as long as the program is needed.
    ///
    /// # Errors
    /// The operating system's, when the program cannot be run or may not use the core.
    pub fn spawn(command: &mut Command, core: Option<usize>) -> io::Result<ChildGroup> {
        let cores = core.map(|core| {
            let mut set = CpuSet::new();
            if core < CpuSet::MAX_CPU {
                set.set(core);
            }
            set
        });
        // A terminal's Ctrl-C is this program's to act on, and stopping can reach all of the group.
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes two system calls (prctl,
        // sched_setaffinity) and neither allocates nor takes a lock, so the state that other
        // threads may have left their locks in does not matter.
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
        let registration = Registration::new(Remnant::ProcessGroup(process_id(leader.id())));
        Ok(ChildGroup {
            leader,
            _registration: registration,
        })
    }

    /// The process id of the program, which is also that of its group.
    pub fn id(&self) -> u32 {
        self.leader.id()
    }

    /// Returns true if the program has ended. It is not reaped: its process id stays its own until
    /// the group is dropped.
    pub fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // There is no status to wait for if someone else has reaped it.
        !matches!(
            waitid(WaitId::Pid(process_id(self.leader.id())), options),
            Ok(None)
        )
    }

    /// Waits until `is_ready` returns true.
    ///
    /// # Errors
    /// Errors of `is_ready`; [`Error::Interrupted`]; what `failure` makes of a reason if the
    /// program ends or takes too long.
    pub fn await_start(
        &self,
        mut is_ready: impl FnMut() -> Result<bool, Error>,
        failure: impl FnOnce(String) -> Error,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_ready()? {
            check_interrupted()?;
            if self.has_exited() {
                return Err(failure("did not start".to_owned()));
            }
            if Instant::now() > deadline {
                return Err(failure(format!("did not start within {START_TIMEOUT:?}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // Errors are ignored: a process that is gone cannot be signalled, and that is what is
        // wanted.
        let _ = kill_process(process_id(self.leader.id()), Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.has_exited() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        // Also after an orderly end: descendants outlive a program that crashed.
        let _ = kill_process_group(process_id(self.leader.id()), Signal::KILL);
        let _ = self.leader.wait();
    }
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
