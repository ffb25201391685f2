//! A running nginx: started, watched, signalled, stopped, and checked.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use slipstream_bench::scratch::ScratchDirectory;

use crate::configuration::{ERROR_LOG, PID_FILE, STATUS_PATH};
use crate::http::{self, Response};
use crate::process::{children, is_running};
use crate::wait::holds_in_time;
use crate::{Build, Configuration, Metrics, eventually, log, unused_address};

/// An nginx that belongs to one test. When it is dropped it is stopped, and if the test has not
/// failed it is checked: see the [crate](crate).
///
/// It belongs to the thread that has started it, and is stopped if that ends.
pub struct Nginx {
    build: Build,
    configuration: Configuration,
    scratch: ScratchDirectory,
    status: SocketAddr,
    /// What was started; the master itself unless nginx is a daemon.
    child: Child,
    /// The process group of everything that nginx has started.
    group: u32,
    expected_lines: Mutex<Vec<String>>,
    orphans_expected: AtomicBool,
}

impl Nginx {
    /// Starts nginx and waits until all workers run.
    ///
    /// # Panics
    /// If it does not start; the message holds its log.
    pub fn start(build: Build, configuration: &Configuration) -> Self {
        let scratch = new_directory();
        let status = unused_address();
        write_configuration(
            &scratch,
            &configuration.render(build, scratch.path(), status),
        );
        let child = supervised(build, scratch.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(scratch.file("stderr")).expect("a file of our own"))
            .spawn()
            .expect("setpriv, of util-linux, can be run");
        let mut nginx = Self {
            build,
            configuration: configuration.clone(),
            scratch,
            status,
            group: child.id(),
            child,
            expected_lines: Mutex::default(),
            orphans_expected: AtomicBool::new(false),
        };
        nginx.wait_for_start();
        nginx
    }

    /// What `nginx -t` says about a configuration: whether it is accepted, and the messages.
    ///
    /// # Panics
    /// If nginx cannot be run.
    pub fn test(build: Build, configuration: &Configuration) -> (bool, String) {
        let scratch = new_directory();
        let text = configuration.render(build, scratch.path(), unused_address());
        write_configuration(&scratch, &text);
        let Output { status, stderr, .. } = command(build.executable(), scratch.path())
            .arg("-t")
            .output()
            .expect("nginx can be run");
        (
            status.success(),
            String::from_utf8_lossy(&stderr).into_owned(),
        )
    }

    /// What nginx says when it does not start.
    ///
    /// # Panics
    /// If it starts, or cannot be run.
    pub fn refused(build: Build, configuration: &Configuration) -> String {
        let scratch = new_directory();
        let text = configuration.render(build, scratch.path(), unused_address());
        write_configuration(&scratch, &text);
        let Output { status, stderr, .. } = supervised(build, scratch.path())
            .output()
            .expect("setpriv, of util-linux, can be run");
        assert!(!status.success(), "nginx has started and stopped");
        String::from_utf8_lossy(&stderr).into_owned()
    }

    /// The module's figures at this moment.
    ///
    /// # Panics
    /// If the status page is not there or not in order.
    pub fn metrics(&self) -> Metrics {
        let response = self.status_page("GET").expect("the status page answers");
        assert_eq!(response.status, 200, "{}", response.text());
        Metrics::parse(response.text()).unwrap_or_else(|error| panic!("status page: {error}"))
    }

    /// The module's figures once nothing is in flight and no handshake is paused.
    ///
    /// # Panics
    /// If that does not come to pass, or as [`Nginx::metrics`].
    pub fn settled(&self) -> Metrics {
        let mut metrics = self.metrics();
        eventually("no operation is in flight", || {
            metrics = self.metrics();
            metrics.in_flight() == 0 && metrics.fibers() == 0
        });
        metrics
    }

    /// The answer of the status page to a request with this method.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn status_page(&self, method: &str) -> io::Result<Response> {
        http::fetch(self.status, method, STATUS_PATH)
    }

    /// The error log so far, with all levels from info on.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.scratch.file(ERROR_LOG)).expect("nginx has a log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many lines of the error log hold `text`.
    ///
    /// # Panics
    /// As [`Nginx::log`].
    pub fn log_lines_with(&self, text: &str) -> usize {
        self.log()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    }

    /// Announces that alarming lines of the error log that hold `text` are what the test is about.
    pub fn expect_log(&self, text: &str) {
        self.expected_lines
            .lock()
            .expect("no panic while it is locked")
            .push(text.to_owned());
    }

    /// Announces that the test closes connections while their operations are in flight.
    pub fn expect_orphans(&self) {
        self.orphans_expected.store(true, Ordering::Relaxed);
    }

    /// The directory that it runs in; workers may enter it but not read it.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// The process id of the master: of the new one after [`Nginx::upgrade`].
    ///
    /// # Panics
    /// If there is no master.
    pub fn master(&self) -> u32 {
        self.master_if_running().expect("nginx has a pid file")
    }

    /// The process ids of the master's workers, those that are shutting down included.
    ///
    /// # Panics
    /// If there is no master.
    pub fn workers(&self) -> Vec<u32> {
        workers_of(self.master())
    }

    /// Sends a signal to the master.
    ///
    /// # Panics
    /// If there is no master.
    pub fn signal(&self, signal: Signal) {
        send(self.master(), signal);
    }

    /// Replaces the configuration, has nginx read it, and waits until all new workers run. Returns
    /// the old ones, which may still be shutting down.
    ///
    /// # Panics
    /// If nginx refuses the configuration; the message holds its log.
    pub fn reload(&mut self, configuration: &Configuration) -> Vec<u32> {
        let old = self.workers();
        self.write(configuration);
        self.signal(Signal::HUP);
        let wanted = configuration.worker_count();
        let reloaded = holds_in_time(|| {
            let new = self
                .workers()
                .iter()
                .filter(|worker| !old.contains(worker))
                .count();
            new >= wanted
        });
        assert!(reloaded, "nginx has not reloaded:\n{}", self.log());
        old
    }

    /// Replaces the configuration file, without telling nginx.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write(&mut self, configuration: &Configuration) {
        self.write_only(configuration);
        self.configuration = configuration.clone();
    }

    /// Replaces the configuration file with one that nginx is going to refuse.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write_only(&self, configuration: &Configuration) {
        let text = configuration.render(self.build, self.scratch.path(), self.status);
        write_configuration(&self.scratch, &text);
    }

    /// Starts a new master with the same configuration beside the old one, as for a new version of
    /// nginx, and waits until its workers run. Returns the old master, which serves on until it is
    /// told to quit.
    ///
    /// # Panics
    /// If that does not come to pass; the message holds the log.
    pub fn upgrade(&mut self) -> u32 {
        let old = self.master();
        send(old, Signal::USR2);
        let wanted = self.configuration.worker_count();
        let upgraded = holds_in_time(|| {
            self.master_if_running()
                .is_some_and(|new| new != old && workers_of(new).len() >= wanted)
        });
        assert!(
            upgraded,
            "nginx has not started a new master:\n{}",
            self.log()
        );
        old
    }

    /// Waits until no process of this nginx is left.
    ///
    /// # Panics
    /// If that does not come to pass; the message holds the log.
    pub fn wait_for_exit(&mut self) {
        assert!(
            self.exits_in_time(),
            "nginx has not exited:\n{}",
            self.log()
        );
    }

    fn wait_for_start(&mut self) {
        let wanted = self.configuration.worker_count();
        let started = holds_in_time(|| {
            if let Ok(Some(status)) = self.child.try_wait() {
                assert!(
                    status.success() && self.configuration.is_daemon(),
                    "nginx has exited ({status}):\n{}",
                    self.messages()
                );
            }
            self.master_if_running()
                .is_some_and(|master| workers_of(master).len() >= wanted)
                && TcpStream::connect(self.status).is_ok()
        });
        assert!(started, "nginx has not started:\n{}", self.messages());
        if self.configuration.is_daemon() {
            self.group = self.master();
        }
    }

    fn messages(&self) -> String {
        fs::read_to_string(self.scratch.file("stderr")).unwrap_or_default()
    }

    fn master_if_running(&self) -> Option<u32> {
        let text = fs::read_to_string(self.scratch.file(PID_FILE)).ok()?;
        let master = text.trim().parse().ok()?;
        is_running(master).then_some(master)
    }

    fn exits_in_time(&mut self) -> bool {
        let group = process_id(self.group);
        holds_in_time(|| {
            // The child must be reaped, or it would stay in the group as a zombie.
            let reaped = matches!(self.child.try_wait(), Ok(Some(_)));
            reaped && rustix::process::test_kill_process_group(group).is_err()
        })
    }

    /// Asks for an orderly exit and checks what is left to check.
    fn check_and_stop(&mut self) {
        if let Some(master) = self.master_if_running() {
            if self.configuration.has_module() {
                let orphans = self.settled().orphans();
                assert!(
                    orphans == 0 || self.orphans_expected.load(Ordering::Relaxed),
                    "{orphans} operations orphaned"
                );
            }
            send(master, Signal::QUIT);
        }
        self.wait_for_exit();
        let expected = self
            .expected_lines
            .lock()
            .expect("no panic while it is locked");
        let unexpected = log::unexpected(&self.log(), &expected);
        assert!(unexpected.is_empty(), "in the log: {unexpected:#?}");
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let checked = if thread::panicking() {
            eprintln!("{:?}, end of the log:\n{}", self.build, self.last_lines());
            Ok(())
        } else {
            panic::catch_unwind(AssertUnwindSafe(|| self.check_and_stop()))
        };
        self.kill();
        if let Err(failure) = checked {
            eprintln!("{:?}, end of the log:\n{}", self.build, self.last_lines());
            panic::resume_unwind(failure);
        }
    }
}

impl Nginx {
    fn last_lines(&self) -> String {
        const LINES: usize = 40;
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn kill(&mut self) {
        // Errors are ignored: what is gone cannot be killed, and that is what is wanted.
        let _ = kill_process_group(process_id(self.group), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A directory that workers, which run as another user if nginx runs as root, can enter but not
/// list.
pub(crate) fn new_directory() -> ScratchDirectory {
    let scratch = ScratchDirectory::new().expect("a scratch directory");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711))
        .expect("permissions of an own directory");
    scratch
}

fn write_configuration(scratch: &ScratchDirectory, text: &str) {
    fs::write(scratch.file("nginx.conf"), text).expect("a file in the scratch directory");
}

/// A command that runs nginx inside `directory`.
fn command(program: impl AsRef<std::ffi::OsStr>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    add_arguments(&mut command, directory);
    command
}

/// As [`command`], and the kernel stops nginx if this process dies.
fn supervised(build: Build, directory: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM", "--"])
        .arg(build.executable());
    add_arguments(&mut command, directory);
    command
}

fn add_arguments(command: &mut Command, directory: &Path) {
    command.arg("-p").arg(directory);
    command.arg("-c").arg(directory.join("nginx.conf"));
    command.arg("-e").arg(directory.join(ERROR_LOG));
}

fn workers_of(master: u32) -> Vec<u32> {
    let mut processes = children(master).expect("/proc can be read");
    // After an upgrade the new master is a child of the old one.
    processes.retain(|&process| {
        fs::read_to_string(format!("/proc/{process}/cmdline"))
            .is_ok_and(|title| title.starts_with("nginx: worker process"))
    });
    processes
}

pub(crate) fn send(process: u32, signal: Signal) {
    kill_process(process_id(process), signal)
        .unwrap_or_else(|error| panic!("cannot signal process {process}: {error}"));
}

pub(crate) fn process_id(id: u32) -> Pid {
    i32::try_from(id)
        .ok()
        .and_then(Pid::from_raw)
        .expect("the id of a child is positive")
}
