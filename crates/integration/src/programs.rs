//! Programs of others.

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use slipstream_testbed::scratch::ScratchDirectory;

/// The output of a program that has exited.
#[derive(Clone, Debug)]
pub struct Finished {
    /// True if it has exited with status 0.
    pub success: bool,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Finished {
    /// Standard output of a program that must not fail.
    ///
    /// # Panics
    /// If it has failed; the message holds what it has said.
    pub fn expect_success(self) -> String {
        assert!(self.success, "{}\n{}", self.output, self.errors);
        self.output
    }
}

/// Returns true if `program` can be run. If not, prints that a test is skipped.
pub fn is_installed(program: &str) -> bool {
    let found = find(program).is_some();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Builds the program of one file of Go, in `folder`.
///
/// # Panics
/// If it cannot be built.
pub fn built_with_go(source: &Path, folder: &ScratchDirectory) -> Command {
    let program = folder.file("client");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(source);
    finish(&mut build, b"").expect_success();
    Command::new(program)
}

/// Runs a program of a package that the tests install, with nothing to read.
///
/// # Panics
/// If it cannot be run.
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Finished {
    finish(Command::new(program).args(arguments), b"")
}

/// Runs `command` with `input` as its standard input.
///
/// # Panics
/// If it cannot be run.
pub fn finish(command: &mut Command, input: &[u8]) -> Finished {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: run `make test`"));
    let mut stdin = child.stdin.take().expect("it was asked for");
    let output = thread::scope(|scope| {
        // A program that exits before it has read everything is no error of ours.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("a child can be waited for")
    });
    Finished {
        success: output.status.success(),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}
