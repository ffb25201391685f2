//! `slipstream status`: it finds what runs, without a status location or a metrics listener, and
//! nothing that does not.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use slipstream_integration::process::{is_running, quit, signal};
use slipstream_integration::{
    Authority, Build, Client, Configuration, Engine, KeyType, Lanes, Nginx, Offer, Terminator,
    TerminatorConfiguration, command, each_build, eventually, unused_address,
};

each_build!(
    nginx_is_shown_with_its_handshakes,
    nginx_is_shown_once_after_a_reload_and_twice_during_an_upgrade,
    an_nginx_that_was_killed_is_left_out,
    figures_agree_with_the_status_page,
    an_nginx_that_cannot_publish_serves_and_says_so,
    the_reason_is_shown_while_nothing_is_accelerated,
);

fn nginx_is_shown_with_its_handshakes(build: Build) {
    let site = Site::new();
    let nginx = Nginx::start(build, &site.configuration());
    site.visit(20);
    let mut process = Value::Null;
    eventually("20 handshakes are shown", || {
        process = the_only(&nginx.run());
        // What is counted while it looks is shown at the next look.
        process["handshakes"]["total"] == 20 && process["is_since_start"] == true
    });
    assert_eq!(process["program"], "nginx");
    assert_eq!(process["process"], nginx.master());
    assert_eq!(process["workers"], 2);
    assert_eq!(process["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(process["handshakes"]["time"]["count"], 20);
    let operations = &process["operations"];
    let places = ["lanes", "at_once", "device", "software"];
    let shares: f64 = places
        .iter()
        .map(|place| operations[place].as_f64().unwrap())
        .sum();
    assert!((shares - 1.0).abs() < 1e-9, "{operations}");
    assert!(operations["total"].as_u64() >= Some(20), "{operations}");

    let shown = said(&status(&nginx.run(), &[]));
    let first = format!("nginx {}, slipstream ", nginx.master());
    assert!(shown.starts_with(&first), "{shown}");
    for part in ["2 workers", "20 in all", "in software", "faults      none"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

fn nginx_is_shown_once_after_a_reload_and_twice_during_an_upgrade(build: Build) {
    let site = Site::new();
    let mut nginx = Nginx::start(build, &site.configuration().daemon());
    site.visit(5);
    let old = nginx.reload(&site.configuration().daemon());
    eventually("old workers exit", || !old.iter().copied().any(is_running));
    site.visit(5);
    eventually("handshakes of both generations are shown", || {
        the_only(&nginx.run())["handshakes"]["total"] == 10
    });
    assert_eq!(the_only(&nginx.run())["process"], nginx.master());

    let old = nginx.upgrade();
    let masters = || -> Vec<u64> {
        let all = shown(&nginx.run());
        all.iter()
            .filter_map(|one| one["process"].as_u64())
            .collect()
    };
    eventually("both masters are shown", || {
        let mut expected = vec![u64::from(old), u64::from(nginx.master())];
        expected.sort_unstable();
        masters() == expected
    });
    quit(old);
    eventually("the old master exits", || !is_running(old));
    assert_eq!(masters(), [u64::from(nginx.master())]);
    assert_eq!(
        files(&nginx.run()).len(),
        1,
        "the old one has left its file"
    );
    site.visit(5);
    eventually("the new workers' handshakes are shown", || {
        the_only(&nginx.run())["handshakes"]["total"] == 5
    });
}

fn an_nginx_that_was_killed_is_left_out(build: Build) {
    let site = Site::new();
    let nginx = Nginx::start(build, &site.configuration());
    site.visit(1);
    assert_eq!(the_only(&nginx.run())["process"], nginx.master());
    // The master first, which would replace a worker.
    let mut all = vec![nginx.master()];
    all.extend(nginx.workers());
    for process in &all {
        signal(*process, Signal::KILL);
    }
    eventually("its processes have ended", || {
        !all.iter().copied().any(is_running)
    });
    expect_nothing(&nginx.run());
}

fn figures_agree_with_the_status_page(build: Build) {
    let site = Site::new();
    let nginx = Nginx::start(build, &site.configuration());
    site.visit(20);
    let mut page = nginx.settled();
    eventually("all handshakes are counted", || {
        page = nginx.settled();
        page.handshakes() == 20
    });
    assert_eq!(page.timed_handshakes(), 20);
    assert_eq!(page.timed_operations(), page.all_operations());
    assert_eq!(page.sized_batches(), page.batches());
    let text = said(&status(&nginx.run(), &["--prometheus"]));
    let master = nginx.master();
    for line in [
        "slipstream_processes{program=\"nginx\"} 1".to_owned(),
        format!("slipstream_handshakes_total{{process=\"{master}\"}} 20"),
        format!("slipstream_handshake_duration_seconds_count{{process=\"{master}\"}} 20"),
        format!(
            "slipstream_batch_size_count{{process=\"{master}\"}} {}",
            page.batches()
        ),
    ] {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
}

fn an_nginx_that_cannot_publish_serves_and_says_so(build: Build) {
    let site = Site::new();
    let nginx = Nginx::start_with_open_run_folder(build, &site.configuration());
    site.visit(3);
    let said = "`slipstream status` does not show this nginx: ";
    assert_eq!(nginx.log_lines_with(said), 1, "{}", nginx.log());
    assert!(files(&nginx.run()).is_empty());
    eventually("handshakes are counted all the same", || {
        nginx.metrics().handshakes() == 3
    });
}

fn the_reason_is_shown_while_nothing_is_accelerated(build: Build) {
    let site = Site::new();
    let without_lanes = || Configuration::new().lanes(Lanes::Block("lanes off;".to_owned()));
    let mut nginx = Nginx::start(build, &site.on(without_lanes()));
    nginx.expect_log("\"lanes off\", handshakes are served as without the module");
    site.visit(3);
    let process = the_only(&nginx.run());
    assert_eq!(process["note"], "\"lanes off\"");
    assert_eq!(process["process"], nginx.master());
    assert_eq!(process["handshakes"]["total"], 0);
    let shown = said(&status(&nginx.run(), &[]));
    assert!(shown.contains("not accelerated: \"lanes off\""), "{shown}");

    let old = nginx.reload(&site.on(Configuration::new().workers(2)));
    eventually("old workers exit", || !old.iter().copied().any(is_running));
    site.visit(3);
    eventually("handshakes are shown, and no reason", || {
        let process = the_only(&nginx.run());
        process["handshakes"]["total"] == 3 && process.get("note").is_none()
    });

    nginx.reload(&site.on(Configuration::new().slipstream(Some(false))));
    eventually("the directive is named", || {
        the_only(&nginx.run())["note"] == "no server has \"slipstream on\""
    });
}

#[test]
fn a_terminator_is_shown_and_left_out_after_it_was_killed() {
    let authority = Authority::new();
    let address = unused_address();
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let configuration = TerminatorConfiguration::new().listener(
        address,
        &[&credentials],
        "backends = [\"127.0.0.1:9\"]",
    );
    let mut terminator = Terminator::start(&configuration);
    let client = Client::new(address, &Offer::tls13());
    for _ in 0..10 {
        client.connect().expect("a handshake");
    }
    let mut process = Value::Null;
    eventually("10 handshakes are shown", || {
        process = the_only(&terminator.run());
        process["handshakes"]["total"] == 10 && process["is_since_start"] == true
    });
    assert_eq!(process["program"], "serve");
    assert_eq!(process["process"], terminator.process());
    assert_eq!(process["workers"], 1);
    assert_eq!(process["handshakes"]["time"]["count"], 10);
    assert_eq!(
        terminator.metric("slipstream_serve_handshake_duration_seconds_count", ""),
        10
    );
    terminator.signal(Signal::KILL);
    terminator.wait();
    expect_nothing(&terminator.run());
}

#[test]
fn an_engine_is_shown_and_left_out_after_it_was_killed() {
    let mut engine = Engine::start(&[]);
    let site = Site::new();
    let nginx = Nginx::start(Build::Distribution, &site.with(&engine.directive()));
    site.visit(10);
    let mut process = Value::Null;
    eventually("its operations are shown", || {
        process = the_only(&engine.run());
        process["operations"]["total"].as_u64() >= Some(10)
    });
    assert_eq!(process["program"], "engine");
    assert_eq!(process["process"], engine.process());
    assert_eq!(process["workers"], 1);
    assert_eq!(process["operations"]["lanes"], 1.0);
    assert!(
        process["figures"]["instances"].as_u64() > Some(0),
        "{process}"
    );
    let times = process["waiting"].as_object().expect("an object");
    assert!(times.contains_key("RSA-2048"), "{process}");
    let device = the_only(&nginx.run())["operations"]["device"].as_f64();
    assert!(device > Some(0.0));

    engine.kill();
    expect_nothing(&engine.run());
    engine.restart();
    eventually("the next one is shown", || {
        the_only(&engine.run())["process"] == engine.process()
    });
    assert_eq!(files(&engine.run()).len(), 1);
    engine.stop();
    assert!(
        files(&engine.run()).is_empty(),
        "an engine that stops removes its file"
    );
}

#[test]
fn another_version_is_refused_by_name() {
    let engine = Engine::start(&[]);
    let file = files(&engine.run()).remove(0);
    // The second word is the layout.
    let content = fs::OpenOptions::new().write(true).open(&file).unwrap();
    content.write_all_at(&77_u64.to_ne_bytes(), 8).unwrap();
    let output = status(&engine.run(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let line = format!(
        "engine {} runs slipstream {}, whose figures this command cannot read",
        engine.process(),
        env!("CARGO_PKG_VERSION")
    );
    assert!(said(&output).contains(&line), "{output:?}");
    assert!(file.exists(), "it is the running engine's");
}

#[test]
fn another_user_is_told_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let engine = Engine::start(&[]);
    let file = files(&engine.run()).remove(0);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let scratch = tempfile();
    let program = scratch.join("slipstream");
    fs::copy(command(), &program).unwrap();
    let run = scratch.join("run");
    fs::create_dir(&run).unwrap();
    fs::hard_link(&file, run.join("engine.1")).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .arg("status")
        .env("SLIPSTREAM_RUN", &run)
        .output()
        .expect("setpriv, of util-linux, can be run");
    fs::remove_dir_all(&scratch).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("run as root"), "{output:?}");
}

#[test]
fn watching_refreshes_until_interrupted() {
    let engine = Engine::start(&[]);
    let mut child = Command::new(command())
        .args(["status", "--watch", "0.1", "--json"])
        .env("SLIPSTREAM_RUN", engine.run())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(report["processes"][0]["program"], "engine");
        assert!(report["processes"][0]["interval_seconds"].as_f64() > Some(0.09));
    }
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A server with one RSA key.
struct Site {
    authority: Authority,
    address: std::net::SocketAddr,
}

impl Site {
    fn new() -> Self {
        Self {
            authority: Authority::new(),
            address: unused_address(),
        }
    }

    fn configuration(&self) -> Configuration {
        self.with("")
    }

    /// The configuration with more directives in the module's block.
    fn with(&self, block: &str) -> Configuration {
        let base = Configuration::new().workers(2);
        self.on(match block {
            "" => base,
            _ => base.lanes(Lanes::ForcedWith(block.to_owned())),
        })
    }

    /// The configuration that begins with `base`.
    fn on(&self, base: Configuration) -> Configuration {
        let credentials = self.authority.issue(KeyType::Rsa(2048), &["localhost"]);
        base.server(
            format!("{} ssl", self.address),
            &[&credentials],
            "location / { return 200 served; }",
        )
    }

    /// Makes full handshakes, one after the other.
    fn visit(&self, handshakes: usize) {
        let client = Client::new(self.address, &Offer::tls13());
        for _ in 0..handshakes {
            client.connect().expect("a handshake");
        }
    }
}

fn status(run: &Path, arguments: &[&str]) -> Output {
    Command::new(command())
        .arg("status")
        .args(arguments)
        .env("SLIPSTREAM_RUN", run)
        .output()
        .expect("the command that `make test` builds")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The processes that are shown.
fn shown(run: &Path) -> Vec<Value> {
    let output = status(run, &["--json", "--interval", "0.1"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(report["problems"], Value::Array(Vec::new()), "{report}");
    let processes = report["processes"].as_array().expect("a list").clone();
    assert_eq!(output.status.success(), !processes.is_empty());
    processes
}

fn the_only(run: &Path) -> Value {
    let mut all = shown(run);
    assert!(all.len() <= 1, "{all:#?}");
    all.pop().unwrap_or_default()
}

fn expect_nothing(run: &Path) {
    assert!(shown(run).is_empty());
    assert!(
        files(run).is_empty(),
        "what a dead process has left is removed"
    );
    let output = status(run, &[]);
    assert_eq!(output.status.code(), Some(1));
}

fn files(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// A folder that another user can enter.
fn tempfile() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("slipstream-status-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}
