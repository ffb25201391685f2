//! A running engine.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use slipstream_bench::scratch::ScratchDirectory;

use crate::eventually;
use crate::nginx::{new_directory, send};
use crate::wait::holds_in_time;

/// An engine that belongs to one test, in a process of its own. It can be stopped and started again on the same socket.
pub struct Engine {
    scratch: ScratchDirectory,
    arguments: Vec<String>,
    child: Option<Child>,
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

    /// One that does not run yet.
    pub fn absent(arguments: &[&str]) -> Self {
        Self {
            scratch: new_directory(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            child: None,
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.scratch.file("engine.sock")
    }

    /// The directive that names it.
    pub fn directive(&self) -> String {
        format!("device unix:{};", self.socket().display())
    }

    /// Starts it again.
    ///
    /// # Panics
    /// If it does not start, or runs already.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "an engine runs already");
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(executable())
            .args(["engine", "--socket"])
            .arg(self.socket())
            .args(&self.arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // Those as whom Debian's nginx and the published one run their workers.
        for user in ["www-data", "nobody"] {
            command.args(["--allow", user]);
        }
        if !std::arch::is_x86_feature_detected!("avx512ifma") {
            command.args(["--lanes", "portable"]);
        }
        let child = command.spawn().expect("setpriv, of util-linux, can be run");
        self.child = Some(child);
        let started = holds_in_time(|| self.status().is_ok());
        assert!(started, "the engine has not started");
    }

    /// Ends it like a crash.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a running engine");
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// If it does not run, or fails, or leaves its socket behind.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        let mut child = self.child.take().expect("a running engine");
        let status = child.wait().expect("a child can be waited for");
        assert!(status.success(), "the engine has ended with {status}");
        assert!(!self.socket().exists(), "the socket is still there");
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, signal: Signal) {
        send(self.process(), signal);
    }

    /// Its process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn process(&self) -> u32 {
        self.child.as_ref().expect("a running engine").id()
    }

    /// A figure of its status.
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

    /// What `slipstream engine status --json` says.
    ///
    /// # Errors
    /// Its message if it does not answer.
    pub fn status(&self) -> Result<String, String> {
        let output = Command::new(executable())
            .args(["engine", "status", "--json", "--socket"])
            .arg(self.socket())
            .output()
            .expect("the command can be run");
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// The command as `make test` builds it.
pub fn executable() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let workspace = workspace.expect("this crate is two folders below the workspace");
    workspace.join("target/release/slipstream")
}
