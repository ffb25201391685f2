//! A server's process and its descendants: started, measured and stopped.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Error;
use crate::child::ChildGroup;
use crate::nginx::last_lines;
use crate::process::{children, process_cpu_time};
use crate::program::RUN_VARIABLE;
use crate::scratch::ScratchDirectory;

const STANDARD_OUTPUT: &str = "stdout";
const STANDARD_ERROR: &str = "stderr";

/// A server in a directory of its own. It is stopped and its directory removed when this is
/// dropped.
pub struct Process {
    program: PathBuf,
    // Before `scratch`: fields are dropped in this order.
    group: ChildGroup,
    /// The process and its descendants, as they were when it had started.
    members: Vec<u32>,
    scratch: ScratchDirectory,
}

/// A sign that a server serves.
#[derive(Debug, Clone, Copy)]
pub enum Ready<'a> {
    /// All of these accept connections.
    Accepts(&'a [SocketAddr]),
    /// The same, and it has started the process that serves.
    AcceptsAndHasChild(&'a [SocketAddr]),
    /// It prints a line with this beginning to its standard output.
    Says(&'static str),
}

impl Process {
    /// Starts a server on one core, with its output in `scratch`, and waits until it is ready. It
    /// belongs to the calling thread, and is stopped if that ends.
    ///
    /// # Errors
    /// [`Error::Server`] with the end of its output when it does not start; [`Error::Io`];
    /// [`Error::Interrupted`].
    pub fn start(
        command: &mut Command,
        core: usize,
        ready: Ready<'_>,
        scratch: ScratchDirectory,
    ) -> Result<Process, Error> {
        let create = |name| {
            let path = scratch.file(name);
            File::create(&path).map_err(Error::file("write", &path))
        };
        command
            .env(RUN_VARIABLE, scratch.file("run"))
            .stdin(Stdio::null())
            .stdout(create(STANDARD_OUTPUT)?)
            .stderr(create(STANDARD_ERROR)?);
        let program = PathBuf::from(command.get_program());
        let group = ChildGroup::spawn(command, Some(core)).map_err(Error::file("run", &program))?;
        let mut process = Process {
            program,
            group,
            members: Vec::new(),
            scratch,
        };
        process
            .group
            .await_start(|| process.is_ready(ready), |reason| process.failure(reason))?;
        process.members = descendants(process.group.id())?;
        Ok(process)
    }

    /// The CPU time that all of its processes and threads have used. One that has ended meanwhile
    /// is an error, as its time would be lost.
    pub fn cpu_time(&self) -> Result<Duration, Error> {
        self.members
            .iter()
            .map(|&member| process_cpu_time(member))
            .sum::<Result<Duration, Error>>()
            .map_err(|error| self.failure(format!("lost a process: {error}")))
    }

    /// Its process.
    #[cfg(test)]
    pub fn id(&self) -> u32 {
        self.group.id()
    }

    fn is_ready(&self, ready: Ready<'_>) -> Result<bool, Error> {
        let accept = |addresses: &[SocketAddr]| {
            addresses
                .iter()
                .all(|address| TcpStream::connect(address).is_ok())
        };
        Ok(match ready {
            Ready::Accepts(addresses) => accept(addresses),
            Ready::AcceptsAndHasChild(addresses) => {
                !children(self.group.id())?.is_empty() && accept(addresses)
            }
            Ready::Says(beginning) => read_lossily(&self.scratch.file(STANDARD_OUTPUT))
                .lines()
                .any(|line| line.starts_with(beginning)),
        })
    }

    fn failure(&self, reason: String) -> Error {
        let said = [STANDARD_ERROR, STANDARD_OUTPUT]
            .map(|name| last_lines(&Ok(read_lossily(&self.scratch.file(name)))))
            .into_iter()
            .find(|said| !said.is_empty());
        Error::Server {
            program: self.program.clone(),
            reason,
            log: said.unwrap_or_default(),
        }
    }
}

/// A process, its children, theirs, and so on.
fn descendants(process: u32) -> Result<Vec<u32>, Error> {
    let mut found = vec![process];
    let mut looked_at = 0;
    while let Some(&parent) = found.get(looked_at) {
        found.extend(children(parent)?);
        looked_at += 1;
    }
    Ok(found)
}

/// The contents of a file, which need not be text.
fn read_lossily(path: &Path) -> String {
    fs::read(path).map_or_else(
        |_| String::new(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::processor::usable_cores;

    fn start(script: &str, ready: Ready<'_>) -> Result<Process, Error> {
        let scratch = ScratchDirectory::new().unwrap();
        let core = usable_cores().unwrap()[0];
        Process::start(
            Command::new("/bin/sh").args(["-c", script]),
            core,
            ready,
            scratch,
        )
    }

    #[test]
    fn a_server_that_does_not_start_is_an_error_with_what_it_said() {
        let script = "echo 'no such option' >&2; exit 2";
        let error = start(script, Ready::Says("serving on")).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("/bin/sh did not start"), "{message}");
        assert!(message.contains("no such option"), "{message}");
    }

    #[test]
    fn the_time_of_children_counts_and_one_that_dies_is_noticed() {
        // The parent sleeps; the child computes.
        let script = "(while :; do :; done) & echo serving on; wait";
        let process = start(script, Ready::Says("serving on")).unwrap();
        assert_eq!(process.members.len(), 2);
        let before = process.cpu_time().unwrap();
        while process.cpu_time().unwrap() == before {
            thread::sleep(Duration::from_millis(5));
        }
        let child = i32::try_from(process.members[1]).unwrap();
        kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
        while process.cpu_time().is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
        let id = process.id();
        drop(process);
        assert!(!fs::exists(format!("/proc/{id}")).unwrap());
    }
}
