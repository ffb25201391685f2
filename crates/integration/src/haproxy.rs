//! A running HAProxy with the loadable provider, or without it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Signal;

use crate::process::{children, is_running, started};
use crate::server::{Server, is_listening, supervised};
use crate::sockets::sockets;
use crate::wait::holds_in_time;
use crate::{Credentials, unused_address};

/// The haproxy.cfg of a test: one TLS frontend, whose every page says `served`.
#[derive(Clone, Debug)]
pub struct HaproxyConfiguration {
    provider: Option<String>,
    threads: usize,
    master: bool,
    global: String,
}

impl HaproxyConfiguration {
    /// One thread, and the provider with these lines in its section of openssl.cnf.
    pub fn with_provider(lines: &str) -> Self {
        Self {
            provider: Some(lines.to_owned()),
            ..Self::stock()
        }
    }

    /// HAProxy as it is without the provider.
    pub fn stock() -> Self {
        Self {
            provider: None,
            threads: 1,
            master: false,
            global: String::new(),
        }
    }

    /// Sets the number of threads.
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Has a master process start the one that serves, as services do: it can be told to reload.
    pub fn master(self) -> Self {
        Self {
            master: true,
            ..self
        }
    }

    /// Adds a line to the global section.
    pub fn global(mut self, line: &str) -> Self {
        self.global.push_str(line);
        self.global.push('\n');
        self
    }

    fn render(&self, directory: &Path, address: SocketAddr) -> String {
        let mut text = format!("global\nnbthread {}\n", self.threads);
        if self.provider.is_some() {
            let directory = directory.display();
            write!(
                text,
                "ssl-provider-path {directory}\nssl-provider slipstream\nssl-provider default\n\
                 ssl-propquery \"?provider=slipstream\"\nssl-mode-async\n"
            )
            .expect("writing to a string does not fail");
        }
        let (global, certificate) = (&self.global, CERTIFICATE);
        let directory = directory.display();
        write!(
            text,
            "{global}defaults\nmode http\ntimeout client 60s\ntimeout connect 60s\n\
             timeout server 60s\nfrontend tests\n\
             bind {address} ssl crt {directory}/{certificate}\n\
             http-request return status 200 content-type text/plain string served\n"
        )
        .expect("writing to a string does not fail");
        text
    }
}

/// An HAProxy that belongs to one test. When it is dropped and the test has not failed, it has to
/// exit in order once it is told to, and may have complained about nothing.
///
/// It belongs to the thread that has started it, and is stopped if that ends.
pub struct Haproxy {
    configuration: HaproxyConfiguration,
    address: SocketAddr,
    server: Server,
}

impl Haproxy {
    /// Starts HAProxy and waits until it serves.
    ///
    /// # Panics
    /// If it does not; the message holds what it has said.
    pub fn start(configuration: &HaproxyConfiguration, credentials: &Credentials) -> Self {
        let mut server = Server::new("HAProxy");
        let address = unused_address();
        write_files(&server, configuration, credentials, address);
        let mut command = supervised("KILL");
        command
            .args(["haproxy", "-db"])
            .args(configuration.master.then_some("-W"))
            .arg("-f")
            .arg(server.file("haproxy.cfg"))
            .env("OPENSSL_CONF", server.file("openssl.cnf"));
        let has_worker = |server: &Server| {
            !configuration.master || !running_children(server.process()).is_empty()
        };
        server.start(command, |server| {
            is_listening(address) && has_worker(server)
        });
        Self {
            configuration: configuration.clone(),
            address,
            server,
        }
    }

    /// Returns the address at which it serves TLS.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process that serves: of several, after a reload, the youngest.
    ///
    /// # Panics
    /// If there is none.
    pub fn worker(&self) -> u32 {
        let worker = if self.configuration.master {
            self.workers().last().copied()
        } else {
            Some(self.server.process())
        };
        worker
            .filter(|&worker| is_running(worker))
            .unwrap_or_else(|| panic!("HAProxy does not run:\n{}", self.messages()))
    }

    /// All processes that serve or finish what they have begun, oldest first.
    ///
    /// # Panics
    /// If /proc cannot be read.
    pub fn workers(&self) -> Vec<u32> {
        running_children(self.server.process())
    }

    /// Has the master read its configuration again and replace the process that serves, and waits
    /// until a new one does. Returns the old one, which may still finish what it has begun.
    ///
    /// # Panics
    /// If that does not come to pass.
    pub fn reload(&self) -> u32 {
        let old = self.worker();
        self.server.signal(Signal::USR2);
        let reloaded = holds_in_time(|| self.workers().last().is_some_and(|&new| new != old));
        assert!(reloaded, "HAProxy has not reloaded:\n{}", self.messages());
        old
    }

    /// Private-key operations of the serving process whose result came from lanes: the provider's
    /// own count, read from that process's memory, since HAProxy shows no parameters of providers.
    ///
    /// # Panics
    /// If the provider is not loaded there.
    pub fn lane_operations(&self) -> u64 {
        let worker = self.worker();
        let maps = fs::read_to_string(format!("/proc/{worker}/maps")).expect("the process runs");
        let base = maps
            .lines()
            .find(|line| line.contains("slipstream.so"))
            .and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok())
            .unwrap_or_else(|| panic!("the provider is not loaded:\n{}", self.messages()));
        let memory = File::open(format!("/proc/{worker}/mem")).expect("the memory of a child");
        let mut count = [0; 8];
        memory
            .read_exact_at(&mut count, base + count_offset())
            .expect("the provider's data is mapped");
        u64::from_ne_bytes(count)
    }

    /// The event descriptors of the serving process: one for each connection with a handshake that
    /// was paused, as long as it is open.
    ///
    /// # Panics
    /// If it is gone.
    pub fn event_descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.worker());
        fs::read_dir(folder)
            .expect("the process runs")
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .filter(|target| target == Path::new("anon_inode:[eventfd]"))
            .count()
    }

    /// The connections of clients that are open on this side.
    ///
    /// # Panics
    /// If /proc cannot be read.
    pub fn connections(&self) -> usize {
        sockets(self.address)
            .iter()
            .filter(|socket| !socket.is_listening && !socket.is_orphaned)
            .count()
    }

    /// Returns what HAProxy has written to standard error.
    pub fn messages(&self) -> String {
        self.server.errors()
    }

    /// Asks for an orderly exit, and checks it.
    fn check_and_stop(&mut self) {
        // Panics if it has crashed.
        self.worker();
        let status = self.server.stop(Signal::USR1);
        let messages = self.messages();
        let in_order = [Some(0), Some(EXITED_IN_ORDER)].contains(&status.code());
        assert!(in_order, "{status:?}:\n{messages}");
        for alarm in ["[ALERT]", "FATAL", "BUG"] {
            assert!(!messages.contains(alarm), "{messages}");
        }
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.check_and_stop();
        }
    }
}

const CERTIFICATE: &str = "certificate.pem";
/// The status of a master that was told to stop: HAProxy's unit for systemd names it so, too.
const EXITED_IN_ORDER: i32 = 143;

/// Returns the children of a process that run, oldest first.
fn running_children(process: u32) -> Vec<u32> {
    let mut children = children(process).expect("/proc can be read");
    children.retain(|&child| is_running(child));
    children.sort_by_cached_key(|&child| (started(child), child));
    children
}

/// The loadable provider: built beside the tests by `make test`, which builds all of the product
/// for release first.
fn provider() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/TEST");
    let module = target.join("release/libslipstream.so");
    module
        .canonicalize()
        .unwrap_or_else(|error| panic!("{} ({error}): run `make test`", module.display()))
}

/// Returns the offset of the provider's count of lane operations from its first byte in memory.
fn count_offset() -> u64 {
    let symbols = crate::programs::run("nm", [provider()]).expect_success();
    symbols
        .lines()
        .find(|line| line.contains("OFFLOADED_OPERATIONS"))
        .and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        .expect("the module is not stripped")
}

fn write_files(
    server: &Server,
    configuration: &HaproxyConfiguration,
    credentials: &Credentials,
    address: SocketAddr,
) {
    symlink(provider(), server.file("slipstream.so")).expect("a link of our own");
    server.write(
        "haproxy.cfg",
        configuration.render(server.folder(), address),
    );
    let section = configuration.provider.as_deref().unwrap_or_default();
    let openssl = format!(
        "openssl_conf = init\n[init]\nproviders = providers\n\
         [providers]\nslipstream = section\n[section]\n{section}\n"
    );
    server.write("openssl.cnf", openssl);
    let files = [&credentials.certificate_file, &credentials.key_file];
    let pem = files.map(|file| fs::read(file).expect("a file of the authority's"));
    server.write(CERTIFICATE, pem.concat());
}
