//! Resumed sessions of the load generator, by a stock nginx's own account.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use slipstream_bench::credentials::Credentials;
use slipstream_bench::load::{Behaviour, Limit, Load, Report};
use slipstream_bench::nginx::{Binary, Configuration, Listener, unused_addresses};
use slipstream_bench::processor::usable_cores;
use slipstream_bench::qtls::{Configuration as Offloading, Device, Experiment, Figure};
use slipstream_bench::scratch::ScratchDirectory;
use slipstream_bench::suite::Suite;

const CONNECTIONS: u64 = 200;
const CONCURRENCY: usize = 4;

#[test]
fn nginx_resumes_as_many_sessions_as_the_load_says() {
    for suite in ["tls12-rsakx", "tls12-ecdhe-rsa-p256"] {
        for (percent, fewest) in [(0, 0), (90, 170), (100, 190)] {
            let (report, reused) = serve(Suite::find(suite).unwrap(), percent);
            assert_eq!(report.failures.total(), 0, "{}", report.failures);
            assert_eq!(report.handshakes, CONNECTIONS);
            assert_eq!(report.response.len(), CONNECTIONS);
            assert_eq!(report.resumed, reused, "{suite} {percent}%");
            // The first connections have no session to offer yet.
            let most = CONNECTIONS * u64::from(percent) / 100;
            assert!(
                (fewest..=most).contains(&reused),
                "{suite} {percent}%: {reused}"
            );
        }
    }
}

#[test]
fn figure_9_can_be_measured_with_a_stock_nginx_alone() {
    let cores = usable_cores().unwrap();
    let outcome = Experiment {
        nginx: Binary::find(None).unwrap(),
        module: None,
        engine_program: PathBuf::from("/nonexistent/slipstream"),
        device: Device::Paced,
        figures: vec![Figure::Resumption],
        configurations: vec![Offloading::Software],
        concurrency: 8,
        // A processor may be busy elsewhere for a while.
        window: Duration::from_secs(1),
        rounds: 2,
        server_core: cores[0],
        load_core: cores[cores.len() - 1],
    }
    .run(|_| ())
    .unwrap();
    assert_eq!(outcome.errors(), 0, "{outcome}");
    assert_eq!(outcome.rows.len(), 2 * 3);
    for row in &outcome.rows {
        let handshakes = row.handshakes as f64;
        let asked = handshakes * f64::from(row.resumed_percent) / 100.0;
        // Which of those that were under way when the window began and ended belong to it is up to the scheduler.
        let at_the_edges = 2.0 * row.concurrency as f64 + 1.0;
        let tolerated = (0.05 * handshakes).max(at_the_edges);
        assert!((row.resumed as f64 - asked).abs() < tolerated, "{row:?}");
        assert!(row.server_cpu_us > 0.0 && row.mean_us > 0.0, "{row:?}");
        assert!(row.engine_share.is_none(), "{row:?}");
    }
    for line in &outcome.summary {
        assert_eq!(line.handshakes_ratio.unwrap().median, 1.0);
    }
}

#[test]
fn offloading_needs_a_module() {
    let cores = usable_cores().unwrap();
    let error = Experiment {
        nginx: Binary::find(None).unwrap(),
        module: None,
        engine_program: PathBuf::from("/nonexistent/slipstream"),
        device: Device::Paced,
        figures: vec![Figure::FullHandshakes],
        configurations: Offloading::ALL.to_vec(),
        concurrency: 8,
        window: Duration::from_millis(10),
        rounds: 1,
        server_core: cores[0],
        load_core: cores[0],
    }
    .run(|_| ())
    .unwrap_err();
    assert!(error.to_string().contains("make build"), "{error}");
}

/// Puts a load on an nginx that notes for each request whether its session was resumed; the load's report, and how many
/// nginx noted.
fn serve(suite: &Suite, resumed_percent: u8) -> (Report, u64) {
    let scratch = ScratchDirectory::new().unwrap();
    let credentials = Credentials::generate(suite.key, &scratch).unwrap();
    let address = unused_addresses(1).unwrap()[0];
    let log = scratch.file("sessions.log");
    let text = Configuration {
        module: None,
        module_directives: "",
        directory: scratch.path(),
        worker_core: usable_cores().unwrap()[0],
        listeners: &[Listener {
            address,
            suite: Some(suite),
            credentials: &credentials,
        }],
        as_root: rustix::process::geteuid().is_root(),
    }
    .render()
    .unwrap()
    .replace(
        "access_log off;",
        &format!(
            "log_format session $ssl_session_reused; access_log \"{}\" session;",
            log.display()
        ),
    );
    let configuration = scratch.file("nginx.conf");
    fs::write(&configuration, text).unwrap();
    let mut nginx = Command::new(Binary::find(None).unwrap().path);
    nginx
        .arg("-p")
        .arg(scratch.path())
        .arg("-c")
        .arg(&configuration);
    let mut nginx = Running(nginx.stderr(Stdio::null()).spawn().unwrap());
    while TcpStream::connect(address).is_err() {
        assert!(nginx.0.try_wait().unwrap().is_none(), "nginx did not start");
        thread::sleep(Duration::from_millis(5));
    }
    let report = Load {
        address,
        suite,
        resumed_percent,
        concurrency: CONCURRENCY,
        limit: Limit::Connections(CONNECTIONS),
        behaviour: Behaviour::Request,
        timeout: Duration::from_secs(60),
    }
    .run()
    .unwrap();
    // A request is logged when it ends, and all have ended when nginx has.
    nginx.stop();
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.lines().count() as u64, CONNECTIONS);
    let reused = log.lines().filter(|line| *line == "r").count();
    (report, reused as u64)
}

/// A master of nginx, which is stopped in order, also when a test fails.
struct Running(Child);

impl Running {
    fn stop(&mut self) {
        let id = i32::try_from(self.0.id()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        let _ = rustix::process::kill_process(id, rustix::process::Signal::QUIT);
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
