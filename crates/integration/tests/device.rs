//! The phases of QTLS, and a device: whatever the directives, and whatever becomes of the engine,
//! everybody is served.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use slipstream_bench::load::{Behaviour, Limit, Load};
use slipstream_integration::process::{expect_rest, quit};
use slipstream_integration::sockets::sockets;
use slipstream_integration::{
    Authority, Begun, Build, Client, Configuration, Engine, KeyType, Lanes, Metrics, Nginx, Offer,
    PATIENCE, Stopped, Visitors, concurrently, each_build, eventually, unused_address,
};
use slipstream_testbed::suite::SUITES;

each_build!(
    every_combination_serves,
    a_full_ring_delays_and_loses_nothing,
    an_engine_that_crashes_and_comes_back,
    an_engine_that_hangs_is_taken_out_and_let_in_again,
    an_engine_that_is_not_there_at_first,
    a_reload_and_an_upgrade_with_a_device,
    whoever_sleeps_uses_no_time,
    without_lanes_the_device_computes_every_operation,
    workers_share_batches,
);

const POLLS: [&str; 6] = [
    "idle",
    "hybrid",
    "interrupt",
    "heuristic",
    "timer 10us",
    "timer 1ms",
];

fn every_combination_serves(build: Build) {
    let handshakes = match build {
        Build::Distribution => 2_000,
        // What differs between versions of nginx shows with fewer.
        Build::Published => 200,
    };
    let engine = Engine::start(&[]);
    let site = Site::new();
    let mut nginx = Nginx::start(build, &site.configuration("poll idle;"));
    for device in ["", &engine.directive()] {
        for offload in ["async", "sync"] {
            for poll in POLLS {
                for notify in ["queue", "fd"] {
                    let block =
                        format!("{device} offload {offload}; poll {poll}; notify {notify};");
                    expect_service(&mut nginx, &site, &block, handshakes);
                    let metrics = nginx.metrics();
                    assert_eq!(metrics.orphans(), 0, "{block}");
                }
            }
        }
    }
    assert!(engine.figure("/batches") > 0);
    let served = nginx.metrics().handshakes();
    nginx.expect_log("\"offload software\"");
    expect_service(&mut nginx, &site, "offload software;", handshakes);
    assert_eq!(
        nginx.metrics().handshakes(),
        served,
        "the module takes no part"
    );
}

/// As many handshakes, without an error, and nothing is left in flight.
fn expect_service(nginx: &mut Nginx, site: &Site, block: &str, handshakes: u64) {
    let old = nginx.reload(&site.configuration(block));
    eventually("old workers exit", || {
        !nginx.workers().iter().any(|worker| old.contains(worker))
    });
    let report = site.load("tls12-rsakx", 32, handshakes);
    assert_eq!(report, (handshakes, String::new()), "{block}");
    let report = site.load("tls13-rsa2048", 32, handshakes / 10);
    assert_eq!(report, (handshakes / 10, String::new()), "{block}");
    nginx.settled();
}

fn a_full_ring_delays_and_loses_nothing(build: Build) {
    let engine = Engine::start(&["--pace", "dh8970", "--pace-engines", "2"]);
    let site = Site::new();
    let block = format!("{} ring 8;", engine.directive());
    let configuration = site.configuration(&block).events("multi_accept on;");
    let nginx = Nginx::start(build, &configuration);
    assert_eq!(site.load("tls12-rsakx", 64, 1_000), (1_000, String::new()));
    // The load may be too slow for the ring to be full. These are found at once, whenever they are
    // sent; on a busy machine they may find the device taken out.
    let client = site.client(Offer::tls13());
    eventually("the ring is full again and again", || {
        Begun::expect_service(Begun::many(&nginx, &client, 64));
        nginx.settled().retried() > 100
    });
    assert_eq!(nginx.settled().software_operations("full"), 0);
}

fn an_engine_that_crashes_and_comes_back(build: Build) {
    for block in [
        "",
        "poll interrupt;",
        "poll timer 1ms; notify fd;",
        "offload sync;",
    ] {
        let mut engine = Engine::start(&[]);
        let site = Site::new();
        let block = format!("{} {block}", engine.directive());
        let nginx = Nginx::start(build, &site.configuration(&block));
        let visitors = site.visitors();
        for _ in 0..3 {
            visitors.wait_for(20);
            engine.kill();
            visitors.wait_for(20);
            let before = nginx.metrics().device_operations();
            engine.restart();
            eventually("the device is used again", || {
                nginx.metrics().device_operations() > before + 20
            });
        }
        visitors.stop().expect_all_served();
        nginx.settled();
    }
}

fn an_engine_that_hangs_is_taken_out_and_let_in_again(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let nginx = Nginx::start(build, &site.configuration(&engine.directive()));
    let visitors = site.visitors();
    visitors.wait_for(20);
    eventually("the device is used", || {
        nginx.metrics().device_operations() > 0
    });
    engine.signal(Signal::STOP);
    eventually("requests are given up", || {
        nginx.metrics().software_operations("lost") > 0
    });
    // Without waiting for the engine.
    visitors.wait_for(50);
    let before = nginx.metrics().device_operations();
    engine.signal(Signal::CONT);
    eventually("the device is used again", || {
        nginx.metrics().device_operations() > before + 20
    });
    visitors.stop().expect_all_served();
    nginx.settled();
}

fn an_engine_that_is_not_there_at_first(build: Build) {
    let mut engine = Engine::absent(&[]);
    let site = Site::new();
    let nginx = Nginx::start(build, &site.configuration(&engine.directive()));
    let visitors = site.visitors();
    visitors.wait_for(20);
    assert_eq!(nginx.metrics().device_operations(), 0);
    engine.restart();
    eventually("the device is used", || {
        nginx.metrics().device_operations() > 20
    });
    visitors.stop().expect_all_served();
    engine.stop();
}

fn a_reload_and_an_upgrade_with_a_device(build: Build) {
    let engine = Engine::start(&[]);
    let site = Site::new();
    let configuration = site.configuration(&engine.directive()).workers(2).daemon();
    let mut nginx = Nginx::start(build, &configuration);
    let visitors = site.visitors();
    for _ in 0..3 {
        visitors.wait_for(20);
        nginx.reload(&configuration);
    }
    visitors.wait_for(20);
    let old = nginx.upgrade();
    quit(old);
    visitors.wait_for(20);
    visitors.stop().expect_all_served();
    eventually("the old workers are gone", || {
        nginx.workers().len() == 2 && engine.figure("/instances") == 2
    });
    nginx.settled();
}

/// Neither the worker nor the engine use time when nobody comes, also after somebody has.
fn whoever_sleeps_uses_no_time(build: Build) {
    const WATCHED: Duration = Duration::from_secs(2);
    let engine = Engine::start(&[]);
    let site = Site::new();
    let mut nginx = Nginx::start(build, &site.configuration(&engine.directive()));
    for poll in ["idle", "hybrid", "interrupt"] {
        for notify in ["queue", "fd"] {
            let block = format!("{} poll {poll}; notify {notify};", engine.directive());
            let old = nginx.reload(&site.configuration(&block));
            eventually("old workers exit", || {
                !nginx.workers().iter().any(|worker| old.contains(worker))
            });
            assert_eq!(site.load("tls13-rsa2048", 16, 100), (100, String::new()));
            nginx.settled();
            eprintln!("{block}");
            expect_rest(&[nginx.workers()[0], engine.process()], WATCHED);
        }
    }
}

/// As on a CPU without AVX-512, with keys that workers have, and with keys that the engine holds.
fn without_lanes_the_device_computes_every_operation(build: Build) {
    const HANDSHAKES: usize = 100;
    let engine = Engine::start(&[]);
    for keys in ["shared", "isolated"] {
        for key in [KeyType::Rsa(2048), KeyType::EcdsaP256] {
            let authority = Authority::new();
            let address = unused_address();
            let block = format!("lanes off; flush 1; keys {keys}; {}", engine.directive());
            let configuration = Configuration::new().lanes(Lanes::Block(block)).server(
                format!("{address} ssl"),
                &[&authority.issue(key, &["localhost"])],
                "location / { return 200 served; }",
            );
            let nginx = Nginx::start(build, &configuration);
            let client = |offer: Offer| {
                let offer = offer.name("localhost").roots(authority.certificate());
                Client::new(address, &offer)
            };
            // The first operations bring a shared key to the engine, while software computes them.
            eventually("the engine has the key", || {
                let before = nginx.settled().all_software_operations();
                client(Offer::tls13()).get("/").unwrap();
                nginx.settled().all_software_operations() == before
            });
            let before = nginx.settled();
            for offer in [Offer::tls12(), Offer::tls13()] {
                let client = client(offer);
                concurrently(HANDSHAKES / 2, |_| {
                    assert_eq!(client.get("/").unwrap().text(), "served");
                });
            }
            let after = nginx.settled();
            let context = format!("keys {keys}, {key:?}");
            let added = |figure: fn(&Metrics) -> u64| figure(&after) - figure(&before);
            assert_eq!(added(Metrics::handshakes), HANDSHAKES as u64, "{context}");
            assert_eq!(added(Metrics::all_software_operations), 0, "{context}");
            assert_eq!(added(Metrics::batches), 0, "{context}");
            // A signature and a key exchange each.
            let computed = added(Metrics::device_operations);
            assert!(computed >= 2 * HANDSHAKES as u64, "{context}: {computed}");
        }
    }
}

/// There are never as many connections of one worker as fill a batch.
fn workers_share_batches(build: Build) {
    let engine = Engine::start(&["--linger", "50ms"]);
    let site = Site::new();
    let configuration = site
        .configuration(&engine.directive())
        .workers(2)
        .events("multi_accept on;");
    let nginx = Nginx::start(build, &configuration);
    assert_eq!(site.load("tls12-rsakx", 7, 200), (200, String::new()));
    nginx.settled();
    assert_eq!(engine.figure("/fill/7"), 0);
    let client = site.client(Offer::tls13());
    eventually("operations of two workers are in one batch", || {
        if let Some(begun) = begin_eight(&nginx, &engine, &client, site.address) {
            Begun::expect_service(begun);
        }
        engine.figure("/fill/7") > 0
    });
    nginx.settled();
}

/// Eight handshakes, some with each worker, whose operations the engine finds at once, provided
/// that it is not kept from working for so long that it is taken out. `None` if all of them would
/// be one worker's: the kernel chooses.
fn begin_eight(
    nginx: &Nginx,
    engine: &Engine,
    client: &Client,
    address: SocketAddr,
) -> Option<Vec<Begun>> {
    const EIGHT: usize = 8;
    let wait_until_read = || {
        eventually("the workers have read what was sent", || {
            sockets(address).iter().all(|socket| socket.queued == 0)
        });
    };
    let workers = Stopped::new(nginx.workers());
    let begun: Vec<_> = (0..EIGHT).map(|_| Begun::new(client).unwrap()).collect();
    let queues = sockets(address);
    let mut queues = queues.iter().filter(|socket| socket.is_listening);
    if queues.any(|queue| queue.queued == 0) {
        // What was sent is gone with the connections.
        begun.into_iter().for_each(|begun| begun.reset().unwrap());
        drop(workers);
        wait_until_read();
        return None;
    }
    let stopped = Stopped::new(vec![engine.process()]);
    drop(workers);
    wait_until_read();
    drop(stopped);
    Some(begun)
}

struct Site {
    authority: Authority,
    address: SocketAddr,
}

impl Site {
    fn new() -> Self {
        Self {
            authority: Authority::new(),
            address: unused_address(),
        }
    }

    fn configuration(&self, block: &str) -> Configuration {
        Configuration::new()
            .lanes(Lanes::ForcedWith(block.to_owned()))
            .server(
                format!("{} ssl reuseport", self.address),
                &[&self.authority.issue(KeyType::Rsa(2048), &["localhost"])],
                "location / { return 200 served; }",
            )
    }

    /// Returns the number of handshakes that were served, and the failures.
    fn load(&self, suite: &str, concurrency: usize, handshakes: u64) -> (u64, String) {
        let report = Load {
            address: self.address,
            suite: SUITES.iter().find(|known| known.name == suite).unwrap(),
            resumed_percent: 0,
            concurrency,
            limit: Limit::Connections(handshakes),
            behaviour: Behaviour::Request,
            timeout: PATIENCE,
        }
        .run()
        .unwrap();
        let failures = match report.failures.total() {
            0 => String::new(),
            _ => report.failures.to_string(),
        };
        (report.handshakes, failures)
    }

    fn client(&self, offer: Offer) -> Client {
        let offer = offer.name("localhost").roots(self.authority.certificate());
        Client::new(self.address, &offer)
    }

    fn visitors(&self) -> Visitors {
        let offers = [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()];
        Visitors::start(&offers.map(|offer| self.client(offer)), 4)
    }
}
