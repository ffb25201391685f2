//! Thousands of clients that behave badly, and well-behaved ones beside them that must not notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use slipstream_bench::load::{Behaviour, Limit, Load};
use slipstream_integration::abuse::Abuse;
use slipstream_integration::{
    Begun, KeyType, Offer, PATIENCE, Random, Visitors, concurrently, eventually,
};
use slipstream_testbed::suite::SUITES;

use crate::memory::{PATIENT, ROUNDS, allow_descriptors, expect_nothing_is_left};
use crate::site::Site;

#[test]
fn thousands_of_aborted_connections() {
    const WARM_UP: usize = 2_000;
    const CONNECTIONS: usize = 10_000;
    let site = Site::http(&[KeyType::Rsa(2048)], "");
    let clients = [Offer::tls13(), Offer::tls12()].map(|offer| site.client(&offer));
    let random = Mutex::new(Random::of_this_run());
    let abuse = |connections: usize| {
        const ABUSERS: usize = 16;
        let split = || Mutex::new(random.lock().unwrap().split());
        let randoms: Vec<_> = (0..ABUSERS).map(|_| split()).collect();
        concurrently(ABUSERS, |abuser| {
            let mut random = randoms[abuser].lock().unwrap();
            for _ in 0..connections / ABUSERS {
                let abuse = random.one_of(&Abuse::ALL);
                let client = &clients[random.below(clients.len())];
                // What nginx answers with a page ends with an alert here.
                if abuse != Abuse::PlainHttp {
                    abuse
                        .commit(client, &mut random)
                        .unwrap_or_else(|error| panic!("{abuse:?}: {error}"));
                }
            }
        });
    };
    abuse(WARM_UP);
    // The allocator keeps some memory.
    expect_nothing_is_left(&site, 4 << 20, || {
        let visitors = Visitors::start(&clients, 1);
        abuse((CONNECTIONS - WARM_UP) / ROUNDS as usize);
        visitors.wait_for(10);
        visitors.stop().expect_all_served();
    });
    assert!(
        site.terminator.metric(
            "slipstream_serve_failed_handshakes_total",
            "reason=\"failed"
        ) > 1_000
    );
}

/// Their operations are orphans then: those of the others go on.
#[test]
fn clients_leave_while_their_operations_are_in_flight() {
    let site = Site::http(&[KeyType::Rsa(4096)], "");
    let client = site.client(&Offer::tls13());
    for _ in 0..5 {
        let begun: Vec<Begun> = (0..64).map(|_| Begun::new(&client).unwrap()).collect();
        let mut waiting = Vec::new();
        for (number, begun) in begun.into_iter().enumerate() {
            match number % 4 {
                0 => begun.reset().unwrap(),
                1 => drop(begun),
                2 => {
                    let _ = begun.socket().write_all(&[0x5a; 4096]);
                }
                _ => waiting.push(begun),
            }
        }
        Begun::expect_service(waiting);
    }
    expect_rest(&site);
}

/// More than there are fibers: some wait for one, and nobody is forgotten.
#[test]
fn a_storm_of_handshakes() {
    const AT_ONCE: usize = 2_500;
    allow_descriptors();
    let site = Site::http(&[KeyType::Rsa(2048)], PATIENT);
    let suite = SUITES.iter().find(|suite| suite.name == "tls13-rsa2048");
    let report = Load {
        address: site.address,
        suite: suite.expect("a suite of this name"),
        resumed_percent: 0,
        concurrency: AT_ONCE,
        limit: Limit::Connections(3 * AT_ONCE as u64),
        behaviour: Behaviour::Request,
        // The last one waits for all the others.
        timeout: 10 * PATIENCE,
    }
    .run()
    .unwrap();
    assert_eq!(report.failures.total(), 0, "{}", report.failures);
    assert_eq!(
        site.terminator
            .metric("slipstream_serve_failed_handshakes_total", ""),
        0
    );
    expect_rest(&site);
}

/// Their request is wrong, and they go on sending. The answer reaches them all the same.
#[test]
fn a_client_that_is_still_sending_gets_its_answer() {
    /// A client that goes on for longer than this is not listened to.
    const LINGERING: Duration = Duration::from_secs(2);
    let authority = slipstream_integration::Authority::new();
    let root = format!("root = {:?}", authority.directory());
    let site = Site::new(&[KeyType::EcdsaP256], "", &root);
    for _ in 0..20 {
        let mut connection = site.client(&Offer::tls13()).connect().unwrap();
        let body = vec![b'x'; 2 << 20];
        let head = format!(
            "POST /index.html HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let start = Instant::now();
        let answer = connection
            .send(head.as_bytes())
            .and_then(|()| connection.send(&body))
            .and_then(|()| connection.read_response());
        match answer {
            Err(_) if start.elapsed() >= LINGERING => {}
            answer => assert_eq!(answer.unwrap().status, 405),
        }
    }
    expect_rest(&site);
}

#[test]
fn malformed_and_oversized_records() {
    let site = Site::http(&[KeyType::EcdsaP256], "");
    let mut hello = slipstream_integration::abuse::client_hello(&site.client(&Offer::tls13()));
    let cases: [Vec<u8>; 6] = [
        // A record of 65535 bytes (RFC 8446 section 5.1 allows 2^14).
        [&[22, 3, 1, 0xff, 0xff][..], &[0; 4096]].concat(),
        // Of no bytes, of an unknown type, of an unknown version.
        vec![22, 3, 1, 0, 0],
        vec![99, 3, 1, 0, 1, 0],
        vec![22, 9, 9, 0, 1, 0],
        // A handshake message that says it has 16 MiB.
        vec![22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff],
        {
            let length = hello.len();
            hello[length - 1] ^= 0xff;
            hello[5] = 2;
            hello
        },
    ];
    for bytes in cases {
        let mut stream = TcpStream::connect(site.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&bytes).unwrap();
        // It may have been closed by now, with a reset.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        // A reset is as good as an end.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer[0] == 21, "an alert: {answer:?}");
    }
    assert_eq!(
        site.client(&Offer::tls13()).get("/").unwrap().text(),
        "served"
    );
    expect_rest(&site);
}

#[test]
fn floods_of_headers() {
    let site = Site::http(&[KeyType::EcdsaP256], "[limits]\nheader_bytes = \"16k\"");
    let client = site.client(&Offer::tls13());
    let mut connection = client.connect().unwrap();
    connection
        .send(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        .unwrap();
    let line = format!("X-Flood: {}\r\n", "y".repeat(1000));
    let refused = (0..100_000).any(|_| connection.send(line.as_bytes()).is_err());
    assert!(refused, "a header of 100 MB has been taken");
    assert_eq!(client.get("/").unwrap().text(), "served");
    expect_rest(&site);
}

/// Nobody is connected, and the event loop sleeps.
pub fn expect_rest(site: &Site) {
    eventually("connections are closed", || {
        site.terminator
            .metric("slipstream_serve_open_connections", "")
            == 0
    });
}
