//! Memory of connections, and that nothing of them is left.

use rustix::process::{Resource, getrlimit, setrlimit};
use slipstream_bench::load::{Behaviour, Limit, Load};
use slipstream_integration::process::{anonymous_memory, descriptors};
use slipstream_integration::{KeyType, Offer, PATIENCE, concurrently, eventually};
use slipstream_testbed::suite::{Protocol, SUITES};

use crate::abuse::expect_rest;
use crate::site::Site;

/// Number of connections. The first tenth warms everything up.
const CONNECTIONS: u64 = 50_000;

#[test]
fn fifty_thousand_connections_leave_nothing() {
    // A key of RSA takes an unoptimised load generator's time, not the terminator's.
    let site = Site::http(&[KeyType::EcdsaP256], "");
    let suites: Vec<_> = SUITES
        .iter()
        .filter(|suite| suite.key == slipstream_testbed::suite::KeyType::EcdsaP256)
        .collect();
    let serve = |connections: u64| {
        for suite in &suites {
            let report = Load {
                address: site.address,
                suite,
                // The load generator resumes sessions of TLS 1.2 only.
                resumed_percent: if suite.protocol == Protocol::Tls12 {
                    20
                } else {
                    0
                },
                concurrency: 48,
                limit: Limit::Connections(connections / suites.len() as u64),
                behaviour: Behaviour::Request,
                timeout: PATIENCE,
            }
            .run()
            .unwrap();
            assert_eq!(report.failures.total(), 0, "{}", report.failures);
        }
    };
    serve(CONNECTIONS / 10);
    let rest = CONNECTIONS - CONNECTIONS / 10;
    expect_nothing_is_left(&site, 2 << 20, || serve(rest / ROUNDS));
}

/// In how many parts [`expect_nothing_is_left`] has its work done.
pub const ROUNDS: u64 = 5;

/// Does `work` [`ROUNDS`] times: all in all at most `most_bytes` of memory may be lost, and no
/// descriptors but those of idle connections to the backend.
///
/// Memory also grows when more clients than ever before happen to be served at once, and allocators
/// keep it. Whether they are is up to the scheduler; but it does not happen in every round, as a
/// loss does. So the two worst rounds do not count.
pub fn expect_nothing_is_left(site: &Site, most_bytes: u64, work: impl Fn()) {
    const COUNTED: usize = 3;
    let process = site.terminator.process();
    let memory = || {
        expect_rest(site);
        anonymous_memory(process)
    };
    let mut before = memory();
    let open = descriptors(process);
    let mut growth: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            work();
            let after = memory();
            after.saturating_sub(std::mem::replace(&mut before, after))
        })
        .collect();
    growth.sort_unstable();
    let lost: u64 = growth[..COUNTED].iter().sum();
    assert!(
        lost * ROUNDS <= most_bytes * COUNTED as u64,
        "it grows by {growth:?}"
    );
    // What a client that has broken off still sends is waited for a little longer than its
    // connection counts as open.
    eventually("descriptors are closed", || {
        descriptors(process) <= open + 64
    });
}

#[test]
fn an_idle_connection_takes_less_than_40_kilobytes() {
    const CONNECTIONS: usize = 2_000;
    const MOST_BYTES: u64 = 40 << 10;
    allow_descriptors();
    let site = Site::http(&[KeyType::EcdsaP256], PATIENT);
    let client = site.client(&Offer::tls13());
    // A first one brings what is made once.
    client.get("/").unwrap();
    let memory = || anonymous_memory(site.terminator.process());
    let handshakes = || {
        site.terminator
            .metric("slipstream_serve_handshakes_total", "")
    };
    for has_asked in [false, true] {
        let handshakes_before = handshakes();
        let before = memory();
        let connections: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let mut connection = client.connect().unwrap();
                if has_asked {
                    connection.get("/").unwrap();
                }
                connection
            })
            .collect();
        // The client's side of a handshake is complete before the server's.
        eventually("all handshakes are complete", || {
            handshakes() == handshakes_before + CONNECTIONS as u64
        });
        let each = memory().saturating_sub(before) / CONNECTIONS as u64;
        println!("{each} bytes for an idle connection (has asked: {has_asked})");
        assert!(each <= MOST_BYTES, "{each} (has asked: {has_asked})");
        drop(connections);
        expect_rest(&site);
    }
}

/// Idle connections cost those that come and go nothing. What it takes is printed: `cargo test ...
/// -- --nocapture`.
#[test]
fn ten_thousand_idle_connections_and_handshakes_beside_them() {
    let idle = ten_thousand_or_as_many_as_may_be();
    let site = Site::http(&[KeyType::EcdsaP256], PATIENT);
    let client = site.client(&Offer::tls13());
    let connections: Vec<_> = concurrently(8, |_| {
        (0..idle / 8)
            .map(|_| client.connect().unwrap())
            .collect::<Vec<_>>()
    })
    .into_iter()
    .flatten()
    .collect();
    let suite = SUITES.iter().find(|suite| suite.name == "tls13-ecdsa-p256");
    let report = Load {
        address: site.address,
        suite: suite.expect("a suite of this name"),
        resumed_percent: 0,
        concurrency: 16,
        limit: Limit::Connections(5_000),
        behaviour: Behaviour::Request,
        timeout: PATIENCE,
    }
    .run()
    .unwrap();
    println!(
        "{} idle: {:.0} handshakes per second, p99 {:.1} ms",
        connections.len(),
        report.handshakes_per_second(),
        report.latency_us(0.99) / 1000.0
    );
    assert_eq!(report.failures.total(), 0, "{}", report.failures);
    let open = site
        .terminator
        .metric("slipstream_serve_open_connections", "");
    assert!(open >= connections.len() as u64, "{open}");
    drop(connections);
    expect_rest(&site);
}

/// Clients may take as long as a busy machine makes them.
pub const PATIENT: &str =
    "[limits]\nconnections_per_address = 16384\nhandshake_timeout = \"1h\"\nidle_timeout = \"1h\"";

/// Each takes a descriptor here and one there.
fn ten_thousand_or_as_many_as_may_be() -> usize {
    const WANTED: u64 = 10_000;
    // Tests that run at the same time, in this process: 2,000 idle connections, and 2,500 with as
    // many to the backend.
    const OTHERS: u64 = 8_192;
    const FEWEST: u64 = 1_024;
    let all = allow_descriptors();
    // A terminator keeps half of its own for backends.
    let here_and_there = all.saturating_sub(OTHERS).min(all / 2 - FEWEST);
    WANTED.min(here_and_there.max(FEWEST)) as usize
}

/// Has this process use as many descriptors as it may, which is returned.
pub fn allow_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a process may use what it is allowed");
    limit.maximum.unwrap_or(u64::MAX)
}
