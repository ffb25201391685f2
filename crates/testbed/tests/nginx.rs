//! A stock nginx that is started and stopped: nothing of it stays.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::nginx::{Binary, Listener, Server, ServerOptions};
use slipstream_testbed::port::unused_addresses;
use slipstream_testbed::process::children;
use slipstream_testbed::processor::usable_cores;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::{SUITES, Suite};
use slipstream_testbed::{Error, cleanup};

#[test]
fn a_stopped_server_leaves_neither_processes_nor_files() {
    let running = RunningNginx::start();
    let processes = [running.server.master(), running.server.worker()];
    assert_eq!(children(processes[0]).unwrap(), [processes[1]]);
    let directory = running.server.directory().to_path_buf();
    assert!(directory.is_dir());
    drop(running);
    assert_gone(&processes, &directory);
}

#[test]
fn a_panic_leaves_neither_processes_nor_files() {
    let (processes, directory) = thread::spawn(|| {
        let running = RunningNginx::start();
        let seen = (
            [running.server.master(), running.server.worker()],
            running.server.directory().to_path_buf(),
        );
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _running = running;
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        seen
    })
    .join()
    .unwrap();
    assert_gone(&processes, &directory);
}

/// In a program built with `panic = "abort"` destructors do not run: what is left must be cleared
/// by the hook alone.
#[test]
fn the_panic_hook_clears_what_destructors_would_have() {
    const MARK: &str = "SLIPSTREAM_TEST_PANICS";
    if std::env::var_os(MARK).is_some() {
        cleanup::install_panic_hook();
        let running = RunningNginx::start();
        println!(
            "started {} {} {}",
            running.server.master(),
            running.server.worker(),
            running.server.directory().display()
        );
        std::mem::forget(running);
        panic!("on purpose");
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_panic_hook_clears_what_destructors_would_have",
            "--nocapture",
        ])
        .env(MARK, "1")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let started: Vec<&str> = text
        .split_once("started ")
        .unwrap_or_else(|| panic!("{output:?}"))
        .1
        .lines()
        .next()
        .unwrap()
        .split(' ')
        .collect();
    let processes = [started[0].parse().unwrap(), started[1].parse().unwrap()];
    assert_gone(&processes, Path::new(started[2]));
}

#[test]
fn a_server_that_cannot_start_says_why_and_leaves_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let module = PathBuf::from("/nonexistent/module.so");
    let error = start(&[taken.local_addr().unwrap()], Some(&module))
        .err()
        .unwrap();
    let Error::Nginx { log, .. } = &error else {
        panic!("{error}");
    };
    assert!(log.contains("/nonexistent/module.so"), "{error}");
    let directory = log
        .split_once("/slipstream-")
        .map(|(_, rest)| rest.split('/').next().unwrap())
        .map(|name| std::env::temp_dir().join(format!("slipstream-{name}")))
        .expect("the log names the configuration file");
    assert!(!directory.exists(), "{}", directory.display());
}

struct RunningNginx {
    server: Server,
    _scratch: ScratchDirectory,
}

impl RunningNginx {
    /// A stock nginx with a port for every suite.
    fn start() -> RunningNginx {
        let addresses = unused_addresses(suites().len()).unwrap();
        let (server, scratch) = start(&addresses, None).unwrap();
        RunningNginx {
            server,
            _scratch: scratch,
        }
    }
}

/// The suites that the system's nginx has.
fn suites() -> Vec<&'static Suite> {
    let openssl = Binary::find(None).unwrap().openssl.unwrap_or_default();
    let mut suites: Vec<&Suite> = SUITES.iter().collect();
    suites.retain(|suite| suite.lacked_by(&openssl).is_none());
    suites
}

fn start(
    addresses: &[SocketAddr],
    module: Option<&Path>,
) -> Result<(Server, ScratchDirectory), Error> {
    let scratch = ScratchDirectory::new()?;
    let mut credentials = HashMap::new();
    for suite in suites() {
        if let Entry::Vacant(vacant) = credentials.entry(suite.key) {
            vacant.insert(Credentials::generate(suite.key, &scratch)?);
        }
    }
    let listeners: Vec<Listener<'_>> = addresses
        .iter()
        .zip(suites())
        .map(|(&address, suite)| Listener {
            address,
            suite: Some(suite),
            credentials: &credentials[&suite.key],
        })
        .collect();
    let server = Server::start(&ServerOptions {
        binary: &Binary::find(None)?,
        module,
        module_directives: "",
        worker_core: usable_cores()?[0],
        listeners: &listeners,
    })?;
    Ok((server, scratch))
}

fn assert_gone(processes: &[u32], directory: &Path) {
    assert!(!directory.exists(), "{} is left", directory.display());
    for process in processes {
        // A process that was killed with its group may still be on its way out.
        let alive = (0..6000).all(|_| {
            thread::sleep(Duration::from_millis(10));
            fs::read_to_string(format!("/proc/{process}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
        });
        assert!(!alive, "process {process} is left");
    }
}
