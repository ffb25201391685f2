//! Configuration files: values that are read, and messages for mistakes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use slipstream_terminator::Configuration;
use slipstream_terminator::configuration::{
    AccessLog, Address, Backend, Balance, CertificateFiles, ClientCertificates, Crypto, Engine,
    EngineUser, Group, Health, HttpLimits, Limits, LogFormat, LogTarget, ProxyProtocol, Service,
    Upstream, file, values,
};

const EVERYTHING: &str = r#"
workers = 2
user = "www-data"
crypto = "slipstream"
drain_timeout = "20s"
watch = "off"
tickets = 4

[engine]
socket = "engine.sock"
isolate_keys = true
user = "engine"

[metrics]
listen = "127.0.0.1:9145"

[access_log]
path = "access.log"
format = "json"

[limits]
connections = 1000
connections_per_address = 20
handshakes = 100
connections_per_second = 50
requests = 2000
handshake_timeout = "5s"
header_timeout = "6s"
idle_timeout = "2m"
header_bytes = "32k"
streams = 64
unread_bytes = "64k"
unread_bytes_total = "100m"

[[listener]]
listen = ["0.0.0.0:8443", "[::]:8443"]
certificates = [
    { certificate = "a.pem", key = "/keys/a.key", ocsp = "a.der" },
    { certificate = "b.pem", key = "b.key" },
]
versions = ["1.3"]
groups = ["X25519", "P-256"]
alpn = ["http/1.1"]
client_certificates = { authorities = "ca.pem", required = false }
proxy_protocol_from = ["10.0.0.0/8", "::1"]
backends = ["https://host:8443", "http://unix:app.sock"]
proxy_protocol = "v2"
balance = "least_connections"
connect_timeout = "500ms"
response_timeout = "1h"
body_timeout = "2h"
retries = 0
fail_timeout = "0s"
max_connections = 200
queue = 0
queue_timeout = "2s"
health = { interval = "5s", path = "/healthz" }
authorities = "backends.pem"
trust_headers_from = "192.0.2.0/24"

[[listener]]
listen = "0.0.0.0:9443"
certificates = { certificate = "a.pem", key = "a.key" }
backends = "127.0.0.1:3128"

[[listener]]
listen = "0.0.0.0:10443"
certificates = { certificate = "a.pem", key = "a.key" }
root = "www"
"#;

#[test]
fn everything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("serve.toml");
    fs::write(&path, EVERYTHING).unwrap();
    let below = |name: &str| folder.path().join(name);
    let read = file::read(&path).unwrap();

    assert_eq!(read.workers, Some(2));
    assert_eq!(read.user.as_deref(), Some("www-data"));
    assert_eq!(read.crypto, Crypto::Slipstream);
    assert_eq!(read.drain_timeout, Duration::from_secs(20));
    assert_eq!(read.watch, None);
    assert_eq!(read.tickets, 4);
    let engine = Engine {
        socket: below("engine.sock"),
        isolate_keys: true,
        user: EngineUser::new("engine"),
    };
    assert_eq!(read.engine, Some(engine));
    assert_eq!(read.metrics, Some("127.0.0.1:9145".parse().unwrap()));
    let log = AccessLog {
        target: LogTarget::File(below("access.log")),
        format: LogFormat::Json,
    };
    assert_eq!(read.access_log, Some(log));
    let limits = Limits {
        connections: 1000,
        connections_per_address: 20,
        handshakes: 100,
        connections_per_second: Some(50),
        requests: 2000,
        unread_bytes_total: 100 << 20,
        handshake_timeout: Duration::from_secs(5),
        http: HttpLimits {
            header_timeout: Duration::from_secs(6),
            idle_timeout: Duration::from_secs(120),
            header_bytes: 32 * 1024,
            streams: 64,
            unread_bytes: 64 * 1024,
        },
    };
    assert_eq!(read.limits, limits);

    let [http, tcp, files] = &read.listeners[..] else {
        panic!("three listeners");
    };
    assert_eq!(http.addresses[1], "[::]:8443".parse().unwrap());
    let certificate = CertificateFiles {
        certificate: below("a.pem"),
        key: "/keys/a.key".into(),
        ocsp: Some(below("a.der")),
    };
    assert_eq!(http.certificates[0], certificate);
    assert_eq!(http.certificates.len(), 2);
    assert_eq!((http.tls12, http.tls13), (false, true));
    assert_eq!(http.groups, [Group::X25519, Group::P256]);
    assert_eq!(http.alpn, ["http/1.1"]);
    let clients = ClientCertificates {
        authorities: below("ca.pem"),
        required: false,
    };
    assert_eq!(http.client_certificates, Some(clients));
    assert!(http.proxy_protocol_from[0].contains("10.1.2.3".parse().unwrap()));
    let upstream = Upstream {
        backends: vec![
            Backend {
                address: Address::Tcp("host".to_owned(), 8443),
                tls: Some("host".to_owned()),
            },
            Backend {
                address: Address::Unix(below("app.sock")),
                tls: None,
            },
        ],
        balance: Balance::LeastConnections,
        proxy_protocol: Some(ProxyProtocol::V2),
        connect_timeout: Duration::from_millis(500),
        response_timeout: Duration::from_secs(3600),
        body_timeout: Duration::from_secs(7200),
        retries: 0,
        fail_timeout: Duration::ZERO,
        max_connections: 200,
        queue: 0,
        queue_timeout: Duration::from_secs(2),
        health: Some(Health {
            interval: Duration::from_secs(5),
            path: Some("/healthz".to_owned()),
        }),
        authorities: Some(below("backends.pem")),
        trust_headers_from: vec![values::network("192.0.2.0/24").unwrap()],
    };
    assert_eq!(http.service, Service::Http(upstream));

    let Service::Tcp(upstream) = &tcp.service else {
        panic!("bytes");
    };
    assert_eq!(upstream.connect_timeout, Duration::from_secs(5));
    assert_eq!(
        (upstream.retries, upstream.fail_timeout),
        (2, Duration::from_secs(10))
    );
    assert!(tcp.alpn.is_empty());
    assert_eq!(files.service, Service::Files(below("www")));
    assert_eq!(files.alpn, ["h2", "http/1.1"]);
    assert_eq!(files.groups, Group::ALL);
    assert!(files.tls12 && files.tls13);
}

/// Text before the line under test: four lines.
const LISTENER: &str = r#"
[[listener]]
listen = "127.0.0.1:8443"
certificates = { certificate = "a.pem", key = "a.key" }
"#;

#[test]
fn defaults_are_those_of_the_types() {
    let read = file::parse("x", &format!("{LISTENER}root = \"/var/www\"")).unwrap();
    assert_eq!(read, Configuration::new(read.listeners.clone()));
    assert_eq!(read.drain_timeout, Duration::from_secs(30));
    assert_eq!(read.watch, Some(Duration::from_secs(5)));
    assert_eq!(read.tickets, 2);
}

fn error(text: &str) -> String {
    file::parse("serve.toml", text).unwrap_err().to_string()
}

#[test]
fn mistakes_before_the_listeners_are_named_with_line_and_cure() {
    for (line, expected) in [
        (
            "wokers = 2",
            "unknown key \"wokers\", did you mean \"workers\"?",
        ),
        ("workers = 0", "\"workers\" = 0 must be from 1 to 4096"),
        (
            "workers = \"2\"",
            "\"workers\" = \"2\" must be a number from 1 to 4096",
        ),
        (
            "workers = -1",
            "\"workers\" = -1 must be a number from 1 to 4096",
        ),
        ("user = \"\"", "\"user\" = \"\" must not be empty"),
        (
            "user = 33",
            "\"user\" = 33 must be in quotes, such as \"www-data\"",
        ),
        (
            "crypto = \"openssl\"",
            "\"crypto\" = \"openssl\" must be \"slipstream\" or \"aws-lc\"",
        ),
        (
            "drain_timeout = 30",
            "\"drain_timeout\" = 30 must be in quotes, such as \"30s\"",
        ),
        (
            "drain_timeout = \"30\"",
            "\"drain_timeout\" = \"30\" must be a time such as \"30s\", with ms, s, m or h",
        ),
        ("watch = \"0s\"", "\"watch\" must be more than 0"),
        ("tickets = 65", "\"tickets\" = 65 must be from 0 to 64"),
        (
            "metrics = { listen = \":9145\" }",
            "\"listen\" = \":9145\" must have an address: \"0.0.0.0:9145\" for all of IPv4, \"[::]:9145\" for all of IPv6",
        ),
        (
            "metrics = 9145",
            "\"metrics\" = 9145 must be a table: [metrics]",
        ),
        (
            "[metrics]",
            "[metrics] lacks \"listen\", such as \"127.0.0.1:9145\"",
        ),
        (
            "[metrics]\nworkers = 2",
            "the key \"workers\" must be at the beginning of the file, above the first [section]",
        ),
        (
            "access_log = { path = \"-\", format = \"common\" }",
            "\"format\" = \"common\" must be \"combined\" or \"json\"",
        ),
        (
            "limits = { header_bytes = \"1k\" }",
            "\"header_bytes\" = \"1k\" must be from 8192 to 16777216",
        ),
        (
            "limits = { idle_timeout = \"0s\" }",
            "\"idle_timeout\" must be more than 0",
        ),
        (
            "limits = { streams = 0 }",
            "\"streams\" = 0 must be from 1 to 16777216",
        ),
        (
            "engine = { isolate_keys = \"yes\" }",
            "\"isolate_keys\" = \"yes\" must be true or false",
        ),
    ] {
        let number = 2 + line.matches('\n').count();
        let error = error(&format!("# a comment\n{line}{LISTENER}root = \"/\"\n"));
        assert_eq!(error, format!("serve.toml:{number}: {expected}"));
    }
}

#[test]
fn mistakes_of_a_listener_are_named_with_line_and_cure() {
    let http = "backends = \"http://127.0.0.1:80\"\n";
    let tcp = "backends = \"127.0.0.1:80\"\n";
    for (before, line, expected) in [
        (
            tcp,
            "certficates = 1",
            "unknown key \"certficates\", did you mean \"certificates\"?",
        ),
        (
            tcp,
            "workers = 1",
            "the key \"workers\" must be at the beginning of the file, above the first [section]",
        ),
        (
            tcp,
            "versions = [\"1.1\"]",
            "\"versions\" = \"1.1\" must be \"1.2\" or \"1.3\"",
        ),
        (tcp, "versions = []", "\"versions\" must not be empty"),
        (
            tcp,
            "groups = \"P-521\"",
            "\"groups\" = \"P-521\" must be one of X25519MLKEM768, X25519, P-256, P-384",
        ),
        (
            tcp,
            "groups = [\"P-256\", \"secp256r1\"]",
            "\"groups\" = \"secp256r1\" is in the list twice",
        ),
        (
            http,
            "alpn = \"h3\"",
            "\"alpn\" = \"h3\" must be \"h2\" or \"http/1.1\": this listener serves HTTP only",
        ),
        (
            tcp,
            "proxy_protocol_from = \"10.0.0.0/33\"",
            "\"proxy_protocol_from\" = \"10.0.0.0/33\" must have a prefix of at most 32 bits",
        ),
        (
            tcp,
            "trust_headers_from = \"10.0.0.0/8\"",
            "\"trust_headers_from\" = \"10.0.0.0/8\" is for backends with http://; bytes are passed on as they are",
        ),
        (
            tcp,
            "proxy_protocol = \"v3\"",
            "\"proxy_protocol\" = \"v3\" must be \"v1\" or \"v2\"",
        ),
        (
            tcp,
            "balance = \"random\"",
            "\"balance\" = \"random\" must be \"round_robin\" or \"least_connections\"",
        ),
        (
            tcp,
            "retries = 101",
            "\"retries\" = 101 must be from 0 to 100",
        ),
        (
            tcp,
            "response_timeout = \"1s\"",
            "\"response_timeout\" = \"1s\" is for backends with http://; for bytes there is idle_timeout in [limits]",
        ),
        (
            tcp,
            "health = { interval = \"5s\", path = \"/\" }",
            "\"path\" = \"/\" is for backends with http://: remove it to check connections only",
        ),
        (
            http,
            "health = { path = \"/\" }",
            "{ interval = \"5s\", path = \"/healthz\" } lacks \"interval\", such as \"5s\"",
        ),
        (
            http,
            "health = { interval = \"5s\", path = \"/a b\" }",
            "\"path\" = \"/a b\" must be a path such as \"/healthz\", without spaces",
        ),
        (
            http,
            "authorities = \"ca.pem\"",
            "\"authorities\" = \"ca.pem\" is for backends with tls:// or https://; for clients there is client_certificates",
        ),
        (
            http,
            "root = \"/\"",
            "\"root\" = \"/\" excludes \"backends\": remove one of the two",
        ),
        (
            "root = \"/\"\n",
            "retries = 1",
            "\"retries\" = 1 is for backends, and this listener has a root: remove it",
        ),
        (
            "\n",
            "backends = [\"127.0.0.1:80\", \"http://127.0.0.1:80\"]",
            "\"backends\" = \"http://127.0.0.1:80\" must match the first one: all with http:// or https://, or none of them",
        ),
        (
            "\n",
            "backends = [\"127.0.0.1:80\", \"127.0.0.1:80\"]",
            "\"backends\" = \"127.0.0.1:80\" is in the list twice",
        ),
        ("\n", "backends = []", "\"backends\" must not be empty"),
        (
            "\n",
            "root = \"a\\u0000\"",
            "\"root\" = \"a\\0\" must not contain a zero byte",
        ),
    ] {
        let error = error(&format!("{LISTENER}{before}{line}\n"));
        assert_eq!(error, format!("serve.toml:6: {expected}"));
    }
}

#[test]
fn missing_keys_are_named() {
    for (text, expected) in [
        (
            "",
            "1: the file lacks \"listener\", such as [[listener]] with listen, certificates and backends",
        ),
        (
            "\n[[listener]]",
            "2: [[listener]] lacks \"listen\", such as \"0.0.0.0:443\"",
        ),
        (
            "[[listener]]\nlisten = \"127.0.0.1:1\"",
            "1: [[listener]] lacks \"certificates\", such as [ { certificate = \"a.pem\", key = \"a.key\" } ]",
        ),
        (
            "[[listener]]\nlisten = \"127.0.0.1:1\"\ncertificates = { certificate = \"a.pem\" }",
            "3: { certificate = \"a.pem\", key = \"a.key\" } lacks \"key\", such as \"a.key\"",
        ),
        (
            LISTENER,
            "2: [[listener]] lacks \"backends\" or \"root\", such as backends = [\"127.0.0.1:3128\"]",
        ),
    ] {
        assert_eq!(error(text), format!("serve.toml:{expected}"));
    }
    let engine = format!("crypto = \"aws-lc\"\n[engine]\n{LISTENER}root = \"/\"");
    assert!(error(&engine).starts_with("serve.toml:1: \"crypto\" = \"aws-lc\" uses no engine"));
    let twice = format!("{LISTENER}root = \"/\"\n{LISTENER}root = \"/\"\n");
    assert_eq!(
        error(&twice),
        "serve.toml:8: \"listen\" = \"127.0.0.1:8443\" is the address of another listener: remove one of the two"
    );
    assert!(error("workers = 1\nworkers = 2").starts_with("serve.toml:2: "));
    assert!(error("a = [").starts_with("serve.toml:1: "));
    let absent = file::read(Path::new("/absent/serve.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        absent.starts_with("/absent/serve.toml: cannot be read"),
        "{absent}"
    );
}

#[test]
fn the_files_of_a_reload_are_listed() {
    let read = file::parse("x", EVERYTHING).unwrap();
    let files = read.files();
    for name in [
        "a.pem",
        "/keys/a.key",
        "a.der",
        "b.pem",
        "b.key",
        "ca.pem",
        "backends.pem",
    ] {
        assert!(files.contains(&PathBuf::from(name)), "{name}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in any::<String>()) {
        let _ = file::parse("x", &text);
    }

    #[test]
    fn any_value_is_read_without_a_panic(
        line in 0..EVERYTHING.lines().count(),
        value in prop_oneof![
            any::<String>().prop_map(|text| format!("{text:?}")),
            proptest::collection::vec(proptest::sample::select(&b"-019az[]{}\"=., "[..]), 0..20)
                .prop_map(|bytes| String::from_utf8(bytes).expect("ASCII")),
        ],
    ) {
        let lines: Vec<String> = EVERYTHING
            .lines()
            .enumerate()
            .map(|(index, old)| match old.split_once('=') {
                Some((key, _)) if index == line => format!("{key}= {value}"),
                _ => old.to_owned(),
            })
            .collect();
        if let Err(error) = file::parse("x", &lines.join("\n")) {
            let error = error.to_string();
            prop_assert!(error.starts_with("x:") && !error.contains('\n'), "{error}");
        }
    }
}
