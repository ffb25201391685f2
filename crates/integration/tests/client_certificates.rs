//! Clients that show a certificate, and nginx asking an OCSP responder about it while the handshake
//! waits.

use std::net::{SocketAddr, TcpListener};

use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Nginx, Offer, Responder, concurrently,
    each_build, eventually, unused_address,
};

each_build!(
    a_certificate_is_demanded,
    a_certificate_is_optional,
    a_live_ocsp_responder,
    a_dead_ocsp_responder,
    a_silent_ocsp_responder_and_a_client_that_leaves,
);

const OFFERS: [fn() -> Offer; 3] = [Offer::rsa_key_exchange, Offer::tls12, Offer::tls13];

fn a_certificate_is_demanded(build: Build) {
    let server = Server::start(build, "ssl_verify_client on;");
    let good = server.authority.issue(KeyType::Rsa(2048), &["client.test"]);
    let wrong = Authority::new().issue(KeyType::EcdsaP256, &["stranger.test"]);
    for offer in OFFERS {
        assert_eq!(
            server.status(&offer().credentials(&good)),
            (200, "SUCCESS".to_owned())
        );
        for (offer, reason) in [
            (offer().credentials(&wrong), "The SSL certificate error"),
            (offer(), "No required SSL certificate was sent"),
        ] {
            let (status, page) = server.status(&offer);
            assert_eq!(status, 400);
            assert!(page.contains(reason), "{page}");
        }
    }
    server.expect_in_lanes(9);
}

fn a_certificate_is_optional(build: Build) {
    let server = Server::start(build, "ssl_verify_client optional;");
    let good = server.authority.issue(KeyType::EcdsaP256, &["client.test"]);
    for offer in OFFERS {
        concurrently(12, |number| {
            let (offer, verified) = match number % 2 {
                0 => (offer().credentials(&good), "SUCCESS"),
                _ => (offer(), "NONE"),
            };
            assert_eq!(server.status(&offer), (200, verified.to_owned()));
        });
    }
    server.expect_in_lanes(36);
}

fn a_live_ocsp_responder(build: Build) {
    let authority = Authority::new();
    let good = authority.issue(KeyType::EcdsaP256, &["good.test"]);
    let revoked = authority.issue(KeyType::EcdsaP256, &["revoked.test"]);
    let responder = Responder::start(&authority, &[(&good, 'V'), (&revoked, 'R')]);
    let server = Server::start_with(authority, build, &ocsp(responder.address()));
    for offer in OFFERS {
        concurrently(12, |number| {
            if number % 3 == 0 {
                let (status, page) = server.status(&offer().credentials(&revoked));
                assert_eq!(status, 400);
                assert!(page.contains("The SSL certificate error"), "{page}");
            } else {
                let outcome = server.status(&offer().credentials(&good));
                assert_eq!(outcome, (200, "SUCCESS".to_owned()));
            }
        });
    }
    assert!(server.nginx.log_lines_with("certificate revoked") >= 4);
    server.expect_in_lanes(36);
}

fn a_dead_ocsp_responder(build: Build) {
    let authority = Authority::new();
    let client = authority.issue(KeyType::EcdsaP256, &["client.test"]);
    // Nothing listens there.
    let server = Server::start_with(authority, build, &ocsp(unused_address()));
    for offer in OFFERS {
        concurrently(6, |_| {
            let (status, page) = server.status(&offer().credentials(&client));
            assert_eq!(status, 400);
            assert!(page.contains("The SSL certificate error"), "{page}");
        });
    }
    server.expect_in_lanes(18);
}

/// The handshake is closed while it waits for the responder, long after its operation is done.
fn a_silent_ocsp_responder_and_a_client_that_leaves(build: Build) {
    let authority = Authority::new();
    let client = authority.issue(KeyType::EcdsaP256, &["client.test"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start_with(authority, build, &ocsp(silent.local_addr().unwrap()));
    let client = server.client(&Offer::tls13().credentials(&client));
    for _ in 0..3 {
        let connection = client
            .connect()
            .expect("the client's side is complete without OCSP");
        let query = silent.accept().unwrap();
        let before = server.nginx.metrics().closed_handshakes();
        drop(connection);
        drop(query);
        eventually("nginx gives the handshake up", || {
            let metrics = server.nginx.metrics();
            metrics.closed_handshakes() + metrics.handshakes() > before
        });
    }
    server.expect_in_lanes(3);
}

fn ocsp(responder: SocketAddr) -> String {
    format!("ssl_verify_client on; ssl_ocsp on; ssl_ocsp_responder http://{responder}/;")
}

struct Server {
    authority: Authority,
    nginx: Nginx,
    address: SocketAddr,
}

impl Server {
    fn start(build: Build, directives: &str) -> Self {
        Self::start_with(Authority::new(), build, directives)
    }

    fn start_with(authority: Authority, build: Build, directives: &str) -> Self {
        let address = unused_address();
        let configuration = Configuration::new().server(
            format!("{address} ssl"),
            &[&authority.issue(KeyType::Rsa(2048), &["localhost"])],
            format!(
                "ssl_client_certificate {};
                 {directives}
                 location / {{ return 200 $ssl_client_verify; }}",
                authority.certificate_file().display()
            ),
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

    /// Returns the response to a request.
    fn status(&self, offer: &Offer) -> (u16, String) {
        let response = self.client(offer).get("/").unwrap();
        (response.status, response.text().to_owned())
    }

    fn expect_in_lanes(&self, operations: u64) {
        let metrics = self.nginx.settled();
        assert_eq!(metrics.lane_operations(), operations, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
    }
}
