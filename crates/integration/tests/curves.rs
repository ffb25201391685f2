//! Curves: shared secrets and ECDSA signatures in lanes, key shares from precomputed keys, and
//! nonces that are precomputed where the configuration says so.

use std::collections::HashSet;
use std::sync::Mutex;

use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use rustix::process::{Pid, Signal, kill_process};
use slipstream_integration::process::is_running;
use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Lanes, Nginx, Offer, Visitors, concurrently,
    each_build, eventually, unused_address,
};

each_build!(
    every_group_with_every_key,
    a_second_client_hello_for_another_curve,
    nothing_is_made_ahead_where_the_configuration_says_so,
    nonces_are_made_ahead_where_the_configuration_says_so,
    ephemeral_keys_are_used_once_in_all_workers_over_reloads_and_an_upgrade,
);

const CONNECTIONS: usize = 32;
/// The first of each is the one that is used. In TLS 1.2 a client has to offer the curve of an
/// ECDSA certificate too (RFC 8422, section 5.1).
const GROUPS: [&str; 3] = [
    "X25519:P-256:P-384",
    "P-256:X25519:P-384",
    "P-384:X25519:P-256",
];

fn every_group_with_every_key(build: Build) {
    for (key, signatures) in [
        (KeyType::Rsa(2048).generate(), 0),
        (KeyType::EcdsaP256.generate(), 1),
        (p384_key(), 1),
    ] {
        let server = Server::start(build, &key, Configuration::new());
        let mut handshakes = 0;
        for group in GROUPS {
            let tls12 = Offer::tls12().ciphers("ECDHE+AESGCM");
            for offer in [Offer::tls13(), tls12] {
                let client = server.client(&offer.groups(group));
                concurrently(CONNECTIONS, |_| {
                    assert_eq!(client.get("/").unwrap().text(), "served");
                });
                handshakes += CONNECTIONS as u64;
            }
        }
        let metrics = server.nginx.settled();
        assert_eq!(metrics.handshakes(), handshakes);
        if lanes_have_curves() {
            assert_eq!(metrics.lane_exchanges(), handshakes, "{metrics:#?}");
            let signatures = handshakes * signatures;
            assert_eq!(metrics.lane_signatures(), signatures, "{metrics:#?}");
            assert_eq!(metrics.ahead_used(), handshakes, "{metrics:#?}");
        }
    }
}

fn a_second_client_hello_for_another_curve(build: Build) {
    let server = Server::start(
        build,
        &KeyType::EcdsaP256.generate(),
        Configuration::new().http("ssl_ecdh_curve secp384r1;"),
    );
    let client = server.client(&Offer::tls13().groups("X25519:P-384"));
    concurrently(CONNECTIONS, |_| {
        let mut connection = client.connect().unwrap();
        let group = connection.temporary_key().unwrap().ec_key().unwrap();
        assert_eq!(group.group().curve_name(), Some(Nid::SECP384R1));
        assert_eq!(connection.get("/").unwrap().text(), "served");
    });
    let metrics = server.nginx.settled();
    if lanes_have_curves() {
        assert_eq!(metrics.lane_exchanges(), CONNECTIONS as u64);
    }
}

fn nothing_is_made_ahead_where_the_configuration_says_so(build: Build) {
    let off = Lanes::ForcedWith("ahead off;".into());
    let key = KeyType::EcdsaP256.generate();
    let server = Server::start(build, &key, Configuration::new().lanes(off));
    for group in GROUPS {
        let client = server.client(&Offer::tls13().groups(group));
        concurrently(CONNECTIONS, |_| {
            assert_eq!(client.get("/").unwrap().text(), "served");
        });
    }
    let metrics = server.nginx.settled();
    assert_eq!(metrics.handshakes(), (GROUPS.len() * CONNECTIONS) as u64);
    assert_eq!(metrics.ahead_used(), 0, "{metrics:#?}");
}

fn nonces_are_made_ahead_where_the_configuration_says_so(build: Build) {
    let on = Lanes::ForcedWith("nonces_ahead 64;".into());
    let key = KeyType::EcdsaP256.generate();
    let server = Server::start(build, &key, Configuration::new().lanes(on));
    // Most machines have no clock that shows it.
    let warning = "nothing tells workers if this machine is cloned or restored";
    server.nginx.expect_log(warning);
    let client = server.client(&Offer::tls13().groups(GROUPS[0]));
    concurrently(CONNECTIONS, |_| {
        assert_eq!(client.get("/").unwrap().text(), "served");
    });
    let metrics = server.nginx.settled();
    if lanes_have_curves() {
        assert_eq!(metrics.lane_signatures(), 0, "{metrics:#?}");
        assert_eq!(metrics.ahead_used(), 2 * CONNECTIONS as u64, "{metrics:#?}");
    }
}

/// Workers are forked from one master, and old ones serve beside new ones while connections go on;
/// after an upgrade those of two masters do.
fn ephemeral_keys_are_used_once_in_all_workers_over_reloads_and_an_upgrade(build: Build) {
    let key = KeyType::EcdsaP256.generate();
    let configuration = Configuration::new().workers(2).daemon();
    let mut server = Server::start(build, &key, configuration);
    let clients = GROUPS.map(|group| server.client(&Offer::tls13().groups(group)));
    let visitors = Visitors::start(&clients, 1);
    let seen = Mutex::new(HashSet::new());
    let see_keys = || {
        for client in &clients {
            concurrently(CONNECTIONS, |_| {
                let key = client.connect().unwrap().temporary_key().unwrap();
                let key = key.public_key_to_der().unwrap();
                assert!(seen.lock().unwrap().insert(key), "a key is used twice");
            });
        }
    };
    for _ in 0..3 {
        see_keys();
        let configuration = server.configuration.clone();
        server.nginx.reload(&configuration);
    }
    let old = server.nginx.upgrade();
    see_keys();
    let process = Pid::from_raw(old as i32).expect("a process");
    kill_process(process, Signal::QUIT).expect("the old master");
    eventually("the old master exits", || !is_running(old));
    see_keys();
    visitors.stop().expect_all_served();
    assert_eq!(seen.lock().unwrap().len(), 5 * GROUPS.len() * CONNECTIONS);
}

/// Returns true if the lanes of this CPU have curves: IFMA and portable ones do, AVX-512F alone
/// does not.
fn lanes_have_curves() -> bool {
    is_x86_feature_detected!("avx512ifma") || !is_x86_feature_detected!("avx512f")
}

fn p384_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::SECP384R1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

struct Server {
    authority: Authority,
    configuration: Configuration,
    nginx: Nginx,
    address: std::net::SocketAddr,
}

impl Server {
    fn start(build: Build, key: &PKey<Private>, configuration: Configuration) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let configuration = configuration.server(
            format!("{address} ssl backlog=511"),
            &[&authority.issue_for(key, &["localhost"])],
            "location / { return 200 served; }",
        );
        Self {
            nginx: Nginx::start(build, &configuration),
            configuration,
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
}
