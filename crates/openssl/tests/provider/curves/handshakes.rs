//! TLS: both ends in this process, on fibers and in OpenSSL's asynchronous jobs.

use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslContext, SslContextBuilder, SslVersion};
use slipstream_accelerators::lanes::Backend;
use slipstream_openssl::{lane_operations, precomputed_keys, precomputed_nonces};

use super::evp::GROUPS;
use super::on_fiber;
use crate::async_jobs::{Connection, client_builder, server_builder, set_asynchronous};
use crate::common::{DEFAULT, exclusive, import, install, keys};

const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_3, SslVersion::TLS1_2];

/// Names of groups for TLS, as in [`GROUPS`].
const NAMES: [&str; 3] = ["X25519", "P-256", "P-384"];

/// What was done here in a handshake.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    lane_operations: u64,
    precomputed_keys: u64,
    precomputed_nonces: u64,
}

impl Done {
    fn so_far() -> Self {
        Self {
            lane_operations: lane_operations(),
            precomputed_keys: precomputed_keys(),
            precomputed_nonces: precomputed_nonces(),
        }
    }

    fn since(before: Self) -> Self {
        let now = Self::so_far();
        Self {
            lane_operations: now.lane_operations - before.lane_operations,
            precomputed_keys: now.precomputed_keys - before.precomputed_keys,
            precomputed_nonces: now.precomputed_nonces - before.precomputed_nonces,
        }
    }
}

fn server(key: &PKey<Private>, version: SslVersion, groups: &str) -> SslContextBuilder {
    let mut server = server_builder(key, version, "ECDHE+AESGCM");
    server.set_groups_list(groups).expect("groups");
    server
}

/// Prefers `groups`. In TLS 1.2 it also has to know the curve of the certificate.
fn client(version: SslVersion, groups: &str) -> SslContext {
    let known = ["P-256", "P-384", "P-521"];
    let others = known.into_iter().filter(|known| !groups.contains(known));
    let list = [groups].into_iter().chain(others).collect::<Vec<_>>();
    let mut client = client_builder();
    client.set_groups_list(&list.join(":")).expect("groups");
    // Or it would send a key share of TLS 1.3 as well.
    client
        .set_max_proto_version(Some(version))
        .expect("a version");
    client.build()
}

/// Runs both ends of a connection on one fiber.
fn handshake_on_fiber(server: SslContext, client: SslContext) -> Done {
    let before = Done::so_far();
    on_fiber(Backend::Portable, move || {
        let mut connection = Connection::new(&server, &client);
        while !connection.is_established() {
            connection.step();
        }
        connection.exchange();
    });
    Done::since(before)
}

fn certificates() -> [(PKey<Private>, bool); 4] {
    let curve = |index: usize| GROUPS[index].generate(DEFAULT).to_pkey();
    let rsa = import(&keys()[0]);
    let p521 = openssl::ec::EcGroup::from_curve_name(Nid::SECP521R1)
        .and_then(|group| openssl::ec::EcKey::generate(&group))
        .and_then(PKey::from_ec_key)
        .expect("a key");
    [
        (curve(1), true),
        (curve(2), true),
        (p521, false),
        (rsa, false),
    ]
}

#[test]
fn both_ends_of_a_connection_take_part_on_fibers() {
    let _turn = exclusive();
    for (key, is_signed_here) in certificates() {
        for version in VERSIONS {
            for group in NAMES {
                let server = server(&key, version, group).build();
                let done = handshake_on_fiber(server, client(version, group));
                let rsa = u64::from(key.rsa().is_ok());
                let expected = Done {
                    lane_operations: 2 + rsa,
                    precomputed_keys: 2,
                    precomputed_nonces: u64::from(is_signed_here),
                };
                assert_eq!(done, expected, "{version:?} {group}");
            }
        }
    }
}

#[test]
fn a_second_client_hello_brings_another_group() {
    let _turn = exclusive();
    let (key, _) = certificates()[0].clone();
    let server = server(&key, SslVersion::TLS1_3, "P-384").build();
    let done = handshake_on_fiber(server, client(SslVersion::TLS1_3, "X25519"));
    let expected = Done {
        lane_operations: 2,
        precomputed_keys: 3,
        precomputed_nonces: 1,
    };
    assert_eq!(done, expected);
}

#[test]
fn other_groups_leave_the_exchange_to_openssl() {
    let _turn = exclusive();
    let (key, _) = certificates()[0].clone();
    for version in VERSIONS {
        for group in ["P-521", "X448"] {
            let server = server(&key, version, group).build();
            let done = handshake_on_fiber(server, client(version, group));
            let expected = Done {
                lane_operations: 0,
                precomputed_keys: 0,
                precomputed_nonces: 1,
            };
            assert_eq!(done, expected, "{version:?} {group}");
        }
    }
}

#[test]
fn asynchronous_jobs_take_part() {
    let _turn = exclusive();
    let (key, _) = certificates()[0].clone();
    for version in VERSIONS {
        for group in NAMES {
            install(Backend::Portable);
            let mut server = server(&key, version, group);
            set_asynchronous(&mut server);
            let (server, client) = (server.build(), client(version, group));
            let before = Done::so_far();
            let mut connections: Vec<Connection> =
                (0..5).map(|_| Connection::new(&server, &client)).collect();
            let mut paused = 0;
            while !connections.iter().all(Connection::is_established) {
                for connection in &mut connections {
                    paused += usize::from(connection.step());
                }
            }
            // The clients are not in jobs.
            let expected = Done {
                lane_operations: 5,
                precomputed_keys: 5,
                precomputed_nonces: 5,
            };
            assert_eq!(Done::since(before), expected, "{version:?} {group}");
            assert_eq!(paused, 5, "each exchange pauses once");
            connections.into_iter().for_each(Connection::exchange);
            slipstream_offload::instance::uninstall();
        }
    }
}
