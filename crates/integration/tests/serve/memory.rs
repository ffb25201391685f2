//! What connections cost, and that nothing of them is left.

use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use slipstream_bench::load::{Behaviour, Limit, Load};
use slipstream_bench::suite::{Protocol, SUITES};
use slipstream_integration::process::{anonymous_memory, descriptors};
use slipstream_integration::{KeyType, Offer, PATIENCE, concurrently};

use crate::abuse::expect_rest;
use crate::site::Site;

/// Of which the first tenth warms everything up.
const CONNECTIONS: u64 = 50_000;

#[test]
fn fifty_thousand_connections_leave_nothing() {
    // A key of RSA takes an unoptimised load generator's time, not the terminator's.
    let site = Site::http(&[KeyType::EcdsaP256], "");
    let suites: Vec<_> = SUITES
        .iter()
        .filter(|suite| suite.key == slipstream_bench::suite::KeyType::EcdsaP256)
        .collect();
    let usage = || {
        expect_rest(&site);
        let process = site.terminator.process();
        (descriptors(process), anonymous_memory(process))
    };
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
    let before = usage();
    serve(CONNECTIONS - CONNECTIONS / 10);
    let after = usage();
    assert!(after.0 <= before.0 + 64, "{before:?} {after:?}");
    assert!(after.1 <= before.1 + (2 << 20), "{before:?} {after:?}");
}

#[test]
fn an_idle_connection_takes_less_than_40_kilobytes() {
    const CONNECTIONS: usize = 2_000;
    const MOST_BYTES: u64 = 40 << 10;
    let site = Site::http(&[KeyType::EcdsaP256], "");
    let client = site.client(&Offer::tls13());
    // A first one brings what is made once.
    client.get("/").unwrap();
    let memory = || anonymous_memory(site.terminator.process());
    for has_asked in [false, true] {
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
        std::thread::sleep(Duration::from_millis(100));
        let each = (memory() - before) / CONNECTIONS as u64;
        println!("{each} bytes for an idle connection (has asked: {has_asked})");
        assert!(each <= MOST_BYTES, "{each} (has asked: {has_asked})");
        drop(connections);
        expect_rest(&site);
    }
}

/// Idle connections cost those that come and go nothing. What it takes is printed: `cargo test ... -- --nocapture`.
#[test]
fn ten_thousand_idle_connections_and_handshakes_beside_them() {
    let idle = ten_thousand_or_as_many_as_may_be();
    let site = Site::http(&[KeyType::EcdsaP256], "");
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

/// Each takes a descriptor here and one there.
fn ten_thousand_or_as_many_as_may_be() -> usize {
    const WANTED: u64 = 10_000;
    const OTHERS: u64 = 512;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a process may use what it is allowed");
    let allowed = limit.maximum.unwrap_or(u64::MAX) - OTHERS;
    WANTED.min(allowed) as usize
}
