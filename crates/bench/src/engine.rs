//! The engine that stands in the place of the papers' card: a process of its own, on the core of the load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::Error;
use crate::child::{ChildGroup, POLL_INTERVAL};
use crate::cleanup::check_interrupted;
use crate::nginx::last_lines;
use crate::processor::process_cpu_time;
use crate::scratch::ScratchDirectory;

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The card of QTLS (section 5.1).
const PACE: &str = "dh8970";

/// A running `slipstream engine`. It is stopped when this is dropped.
pub(crate) struct Engine {
    program: PathBuf,
    // Before `scratch`: fields are dropped in this order.
    process: ChildGroup,
    scratch: ScratchDirectory,
}

impl Engine {
    /// Starts the `engine` command of `program` on a core and waits until it can be connected to.
    pub(crate) fn start(program: &Path, paced: bool, core: usize) -> Result<Engine, Error> {
        let scratch = ScratchDirectory::new()?;
        let log = fs::File::create(scratch.file("stderr"))
            .map_err(Error::file("write", scratch.path()))?;
        let mut command = Command::new(program);
        command
            .arg("engine")
            .arg("--socket")
            .arg(socket(&scratch))
            .arg("--cores")
            .arg(core.to_string());
        if paced {
            command.args(["--pace", PACE]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        // All of it on that core, not only the thread that computes: the other one is the server's.
        let process =
            ChildGroup::spawn(&mut command, Some(core)).map_err(Error::file("run", program))?;
        let engine = Engine {
            program: program.to_path_buf(),
            process,
            scratch,
        };
        engine.await_start()?;
        Ok(engine)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.scratch)
    }

    /// The CPU time it has used.
    pub(crate) fn cpu_time(&self) -> Result<Duration, Error> {
        process_cpu_time(self.process.id()).map_err(|error| self.failure(format!("died: {error}")))
    }

    fn await_start(&self) -> Result<(), Error> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.is_ready()? {
            check_interrupted()?;
            if self.process.has_exited() {
                return Err(self.failure("did not start".to_owned()));
            }
            if Instant::now() > deadline {
                return Err(self.failure(format!("did not start within {START_TIMEOUT:?}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn is_ready(&self) -> Result<bool, Error> {
        let attempt = || {
            let address = SockAddr::unix(self.socket())?;
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
            Ok(socket.connect(&address).is_ok())
        };
        attempt().map_err(Error::io("cannot make a socket for the engine"))
    }

    fn failure(&self, reason: String) -> Error {
        Error::Engine {
            program: self.program.clone(),
            reason,
            log: last_lines(&fs::read_to_string(self.scratch.file("stderr"))),
        }
    }
}

fn socket(scratch: &ScratchDirectory) -> PathBuf {
    scratch.file("engine.sock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::usable_cores;

    fn program(scratch: &ScratchDirectory, script: &str) -> PathBuf {
        scratch.program("program", &format!("#!/bin/sh\n{script}\n"))
    }

    #[test]
    fn a_program_that_is_no_engine_is_an_error_with_what_it_said() {
        let scratch = ScratchDirectory::new().unwrap();
        let program = program(&scratch, "echo \"no such command: $1\" >&2; exit 2");
        let core = usable_cores().unwrap()[0];
        let error = Engine::start(&program, false, core).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("did not start"), "{message}");
        assert!(message.contains("no such command: engine"), "{message}");
        let missing = scratch.file("nothing");
        assert!(Engine::start(&missing, true, core).is_err());
    }
}
