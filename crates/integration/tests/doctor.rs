//! `slipstream doctor`: it tries what an operator has configured, and tells what it has seen.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use slipstream_integration::{
    Authority, Build, Configuration, Credentials, KeyType, Lanes, Nginx, command, each_build,
    unused_address,
};

each_build!(
    what_is_accelerated_is_told_by_server,
    why_nothing_is_accelerated_is_told,
    a_configuration_that_nginx_refuses_is_reported,
    a_configuration_without_slipstream_is_noted,
    the_nginx_that_runs_is_asked,
    an_nginx_that_runs_with_lanes_off_is_found_out,
);

fn what_is_accelerated_is_told_by_server(build: Build) {
    if !is_x86_feature_detected!("avx512f") {
        return;
    }
    let site = Site::new(build);
    let findings = site.examine(&format!(
        "slipstream {{ flush 1; }}
         http {{
             slipstream on;
             {}
             server {{ listen 127.0.0.1:8443 ssl; server_name on.example; ssl_protocols TLSv1.2; }}
             server {{ listen 127.0.0.1:8443 ssl; server_name off.example; slipstream off; }}
         }}",
        site.certificate()
    ));
    let [on, off] = &findings.of("handshakes")[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(on.status, "ok", "{findings:?}");
    assert!(
        on.detail
            .contains("on.example, RSA-2048, TLSv1.2: 32 handshakes"),
        "{on:?}"
    );
    assert!(on.detail.contains("operations in lanes"), "{on:?}");
    assert_eq!(off.status, "note", "{findings:?}");
    assert!(off.detail.contains("off.example"), "{off:?}");
}

fn why_nothing_is_accelerated_is_told(build: Build) {
    let site = Site::new(build);
    let findings = site.examine(&format!(
        "slipstream {{ lanes off; }}
         http {{ slipstream on; {} server {{ listen 127.0.0.1:8443 ssl; }} }}",
        site.certificate()
    ));
    let handshakes = findings.of("handshakes");
    assert_eq!(handshakes.len(), 1, "{findings:?}");
    assert_eq!(handshakes[0].status, "missing", "{findings:?}");
    assert!(handshakes[0].cure.contains("\"lanes off\""), "{findings:?}");
}

fn a_configuration_that_nginx_refuses_is_reported(build: Build) {
    let site = Site::new(build);
    let findings = site.examine("slipstream { lanes of; }\nhttp { }");
    let configuration = findings.of("nginx.conf");
    assert!(
        configuration[0].detail.contains("invalid value \"of\""),
        "{findings:?}"
    );
    assert!(
        configuration[0].detail.contains("nginx.conf:"),
        "{findings:?}"
    );
}

fn a_configuration_without_slipstream_is_noted(build: Build) {
    let site = Site::new(build);
    let findings = site.examine("http { server { listen 127.0.0.1:8080; } }");
    let configuration = findings.of("nginx.conf");
    assert_eq!(configuration[0].status, "note", "{findings:?}");
    assert!(
        configuration[0].cure.contains("slipstream on;"),
        "{findings:?}"
    );
}

fn the_nginx_that_runs_is_asked(build: Build) {
    let site = Site::new(build);
    let (nginx, configuration) = site.start(Configuration::new());
    let findings = site.ask(&configuration, Some(nginx.run()));
    let handshakes = findings.of("handshakes");
    assert_eq!(handshakes.len(), 1, "{findings:?}");
    assert_eq!(handshakes[0].status, "ok", "{findings:?}");
    assert!(
        handshakes[0].detail.contains("32 handshakes, "),
        "{findings:?}"
    );
    let running = &findings.of("running")[0].detail;
    assert!(
        running.contains(&format!("nginx {}", nginx.master())),
        "{findings:?}"
    );
}

fn an_nginx_that_runs_with_lanes_off_is_found_out(build: Build) {
    let site = Site::new(build);
    // Responses are compressed, so that there are figures of a worker.
    let lanes_off = Configuration::new()
        .lanes(Lanes::Block("lanes off;".to_owned()))
        .http("slipstream_gzip on;");
    let (nginx, configuration) = site.start(lanes_off);
    nginx.expect_log("lanes off");
    let findings = site.ask(&configuration, Some(nginx.run()));
    let handshakes = findings.of("handshakes");
    assert_eq!(handshakes[0].status, "missing", "{findings:?}");
    assert!(
        handshakes[0].detail.contains("nothing was accelerated"),
        "{findings:?}"
    );
}

/// An operator's nginx, which need not run.
struct Site {
    build: Build,
    credentials: Credentials,
    _authority: Authority,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Findings(Vec<Check>);

#[derive(Clone, Debug)]
struct Check {
    name: String,
    status: String,
    detail: String,
    cure: String,
}

impl Site {
    fn new(build: Build) -> Site {
        let authority = Authority::new();
        Site {
            build,
            credentials: authority.issue(KeyType::Rsa(2048), &["localhost"]),
            _authority: authority,
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn certificate(&self) -> String {
        format!(
            "ssl_certificate {}; ssl_certificate_key {};",
            self.credentials.certificate_file.display(),
            self.credentials.key_file.display()
        )
    }

    /// Starts an nginx with a TLS server, and returns the lines of that.
    fn start(&self, configuration: Configuration) -> (Nginx, String) {
        let listen = format!("{} ssl", unused_address());
        let lines = format!(
            "http {{ slipstream on; {} server {{ listen {listen}; server_name localhost; }} }}",
            self.certificate()
        );
        let configuration = configuration.server(listen, &[&self.credentials], "");
        (Nginx::start(self.build, &configuration), lines)
    }

    /// Has the command try an nginx of its own.
    fn examine(&self, lines: &str) -> Findings {
        self.ask(lines, None)
    }

    /// Has the command ask the nginx that publishes its figures in `run`, if there is one.
    fn ask(&self, lines: &str, run: Option<PathBuf>) -> Findings {
        let module = self.build.module();
        let folder = self.folder.path().display();
        let file = self.folder.path().join("nginx.conf");
        // The folders that this nginx was built with need not exist.
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {folder}/{name};"));
        let lines = lines.replacen(
            "http {",
            &format!("http {{ access_log off; {}", temporary.join(" ")),
            1,
        );
        let text = format!(
            "load_module {};\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n{lines}\n",
            module.display()
        );
        fs::write(&file, text).expect("the configuration can be written");
        let mut doctor = Command::new(command());
        match run {
            Some(run) => doctor.args(["doctor"]).env("SLIPSTREAM_RUN", run),
            None => doctor.args(["doctor", "--trial"]),
        };
        let output = doctor
            .args(["--json", "-", "--conf"])
            .arg(&file)
            .arg("--nginx")
            .arg(self.build.executable())
            .arg("--module")
            .arg(&module)
            .output()
            .expect("the command can be run");
        let findings: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let checks = findings["checks"].as_array().expect("a list").iter();
        let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
        Findings(
            checks
                .map(|check| Check {
                    name: text(check, "name"),
                    status: text(check, "status"),
                    detail: text(check, "detail"),
                    cure: text(check, "cure"),
                })
                .collect(),
        )
    }
}

impl Findings {
    fn of(&self, name: &str) -> Vec<Check> {
        let checks = self.0.iter().filter(|check| check.name == name);
        checks.cloned().collect()
    }
}
