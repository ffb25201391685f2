//! Resumed sessions of the load generator, by a stock nginx's own account.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use slipstream_bench::load::{Behaviour, Limit, Load, Report};
use slipstream_testbed::credentials::Credentials;
use slipstream_testbed::nginx::{Binary, Configuration, Listener};
use slipstream_testbed::port::unused_address;
use slipstream_testbed::processor::usable_cores;
use slipstream_testbed::scratch::ScratchDirectory;
use slipstream_testbed::suite::Suite;

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

/// Puts a load on an nginx that notes for each request whether its session was resumed; the load's
/// report, and how many nginx noted.
fn serve(suite: &Suite, resumed_percent: u8) -> (Report, u64) {
    let scratch = ScratchDirectory::new().unwrap();
    let credentials = Credentials::generate(suite.key, &scratch).unwrap();
    let address = unused_address().unwrap();
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
