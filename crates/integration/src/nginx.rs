//! A running nginx: started, watched, signalled, stopped, and checked.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::configuration::{ERROR_LOG, PID_FILE, STATUS_PATH};
use crate::http::{self, Response};
use crate::process::{children, is_running, send};
use crate::server::{Server, supervised};
use crate::wait::holds_in_time;
use crate::{Build, Configuration, Metrics, eventually, log, unused_address};

/// An nginx that belongs to one test. When it is dropped it is stopped, and if the test has not
/// failed it is checked: see the [crate](crate).
///
/// It belongs to the thread that has started it, and is stopped if that ends.
pub struct Nginx {
    build: Build,
    configuration: Configuration,
    status: SocketAddr,
    /// The process that was started is the master unless nginx is a daemon.
    server: Server,
    expected_lines: Mutex<Vec<String>>,
    orphans_expected: AtomicBool,
}

impl Nginx {
    /// Starts nginx and waits until all workers run.
    ///
    /// # Panics
    /// If it does not start; the message holds its log.
    pub fn start(build: Build, configuration: &Configuration) -> Self {
        Self::start_in(Server::new("nginx"), build, configuration)
    }

    /// As [`Nginx::start`], where everybody can write the folder in which it publishes its figures.
    ///
    /// # Panics
    /// As [`Nginx::start`].
    pub fn start_with_open_run_folder(build: Build, configuration: &Configuration) -> Self {
        let server = Server::new("nginx");
        let made = fs::create_dir(server.run()).and_then(|()| {
            let everybody = fs::Permissions::from_mode(0o777);
            fs::set_permissions(server.run(), everybody)
        });
        made.expect("a folder of our own");
        Self::start_in(server, build, configuration)
    }

    fn start_in(server: Server, build: Build, configuration: &Configuration) -> Self {
        let server = server.log(ERROR_LOG);
        let mut nginx = Self {
            build,
            configuration: configuration.clone(),
            status: unused_address(),
            server,
            expected_lines: Mutex::default(),
            orphans_expected: AtomicBool::new(false),
        };
        nginx.write_only(configuration);
        let command = start_command(build, nginx.server.folder());
        nginx.server.spawn(command);
        nginx.wait_for_start();
        nginx
    }

    /// Runs `nginx -t`. Returns true if the configuration is accepted, and the messages.
    ///
    /// # Panics
    /// If nginx cannot be run.
    pub fn test(build: Build, configuration: &Configuration) -> (bool, String) {
        let server = folder_with(build, configuration);
        let mut command = Command::new(build.executable());
        add_arguments(&mut command, server.folder());
        let Output { status, stderr, .. } = command.arg("-t").output().expect("nginx can be run");
        (
            status.success(),
            String::from_utf8_lossy(&stderr).into_owned(),
        )
    }

    /// Returns the messages of an nginx that does not start.
    ///
    /// # Panics
    /// If it starts, or cannot be run.
    pub fn refused(build: Build, configuration: &Configuration) -> String {
        let server = folder_with(build, configuration);
        let Output { status, stderr, .. } = start_command(build, server.folder())
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

    /// The module's figures once nothing is in flight and `operations` private-key operations with
    /// RSA keys have been computed, in lanes or in software.
    ///
    /// A worker may answer its clients before it publishes its figures, and the status page is
    /// another worker's. So with several workers, figures are complete only after a while.
    ///
    /// # Panics
    /// If fewer are counted in time, or as [`Nginx::metrics`].
    pub fn settled_after(&self, operations: u64) -> Metrics {
        let mut metrics = self.settled();
        let computed =
            |metrics: &Metrics| metrics.lane_operations() + metrics.all_software_operations();
        let are_counted = holds_in_time(|| {
            metrics = self.settled();
            computed(&metrics) >= operations
        });
        assert!(are_counted, "{operations} operations: {metrics:#?}");
        metrics
    }

    /// The answer of the status page to a request with this method.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn status_page(&self, method: &str) -> io::Result<Response> {
        http::fetch(self.status, method, STATUS_PATH)
    }

    /// The error log so far, with all levels from info on.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.server.file(ERROR_LOG)).expect("nginx has a log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the number of lines of the error log that hold `text`.
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

    /// The folder in which it publishes its figures.
    pub fn run(&self) -> PathBuf {
        self.server.run()
    }

    /// The directory that it runs in; workers may enter it but not read it.
    pub fn directory(&self) -> &Path {
        self.server.folder()
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
        let text = configuration.render(self.build, self.server.folder(), self.status);
        self.server.write(CONFIGURATION, text);
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
        let has_left = self.server.has_left_in_time();
        assert!(has_left, "{}", self.server.complaint("has not exited"));
    }

    fn wait_for_start(&mut self) {
        let wanted = self.configuration.worker_count();
        let started = holds_in_time(|| {
            if let Some(status) = self.server.exit_status() {
                assert!(
                    status.success() && self.configuration.is_daemon(),
                    "{}",
                    self.server.complaint(&format!("has exited ({status})"))
                );
            }
            self.master_if_running()
                .is_some_and(|master| workers_of(master).len() >= wanted)
                && TcpStream::connect(self.status).is_ok()
        });
        assert!(started, "{}", self.server.complaint("has not started"));
        if self.configuration.is_daemon() {
            self.server.adopt(self.master());
        }
    }

    fn master_if_running(&self) -> Option<u32> {
        let text = fs::read_to_string(self.server.file(PID_FILE)).ok()?;
        let master = text.trim().parse().ok()?;
        is_running(master).then_some(master)
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
        if thread::panicking() {
            eprintln!("{:?}", self.build);
        } else {
            self.check_and_stop();
        }
    }
}

/// The file name of the configuration.
pub(crate) const CONFIGURATION: &str = "nginx.conf";

/// Returns a folder with a configuration in it, for an nginx that does not serve.
fn folder_with(build: Build, configuration: &Configuration) -> Server {
    let server = Server::new("nginx");
    let text = configuration.render(build, server.folder(), unused_address());
    server.write(CONFIGURATION, text);
    server
}

/// Returns a command that starts nginx in `folder`. If this thread ends, the kernel asks the master
/// to stop its workers.
fn start_command(build: Build, folder: &Path) -> Command {
    let mut command = supervised("TERM");
    command.arg(build.executable());
    add_arguments(&mut command, folder);
    command
}

/// Adds the arguments with which nginx runs in `folder`.
pub(crate) fn add_arguments(command: &mut Command, folder: &Path) {
    command.arg("-p").arg(folder);
    command.arg("-c").arg(folder.join(CONFIGURATION));
    command.arg("-e").arg(folder.join(ERROR_LOG));
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
