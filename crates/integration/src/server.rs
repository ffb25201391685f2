//! A program that serves, started for one test.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Signal, kill_process_group, test_kill_process_group};
use slipstream_testbed::program::RUN_VARIABLE;
use slipstream_testbed::scratch::ScratchDirectory;

use crate::process::{process_id, send};
use crate::sockets::sockets;
use crate::wait::holds_in_time;

/// A program with its files in a scratch folder, in a process group of its own. When it is dropped,
/// all of the group is killed and the folder is removed; if the test has failed, the ends of its
/// output and its logs are shown.
///
/// It belongs to the thread that has started it, and is stopped if that ends ([`supervised`]).
pub struct Server {
    name: &'static str,
    /// Log files that are shown when the test has failed, beside standard output and error.
    logs: Vec<PathBuf>,
    /// The signal that asks the program to exit before it is killed.
    last_signal: Option<Signal>,
    child: Option<Child>,
    /// The process that leads the group.
    leader: Option<u32>,
    scratch: ScratchDirectory,
}

impl Server {
    /// Creates the folder of a program that does not run yet. Other users may enter the folder, but
    /// not list it: servers that are started as root change their user.
    ///
    /// # Panics
    /// If the folder cannot be created.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            logs: Vec::new(),
            last_signal: None,
            child: None,
            leader: None,
            scratch: new_folder(0o711),
        }
    }

    /// Sets the permissions of the folder.
    ///
    /// # Panics
    /// If they cannot be set.
    pub fn mode(self, mode: u32) -> Self {
        set_mode(self.folder(), mode);
        self
    }

    /// Names a log file in the folder, which is shown when the test has failed.
    pub fn log(mut self, name: &str) -> Self {
        self.logs.push(self.file(name));
        self
    }

    /// Asks the program to exit in order before all of the group is killed: it would leave something
    /// outside its folder otherwise.
    pub fn ends_by(mut self, signal: Signal) -> Self {
        self.last_signal = Some(signal);
        self
    }

    /// Starts the program and waits until it is ready.
    ///
    /// # Panics
    /// If it runs already, exits, or is not ready in time; the message holds what it has written.
    pub fn start(&mut self, command: Command, mut is_ready: impl FnMut(&Self) -> bool) {
        self.spawn(command);
        let is_started = holds_in_time(|| {
            let exited = self.exit_status();
            assert!(exited.is_none(), "{}", self.complaint("has exited"));
            is_ready(self)
        });
        assert!(is_started, "{}", self.complaint("has not started"));
    }

    /// Starts the program, and does not wait.
    ///
    /// # Panics
    /// If it runs already, or cannot be run.
    pub fn spawn(&mut self, mut command: Command) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let output = |name| File::create(self.file(name)).expect("a file of our own");
        let child = command
            .env(RUN_VARIABLE, self.file(RUN))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output(OUTPUT))
            .stderr(output(ERRORS))
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}: run `make test`"));
        self.leader = Some(child.id());
        self.child = Some(child);
    }

    /// Returns the folder in which the program publishes its figures.
    pub fn run(&self) -> PathBuf {
        self.file(RUN)
    }

    /// Takes over the process group of a daemon that the program has left behind.
    pub(crate) fn adopt(&mut self, leader: u32) {
        self.leader = Some(leader);
    }

    /// Returns the process id of what was started.
    ///
    /// # Panics
    /// If nothing was started.
    pub fn process(&self) -> u32 {
        self.child().id()
    }

    /// Sends a signal to the process that was started.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, signal: Signal) {
        send(self.process(), signal);
    }

    /// Returns the status with which the program has exited, if it has.
    ///
    /// # Panics
    /// If nothing was started.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut().expect("a program that was started");
        child.try_wait().expect("a child can be waited for")
    }

    /// Waits until the program has exited, and returns its status.
    ///
    /// # Panics
    /// If it does not exit in time.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        holds_in_time(|| {
            status = self.exit_status();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("{}", self.complaint("does not exit")))
    }

    /// Asks the program to exit, waits until it has, and returns its status.
    ///
    /// # Panics
    /// If it does not run, or does not exit in time.
    pub fn stop(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }

    /// Waits until no process of the group is left; `false` if one is left when time is up.
    pub(crate) fn has_left_in_time(&mut self) -> bool {
        holds_in_time(|| {
            // The child must be reaped, or it would stay in the group as a zombie.
            self.exit_status().is_some() && !self.has_group()
        })
    }

    /// Kills all of the group, as a crash would. It can be started again.
    pub fn kill(&mut self) {
        let (Some(mut child), Some(leader)) = (self.child.take(), self.leader) else {
            return;
        };
        // Errors are ignored: what is gone cannot be killed, and that is what is wanted.
        let _ = kill_process_group(process_id(leader), Signal::KILL);
        let _ = child.wait();
        holds_in_time(|| !self.has_group());
        self.leader = None;
    }

    /// Returns what the program has written to standard output.
    pub fn output(&self) -> String {
        read(&self.file(OUTPUT))
    }

    /// Returns what the program has written to standard error.
    pub fn errors(&self) -> String {
        read(&self.file(ERRORS))
    }

    /// Returns a message about the program, with what it has written.
    pub fn complaint(&self, what: &str) -> String {
        let files = [self.file(OUTPUT), self.file(ERRORS)];
        let ends: String = files
            .iter()
            .chain(&self.logs)
            .map(|file| end(file))
            .collect();
        format!("{} {what}\n{ends}", self.name)
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// Writes a file in the folder.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.file(name), contents).expect("a file in the scratch folder");
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("a program that was started")
    }

    fn has_group(&self) -> bool {
        self.leader
            .is_some_and(|leader| test_kill_process_group(process_id(leader)).is_ok())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let (Some(signal), Some(_)) = (self.last_signal, &self.child)
            && self.exit_status().is_none()
        {
            self.signal(signal);
            holds_in_time(|| self.exit_status().is_some());
        }
        self.kill();
        if thread::panicking() {
            eprintln!("{}", self.complaint("when the test failed:"));
        }
    }
}

/// The folder in which a program publishes its figures, instead of the machine's.
const RUN: &str = "run";
const OUTPUT: &str = "stdout";
const ERRORS: &str = "stderr";

/// Returns a command that runs the program added to its arguments, and has the kernel send it
/// `signal` when the calling thread ends.
pub fn supervised(signal: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--"]);
    command
}

/// Returns true if a server listens at the address. A connection to find out would be one that the
/// server sees.
pub fn is_listening(address: SocketAddr) -> bool {
    sockets(address).iter().any(|socket| socket.is_listening)
}

/// Creates a folder with these permissions.
pub(crate) fn new_folder(mode: u32) -> ScratchDirectory {
    let scratch = ScratchDirectory::new().expect("a scratch folder");
    set_mode(scratch.path(), mode);
    scratch
}

fn set_mode(folder: &Path, mode: u32) {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))
        .expect("permissions of a folder of our own");
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

/// Returns the last lines of a file, under its name; nothing if it is empty.
fn end(file: &Path) -> String {
    const LINES: usize = 40;
    let text = read(file);
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    format!("{name}:\n{last}\n")
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::process::is_running;

    fn shell(script: &str) -> Command {
        let mut command = supervised("KILL");
        command.args(["sh", "-c", script]);
        command
    }

    #[test]
    fn a_program_is_awaited_stopped_and_started_again() {
        let mut server = Server::new("sh");
        for _ in 0..2 {
            server.start(shell("echo ready; exec sleep 1000"), |server| {
                server.output().contains("ready")
            });
            assert_eq!(server.exit_status(), None);
            assert!(!server.stop(Signal::TERM).success());
            server.kill();
        }
    }

    #[test]
    fn a_program_that_exits_at_once_is_reported_with_what_it_said() {
        let failed = catch_unwind(|| {
            Server::new("sh").start(shell("echo broken >&2; exit 1"), |_| false);
        });
        let failed = failed.unwrap_err();
        let message = failed.downcast_ref::<String>().unwrap();
        assert!(
            message.contains("has exited") && message.contains("broken"),
            "{message}"
        );
    }

    #[test]
    fn nothing_is_left_of_a_test_that_fails() {
        let (mut process, mut folder) = (0, None);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            let mut server = Server::new("sh");
            server.start(shell("sleep 1000 & echo $!; wait"), |server| {
                server.output().ends_with('\n')
            });
            process = server.output().trim().parse().unwrap();
            folder = Some(server.folder().to_owned());
            panic!("on purpose");
        }));
        assert!(failed.is_err());
        assert!(!is_running(process));
        assert!(!folder.unwrap().exists());
    }
}
