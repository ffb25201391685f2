//! A running `slipstream serve`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::thread;

use rustix::process::Signal;

use crate::engine::executable;
use crate::http::fetch;
use crate::process::is_running;
use crate::server::{Server, supervised};
use crate::wait::holds_in_time;
use crate::{Credentials, Response, unused_address};

/// The configuration file of a test.
#[derive(Clone, Debug, Default)]
pub struct TerminatorConfiguration {
    main: String,
    listeners: String,
}

impl TerminatorConfiguration {
    /// One event loop, and no listener yet.
    pub fn new() -> Self {
        Self::default().main("workers = 1")
    }

    /// Adds keys to the beginning of the file, and tables behind them.
    pub fn main(mut self, text: &str) -> Self {
        self.main = match text.starts_with('[') {
            true => format!("{}\n{text}", self.main),
            // Keys have to come before tables.
            false => format!("{text}\n{}", self.main),
        };
        self
    }

    /// Adds a listener: where, with which certificates, and what else.
    pub fn listener(mut self, address: SocketAddr, all: &[&Credentials], text: &str) -> Self {
        let certificates: Vec<String> = all
            .iter()
            .map(|credentials| {
                format!(
                    "{{ certificate = {:?}, key = {:?} }}",
                    credentials.certificate_file, credentials.key_file
                )
            })
            .collect();
        write!(
            self.listeners,
            "[[listener]]\nlisten = \"{address}\"\ncertificates = [{}]\n{text}\n",
            certificates.join(", ")
        )
        .expect("memory takes it");
        self
    }

    fn render(&self, metrics: SocketAddr) -> String {
        let Self { main, listeners } = self;
        format!("{main}\n[metrics]\nlisten = \"{metrics}\"\n{listeners}")
    }
}

/// A terminator that belongs to one test. Dropped, it is asked to end, and must.
pub struct Terminator {
    server: Server,
    metrics: SocketAddr,
}

impl Terminator {
    /// Starts it, and waits until it serves.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(configuration: &TerminatorConfiguration) -> Self {
        Self::start_with(configuration, Vec::new())
    }

    /// The same with sockets that listen already, passed as systemd does.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_with(configuration: &TerminatorConfiguration, sockets: Vec<OwnedFd>) -> Self {
        let mut server = Server::new("slipstream serve");
        let metrics = unused_address();
        server.write(CONFIGURATION, configuration.render(metrics));
        let mut command = activated(sockets);
        command
            .arg(executable())
            .args(["serve", "--config"])
            .arg(server.file(CONFIGURATION));
        server.start(command, |server| server.output().contains("serving on"));
        Self { server, metrics }
    }

    /// Returns the messages of a terminator that refuses its configuration.
    ///
    /// # Panics
    /// If it starts.
    pub fn refused(configuration: &TerminatorConfiguration) -> String {
        let server = Server::new("slipstream serve");
        server.write(CONFIGURATION, configuration.render(unused_address()));
        let mut command = Command::new(executable());
        command
            .args(["serve", "--config"])
            .arg(server.file(CONFIGURATION));
        let finished = crate::programs::finish(&mut command, b"");
        assert!(!finished.success, "it has started: {}", finished.output);
        finished.errors
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.server.process()
    }

    /// Writes another configuration, and has it read. Returns when it is in use.
    ///
    /// # Panics
    /// If it is not taken.
    pub fn reload(&self, configuration: &TerminatorConfiguration) {
        let before = self.errors().matches(RELOADED).count();
        self.try_reload(configuration);
        let reloaded = holds_in_time(|| self.errors().matches(RELOADED).count() > before);
        assert!(reloaded, "not reloaded:\n{}", self.errors());
    }

    /// Writes another configuration, and has it read.
    ///
    /// # Panics
    /// If the process has gone.
    pub fn try_reload(&self, configuration: &TerminatorConfiguration) {
        self.server
            .write(CONFIGURATION, configuration.render(self.metrics));
        self.signal(Signal::HUP);
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// If it does not end.
    pub fn wait(&mut self) -> ExitStatus {
        self.server.wait()
    }

    /// A page of the metrics listener.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn page(&self, path: &str) -> Response {
        fetch(self.metrics, "GET", path).expect("the metrics listener answers")
    }

    /// The sum of a metric over all labels that contain `labels`.
    ///
    /// # Panics
    /// If there is no such metric.
    pub fn metric(&self, name: &str, labels: &str) -> u64 {
        let page = self.page("/metrics");
        let values: Vec<f64> = page
            .text()
            .lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with([' ', '{']) && rest.contains(labels))
            .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
            .collect();
        assert!(!values.is_empty(), "no {name} {labels} in {}", page.text());
        values.iter().sum::<f64>() as u64
    }

    /// Operations computed in lanes.
    pub fn lane_operations(&self) -> u64 {
        self.metric("slipstream_serve_lane_operations_total", "")
    }

    /// Returns what it has written to standard error.
    pub fn errors(&self) -> String {
        self.server.errors()
    }

    /// The folder in which it publishes its figures.
    pub fn run(&self) -> PathBuf {
        self.server.run()
    }

    /// A file that it may write.
    pub fn file(&self, name: &str) -> PathBuf {
        self.server.file(name)
    }
}

const CONFIGURATION: &str = "serve.toml";
/// Not when it has found by itself that the file has changed, which may come before, or after.
const RELOADED: &str = "SIGHUP: serving on ";

/// A command that runs what is added to it, and passes it `sockets`.
fn activated(sockets: Vec<OwnedFd>) -> Command {
    let mut command = supervised("KILL");
    if !sockets.is_empty() {
        // systemd names the process that is meant, which is known once it runs.
        let count = sockets.len();
        command
            .args(["sh", "-c"])
            .arg(format!("LISTEN_PID=$$ LISTEN_FDS={count} exec \"$@\""))
            .arg("sh");
        // SAFETY: dup2 is async-signal-safe, and nothing else is called between fork and exec.
        unsafe {
            command.pre_exec(move || pass(&sockets));
        }
    }
    command
}

/// The first descriptor that systemd passes.
const FIRST: i32 = 3;

fn pass(sockets: &[OwnedFd]) -> std::io::Result<()> {
    use std::os::fd::{AsRawFd, FromRawFd};
    for (socket, number) in sockets.iter().zip(FIRST..) {
        if socket.as_raw_fd() == number {
            rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty())?;
            continue;
        }
        // SAFETY: in the child, before it becomes another program; whatever had the number is not
        // used any more.
        let mut place = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(socket, &mut place)?;
        std::mem::forget(place);
    }
    Ok(())
}

impl Drop for Terminator {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        if is_running(self.process()) {
            self.signal(Signal::TERM);
        }
        self.wait();
        let errors = self.errors();
        assert!(!errors.contains("panicked"), "{errors}");
    }
}
