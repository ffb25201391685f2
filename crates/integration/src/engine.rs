//! A running engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::eventually;
use crate::server::{Server, supervised};

/// An engine that belongs to one test, in a process of its own. It can be stopped and started again
/// on the same socket.
pub struct Engine {
    server: Server,
    arguments: Vec<String>,
}

impl Engine {
    /// Starts an engine that workers of any nginx may use.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(arguments: &[&str]) -> Self {
        let mut engine = Self::absent(arguments);
        engine.restart();
        engine
    }

    /// Returns an engine that does not run yet.
    pub fn absent(arguments: &[&str]) -> Self {
        Self {
            server: Server::new("the engine"),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.server.file(SOCKET)
    }

    /// The folder in which it publishes its figures.
    pub fn run(&self) -> PathBuf {
        self.server.run()
    }

    /// Returns the directive that names it.
    pub fn directive(&self) -> String {
        format!("device unix:{};", self.socket().display())
    }

    /// Starts it again.
    ///
    /// # Panics
    /// If it does not start, or runs already.
    pub fn restart(&mut self) {
        let mut command = supervised("KILL");
        command
            .arg(executable())
            .args(["engine", "--socket"])
            .arg(self.socket())
            .args(&self.arguments);
        // Workers of Debian's nginx and of the published one.
        for user in ["www-data", "nobody"] {
            command.args(["--allow", user]);
        }
        if !std::arch::is_x86_feature_detected!("avx512ifma") {
            command.args(["--lanes", "portable"]);
        }
        self.server
            .start(command, |server| status(&server.file(SOCKET)).is_ok());
    }

    /// Ends it like a crash.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        assert_eq!(self.server.exit_status(), None, "the engine has crashed");
        self.server.kill();
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// If it does not run, or fails, or leaves its socket behind.
    pub fn stop(&mut self) {
        let status = self.server.stop(Signal::TERM);
        assert!(status.success(), "the engine has ended with {status}");
        assert!(!self.socket().exists(), "the socket is still there");
        self.server.kill();
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Returns its process id.
    ///
    /// # Panics
    /// If it does not run.
    pub fn process(&self) -> u32 {
        self.server.process()
    }

    /// Returns a figure of its status.
    ///
    /// # Panics
    /// If it does not answer, or has no such figure.
    pub fn figure(&self, pointer: &str) -> u64 {
        let mut status = String::new();
        eventually("the engine answers", || {
            self.status().is_ok_and(|answer| {
                status = answer;
                true
            })
        });
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let figure = status.pointer(pointer).and_then(serde_json::Value::as_u64);
        figure.unwrap_or_else(|| panic!("no {pointer} in {status:#}"))
    }

    /// Runs `slipstream engine status --json`.
    ///
    /// # Errors
    /// Its message if it fails.
    pub fn status(&self) -> Result<String, String> {
        status(&self.socket())
    }
}

const SOCKET: &str = "engine.sock";

fn status(socket: &Path) -> Result<String, String> {
    let output = Command::new(executable())
        .args(["engine", "status", "--json", "--socket"])
        .arg(socket)
        .output()
        .expect("the command can be run");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Returns the path of the command that `make test` builds.
pub fn executable() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let workspace = workspace.expect("this crate is two folders below the workspace");
    workspace.join("target/release/slipstream")
}
