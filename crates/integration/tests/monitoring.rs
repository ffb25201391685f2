//! The dashboard and the alerts in `monitoring`, with a real Prometheus: every query of every panel
//! has data after a load, and every alert fires when its fault is injected.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType, connect, send, socket};
use rustix::process::Signal;
use serde_json::Value;
use slipstream_integration::process::signal;
use slipstream_integration::server::supervised;
use slipstream_integration::{
    Authority, Build, Client, Configuration, Credentials, Engine, KeyType, Lanes, Nginx, Offer,
    Request, Server, Terminator, TerminatorConfiguration, Visitors, command, concurrently,
    eventually, unused_address,
};

#[test]
fn every_panel_has_data_and_every_alert_fires() {
    let mut site = Site::start();
    let monitor = Monitor::start(&site.runs());
    let visitors = site.visitors();
    every_panel_has_data(&monitor, &site);
    assert_eq!(monitor.firing(), BTreeSet::new(), "nothing is wrong yet");

    let mut fired = BTreeSet::new();
    let mut expect = |alert: &str, inject: &mut dyn FnMut()| {
        eventually(alert, || {
            inject();
            monitor.firing().contains(alert)
        });
        fired.insert(alert.to_owned());
    };

    let one_fiber = site.lanes_configuration("fibers 1;");
    site.lanes.reload(&one_fiber);
    site.lanes.expect_log("out of fibers");
    expect("SlipstreamOutOfFibers", &mut || {
        // One that is paused is enough to leave the next without a fiber.
        let client = site.client(site.lanes_address);
        concurrently(8, |_| drop(client.connect()));
    });
    expect("SlipstreamEngineFaults", &mut || {
        send_nonsense(&site.engine.socket())
    });
    let file = site.file_of_serve();
    let layout = |layout: u64| {
        let file = fs::OpenOptions::new().write(true).open(&file).unwrap();
        file.write_all_at(&layout.to_ne_bytes(), 8).unwrap();
    };
    expect("SlipstreamUnreadable", &mut || layout(77));
    layout(1);

    // It does not answer, and is given up.
    signal(site.engine.process(), Signal::STOP);
    expect("SlipstreamOperationsLost", &mut || {});
    signal(site.engine.process(), Signal::CONT);
    site.engine.kill();
    expect("SlipstreamEngineGone", &mut || {});
    expect("SlipstreamAllInSoftware", &mut || {});

    for some in visitors {
        some.stop();
    }
    let without = site.lanes_configuration("").slipstream(Some(false));
    site.lanes.reload(&without);
    expect("SlipstreamTakesNoPart", &mut || {});
    signal(monitor.exporter.process(), Signal::TERM);
    expect("SlipstreamStatusDown", &mut || {});
    assert_eq!(fired, alerts(), "every alert is tested");
}

fn every_panel_has_data(monitor: &Monitor, site: &Site) {
    let dashboard = fs::read_to_string(monitoring().join("grafana.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list");
    assert!(panels.len() > 10);
    let compressed = Request::get(site.plain_address, "/").accepting("gzip");
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        // A terminator has no portable lanes.
        let needs_lanes = [
            "serve: operations in a batch",
            "serve: time from submission",
        ];
        if needs_lanes.iter().any(|part| title.starts_with(part))
            && !std::arch::is_x86_feature_detected!("avx512ifma")
        {
            continue;
        }
        let targets = panel["targets"].as_array().expect("a list");
        let queries = targets.iter().map(|target| {
            let query = target["expr"].as_str().expect("a query");
            query
                .replace("$__rate_interval", WINDOW)
                .replace("$job", "slipstream")
        });
        let queries: Vec<String> = queries.collect();
        for query in &queries {
            let mut answer = Vec::new();
            let has_data = || {
                let response = compressed.fetch().expect("a page");
                assert_eq!(response.header("Content-Encoding"), Some("gzip"));
                answer = monitor.query(query);
                answer.iter().any(|value| value.is_finite())
            };
            eventually(&format!("{title} has data: {query}"), has_data);
        }
        // Where nothing is wrong, only these are all zero.
        if !["why operations", "clients and faults", "without the module"]
            .iter()
            .any(|part| title.contains(part))
        {
            eventually(&format!("{title} shows something"), || {
                compressed.fetch().expect("a page");
                queries
                    .iter()
                    .flat_map(|query| monitor.query(query))
                    .any(|value| value > 0.0)
            });
        }
    }
}

/// The time over which rates are taken here. Prometheus looks five times a second.
const WINDOW: &str = "3s";
const SCRAPE_INTERVAL: &str = "200ms";

/// Servers of all kinds: nginx with lanes of its own, nginx with an engine, and a terminator.
struct Site {
    authority: Authority,
    credentials: Credentials,
    engine: Engine,
    lanes: Nginx,
    lanes_address: SocketAddr,
    plain_address: SocketAddr,
    device: Nginx,
    device_address: SocketAddr,
    serve: Terminator,
    serve_address: SocketAddr,
}

impl Site {
    fn start() -> Self {
        let authority = Authority::new();
        let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
        let engine = Engine::start(&[]);
        let [lanes_address, plain_address, device_address, serve_address] =
            std::array::from_fn(|_| unused_address());
        let lanes = lanes_configuration("", lanes_address, &credentials);
        let block = format!("lanes off; flush 1; {}", engine.directive());
        // A page that is long enough to be compressed.
        let page = format!(
            "location / {{ default_type text/html; return 200 '{}'; }}",
            "abc ".repeat(500)
        );
        let device = Configuration::new()
            .lanes(Lanes::Block(block))
            .http("slipstream_gzip on;")
            .server(plain_address, &[], &page)
            .server(format!("{device_address} ssl"), &[&credentials], SERVED);
        let serve = TerminatorConfiguration::new().listener(
            serve_address,
            &[&credentials],
            &format!("backends = [\"http://{plain_address}\"]"),
        );
        Self {
            lanes: Nginx::start(Build::Distribution, &lanes),
            device: Nginx::start(Build::Distribution, &device),
            serve: Terminator::start(&serve),
            authority,
            credentials,
            engine,
            lanes_address,
            plain_address,
            device_address,
            serve_address,
        }
    }

    fn lanes_configuration(&self, block: &str) -> Configuration {
        lanes_configuration(block, self.lanes_address, &self.credentials)
    }

    fn runs(&self) -> Vec<PathBuf> {
        vec![
            self.lanes.run(),
            self.device.run(),
            self.serve.run(),
            self.engine.run(),
        ]
    }

    fn client(&self, address: SocketAddr) -> Client {
        let roots = self.authority.certificate();
        Client::new(address, &Offer::tls13().name("localhost").roots(roots))
    }

    /// As many at a time as make batches cheaper than software: only nginx is told to make some.
    fn visitors(&self) -> [Visitors; 2] {
        let of_nginx = [self.lanes_address, self.device_address].map(|one| self.client(one));
        let of_serve = self.client(self.serve_address);
        [
            Visitors::start(&of_nginx, 2),
            Visitors::start(&[of_serve], 16),
        ]
    }

    fn file_of_serve(&self) -> PathBuf {
        let mut files = fs::read_dir(self.serve.run()).unwrap();
        files.next().expect("a file").unwrap().path()
    }
}

const SERVED: &str = "location / { return 200 served; }";

fn lanes_configuration(
    block: &str,
    address: SocketAddr,
    credentials: &Credentials,
) -> Configuration {
    Configuration::new()
        .lanes(Lanes::ForcedWith(block.to_owned()))
        .server(format!("{address} ssl"), &[credentials], SERVED)
}

/// Prometheus, and the listener that it scrapes.
struct Monitor {
    exporter: Server,
    _prometheus: Server,
    address: SocketAddr,
}

impl Monitor {
    fn start(runs: &[PathBuf]) -> Self {
        let (page, address) = (unused_address(), unused_address());
        let mut exporter = Server::new("slipstream status");
        let mut listen = supervised("KILL");
        // The server sets the variable, so it is set again for the command itself.
        let paths = std::env::join_paths(runs).expect("paths without colons");
        let mut variable = std::ffi::OsString::from("SLIPSTREAM_RUN=");
        variable.push(paths);
        listen.arg("env").arg(variable).arg(command());
        listen.args(["status", "--listen", &page.to_string()]);
        exporter.start(listen, |server| server.output().contains("serving http://"));

        let mut prometheus = Server::new("prometheus");
        let rules = fs::read_to_string(monitoring().join("alerts.yml")).expect("the alerts");
        prometheus.write("alerts.yml", hurried(&rules));
        prometheus.write(
            "prometheus.yml",
            format!(
                "global: {{ scrape_interval: {SCRAPE_INTERVAL}, evaluation_interval: {SCRAPE_INTERVAL} }}\n\
                 rule_files: [alerts.yml]\n\
                 scrape_configs:\n- job_name: slipstream\n  static_configs: [{{ targets: [\"{page}\"] }}]\n"
            ),
        );
        let mut serve = supervised("KILL");
        serve
            .arg("prometheus")
            .arg(format!(
                "--config.file={}",
                prometheus.file("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                prometheus.file("data").display()
            ))
            .arg(format!("--web.listen-address={address}"));
        let is_ready = |_: &Server| {
            let answer = Request::get(address, "/-/ready").fetch();
            answer.is_ok_and(|answer| answer.status == 200)
        };
        prometheus.start(serve, is_ready);
        Self {
            exporter,
            _prometheus: prometheus,
            address,
        }
    }

    /// The values that a query has now.
    fn query(&self, query: &str) -> Vec<f64> {
        let answer = self.ask(&format!("/api/v1/query?query={}", encoded(query)));
        let values = answer["data"]["result"]
            .as_array()
            .expect("a vector")
            .iter();
        let values = values.map(|sample| sample["value"][1].as_str().expect("a number").parse());
        values.collect::<Result<_, _>>().expect("numbers")
    }

    /// The names of alerts that fire now.
    fn firing(&self) -> BTreeSet<String> {
        let answer = self.ask("/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().expect("a list").iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing
            .map(|alert| {
                alert["labels"]["alertname"]
                    .as_str()
                    .expect("a name")
                    .to_owned()
            })
            .collect()
    }

    fn ask(&self, path: &str) -> Value {
        let response = Request::get(self.address, path)
            .fetch()
            .expect("Prometheus answers");
        let answer: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer
    }
}

/// The rules with short times, so that an alert fires as soon as its condition holds.
fn hurried(rules: &str) -> String {
    let lines = rules
        .lines()
        .map(|line| match line.trim_start().starts_with("for: ") {
            true => String::new(),
            false => line.replace("[5m]", &format!("[{WINDOW}]")),
        });
    let hurried: Vec<String> = lines.collect();
    hurried.join("\n")
}

/// The names of all alerts, of rules that Prometheus' own tool accepts.
fn alerts() -> BTreeSet<String> {
    let path = monitoring().join("alerts.yml");
    let checked = Command::new("promtool")
        .args(["check", "rules"])
        .arg(&path)
        .output();
    let checked = checked.expect("promtool, which comes with prometheus: run `make test`");
    assert!(checked.status.success(), "{checked:?}");
    let rules = fs::read_to_string(path).expect("the alerts");
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

fn monitoring() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    workspace
        .expect("this crate is two folders below the workspace")
        .join("monitoring")
}

/// Sends an engine a message that no client sends.
fn send_nonsense(path: &Path) {
    let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&client, &SocketAddrUnix::new(path).unwrap()).unwrap();
    send(&client, b"nonsense", SendFlags::NOSIGNAL).unwrap();
    std::thread::sleep(Duration::from_millis(1));
}

fn encoded(query: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    query.bytes().map(byte).collect()
}
