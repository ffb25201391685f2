//! TLS of nginx's mail proxy beside the module: as without it, with precomputed keys.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

use openssl::ssl::{Ssl, SslContext, SslMethod, SslVerifyMode};
use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Nginx, Offer, concurrently, each_build,
    server_block, unused_address,
};

each_build!(tls_from_the_start, tls_on_demand, both_orders_of_loading);

const CONNECTIONS: usize = 16;

fn tls_from_the_start(build: Build) {
    let server = Server::start(build, |configuration| configuration);
    for offer in [Offer::tls13(), Offer::tls12()] {
        let offer = offer
            .name("localhost")
            .roots(server.authority.certificate());
        concurrently(CONNECTIONS, |_| {
            let mut connection = Client::new(server.tls, &offer).connect().unwrap();
            let mut stream = BufReader::new(connection.stream());
            expect_pop3(&mut stream);
        });
    }
    server.expect_not_on_fibers();
}

/// The client asks for TLS when it has talked in the clear (RFC 2595).
fn tls_on_demand(build: Build) {
    let server = Server::start(build, |configuration| configuration);
    let context = {
        let mut builder = SslContext::builder(SslMethod::tls_client()).unwrap();
        builder.set_verify(SslVerifyMode::NONE);
        builder.build()
    };
    concurrently(CONNECTIONS, |_| {
        let socket = Client::new(server.plain, &Offer::tls13()).open().unwrap();
        let mut lines = BufReader::new(socket);
        assert!(line(&mut lines).starts_with("+OK"));
        lines.get_mut().write_all(b"STLS\r\n").unwrap();
        assert!(line(&mut lines).starts_with("+OK"));
        let mut stream = Ssl::new(&context)
            .unwrap()
            .connect(lines.into_inner())
            .unwrap();
        stream.write_all(b"NOOP\r\nQUIT\r\n").unwrap();
        let mut answers = String::new();
        let _ = stream.read_to_string(&mut answers);
        assert_eq!(
            answers.matches("+OK").count() + answers.matches("-ERR").count(),
            2
        );
    });
    server.expect_not_on_fibers();
}

fn both_orders_of_loading(build: Build) {
    let server = Server::start(build, Configuration::others_first);
    let mut connection = Client::new(server.tls, &Offer::tls13()).connect().unwrap();
    expect_pop3(&mut BufReader::new(connection.stream()));
}

fn expect_pop3<S: Read + Write>(stream: &mut BufReader<S>) {
    assert!(line(stream).starts_with("+OK"));
    stream.get_mut().write_all(b"CAPA\r\n").unwrap();
    assert!(line(stream).starts_with("+OK"));
    while line(stream) != ".\r\n" {}
    stream.get_mut().write_all(b"QUIT\r\n").unwrap();
    assert!(line(stream).starts_with("+OK"));
}

fn line(stream: &mut impl BufRead) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

struct Server {
    authority: Authority,
    nginx: Nginx,
    /// Takes TLS from the start.
    tls: SocketAddr,
    /// Takes it on demand.
    plain: SocketAddr,
}

impl Server {
    fn start(build: Build, change: impl FnOnce(Configuration) -> Configuration) -> Self {
        let authority = Authority::new();
        let [tls, plain, http] = [(); 3].map(|()| unused_address());
        let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
        // Nobody logs in.
        let auth = "protocol pop3; auth_http 127.0.0.1:1/;";
        let configuration = Configuration::new()
            .server(format!("{http} ssl"), &[&credentials], "")
            .mail(server_block(format!("{tls} ssl"), &[&credentials], auth))
            .mail(server_block(
                plain,
                &[&credentials],
                format!("{auth} starttls on;"),
            ));
        Self {
            nginx: Nginx::start(build, &change(configuration)),
            authority,
            tls,
            plain,
        }
    }

    fn expect_not_on_fibers(&self) {
        let metrics = self.nginx.settled();
        assert_eq!((metrics.handshakes(), metrics.lane_operations()), (0, 0));
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
        // Without IFMA there are lanes for RSA only.
        let has_curves = std::arch::is_x86_feature_detected!("avx512ifma")
            || !std::arch::is_x86_feature_detected!("avx512f");
        if has_curves {
            assert!(metrics.ahead_used() >= CONNECTIONS as u64, "{metrics:#?}");
        }
    }
}
