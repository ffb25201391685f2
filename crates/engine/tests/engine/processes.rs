//! Clients in processes of their own: this test program, started again for one of its tests.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;

const SOCKET: &str = "SLIPSTREAM_TEST_SOCKET";

/// The beginning of each line that a child says; the test harness says things, too.
const MARK: &str = "child: ";

pub(crate) struct Child {
    process: std::process::Child,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts `test` with the socket of an engine, as another user if one is named.
    pub(crate) fn start(test: &str, socket: &Path, user: Option<u32>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command
            .args([
                "--exact",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
                test,
            ])
            .env(SOCKET, socket)
            .stdout(Stdio::piped());
        if let Some(user) = user {
            // A directory that both may enter: that of this program is not always one.
            let copy = socket.with_file_name("test-program");
            std::fs::copy(command.get_program(), &copy).expect("a copy of this program");
            let mut other = Command::new(copy);
            other
                .args(command.get_args())
                .env(SOCKET, socket)
                .stdout(Stdio::piped())
                .current_dir("/")
                .uid(user)
                .gid(user);
            command = other;
        }
        let mut process = loop {
            match command.spawn() {
                // A process that another test has just started still has the copy open for writing.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
                process => break process.expect("a process"),
            }
        };
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, output }
    }

    /// The next thing that it says.
    pub(crate) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).expect("text");
            assert_ne!(length, 0, "the child has ended");
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
        }
    }

    /// Waits until it has ended well.
    pub(crate) fn wait(mut self) {
        let status = self.process.wait().expect("a child");
        assert!(status.success(), "{status}");
    }

    /// Ends it as the kernel would: in the middle of whatever it does.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("a living child");
        self.process.wait().expect("a child");
    }
}

/// In a child: the socket of the engine. `None` in the parent, when all tests are run that are
/// ignored otherwise.
pub(crate) fn socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET).map(PathBuf::from)
}

/// In a child: tells the parent.
pub(crate) fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{MARK}{text}").expect("a parent that listens");
    output.flush().expect("a parent that listens");
}

/// Other users may enter the directory of the socket.
pub(crate) fn make_reachable(socket: &Path) {
    let directory = socket.parent().expect("a directory");
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory, permissions).expect("a directory of our own");
}

/// Other users may make files in the directory.
pub(crate) fn make_writable(directory: &Path) {
    let permissions = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory, permissions).expect("a directory of our own");
}
