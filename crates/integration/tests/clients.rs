//! Clients of others: each with its own TLS stack or its own way of using one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use slipstream_integration::programs::{self, Finished};
use slipstream_integration::{
    Authority, Build, Configuration, KeyType, Nginx, concurrently, each_build, unused_address,
};
use slipstream_testbed::scratch::ScratchDirectory;

each_build!(
    curl_with_http1_and_http2,
    openssl_s_client,
    apache_bench,
    h2load_with_64_connections,
    python,
    go,
    java,
);

/// Connections that the clients in other languages make at once.
const CONNECTIONS: u64 = 24;

fn curl_with_http1_and_http2(build: Build) {
    let server = Server::start(build);
    let tls12 = ["--tls-max", "1.2", "--ciphers"];
    let suites = [
        [&tls12[..], &["AES128-GCM-SHA256"]].concat(),
        [&tls12[..], &["ECDHE-RSA-AES256-GCM-SHA384"]].concat(),
        vec!["--tlsv1.3"],
    ];
    let cases: Vec<(&str, Vec<&str>)> = ["--http1.1", "--http2"]
        .into_iter()
        .flat_map(|http| suites.iter().map(move |suite| (http, suite.clone())))
        .collect();
    concurrently(cases.len(), |number| {
        let (http, suite) = &cases[number];
        let output = server.curl(http, suite);
        let version = if *http == "--http2" { "2" } else { "1.1" };
        let protocol = if suite.len() == 1 {
            "TLSv1.3"
        } else {
            "TLSv1.2"
        };
        assert_eq!(output, format!("{protocol} HTTP/{version}"));
    });
    server.expect_in_lanes(cases.len() as u64);
}

fn openssl_s_client(build: Build) {
    let server = Server::start(build);
    let suites = [
        ["-tls1_2", "-cipher", "AES256-GCM-SHA384"],
        ["-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"],
        ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
    ];
    concurrently(suites.len(), |number| {
        let suite = suites[number];
        let output = server.s_client(&suite).expect_success();
        assert!(
            output.contains(&format!("Cipher is {}", suite[2])),
            "{output}"
        );
        assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
        assert!(output.contains("HTTP/1.1 200 OK"), "{output}");
    });
    server.expect_in_lanes(suites.len() as u64);
}

fn apache_bench(build: Build) {
    let server = Server::start(build);
    let url = server.url();
    // It opens more connections than it needs, and drops them at the end.
    server.nginx.expect_orphans();
    for protocol in ["TLS1.2", "TLS1.3"] {
        let before = server.nginx.settled().lane_operations();
        let arguments = ["-n", "400", "-c", "50", "-f", protocol, &url];
        let output = programs::run("ab", arguments).expect_success();
        for line in ["Complete requests:      400", "Failed requests:        0"] {
            assert!(output.contains(line), "{output}");
        }
        assert!(!output.contains("Non-2xx responses"), "{output}");
        let metrics = server.nginx.settled();
        assert!(metrics.lane_operations() >= before + 400, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
    }
}

fn h2load_with_64_connections(build: Build) {
    let server = Server::start(build);
    let url = server.url();
    let arguments = ["-n", "1280", "-c", "64", "-m", "10", &url];
    let output = programs::run("h2load", arguments).expect_success();
    let succeeded = "1280 total, 1280 started, 1280 done, 1280 succeeded, 0 failed, 0 errored";
    assert!(output.contains(succeeded), "{output}");
    assert!(output.contains("status codes: 1280 2xx"), "{output}");
    assert!(output.contains("Application protocol: h2"), "{output}");
    server.expect_in_lanes(64);
}

fn python(build: Build) {
    let script = source("client.py");
    run_in_both_versions(build, Command::new("python3").arg(script));
}

fn go(build: Build) {
    if programs::is_installed("go") {
        let scratch = ScratchDirectory::new().unwrap();
        let mut client = programs::built_with_go(&source("go/main.go"), &scratch);
        run_in_both_versions(build, &mut client);
    }
}

fn java(build: Build) {
    if programs::is_installed("java") {
        run_in_both_versions(build, Command::new("java").arg(source("Client.java")));
    }
}

/// Runs a client of tests/clients, which all take the same arguments.
fn run_in_both_versions(build: Build, client: &mut Command) {
    let server = Server::start(build);
    let authority = server.authority.certificate_file();
    let program: Vec<_> = std::iter::once(client.get_program())
        .chain(client.get_args())
        .map(ToOwned::to_owned)
        .collect();
    for (round, version) in ["1.2", "1.3"].into_iter().enumerate() {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]);
        command
            .arg(server.address.port().to_string())
            .arg(&authority);
        command.args([version, &CONNECTIONS.to_string()]);
        let output = programs::finish(&mut command, b"").expect_success();
        assert_eq!(output.trim(), format!("{CONNECTIONS} served"));
        server.expect_in_lanes(CONNECTIONS * (round as u64 + 1));
    }
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(file)
}

struct Server {
    authority: Authority,
    nginx: Nginx,
    address: SocketAddr,
}

impl Server {
    fn start(build: Build) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let (parameter, directive) = build.http2();
        let configuration = Configuration::new().server(
            format!("{address} ssl{parameter}"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            format!("{directive} location / {{ return 200 $ssl_protocol; }}"),
        );
        Self {
            nginx: Nginx::start(build, &configuration),
            authority,
            address,
        }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// The body, and the version of HTTP.
    fn curl(&self, http: &str, suite: &[&str]) -> String {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "-w", " HTTP/%{http_version}", http]);
        command
            .args(suite)
            .arg("--cacert")
            .arg(self.authority.certificate_file());
        command
            .arg("--resolve")
            .arg(format!("localhost:{}:127.0.0.1", self.address.port()));
        command.arg(format!("https://localhost:{}/", self.address.port()));
        programs::finish(&mut command, b"").expect_success()
    }

    fn s_client(&self, suite: &[&str]) -> Finished {
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-ign_eof",
            "-verify_return_error",
            "-servername",
            "localhost",
        ]);
        command.args(["-verify_hostname", "localhost", "-connect"]);
        command.arg(self.address.to_string()).args(suite);
        command
            .arg("-CAfile")
            .arg(self.authority.certificate_file());
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        programs::finish(&mut command, request)
    }

    fn expect_in_lanes(&self, operations: u64) {
        let metrics = self.nginx.settled();
        assert_eq!(metrics.lane_operations(), operations, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
    }
}
