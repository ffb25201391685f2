//! Handshakes of stream's servers: in lanes, with nginx's own phases before and behind them, and
//! whatever clients and operators do meanwhile.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;

use openssl::ssl::SslVersion;
use slipstream_integration::abuse::Abuse;
use slipstream_integration::process::{descriptors, is_running};
use slipstream_integration::{
    Authority, Begun, Build, Client, Configuration, Connection, InFlight, KeyType, Nginx, Offer,
    Random, Visitors, concurrently, each_build, eventually, server_block, unused_address,
};

each_build!(
    rsa_in_every_version,
    ecdsa_in_every_version,
    concurrent_handshakes_share_batches,
    the_directive_is_inherited,
    resumption,
    client_certificates,
    the_proxy_protocol,
    clients_misbehave,
    clients_leave_while_their_operations_are_in_flight,
    handshakes_time_out,
    reloads_under_load,
    stream_comes_and_goes,
    both_orders_of_loading,
    plain_and_udp_servers_are_left_alone,
    connections_are_passed_to_tls_servers,
);

const CONNECTIONS: usize = 16;

fn rsa_in_every_version(build: Build) {
    let server = Server::start(build, KeyType::Rsa(2048));
    for offer in [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()] {
        let before = server.nginx.settled();
        server.serve(&offer);
        let after = server
            .nginx
            .settled_after(before.lane_operations() + CONNECTIONS as u64);
        let handshakes = after.handshakes() - before.handshakes();
        let operations = after.lane_operations() - before.lane_operations();
        assert_eq!(
            (handshakes, operations),
            (CONNECTIONS as u64, CONNECTIONS as u64)
        );
        assert_eq!(after.all_software_operations(), 0, "{after:#?}");
    }
}

fn ecdsa_in_every_version(build: Build) {
    let server = Server::start(build, KeyType::EcdsaP256);
    for (offer, number) in [(Offer::tls13(), 1), (Offer::tls12(), 2)] {
        server.serve(&offer);
        let metrics = server.nginx.settled();
        assert_eq!(metrics.handshakes(), number * CONNECTIONS as u64);
        // An exchange and a signature each.
        let computed = metrics.lane_exchanges() + metrics.lone_exchanges() + metrics.ahead_used();
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
        assert!(computed >= 2 * number * CONNECTIONS as u64, "{metrics:#?}");
    }
}

fn concurrent_handshakes_share_batches(build: Build) {
    let server = Server::start(build, KeyType::Rsa(2048));
    let client = server.client(&Offer::tls13());
    Begun::expect_service(Begun::many(&server.nginx, &client, 64));
    let metrics = server.nginx.settled();
    assert_eq!(metrics.lane_operations(), 64, "{metrics:#?}");
    assert!(metrics.batches_with(8) > 0, "{metrics:#?}");
}

/// Each address has a server; with the names of 1.28, one address has two.
fn the_directive_is_inherited(build: Build) {
    let authority = Authority::new();
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost", "other.test"]);
    for (outer, inner, expected) in [
        ("", "", 0),
        ("slipstream on;", "", 1),
        ("slipstream on;", "slipstream off;", 0),
        ("slipstream off;", "slipstream on;", 1),
        ("", "slipstream on;", 1),
    ] {
        let [address, always] = [unused_address(), unused_address()];
        let server = |address: SocketAddr, directives: &str| {
            let directives = format!("{directives} return served;");
            server_block(format!("{address} ssl"), &[&credentials], directives)
        };
        let configuration = Configuration::new()
            .slipstream(None)
            .stream(outer)
            .stream(server(address, inner))
            // So that stream takes part at all.
            .stream(server(always, "slipstream on;"));
        let nginx = Nginx::start(build, &configuration);
        assert_eq!(text(&Client::new(address, &Offer::tls13())), "served");
        let metrics = nginx.settled();
        assert_eq!(metrics.lane_operations(), expected, "{outer} {inner}");
        assert_eq!(
            metrics.software_operations("not_admitted") > 0,
            expected == 0
        );
        assert_eq!(text(&Client::new(always, &Offer::tls13())), "served");
        assert_eq!(nginx.settled().lane_operations(), expected + 1);
    }
    if build == Build::Published {
        let address = unused_address();
        let server = |name, directives| {
            let directives = format!("server_name {name}; {directives} return $ssl_server_name;");
            server_block(format!("{address} ssl"), &[&credentials], directives)
        };
        let configuration = Configuration::new()
            .slipstream(None)
            .stream(server("localhost", "slipstream on;"))
            .stream(server("other.test", ""));
        let nginx = Nginx::start(build, &configuration);
        for name in ["localhost", "other.test"] {
            let offer = Offer::tls13().name(name).roots(authority.certificate());
            assert_eq!(text(&Client::new(address, &offer)), name);
            assert_eq!(nginx.settled().lane_operations(), 1, "{name}");
        }
    }
}

fn resumption(build: Build) {
    let server = Server::start(build, KeyType::Rsa(2048));
    for offer in [Offer::tls13(), Offer::tls12()] {
        let client = server.client(&offer);
        assert_eq!(client.get("/").unwrap().text(), "served");
        let before = server.nginx.settled().lane_operations();
        let mut resumed = client.session().connect().unwrap();
        assert!(resumed.is_resumed());
        assert_eq!(resumed.get("/").unwrap().text(), "served");
        assert_eq!(server.nginx.settled().lane_operations(), before);
    }
}

/// nginx looks at the certificate in the handler of the TLS phase, after the handshake.
fn client_certificates(build: Build) {
    let authority = Authority::new();
    let stranger = Authority::new();
    let address = unused_address();
    let nginx = Nginx::start(
        build,
        &Configuration::new().slipstream(None).stream(server_block(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            format!(
                "slipstream on; ssl_verify_client on; ssl_client_certificate {};
                 return $ssl_client_s_dn;",
                authority.certificate_file().display()
            ),
        )),
    );
    let known = authority.issue(KeyType::EcdsaP256, &["somebody"]);
    let unknown = stranger.issue(KeyType::EcdsaP256, &["nobody"]);
    for offer in [Offer::tls13(), Offer::tls12()] {
        let client = |offer: Offer| Client::new(address, &offer);
        assert_eq!(
            text(&client(offer.clone().credentials(&known))),
            "CN=somebody"
        );
        assert_eq!(text(&client(offer.clone().credentials(&unknown))), "");
        assert_eq!(text(&client(offer)), "");
    }
    let metrics = nginx.settled();
    assert_eq!(metrics.lane_operations(), 6, "{metrics:#?}");
}

/// The header is read before the TLS phase, by a handler that must not see the connection again.
fn the_proxy_protocol(build: Build) {
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n";
    let authority = Authority::new();
    let address = unused_address();
    let nginx = Nginx::start(
        build,
        &Configuration::new()
            .slipstream(None)
            .events("multi_accept on;")
            .stream("slipstream on;")
            .stream(server_block(
                format!("{address} ssl proxy_protocol"),
                &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
                "return $proxy_protocol_addr:$ssl_protocol;",
            )),
    );
    for (offer, version) in [(Offer::tls13(), "TLSv1.3"), (Offer::tls12(), "TLSv1.2")] {
        let client = Client::new(address, &offer);
        concurrently(CONNECTIONS, |number| {
            let mut socket = client.open().unwrap();
            // In one piece, in two pieces, or behind a wait.
            let pieces: &[&[u8]] = match number % 3 {
                0 => &[HEADER],
                1 => &[&HEADER[..9], &HEADER[9..]],
                _ => {
                    nginx.metrics();
                    &[HEADER]
                }
            };
            // nginx reads the whole header at once: what comes in pieces it refuses.
            let is_refused = pieces.len() > 1;
            for piece in pieces {
                if socket.write_all(piece).is_err() {
                    return;
                }
                if is_refused {
                    nginx.metrics();
                }
            }
            match client.handshake(socket) {
                Ok(connection) => {
                    assert_eq!(connection.rest(), format!("192.0.2.7:{version}"));
                }
                Err(error) => assert!(is_refused, "{error}"),
            }
        });
    }
    let metrics = nginx.settled();
    assert!(metrics.lane_operations() >= 2 * 10, "{metrics:#?}");
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
}

fn clients_misbehave(build: Build) {
    const ABUSERS: usize = 16;
    const EACH: usize = 125;
    let server = Server::start(build, KeyType::Rsa(2048));
    server
        .nginx
        .expect_log("SSL_do_handshake() failed (SSL: error:0A");
    let mut random = Random::of_this_run();
    let clients = [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()]
        .map(|offer| server.client(&offer));
    let worker = server.nginx.workers()[0];
    let before = descriptors(worker);
    let visitors = Visitors::start(&clients, 1);
    let randoms: Vec<_> = (0..ABUSERS).map(|_| Mutex::new(random.split())).collect();
    // Stream has no page for clients that speak plain HTTP.
    let kinds: Vec<Abuse> = Abuse::ALL
        .into_iter()
        .filter(|kind| *kind != Abuse::PlainHttp)
        .collect();
    let complaints = concurrently(ABUSERS, |abuser| {
        let mut random = randoms[abuser].lock().unwrap();
        let complaints = (0..EACH).filter_map(|_| {
            let abuse = random.one_of(&kinds);
            let client = &clients[random.below(clients.len())];
            let error = abuse.commit(client, &mut random).err()?;
            Some(format!("{abuse:?}: {error}"))
        });
        complaints.collect::<Vec<_>>()
    })
    .concat();
    assert!(complaints.is_empty(), "{complaints:#?}");
    visitors.wait_for(10);
    visitors.stop().expect_all_served();
    eventually("connections are closed", || descriptors(worker) <= before);
    let metrics = server.nginx.settled();
    assert!(metrics.closed_handshakes() > 100, "{metrics:#?}");
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
    assert_eq!(server.nginx.workers(), [worker]);
}

fn clients_leave_while_their_operations_are_in_flight(build: Build) {
    let (in_flight, key) = many_operations();
    let server = Server::start(build, key);
    server
        .nginx
        .expect_log("SSL_do_handshake() failed (SSL: error:0A");
    let worker = server.nginx.workers()[0];
    let before = descriptors(worker);
    let client = server.client(&Offer::tls13());
    let mut waiting = Vec::new();
    let InFlight {
        begun,
        stopped,
        operations,
    } = Begun::many_in_flight(&server.nginx, &client, in_flight);
    for (number, begun) in begun.into_iter().enumerate() {
        match number % 5 {
            0 => begun.reset().unwrap(),
            1 => drop(begun),
            2 => begun.socket().shutdown(Shutdown::Write).unwrap(),
            3 => begun.socket().write_all(&[0x5a; 4096]).unwrap(),
            _ => waiting.push(begun),
        }
    }
    drop(stopped);
    Begun::expect_service(waiting);
    let metrics = server.nginx.settled();
    assert_eq!(metrics.lane_operations(), operations, "{metrics:#?}");
    assert!(metrics.closed_handshakes() > 0, "{metrics:#?}");
    eventually("connections are closed", || descriptors(worker) <= before);
    assert_eq!(client.get("/").unwrap().status, 200);
}

fn handshakes_time_out(build: Build) {
    let server = Server::start_with(build, KeyType::Rsa(2048), "ssl_handshake_timeout 1s;");
    let client = server.client(&Offer::tls13());
    let silent: Vec<TcpStream> = (0..8).map(|_| client.open().unwrap()).collect();
    let begun: Vec<Begun> = (0..8).map(|_| Begun::new(&client).unwrap()).collect();
    for mut socket in silent {
        assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
    }
    let mut buffer = Vec::new();
    for begun in &begun {
        let mut socket = begun.socket();
        // The server's flight, and then the end of the connection.
        let _ = socket.read_to_end(&mut buffer);
    }
    let metrics = server.nginx.settled();
    assert_eq!(metrics.closed_handshakes(), 16, "{metrics:#?}");
    assert_eq!(metrics.handshakes(), 0, "{metrics:#?}");
}

fn reloads_under_load(build: Build) {
    let site = Site::new(KeyType::Rsa(2048));
    let configuration = site.configuration("");
    let mut nginx = Nginx::start(build, &configuration);
    let clients = [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()]
        .map(|offer| site.client(&offer));
    let visitors = Visitors::start(&clients, 2);
    let mut old = Vec::new();
    for _ in 0..4 {
        visitors.wait_for(20);
        old.extend(nginx.reload(&configuration));
    }
    visitors.wait_for(20);
    expect_exit(&old);
    visitors.stop().expect_all_served();
    let metrics = nginx.settled();
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
}

/// nginx gives modules their places anew, and unloads stream's meanwhile if it can.
fn stream_comes_and_goes(build: Build) {
    let site = Site::new(KeyType::Rsa(2048));
    let without = || site.plain_server(Configuration::new().slipstream(None));
    let mut nginx = Nginx::start(build, &without());
    for number in 0..2 {
        let mut with = site.configuration("");
        if number == 1 {
            with = with.others_first();
        }
        // An old worker may answer as long as it runs, and it knows of no operations.
        let old = nginx.reload(&with);
        expect_exit(&old);
        let before = nginx.settled().lane_operations();
        let response = site.client(&Offer::tls13()).get("/").unwrap();
        assert_eq!(response.text(), "served");
        assert!(nginx.settled().lane_operations() > before);
        let old = nginx.reload(&without());
        expect_exit(&old);
        assert!(TcpStream::connect(site.address).is_err());
    }
}

fn both_orders_of_loading(build: Build) {
    for others_are_first in [false, true] {
        let site = Site::new(KeyType::Rsa(2048));
        let mut configuration = site.configuration("");
        if others_are_first {
            configuration = configuration.others_first();
        }
        let nginx = Nginx::start(build, &configuration);
        assert_eq!(
            site.client(&Offer::tls13()).get("/").unwrap().text(),
            "served"
        );
        assert_eq!(nginx.settled().lane_operations(), 1);
    }
    let (accepted, messages) = Nginx::test(
        build,
        &Configuration::new()
            .main("stream { slipstream on; server { listen 127.0.0.1:1; return x; } }"),
    );
    // Where stream has to be loaded and is not, nginx says so: the module has no block of its own.
    assert_eq!(accepted, build == Build::Published, "{messages}");
    assert_eq!(
        messages.contains("unknown directive \"stream\""),
        !accepted,
        "{messages}"
    );
}

fn plain_and_udp_servers_are_left_alone(build: Build) {
    let site = Site::new(KeyType::Rsa(2048));
    let [plain, udp] = [unused_address(), unused_address()];
    let configuration = site
        .configuration("")
        .stream(format!("server {{ listen {plain}; return plain; }}"))
        .stream(format!("server {{ listen {udp} udp; return datagram; }}"));
    let nginx = Nginx::start(build, &configuration);
    let mut answer = String::new();
    TcpStream::connect(plain)
        .unwrap()
        .read_to_string(&mut answer)
        .unwrap();
    assert_eq!(answer, "plain");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(slipstream_integration::PATIENCE))
        .unwrap();
    socket.send_to(b"?", udp).unwrap();
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"datagram");
    assert_eq!(nginx.settled().handshakes(), 0);
    assert_eq!(
        site.client(&Offer::tls12()).get("/").unwrap().text(),
        "served"
    );
    assert_eq!(nginx.settled().lane_operations(), 1);
}

/// A server that only looks at the name passes the connection on: to http by a connection of its
/// own, or, since 1.25.5, as it is.
fn connections_are_passed_to_tls_servers(build: Build) {
    let authority = Authority::new();
    let [http, stream] = [unused_address(), unused_address()];
    let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
    let mut ways = vec!["proxy_pass"];
    if build == Build::Published {
        ways.push("pass");
    }
    for way in ways {
        for target in [http, stream] {
            let front = unused_address();
            let configuration = Configuration::new()
                .server(
                    format!("{http} ssl"),
                    &[&credentials],
                    "location / { return 200 served; }",
                )
                .stream("slipstream on;")
                .stream(server_block(
                    format!("{stream} ssl"),
                    &[&credentials],
                    "return \"HTTP/1.0 200 OK\\r\\n\\r\\nserved\";",
                ))
                .stream(format!(
                    "server {{ listen {front}; ssl_preread on; {way} {target}; }}"
                ));
            let nginx = Nginx::start(build, &configuration);
            for offer in [Offer::tls13(), Offer::tls12()] {
                let offer = offer.name("localhost").roots(authority.certificate());
                let client = Client::new(front, &offer);
                if target == http {
                    concurrently(CONNECTIONS, |_| {
                        assert_eq!(client.get("/").unwrap().text(), "served");
                    });
                } else {
                    concurrently(CONNECTIONS, |_| assert!(text(&client).ends_with("served")));
                }
            }
            let metrics = nginx.settled();
            assert_eq!(
                metrics.lane_operations(),
                2 * CONNECTIONS as u64,
                "{way} {target}"
            );
            assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
        }
    }
}

fn expect_exit(workers: &[u32]) {
    eventually("old workers exit", || {
        !workers.iter().any(|&worker| is_running(worker))
    });
}

/// Operations in flight when something happens, and their key: together they take long enough for
/// it to happen meanwhile.
fn many_operations() -> (usize, KeyType) {
    if std::arch::is_x86_feature_detected!("avx512f") {
        (320, KeyType::Rsa(4096))
    } else {
        // Portable lanes are slow as it is.
        (64, KeyType::Rsa(2048))
    }
}

/// The bytes that a server of stream sends until it closes the connection; none if it refuses the
/// client.
fn text(client: &Client) -> String {
    client.connect().map(Connection::rest).unwrap_or_default()
}

/// A TLS server of stream that passes the content on to a plain server of http.
struct Site {
    authority: Authority,
    address: SocketAddr,
    plain: SocketAddr,
    key: KeyType,
}

impl Site {
    fn new(key: KeyType) -> Self {
        Self {
            authority: Authority::new(),
            address: unused_address(),
            plain: unused_address(),
            key,
        }
    }

    fn configuration(&self, directives: &str) -> Configuration {
        let base = Configuration::new()
            .slipstream(None)
            .events("multi_accept on;");
        self.plain_server(base)
            .stream("slipstream on;")
            .stream(server_block(
                format!("{} ssl backlog=1024", self.address),
                &[&self.authority.issue(self.key, &["localhost"])],
                format!("{directives} proxy_pass {};", self.plain),
            ))
    }

    fn plain_server(&self, configuration: Configuration) -> Configuration {
        configuration.server(self.plain, &[], "location / { return 200 served; }")
    }

    fn client(&self, offer: &Offer) -> Client {
        let offer = offer
            .clone()
            .name("localhost")
            .roots(self.authority.certificate());
        Client::new(self.address, &offer)
    }
}

struct Server {
    site: Site,
    nginx: Nginx,
}

impl Server {
    fn start(build: Build, key: KeyType) -> Self {
        Self::start_with(build, key, "")
    }

    fn start_with(build: Build, key: KeyType, directives: &str) -> Self {
        let site = Site::new(key);
        let nginx = Nginx::start(build, &site.configuration(directives));
        Self { site, nginx }
    }

    fn client(&self, offer: &Offer) -> Client {
        self.site.client(offer)
    }

    fn serve(&self, offer: &Offer) {
        let client = self.client(offer);
        concurrently(CONNECTIONS, |_| {
            let mut connection = client.connect().unwrap();
            assert!(matches!(
                connection.version(),
                SslVersion::TLS1_2 | SslVersion::TLS1_3
            ));
            for _ in 0..2 {
                assert_eq!(connection.get("/").unwrap().text(), "served");
            }
        });
    }
}
