//! Every kind of full handshake, alone and 200 at a time: right answers, and the private-key work
//! done in lanes.

use openssl::pkey::Id;
use openssl::ssl::SslVersion;
use slipstream_integration::{
    Authority, Begun, Build, Client, Configuration, KeyType, Lanes, Nginx, Offer, concurrently,
    each_build, unused_address,
};

each_build!(
    rsa_key_exchange,
    ecdhe_rsa_with_x25519_and_p256,
    tls13_with_rsa_of_all_sizes,
    ecdsa_certificates,
    sizes_without_lanes_stay_with_openssl,
    the_defaults_serve_everything,
);

/// As many connections as handshake at once.
const CONNECTIONS: usize = 200;

fn rsa_key_exchange(build: Build) {
    for key in [KeyType::Rsa(2048), KeyType::Rsa(3072), KeyType::Rsa(4096)] {
        let server = Server::start(build, key);
        let connection = server.client(&Offer::rsa_key_exchange()).connect().unwrap();
        assert!(connection.temporary_key().is_none());
        server.expect_in_lanes(1);
        server.serve_all_in_lanes(&Offer::rsa_key_exchange(), SslVersion::TLS1_2);
    }
}

fn ecdhe_rsa_with_x25519_and_p256(build: Build) {
    let server = Server::start(build, KeyType::Rsa(2048));
    let ecdhe = Offer::tls12().ciphers("ECDHE-RSA-AES128-GCM-SHA256");
    for (group, key) in [("X25519", Id::X25519), ("P-256", Id::EC)] {
        let offer = ecdhe.clone().groups(group);
        let before = server.nginx.settled().lane_operations();
        let connection = server.client(&offer).connect().unwrap();
        assert_eq!(connection.temporary_key().map(|key| key.id()), Some(key));
        server.expect_in_lanes(before + 1);
        server.serve_all_in_lanes(&offer, SslVersion::TLS1_2);
    }
}

fn tls13_with_rsa_of_all_sizes(build: Build) {
    for key in [KeyType::Rsa(2048), KeyType::Rsa(3072), KeyType::Rsa(4096)] {
        let server = Server::start(build, key);
        server.serve_all_in_lanes(&Offer::tls13(), SslVersion::TLS1_3);
        // Clients that come one after the other are never concurrent, but the worker finds these at
        // once.
        let client = server.client(&Offer::tls13());
        Begun::expect_service(Begun::many(&server.nginx, &client, CONNECTIONS));
        assert!(server.nginx.settled().batches_with(8) > 0);
    }
}

fn ecdsa_certificates(build: Build) {
    let server = Server::start(build, KeyType::EcdsaP256);
    server.serve_all(&Offer::tls13(), SslVersion::TLS1_3);
    server.serve_all(&Offer::tls12(), SslVersion::TLS1_2);
    let metrics = server.nginx.settled();
    assert_eq!(metrics.operations(), 0);
    assert_eq!(metrics.handshakes(), 2 * CONNECTIONS as u64);
}

fn sizes_without_lanes_stay_with_openssl(build: Build) {
    let server = Server::start(build, KeyType::Rsa(2056));
    server.serve_all(&Offer::tls13(), SslVersion::TLS1_3);
    server.serve_all(&Offer::rsa_key_exchange(), SslVersion::TLS1_2);
    assert_eq!(server.nginx.settled().lane_operations(), 0);
}

fn the_defaults_serve_everything(build: Build) {
    let server = Server::start_with(build, KeyType::Rsa(2048), Lanes::Defaults);
    server.serve_all(&Offer::tls13(), SslVersion::TLS1_3);
    server.serve_all(&Offer::rsa_key_exchange(), SslVersion::TLS1_2);
    let metrics = server.nginx.settled();
    if !is_x86_feature_detected!("avx512f") {
        // There are no lanes then, and the module takes no part.
        return assert_eq!(metrics.handshakes(), 0);
    }
    metrics.expect_all_done(2 * CONNECTIONS as u64);
}

struct Server {
    authority: Authority,
    nginx: Nginx,
    address: std::net::SocketAddr,
}

impl Server {
    fn start(build: Build, key: KeyType) -> Self {
        Self::start_with(build, key, Lanes::Forced)
    }

    fn start_with(build: Build, key: KeyType, lanes: Lanes) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let configuration = Configuration::new()
            .lanes(lanes)
            .events("multi_accept on;")
            .server(
                format!("{address} ssl backlog=511"),
                &[&authority.issue(key, &["localhost"])],
                "location / { return 200 $ssl_protocol; }",
            );
        Self {
            nginx: Nginx::start(build, &configuration),
            authority,
            address,
        }
    }

    /// A client that verifies the certificate.
    fn client(&self, offer: &Offer) -> Client {
        let offer = offer
            .clone()
            .name("localhost")
            .roots(self.authority.certificate());
        Client::new(self.address, &offer)
    }

    fn serve_all(&self, offer: &Offer, version: SslVersion) {
        let client = self.client(offer);
        concurrently(CONNECTIONS, |_| {
            let mut connection = client.connect().unwrap();
            assert_eq!(connection.version(), version);
            let response = connection.get("/").unwrap();
            let expected = match version {
                SslVersion::TLS1_3 => "TLSv1.3",
                _ => "TLSv1.2",
            };
            assert_eq!((response.status, response.text()), (200, expected));
        });
    }

    fn serve_all_in_lanes(&self, offer: &Offer, version: SslVersion) {
        let before = self.nginx.settled().lane_operations();
        self.serve_all(offer, version);
        self.expect_in_lanes(before + CONNECTIONS as u64);
    }

    /// Every private-key operation so far has been computed in lanes, and there were this many.
    fn expect_in_lanes(&self, operations: u64) {
        let metrics = self.nginx.settled();
        assert_eq!(metrics.lane_operations(), operations, "{metrics:#?}");
        assert_eq!(metrics.operations(), operations, "{metrics:#?}");
        assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
        assert_eq!(metrics.handshakes(), operations, "{metrics:#?}");
    }
}
