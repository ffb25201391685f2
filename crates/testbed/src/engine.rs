//! An engine: a device made of processor cores, in a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::Error;
use crate::child::ChildGroup;
use crate::nginx::last_lines;
use crate::process::process_cpu_time;
use crate::program::RUN_VARIABLE;
use crate::scratch::ScratchDirectory;

/// A running `slipstream engine`. It is stopped when this is dropped.
pub struct Engine {
    program: PathBuf,
    // Before `scratch`: fields are dropped in this order.
    process: ChildGroup,
    scratch: ScratchDirectory,
}

impl Engine {
    /// Starts the `engine` command of `program` on a core and waits until it can be connected to.
    /// With a `pace`, the name of a card, it answers no sooner than that card would.
    ///
    /// # Errors
    /// [`Error::Engine`] with the end of its log when it does not start; [`Error::Io`];
    /// [`Error::Interrupted`].
    pub fn start(program: &Path, pace: Option<&str>, core: usize) -> Result<Engine, Error> {
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
        if let Some(pace) = pace {
            command.args(["--pace", pace]);
        }
        command
            .env(RUN_VARIABLE, scratch.file("run"))
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
        engine
            .process
            .await_start(|| engine.is_ready(), |reason| engine.failure(reason))?;
        Ok(engine)
    }

    /// The path of the socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        socket(&self.scratch)
    }

    /// The CPU time that it has used.
    ///
    /// # Errors
    /// [`Error::Engine`] with the end of its log if it is gone.
    pub fn cpu_time(&self) -> Result<Duration, Error> {
        process_cpu_time(self.process.id()).map_err(|error| self.failure(format!("died: {error}")))
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
        scratch
            .executable("program", &format!("#!/bin/sh\n{script}\n"))
            .unwrap()
    }

    #[test]
    fn a_program_that_is_no_engine_is_an_error_with_what_it_said() {
        let scratch = ScratchDirectory::new().unwrap();
        let program = program(&scratch, "echo \"no such command: $1\" >&2; exit 2");
        let core = usable_cores().unwrap()[0];
        let error = Engine::start(&program, None, core).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("did not start"), "{message}");
        assert!(message.contains("no such command: engine"), "{message}");
        let missing = scratch.file("nothing");
        assert!(Engine::start(&missing, Some("dh8970"), core).is_err());
    }
}
