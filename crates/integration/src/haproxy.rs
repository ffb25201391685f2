//! A running HAProxy with the loadable provider, or without it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::process::CommandExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Signal, kill_process_group, test_kill_process_group};
use slipstream_bench::scratch::ScratchDirectory;

use crate::nginx::{process_id, send};
use crate::process::{children, is_running, started};
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
    scratch: ScratchDirectory,
    address: SocketAddr,
    child: Child,
}

impl Haproxy {
    /// Starts HAProxy and waits until it serves.
    ///
    /// # Panics
    /// If it does not; the message holds what it has said.
    pub fn start(configuration: &HaproxyConfiguration, credentials: &Credentials) -> Self {
        let scratch = ScratchDirectory::new().expect("a scratch directory");
        let address = unused_address();
        write_files(&scratch, configuration, credentials, address);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "haproxy", "-db"])
            .args(configuration.master.then_some("-W"))
            .arg("-f")
            .arg(scratch.file("haproxy.cfg"))
            .env("OPENSSL_CONF", scratch.file("openssl.cnf"))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(scratch.file(MESSAGES)).expect("a file of our own"))
            .spawn()
            .expect("setpriv, of util-linux, can be run");
        let mut haproxy = Self {
            configuration: configuration.clone(),
            scratch,
            address,
            child,
        };
        let started = holds_in_time(|| {
            if let Ok(Some(status)) = haproxy.child.try_wait() {
                panic!("HAProxy has exited ({status}):\n{}", haproxy.messages());
            }
            haproxy.is_listening() && (!configuration.master || !haproxy.workers().is_empty())
        });
        assert!(started, "HAProxy has not started:\n{}", haproxy.messages());
        haproxy
    }

    /// Where it serves TLS.
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
            Some(self.child.id())
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
        let mut workers = children(self.child.id()).expect("/proc can be read");
        workers.retain(|&worker| is_running(worker));
        workers.sort_by_cached_key(|&worker| (started(worker), worker));
        workers
    }

    /// Has the master read its configuration again and replace the process that serves, and waits
    /// until a new one does. Returns the old one, which may still finish what it has begun.
    ///
    /// # Panics
    /// If that does not come to pass.
    pub fn reload(&self) -> u32 {
        let old = self.worker();
        send(self.child.id(), Signal::USR2);
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

    /// A connection to find out would be one that the server sees.
    fn is_listening(&self) -> bool {
        sockets(self.address)
            .iter()
            .any(|socket| socket.is_listening)
    }

    /// What HAProxy has written to standard error.
    pub fn messages(&self) -> String {
        fs::read_to_string(self.scratch.file(MESSAGES)).unwrap_or_default()
    }

    /// Asks for an orderly exit, and checks it.
    fn check_and_stop(&mut self) {
        // Panics if it has crashed.
        self.worker();
        send(self.child.id(), Signal::USR1);
        let mut status = None;
        let exited = holds_in_time(|| {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        assert!(exited, "HAProxy does not exit:\n{}", self.messages());
        let messages = self.messages();
        let in_order = [Some(0), Some(EXITED_IN_ORDER)].contains(&status.and_then(|s| s.code()));
        assert!(in_order, "{status:?}:\n{messages}");
        for alarm in ["[ALERT]", "FATAL", "BUG"] {
            assert!(!messages.contains(alarm), "{messages}");
        }
    }
}

const CERTIFICATE: &str = "certificate.pem";
const MESSAGES: &str = "messages";
/// The status of a master that was told to stop: HAProxy's unit for systemd names it so, too.
const EXITED_IN_ORDER: i32 = 143;

impl Drop for Haproxy {
    fn drop(&mut self) {
        let checked = if thread::panicking() {
            Ok(())
        } else {
            panic::catch_unwind(AssertUnwindSafe(|| self.check_and_stop()))
        };
        let group = process_id(self.child.id());
        // Errors are ignored: what is gone cannot be killed, and that is what is wanted.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        holds_in_time(|| test_kill_process_group(group).is_err());
        if let Err(failure) = checked {
            panic::resume_unwind(failure);
        } else if thread::panicking() {
            eprintln!("HAProxy's messages:\n{}", self.messages());
        }
    }
}

/// The loadable provider: built beside the tests by `make test`, which builds all of the product for
/// release first.
fn provider() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/TEST");
    let module = target.join("release/libslipstream.so");
    module
        .canonicalize()
        .unwrap_or_else(|error| panic!("{} ({error}): run `make test`", module.display()))
}

/// Where the provider's count of lane operations is, from its first byte in memory.
fn count_offset() -> u64 {
    let symbols = crate::programs::run("nm", [provider()]).expect_success();
    symbols
        .lines()
        .find(|line| line.contains("LANE_OPERATIONS"))
        .and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        .expect("the module is not stripped")
}

fn write_files(
    scratch: &ScratchDirectory,
    configuration: &HaproxyConfiguration,
    credentials: &Credentials,
    address: SocketAddr,
) {
    let write = |name: &str, contents: &[u8]| {
        fs::write(scratch.file(name), contents).expect("a file in the scratch directory");
    };
    symlink(provider(), scratch.file("slipstream.so")).expect("a link of our own");
    write(
        "haproxy.cfg",
        configuration.render(scratch.path(), address).as_bytes(),
    );
    let section = configuration.provider.as_deref().unwrap_or_default();
    let openssl = format!(
        "openssl_conf = init\n[init]\nproviders = providers\n\
         [providers]\nslipstream = section\n[section]\n{section}\n"
    );
    write("openssl.cnf", openssl.as_bytes());
    let files = [&credentials.certificate_file, &credentials.key_file];
    let pem = files.map(|file| fs::read(file).expect("a file of the authority's"));
    write(CERTIFICATE, &pem.concat());
}
