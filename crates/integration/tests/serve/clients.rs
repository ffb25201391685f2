//! Clients of others: each with its own TLS stack or its own way of using one.

use std::path::{Path, PathBuf};
use std::process::Command;

use slipstream_integration::programs;
use slipstream_integration::{KeyType, Offer, concurrently, eventually};
use slipstream_testbed::scratch::ScratchDirectory;

use crate::handshakes::serve_together;
use crate::site::{Backend, Site};

/// Connections that the clients in other languages make at once.
const CONNECTIONS: u64 = 24;

#[test]
fn curl_with_http1_and_http2() {
    let site = Site::http(&[KeyType::Rsa(2048), KeyType::EcdsaP256], "");
    let suites: [&[&str]; 3] = [
        &[
            "--tls-max",
            "1.2",
            "--ciphers",
            "ECDHE-RSA-AES256-GCM-SHA384",
        ],
        &[
            "--tls-max",
            "1.2",
            "--ciphers",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ],
        &["--tlsv1.3"],
    ];
    let cases: Vec<_> = ["--http1.1", "--http2"]
        .into_iter()
        .flat_map(|http| suites.map(|suite| (http, suite)))
        .collect();
    concurrently(cases.len(), |number| {
        let (http, suite) = cases[number];
        let port = site.address.port();
        let mut command = Command::new("curl");
        command
            .args(["-sS", "--fail", "-w", " %{http_version}", http])
            .args(suite)
            .arg("--cacert")
            .arg(site.authority.certificate_file())
            .arg("--resolve")
            .arg(format!("localhost:{port}:127.0.0.1"))
            .arg(format!("https://localhost:{port}/"));
        let output = programs::finish(&mut command, b"").expect_success();
        let version = if http == "--http2" { "2" } else { "1.1" };
        assert_eq!(output, format!("served {version}"));
    });
}

#[test]
fn openssl_s_client() {
    let site = Site::http(&[KeyType::Rsa(2048)], "");
    let suites = [
        ["-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"],
        ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
        ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        ["-tls1_3", "-groups", "P-384"],
    ];
    concurrently(suites.len(), |number| {
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-ign_eof", "-verify_return_error"])
            .args(["-servername", "localhost", "-verify_hostname", "localhost"])
            .args(["-connect", &site.address.to_string()])
            .args(suites[number])
            .arg("-CAfile")
            .arg(site.authority.certificate_file());
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let output = programs::finish(&mut command, request).expect_success();
        assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
        assert!(output.contains("HTTP/1.1 200 OK"), "{output}");
    });
}

#[test]
fn h2load_with_64_connections() {
    let site = Site::http(&[KeyType::Rsa(2048)], "");
    let url = format!("https://{}/", site.address);
    let arguments = ["-n", "1280", "-c", "64", "-m", "10", &url];
    let output = programs::run("h2load", arguments).expect_success();
    assert!(
        output.contains("1280 succeeded, 0 failed, 0 errored"),
        "{output}"
    );
    assert!(output.contains("Application protocol: h2"), "{output}");
    assert_eq!(
        site.terminator
            .metric("slipstream_serve_handshakes_total", ""),
        64
    );
}

#[test]
fn apache_bench() {
    let site = Site::http(&[KeyType::Rsa(2048)], "");
    let url = format!("https://{}/", site.address);
    for protocol in ["TLS1.2", "TLS1.3"] {
        let arguments = ["-n", "400", "-c", "50", "-f", protocol, &url];
        let output = programs::run("ab", arguments).expect_success();
        for line in ["Complete requests:      400", "Failed requests:        0"] {
            assert!(output.contains(line), "{output}");
        }
        assert!(!output.contains("Non-2xx responses"), "{output}");
    }
    // How many of its handshakes come at a time is its own affair. Those that come together are
    // computed together where lanes are.
    if std::arch::is_x86_feature_detected!("avx512ifma") {
        serve_together(&site);
        eventually("lanes have been used", || {
            site.terminator.lane_operations() >= 8
        });
    }
}

#[test]
fn python() {
    let script = source("client.py");
    run_in_both_versions(Command::new("python3").arg(script));
}

#[test]
fn go() {
    if programs::is_installed("go") {
        let scratch = ScratchDirectory::new().unwrap();
        let mut client = programs::built_with_go(&source("go/main.go"), &scratch);
        run_in_both_versions(&mut client);
    }
}

#[test]
fn java() {
    if programs::is_installed("java") {
        run_in_both_versions(Command::new("java").arg(source("Client.java")));
    }
}

#[test]
fn chromium() {
    if !programs::is_installed("chromium") {
        return;
    }
    let site = Site::http(&[KeyType::EcdsaP256], "");
    let scratch = ScratchDirectory::new().unwrap();
    let mut command = Command::new("chromium");
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--ignore-certificate-errors", "--virtual-time-budget=5000"])
        .arg(format!("--user-data-dir={}", scratch.path().display()))
        .arg(format!("https://localhost:{}/", site.address.port()));
    let output = programs::finish(&mut command, b"").expect_success();
    assert!(output.contains("served"), "{output}");
    // It offers X25519MLKEM768 first, and HTTP/2.
    let requests = site
        .terminator
        .metric("slipstream_serve_responses_total", "2xx");
    assert!(requests > 0);
}

/// Many at once, each with other keys and groups, and what they agree on.
#[test]
fn every_key_with_every_group() {
    let keys = [
        KeyType::Rsa(2048),
        KeyType::Rsa(3072),
        KeyType::Rsa(4096),
        KeyType::EcdsaP256,
        KeyType::EcdsaP384,
    ];
    for key in keys {
        let site = Site::http(&[key], "");
        // A certificate of a curve that a client does not offer is none for it in TLS 1.2 (RFC 8422
        // section 5.1).
        let offers: Vec<Offer> = ["X25519:P-256:P-384", "P-256:P-384", "P-384:P-256"]
            .into_iter()
            .flat_map(|groups| [Offer::tls12(), Offer::tls13()].map(|offer| offer.groups(groups)))
            .collect();
        concurrently(48, |number| {
            let client = site.client(&offers[number % offers.len()]);
            let response = client
                .get("/")
                .unwrap_or_else(|error| panic!("{key:?}: {error}"));
            assert_eq!(response.text(), "served");
        });
    }
}

/// Runs a client of tests/clients, which all take the same arguments, and expect to be told the
/// version of TLS.
fn run_in_both_versions(client: &mut Command) {
    let program: Vec<_> = std::iter::once(client.get_program())
        .chain(client.get_args())
        .map(ToOwned::to_owned)
        .collect();
    for (version, text) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
        let backend = Backend::start(text).address;
        let listener = format!("backends = [\"http://{backend}\"]");
        let site = Site::new(&[KeyType::Rsa(2048)], "", &listener);
        let mut command = Command::new(&program[0]);
        command
            .args(&program[1..])
            .arg(site.address.port().to_string())
            .arg(site.authority.certificate_file())
            .args([version, &CONNECTIONS.to_string()]);
        let output = programs::finish(&mut command, b"").expect_success();
        assert_eq!(output.trim(), format!("{CONNECTIONS} served"));
    }
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(file)
}
