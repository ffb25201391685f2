//! Experiments with a real, stock nginx, and what they leave behind: nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use slipstream_bench::credentials::Credentials;
use slipstream_bench::handshake::{Case, Experiment, Mode, System};
use slipstream_bench::load::{Behaviour, Limit, Load, Report};
use slipstream_bench::nginx::{Binary, Listener, Server, ServerOptions, unused_addresses};
use slipstream_bench::processor::{children, usable_cores};
use slipstream_bench::scratch::ScratchDirectory;
use slipstream_bench::suite::{SUITES, Suite};
use slipstream_bench::{Error, cleanup};

/// Much longer than anything takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn an_experiment_gives_a_row_for_every_mode_and_case() {
    let cores = usable_cores().unwrap();
    let outcome = Experiment {
        nginx: Some(Binary::find(None).unwrap()),
        module: None,
        module_directives: String::new(),
        systems: vec![System::Nginx(Mode::Stock), System::Nginx(Mode::Stock)],
        cases: SUITES
            .iter()
            .map(|suite| Case {
                suite,
                concurrency: 8,
            })
            .collect(),
        window: Duration::from_millis(500),
        rounds: 2,
        server_core: cores[0],
        load_core: cores[cores.len() - 1],
    }
    .run(|_| ())
    .unwrap();

    assert_eq!(outcome.errors(), 0, "{outcome}");
    assert_eq!(outcome.rows.len(), 2 * 2 * SUITES.len());
    assert_eq!(outcome.summary.len(), SUITES.len());
    // Where a processor was busy elsewhere for the whole of a window, or most of it, nothing can be said.
    let measured = || outcome.rows.iter().filter(|row| row.handshakes >= 20);
    assert!(2 * measured().count() > outcome.rows.len(), "{outcome}");
    for row in measured() {
        // OpenSSL does no full handshake in less on any machine, and less would mean CPU time went unseen.
        assert!(row.server_cpu_us > 50.0, "{row:?}");
        assert!(row.p50_us > 0.0 && row.p50_us <= row.p99_us, "{row:?}");
        // One thread each, whose time is not read at the very moment at which a window begins and ends.
        assert!(row.client_share > 0.0 && row.client_share < 1.5, "{row:?}");
        assert!(row.server_share > 0.0 && row.server_share < 1.5, "{row:?}");
    }
    let modes: Vec<&str> = outcome.rows.iter().map(|row| row.mode.as_str()).collect();
    assert_eq!(&modes[..2], ["stock", "stock-2"]);
    assert_eq!(&modes[2 * SUITES.len()..][..2], ["stock-2", "stock"]);
}

#[test]
fn every_suite_completes_handshakes_and_requests() {
    let running = RunningNginx::start();
    for (suite, address) in SUITES.iter().zip(&running.addresses) {
        for behaviour in [Behaviour::Close, Behaviour::Request] {
            let report = run(*address, suite, behaviour, 40);
            assert_eq!(
                report.failures.total(),
                0,
                "{}: {}",
                suite.name,
                report.failures
            );
            assert_eq!(report.handshakes, 40);
            assert_eq!(report.latency.len(), 40);
        }
    }
    assert_eq!(running.server.log(), "");
}

#[test]
fn a_suite_that_the_server_does_not_speak_counts_as_failed_handshakes() {
    let running = RunningNginx::start();
    // The client offers TLS 1.3 alone to the port that takes TLS 1.2 alone.
    let report = run(
        running.address(rsa_key_exchange()),
        tls13(),
        Behaviour::Close,
        5,
    );
    assert_eq!(report.failures.handshake, 5, "{}", report.failures);
    assert_eq!(report.handshakes, 0);
}

#[test]
fn a_server_that_closes_or_refuses_or_stays_silent_is_counted() {
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closing.local_addr().unwrap();
    let server = thread::spawn(move || {
        for _ in 0..4 {
            let (mut connection, _) = closing.accept().unwrap();
            connection.read_exact(&mut [0; 64]).unwrap();
        }
    });
    let report = run(address, rsa_key_exchange(), Behaviour::Close, 4);
    server.join().unwrap();
    assert_eq!(report.failures.handshake, 4, "{}", report.failures);
    assert!(report.failures.first.is_some());

    // Below the ports that other tests are given.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let report = run(nobody, rsa_key_exchange(), Behaviour::Close, 4);
    assert_eq!(report.failures.connect, 4, "{}", report.failures);

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let load = Load {
        address: silent.local_addr().unwrap(),
        suite: tls13(),
        resumed_percent: 0,
        concurrency: 2,
        limit: Limit::Connections(2),
        behaviour: Behaviour::Close,
        timeout: Duration::from_millis(200),
    };
    let report = load.run().unwrap();
    assert_eq!(report.failures.timeout, 2, "{}", report.failures);
    assert_eq!(report.handshakes, 0);
}

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

/// In a program built with `panic = "abort"` destructors do not run: what is left must be cleared by the hook alone.
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
    addresses: Vec<SocketAddr>,
    _scratch: ScratchDirectory,
}

impl RunningNginx {
    /// A stock nginx with a port for every suite.
    fn start() -> RunningNginx {
        let addresses = unused_addresses(SUITES.len()).unwrap();
        let (server, scratch) = start(&addresses, None).unwrap();
        RunningNginx {
            server,
            addresses,
            _scratch: scratch,
        }
    }

    fn address(&self, suite: &Suite) -> SocketAddr {
        let position = SUITES.iter().position(|other| other.name == suite.name);
        self.addresses[position.expect("every suite has a port")]
    }
}

fn tls13() -> &'static Suite {
    Suite::find("tls13-rsa2048").unwrap()
}

fn rsa_key_exchange() -> &'static Suite {
    Suite::find("tls12-rsakx").unwrap()
}

fn start(
    addresses: &[SocketAddr],
    module: Option<&Path>,
) -> Result<(Server, ScratchDirectory), Error> {
    let scratch = ScratchDirectory::new()?;
    let mut credentials = HashMap::new();
    for suite in SUITES {
        if let Entry::Vacant(vacant) = credentials.entry(suite.key) {
            vacant.insert(Credentials::generate(suite.key, &scratch)?);
        }
    }
    let listeners: Vec<Listener<'_>> = addresses
        .iter()
        .zip(SUITES)
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

fn run(address: SocketAddr, suite: &Suite, behaviour: Behaviour, connections: u64) -> Report {
    Load {
        address,
        suite,
        resumed_percent: 0,
        concurrency: 4,
        limit: Limit::Connections(connections),
        behaviour,
        timeout: TIMEOUT,
    }
    .run()
    .unwrap()
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
