//! Balancers before the terminator, its own pages and messages, and the simple case on the command
//! line.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use rustix::process::Signal;
use slipstream_integration::programs;
use slipstream_integration::server::supervised;
use slipstream_integration::{
    Authority, Client, KeyType, Offer, Server, Terminator, TerminatorConfiguration, eventually,
    unused_address,
};

use crate::site::{Backend, Site, configuration};

#[test]
fn ipv4_and_ipv6_side_by_side() {
    let authority = Authority::new();
    let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
    let v4 = unused_address();
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, v4.port()));
    let backend = Backend::start("served").address;
    let text = format!(
        "workers = 2\n[[listener]]\nlisten = [\"{v4}\", \"{v6}\"]\nbackends = [\"http://{backend}\"]\n\
         certificates = [{{ certificate = {:?}, key = {:?} }}]\n",
        credentials.certificate_file, credentials.key_file
    );
    let _terminator = Terminator::start(&TerminatorConfiguration::default().main(&text));
    for address in [v4, v6] {
        let response = Client::new(address, &Offer::tls13())
            .get("/headers")
            .unwrap();
        let expected = format!("x-real-ip: {}\r\n", address.ip());
        assert!(
            response.text().to_lowercase().contains(&expected),
            "{}",
            response.text()
        );
    }
}

/// A balancer in front says who the client is. Nobody else is believed, and such a header is no
/// TLS.
#[test]
fn a_header_of_a_balancer() {
    let backend = Backend::start("served").address;
    for (from, is_believed) in [("127.0.0.0/8", true), ("10.0.0.0/8", false)] {
        let listener =
            format!("backends = [\"http://{backend}\"]\nproxy_protocol_from = [\"{from}\"]");
        let site = Site::new(&[KeyType::EcdsaP256], "", &listener);
        let client = site.client(&Offer::tls13());
        let mut socket = client.open().unwrap();
        socket
            .write_all(b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n")
            .unwrap();
        match client.handshake(socket) {
            Ok(mut connection) => {
                assert!(is_believed);
                let response = connection.get("/headers").unwrap();
                let headers = response.text().to_lowercase();
                assert!(headers.contains("x-real-ip: 203.0.113.7\r\n"), "{headers}");
                assert!(
                    headers.contains("x-forwarded-for: 203.0.113.7\r\n"),
                    "{headers}"
                );
                // Who is to send a header and does not is no balancer.
                assert!(client.get("/").is_err());
            }
            Err(_) => {
                assert!(!is_believed);
                assert_eq!(client.get("/").unwrap().text(), "served");
            }
        }
    }
}

/// One terminator behind another: TLS to a backend, whose certificate is verified.
#[test]
fn a_backend_with_tls() {
    let backend = Backend::start("served").address;
    let inner = Site::new(
        &[KeyType::EcdsaP256],
        "",
        &format!("backends = [\"http://{backend}\"]"),
    );
    let port = inner.address.port();
    let authorities = inner.authority.certificate_file();
    for scheme in ["https", "tls"] {
        let listener =
            format!("backends = [\"{scheme}://localhost:{port}\"]\nauthorities = {authorities:?}");
        let site = Site::new(&[KeyType::EcdsaP256], "", &listener);
        assert_eq!(
            site.client(&Offer::tls13()).get("/").unwrap().text(),
            "served"
        );

        let stranger = Authority::new();
        let authorities = stranger.certificate_file();
        let listener =
            format!("backends = [\"{scheme}://localhost:{port}\"]\nauthorities = {authorities:?}");
        let site = Site::new(&[KeyType::EcdsaP256], "", &listener);
        let answer = site.client(&Offer::tls13()).get("/");
        assert!(answer.map_or(true, |response| response.status == 502));
    }
}

#[test]
fn requests_and_connections_are_logged() {
    let authority = Authority::new();
    let backend = Backend::start("served").address;
    let (http, tcp) = (unused_address(), unused_address());
    let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
    for format in ["combined", "json"] {
        let path = authority.directory().join(format);
        let log = || fs::read_to_string(&path).unwrap_or_default();
        let configuration = |address| {
            TerminatorConfiguration::new()
                .main(&format!(
                    "[access_log]\npath = {path:?}\nformat = \"{format}\""
                ))
                .listener(
                    http,
                    &[&credentials],
                    &format!("backends = [\"http://{address}\"]"),
                )
                .listener(tcp, &[&credentials], &format!("backends = [\"{address}\"]"))
        };
        let terminator = Terminator::start(&configuration(backend));
        let offer = Offer::tls13()
            .name("localhost")
            .roots(authority.certificate());
        let mut connection = Client::new(http, &offer).connect().unwrap();
        connection
            .send(b"GET /page?a=b HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a\"b\r\n\r\n")
            .unwrap();
        connection.read_response().unwrap();
        drop(connection);
        eventually("the request is logged", || log().lines().count() == 1);
        let mut connection = Client::new(http, &offer).connect().unwrap();
        connection.send(b"no request\r\n\r\n").unwrap();
        assert_eq!(connection.read_response().unwrap().status, 400);
        drop(connection);
        eventually("nonsense is logged", || log().lines().count() == 2);
        Client::new(tcp, &offer).get("/").unwrap();
        eventually("all are logged", || log().lines().count() == 3);
        let text = log();
        let lines: Vec<&str> = text.lines().collect();
        match format {
            "combined" => {
                let end = r#""GET /page?a=b HTTP/1.1" 200 6 "-" "a\x22b""#;
                assert!(lines[0].ends_with(end), "{text}");
                assert!(lines[1].ends_with(r#""-" 400 0 "-" "-""#), "{text}");
                assert!(lines[2].starts_with("127.0.0.1 - - ["), "{text}");
            }
            _ => {
                let request: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
                assert_eq!(request["target"], "/page?a=b");
                assert_eq!(request["user_agent"], "a\"b");
                assert_eq!(request["status"], 200);
                assert_eq!(request["tls_version"], "TLSv1.3");
                assert_eq!(request["server_name"], "localhost");
                assert_eq!(request["backend"], backend.to_string());
                let nonsense: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
                assert_eq!(
                    (&nonsense["status"], nonsense.get("method")),
                    (&400.into(), None)
                );
                let connection: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
                assert_eq!(connection["client"], "127.0.0.1");
                assert!(connection["sent_bytes"].as_u64().unwrap() > 0);
            }
        }
        // Renamed, as logrotate does: what comes after a reload is in a new file.
        let old = path.with_extension("1");
        fs::rename(&path, &old).unwrap();
        terminator.reload(&configuration(backend));
        Client::new(http, &offer).get("/").unwrap();
        eventually("the new file has a line", || log().lines().count() == 1);
        assert_eq!(fs::read_to_string(&old).unwrap(), text);
    }
}

#[test]
fn health_is_told() {
    let backend = Backend::start("served");
    let mut site = Site::before(&backend, &[KeyType::EcdsaP256], "");
    for page in ["/health/live", "/health/ready"] {
        assert_eq!(site.terminator.page(page).status, 200, "{page}");
    }
    let mut slow = site.client(&Offer::tls13()).connect().unwrap();
    slow.send(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    backend.wait_for_slow();
    site.terminator.signal(Signal::TERM);
    eventually("no more connections are wanted", || {
        site.terminator.page("/health/ready").status == 503
    });
    assert_eq!(site.terminator.page("/health/live").status, 200);
    backend.release();
    assert_eq!(slow.read_response().unwrap().text(), "served slowly");
    assert!(site.terminator.wait().success());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let backend = Backend::start("served");
    let mut site = Site::before(&backend, &[KeyType::EcdsaP256], "drain_timeout = \"1h\"");
    let mut open = site.client(&Offer::tls13()).connect().unwrap();
    open.send(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    backend.wait_for_slow();
    site.terminator.signal(Signal::TERM);
    eventually("it ends", || {
        site.terminator
            .errors()
            .contains("no more connections are taken")
    });
    site.terminator.signal(Signal::TERM);
    assert_eq!(site.terminator.wait().code(), Some(128 + 15));
}

/// The quick start of docs/src/guide/serve.md.
#[test]
fn the_simple_case_on_the_command_line() {
    let authority = Authority::new();
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let address = unused_address();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let command = |mut command: Command, arguments: &[&str]| {
        command
            .arg(slipstream_integration::command())
            .args(["serve", "--listen", &address.to_string(), "--cert"])
            .arg(&credentials.certificate_file)
            .arg("--key")
            .arg(&credentials.key_file)
            .args(["--backend", &backend.local_addr().unwrap().to_string()])
            .args(arguments);
        command
    };
    let mut check = command(supervised("KILL"), &["--proxy-protocol", "--check"]);
    let checked = programs::finish(&mut check, b"");
    assert!(checked.expect_success().contains("fine"));

    let mut server = Server::new("slipstream serve");
    let serve = command(supervised("KILL"), &["--proxy-protocol", "--workers", "1"]);
    server.start(serve, |server| server.output().ends_with('\n'));
    assert!(server.output().starts_with("serving on"));
    let served = thread::spawn(move || {
        let (stream, _) = backend.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        let header = lines.next().unwrap().unwrap();
        let request = lines.next().unwrap().unwrap();
        (&stream)
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")
            .unwrap();
        (header, request)
    });
    let offer = Offer::tls13()
        .name("localhost")
        .roots(authority.certificate());
    assert_eq!(
        Client::new(address, &offer).get("/").unwrap().text(),
        "served"
    );
    let (header, request) = served.join().unwrap();
    assert!(
        header.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "),
        "{header}"
    );
    assert_eq!(request, "GET / HTTP/1.1");
    assert!(server.stop(Signal::TERM).success());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn mistakes_are_found_before_it_starts() {
    let authority = Authority::new();
    let credentials = [authority.issue(KeyType::EcdsaP256, &["localhost"])];
    let address = unused_address();
    let backends = "backends = [\"127.0.0.1:1\"]";
    for (main, listener, complaint) in [
        ("worker = 1", backends, "unknown key \"worker\""),
        ("", "backends = [\"127.0.0.1\"]", "port"),
        ("", "root = \"/nonexistent\"", "/nonexistent"),
        ("user = \"nobody-at-all\"", backends, "nobody-at-all"),
    ] {
        let errors = Terminator::refused(&configuration(address, &credentials, main, listener));
        assert!(errors.contains(complaint), "{errors}");
    }
}
