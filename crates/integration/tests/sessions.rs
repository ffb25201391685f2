//! Handshakes that differ from one full handshake: resumption, early data, a second ClientHello,
//! and what comes after.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{ChildStdin, Command, Stdio};

use openssl::pkey::Id;
use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Nginx, Offer, concurrently, each_build,
    unused_address,
};

each_build!(
    resumption_by_ticket,
    resumption_by_session_id,
    early_data,
    early_data_of_many_at_once,
    a_second_client_hello,
    key_updates,
    renegotiation_is_refused,
);

fn resumption_by_ticket(build: Build) {
    for offer in [Offer::rsa_key_exchange(), Offer::tls12(), Offer::tls13()] {
        let server = Server::start(build, "ssl_session_cache off;");
        server.expect_resumption(&offer);
    }
}

fn resumption_by_session_id(build: Build) {
    let server = Server::start(
        build,
        "ssl_session_tickets off; ssl_session_cache shared:s:1m;",
    );
    server.expect_resumption(&Offer::rsa_key_exchange().without_tickets());
    server.expect_resumption(&Offer::tls12().without_tickets());
    // In TLS 1.3 the ID stands in the ticket.
    server.expect_resumption(&Offer::tls13());
}

fn early_data(build: Build) {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(
        build,
        &format!(
            "ssl_early_data on;
             location ~ ^/passed/((?:a|b)+)$ {{
                 proxy_set_header Early-Data $ssl_early_data;
                 proxy_pass http://{};
             }}",
            upstream.local_addr().unwrap()
        ),
    );
    let client = server.client(&Offer::tls13());
    for _ in 0..3 {
        assert_eq!(client.get("/").unwrap().text(), "served");
        let before = server.nginx.settled().operations();
        let early = client
            .session()
            .send_early_data(&get("/passed/abab"))
            .unwrap();
        // The request arrives although the client has not completed the handshake, and says so (RFC
        // 8470).
        let (mut passed, _) = upstream.accept().unwrap();
        let head = read_head(&mut passed);
        assert!(head.contains("\r\nEarly-Data: 1\r\n"), "{head}");
        passed
            .write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nyes")
            .unwrap();

        let mut connection = early.finish().unwrap();
        assert!(connection.is_resumed());
        assert_eq!(connection.read_response().unwrap().text(), "yes");
        assert_eq!(connection.get(MATCHED).unwrap().text(), "matched aaaa end");
        assert_eq!(server.nginx.settled().operations(), before);
    }
}

/// Handshakes with early data between full ones, whose operations they have no part in.
fn early_data_of_many_at_once(build: Build) {
    let server = Server::start(build, "ssl_early_data on;");
    concurrently(60, |number| {
        let client = server.client(&Offer::tls13());
        for _ in 0..3 {
            assert_eq!(client.get(MATCHED).unwrap().text(), "matched aaaa end");
            if number % 3 != 0 {
                let early = client.session().send_early_data(&get(MATCHED)).unwrap();
                let mut connection = early.finish().unwrap();
                assert!(connection.is_resumed());
                assert_eq!(
                    connection.read_response().unwrap().text(),
                    "matched aaaa end"
                );
            }
        }
    });
    server.expect_in_lanes(180);
}

fn a_second_client_hello(build: Build) {
    let server = Server::start(build, "ssl_ecdh_curve X25519;");
    // The client's key share is for P-256, which the server does not take: it sends a
    // HelloRetryRequest.
    let client = server.client(&Offer::tls13().groups("P-256:X25519"));
    concurrently(40, |_| {
        let mut connection = client.connect().unwrap();
        assert_eq!(connection.temporary_key().unwrap().id(), Id::X25519);
        assert_eq!(connection.get("/").unwrap().text(), "served");
    });
    server.expect_in_lanes(40);

    let server = Server::start(build, "ssl_ecdh_curve prime256v1;");
    let client = server.client(&Offer::tls13().groups("X25519:P-256"));
    let connection = client.connect().unwrap();
    assert_eq!(connection.temporary_key().unwrap().id(), Id::EC);
    server.expect_in_lanes(1);
}

/// `k` and `K` have s_client update its key, the latter the server's too (RFC 8446 section 4.6.3).
fn key_updates(build: Build) {
    let server = Server::start(build, "");
    let mut session = SClient::start(server.address, &["-tls1_3"]);
    for command in ["k", "K", "K", "k"] {
        session.type_line(command);
        session.wait_for("KEYUPDATE");
        session.type_line("GET / HTTP/1.1\r\nHost: localhost\r\n\r");
        session.wait_for("HTTP/1.1 200 OK");
    }
    session.end();
    server.expect_in_lanes(1);
}

fn renegotiation_is_refused(build: Build) {
    let server = Server::start(build, "");
    let mut session = SClient::start(server.address, &["-tls1_2"]);
    session.type_line("R");
    session.wait_for("RENEGOTIATING");
    assert!(!session.end(), "OpenSSL gives up when it is refused");
    // The server is well.
    let client = server.client(&Offer::tls12());
    assert_eq!(client.get("/").unwrap().text(), "served");
    server.expect_in_lanes(2);
}

/// A path that a regular expression finds, compiled by pcre_jit: it would take 32 KiB of a fiber's
/// stack.
const MATCHED: &str = "/matched/aaaa/end";

struct Server {
    authority: Authority,
    nginx: Nginx,
    address: SocketAddr,
}

impl Server {
    fn start(build: Build, directives: &str) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let locations = r#"
            location / { return 200 served; }
            location ~ "^/matched/((?:a|b)+)/(?<end>.*)$" {
                return 200 "matched $1 $end";
            }"#;
        let configuration = Configuration::new().main("pcre_jit on;").server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            format!("{directives} {locations}"),
        );
        Self {
            nginx: Nginx::start(build, &configuration),
            authority,
            address,
        }
    }

    fn client(&self, offer: &Offer) -> Client {
        let offer = offer
            .clone()
            .name("localhost")
            .roots(self.authority.certificate());
        Client::new(self.address, &offer)
    }

    /// A first connection takes a private-key operation, a second one with its session none.
    fn expect_resumption(&self, offer: &Offer) {
        let client = self.client(offer);
        let before = self.nginx.settled().lane_operations();
        for _ in 0..2 {
            let mut first = client.connect().unwrap();
            assert!(!first.is_resumed());
            assert_eq!(first.get("/").unwrap().text(), "served");
            // OpenSSL's clients use a session of TLS 1.3 once, as RFC 8446 advises.
            let mut second = client.session().connect().unwrap();
            assert!(second.is_resumed(), "{offer:?}");
            assert_eq!(second.get("/").unwrap().text(), "served");
        }
        self.expect_in_lanes(before + 2);
    }

    fn expect_in_lanes(&self, operations: u64) {
        let metrics = self.nginx.settled();
        assert_eq!(metrics.lane_operations(), operations, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
    }
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

/// Reads from an HTTP client up to the end of the header.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = String::new();
    let mut stream = BufReader::new(stream);
    while !head.ends_with("\r\n\r\n") {
        let read = stream.read_line(&mut head).unwrap();
        assert!(read > 0, "{head}");
    }
    head
}

/// `openssl s_client`, whose input is commands if a line begins with certain letters.
struct SClient {
    child: std::process::Child,
    input: ChildStdin,
    output: BufReader<std::io::PipeReader>,
}

impl SClient {
    fn start(address: SocketAddr, arguments: &[&str]) -> Self {
        // What the commands do is told on standard error, what the server sends on standard output.
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &address.to_string()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut session = Self {
            child,
            input,
            output: BufReader::new(reader),
        };
        session.wait_for("Verify return code");
        session
    }

    fn type_line(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Reads until a line with `text`.
    fn wait_for(&mut self, text: &str) {
        let mut seen = String::new();
        while !seen.contains(text) {
            let read = self.output.read_line(&mut seen).unwrap();
            assert!(read > 0, "no \"{text}\" in:\n{seen}");
        }
    }

    /// Ends the input, waits, and returns whether the program has succeeded.
    fn end(self) -> bool {
        let Self {
            mut child, input, ..
        } = self;
        drop(input);
        child.wait().unwrap().success()
    }
}
