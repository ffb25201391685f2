//! The stages before TLS, around it and after it.

use std::io::{Read, Write};
use std::net::SocketAddr;

use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Nginx, Offer, Response, concurrently,
    each_build, eventually, unused_address,
};

each_build!(
    proxy_protocol,
    plain_http_on_the_tls_port,
    deferred_accept,
    accept_mutex_and_multi_accept,
    timer_resolution,
    https_upstream,
    many_requests_on_one_connection,
    large_bodies_both_ways,
    two_workers,
    a_client_hello_in_pieces,
    handshake_timeout,
);

const OFFERS: [fn() -> Offer; 3] = [Offer::rsa_key_exchange, Offer::tls12, Offer::tls13];

fn proxy_protocol(build: Build) {
    let server = Server::start_with(
        build,
        Configuration::new(),
        " proxy_protocol",
        "location / { return 200 $proxy_protocol_addr; }",
    );
    let first_version = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n".to_vec();
    let mut second_version = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    second_version.extend([192, 0, 2, 7, 192, 0, 2, 1, 0x12, 0x67, 0x01, 0xbb]);
    for offer in OFFERS {
        let client = server.client(&offer());
        for header in [&first_version, &second_version] {
            concurrently(8, |number| {
                let mut socket = client.open().unwrap();
                if number % 2 == 0 {
                    // Accepted before there is a byte to read.
                    server.nginx.metrics();
                }
                socket.write_all(header).unwrap();
                if number % 4 < 2 {
                    // The header has been read before the ClientHello comes.
                    server.nginx.metrics();
                }
                let mut connection = client.handshake(socket).unwrap();
                assert_eq!(connection.get("/").unwrap().text(), "192.0.2.7");
            });
        }
        let mut socket = client.open().unwrap();
        socket.write_all(b"PROXY nonsense\r\n").unwrap();
        assert!(client.handshake(socket).is_err());
    }
    server.expect_in_lanes(48);
}

fn plain_http_on_the_tls_port(build: Build) {
    let server = Server::start(build, "");
    concurrently(8, |number| {
        let client = server.client(&Offer::tls13());
        let mut socket = client.open().unwrap();
        if number % 2 == 0 {
            // Accepted before there is a byte to read.
            server.nginx.metrics();
        }
        socket
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let response = Response::read(&mut socket).unwrap();
        assert_eq!(response.status, 400);
        assert!(
            response
                .text()
                .contains("The plain HTTP request was sent to HTTPS port")
        );
        assert_eq!(client.get("/").unwrap().text(), "served");
    });
    server.expect_in_lanes(8);
}

fn deferred_accept(build: Build) {
    let server = Server::start_with(build, Configuration::new(), " deferred", PAGE);
    server.serve_all();
}

fn accept_mutex_and_multi_accept(build: Build) {
    let configuration = Configuration::new()
        .workers(2)
        .events("accept_mutex on; multi_accept on;");
    let server = Server::start_with(build, configuration, "", PAGE);
    server.serve_all();
}

fn timer_resolution(build: Build) {
    let configuration = Configuration::new().main("timer_resolution 100ms;");
    let server = Server::start_with(build, configuration, "", PAGE);
    server.serve_all();
}

/// The worker is its own upstream: it waits, as a client, for a handshake that is paused in itself.
fn https_upstream(build: Build) {
    let authority = Authority::new();
    let (front, back) = (unused_address(), unused_address());
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let configuration = Configuration::new()
        .server(
            format!("{front} ssl"),
            &[&credentials],
            format!(
                "location / {{
                     proxy_pass https://{back};
                     proxy_ssl_session_reuse off;
                     proxy_ssl_verify on;
                     proxy_ssl_name localhost;
                     proxy_ssl_trusted_certificate {};
                     proxy_ssl_protocols TLSv1.2 TLSv1.3;
                 }}",
                authority.certificate_file().display()
            ),
        )
        .server(format!("{back} ssl"), &[&credentials], PAGE);
    let server = Server {
        nginx: Nginx::start(build, &configuration),
        authority,
        address: front,
    };
    for offer in OFFERS {
        let client = server.client(&offer());
        concurrently(30, |_| {
            assert_eq!(client.get("/").unwrap().text(), "served")
        });
    }
    server.expect_in_lanes(180);
}

fn many_requests_on_one_connection(build: Build) {
    let configuration = Configuration::new().http("keepalive_requests 10000;");
    let server = Server::start_with(build, configuration, "", PAGE);
    for offer in OFFERS {
        let mut connection = server.client(&offer()).connect().unwrap();
        for _ in 0..2000 {
            assert_eq!(connection.get("/").unwrap().text(), "served");
        }
    }
    server.expect_in_lanes(3);
}

/// nginx echoes what it is sent, through a temporary file and a buffered response.
fn large_bodies_both_ways(build: Build) {
    const BYTES: usize = 8 << 20;
    let back = unused_address();
    let authority = Authority::new();
    let address = unused_address();
    let configuration = Configuration::new()
        .http("client_max_body_size 16m; client_body_buffer_size 16k; sendfile on;")
        .server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            format!("location / {{ proxy_pass http://{back}; proxy_buffers 8 16k; }}"),
        );
    let server = Server {
        nginx: Nginx::start(build, &configuration),
        authority,
        address,
    };
    let body: Vec<u8> = (0..BYTES).map(|byte| (byte % 251) as u8).collect();
    let listener = std::net::TcpListener::bind(back).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in OFFERS {
                echo(listener.accept().unwrap().0, BYTES);
            }
        });
        for offer in OFFERS {
            let mut connection = server.client(&offer()).connect().unwrap();
            let response = connection.post("/", &body).unwrap();
            assert_eq!(response.status, 200);
            assert!(response.body == body, "the body comes back as it was");
        }
    });
    server.expect_in_lanes(3);
}

fn two_workers(build: Build) {
    let server = Server::start_with(build, Configuration::new().workers(2), "", PAGE);
    assert_eq!(server.nginx.settled().workers(), 2);
    server.serve_all();
}

/// Every way in which a ClientHello may be cut, and a pause between the pieces.
fn a_client_hello_in_pieces(build: Build) {
    let server = Server::start(build, "");
    let hello = client_hello();
    concurrently(24, |number| {
        let client = server.client(&Offer::tls13());
        let mut socket = client.open().unwrap();
        let (first, rest) = hello.split_at(1 + number * hello.len() / 25);
        socket.write_all(first).unwrap();
        // nginx has seen the first piece once it has answered elsewhere.
        server.nginx.metrics();
        socket.write_all(rest).unwrap();
        // A ServerHello, whatever this hello was worth to nobody.
        let mut header = [0; 6];
        socket.read_exact(&mut header).unwrap();
        assert_eq!((header[0], header[5]), (22, 2), "{header:?}");
    });
    eventually("all are closed", || {
        server.nginx.settled().closed_handshakes() == 24
    });
    assert_eq!(server.nginx.settled().handshakes(), 0);
    server.expect_in_lanes(24);
}

/// A client that says nothing, or not enough, is closed when `client_header_timeout` has passed.
fn handshake_timeout(build: Build) {
    let authority = Authority::new();
    let impatient = unused_address();
    // A server of its own: on a busy machine clients that mean well may take as long.
    let configuration = Configuration::new().server(
        format!("{impatient} ssl"),
        &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
        format!("client_header_timeout 1s; {PAGE}"),
    );
    let server = Server::start_with(build, configuration, "", PAGE);
    let hello = client_hello();
    concurrently(6, |number| {
        let mut socket = Client::new(impatient, &Offer::tls13()).open().unwrap();
        socket
            .write_all(&hello[..number * hello.len() / 6])
            .unwrap();
        let mut rest = Vec::new();
        // An alert may come first, or a reset if bytes were left unread.
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.len() < 16, "{rest:?}");
    });
    server.serve_all();
}

const PAGE: &str = "location / { return 200 served; }";

struct Server {
    authority: Authority,
    nginx: Nginx,
    address: SocketAddr,
}

impl Server {
    fn start(build: Build, directives: &str) -> Self {
        Self::start_with(
            build,
            Configuration::new(),
            "",
            &format!("{directives} {PAGE}"),
        )
    }

    fn start_with(
        build: Build,
        configuration: Configuration,
        parameters: &str,
        directives: &str,
    ) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
        let listen = format!("{address} ssl{parameters}");
        let configuration = configuration.server(listen, &[&credentials], directives);
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

    /// Many at once, with every offer.
    fn serve_all(&self) {
        let before = self.nginx.settled().lane_operations();
        for offer in OFFERS {
            let client = self.client(&offer());
            concurrently(60, |_| {
                assert_eq!(client.get("/").unwrap().text(), "served")
            });
        }
        self.expect_in_lanes(before + 180);
    }

    fn expect_in_lanes(&self, operations: u64) {
        let metrics = self.nginx.settled_after(operations);
        assert_eq!(metrics.lane_operations(), operations, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
    }
}

/// Answers one HTTP/1.0 request, as nginx sends it to an upstream, with its own body.
fn echo(mut stream: std::net::TcpStream, bytes: usize) {
    let mut received = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let body = loop {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "nginx has closed too early");
        received.extend_from_slice(&buffer[..read]);
        let end = received.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end.filter(|end| received.len() >= end + 4 + bytes) {
            break end + 4;
        }
    };
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&received[body..]).unwrap();
}

/// The first record that a client of TLS 1.3 sends.
fn client_hello() -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::new(listener.local_addr().unwrap(), &Offer::tls13());
    std::thread::scope(|scope| {
        // Nobody answers it.
        scope.spawn(|| drop(client.connect()));
        let (mut stream, _) = listener.accept().unwrap();
        let mut record = vec![0; 5];
        stream.read_exact(&mut record).unwrap();
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        stream.read_exact(&mut record[5..]).unwrap();
        record
    })
}
