//! Experiments and loads with a real, stock nginx.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use slipstream_bench::handshake::{Case, Experiment, Mode, System};
use slipstream_bench::load::{Behaviour, Limit, Load, Report};
use slipstream_testbed::Error;
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::nginx::{Binary, Listener, Server, ServerOptions};
use slipstream_testbed::port::unused_addresses;
use slipstream_testbed::processor::usable_cores;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::{SUITES, Suite};

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
        cases: suites()
            .into_iter()
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
    assert_eq!(outcome.rows.len(), 2 * 2 * suites().len());
    assert_eq!(outcome.summary.len(), suites().len());
    // Where a processor was busy elsewhere for the whole of a window, or most of it, nothing can be
    // said.
    let measured = || outcome.rows.iter().filter(|row| row.handshakes >= 20);
    assert!(2 * measured().count() > outcome.rows.len(), "{outcome}");
    for row in measured() {
        // OpenSSL does no full handshake in less on any machine, and less would mean CPU time went
        // unseen.
        assert!(row.server_cpu_us > 50.0, "{row:?}");
        assert!(row.p50_us > 0.0 && row.p50_us <= row.p99_us, "{row:?}");
        // One thread each, whose time is not read at the very moment at which a window begins and
        // ends.
        assert!(row.client_share > 0.0 && row.client_share < 1.5, "{row:?}");
        assert!(row.server_share > 0.0 && row.server_share < 1.5, "{row:?}");
    }
    let modes: Vec<&str> = outcome.rows.iter().map(|row| row.mode.as_str()).collect();
    assert_eq!(&modes[..2], ["stock", "stock-2"]);
    assert_eq!(&modes[2 * suites().len()..][..2], ["stock-2", "stock"]);
}

#[test]
fn every_suite_completes_handshakes_and_requests() {
    let running = RunningNginx::start();
    for (suite, address) in suites().into_iter().zip(&running.addresses) {
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

struct RunningNginx {
    server: Server,
    addresses: Vec<SocketAddr>,
    _scratch: ScratchDirectory,
}

impl RunningNginx {
    /// A stock nginx with a port for every suite.
    fn start() -> RunningNginx {
        let addresses = unused_addresses(suites().len()).unwrap();
        let (server, scratch) = start(&addresses).unwrap();
        RunningNginx {
            server,
            addresses,
            _scratch: scratch,
        }
    }

    fn address(&self, suite: &Suite) -> SocketAddr {
        let position = suites().iter().position(|other| other.name == suite.name);
        self.addresses[position.expect("every suite has a port")]
    }
}

/// The suites that the system's nginx has.
fn suites() -> Vec<&'static Suite> {
    let openssl = Binary::find(None).unwrap().openssl.unwrap_or_default();
    let mut suites: Vec<&Suite> = SUITES.iter().collect();
    suites.retain(|suite| suite.lacked_by(&openssl).is_none());
    suites
}

fn tls13() -> &'static Suite {
    Suite::find("tls13-rsa2048").unwrap()
}

fn rsa_key_exchange() -> &'static Suite {
    Suite::find("tls12-rsakx").unwrap()
}

fn start(addresses: &[SocketAddr]) -> Result<(Server, ScratchDirectory), Error> {
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
        module: None,
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
