//! The phases of QTLS, and a device: whatever the directives, and whatever becomes of the engine, everybody is served.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use slipstream_bench::load::{Behaviour, Limit, Load};
use slipstream_bench::processor::process_cpu_time;
use slipstream_bench::suite::SUITES;
use slipstream_integration::process::quit;
use slipstream_integration::{
    Authority, Build, Client, Configuration, Engine, KeyType, Lanes, Nginx, Offer, PATIENCE,
    Visitors, each_build, eventually, unused_address,
};

each_build!(
    every_combination_serves,
    a_full_ring_delays_and_loses_nothing,
    an_engine_that_crashes_and_comes_back,
    an_engine_that_hangs_is_taken_out_and_let_in_again,
    an_engine_that_is_not_there_at_first,
    a_reload_and_an_upgrade_with_a_device,
    whoever_sleeps_uses_no_time,
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
    let nginx = Nginx::start(build, &site.configuration(&block));
    assert_eq!(site.load("tls12-rsakx", 64, 1_000), (1_000, String::new()));
    let metrics = nginx.settled();
    assert!(metrics.retried() > 100, "{metrics:#?}");
    assert_eq!(metrics.software_operations("full"), 0);
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
            let processes = [nginx.workers()[0], engine.process()];
            let before = processes.map(|process| process_cpu_time(process).unwrap());
            thread::sleep(WATCHED);
            for (process, before) in processes.into_iter().zip(before) {
                let used = process_cpu_time(process).unwrap() - before;
                // One that spins uses as much of the time as it gets.
                assert!(used < WATCHED / 50, "{block}: used {used:?} for nothing");
            }
        }
    }
}

fn workers_share_batches(build: Build) {
    let engine = Engine::start(&["--linger", "50ms"]);
    let site = Site::new();
    let configuration = site.configuration(&engine.directive()).workers(2);
    let nginx = Nginx::start(build, &configuration);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(site.load("tls12-rsakx", 4, 200), (200, String::new())));
        }
    });
    nginx.settled();
    // More connections than a worker has, in one batch.
    assert!(engine.figure("/fill/7") > 0, "{}", engine.status().unwrap());
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

    /// How many handshakes were served, and what went wrong.
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

    fn visitors(&self) -> Visitors {
        let offers = [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()];
        let client = |offer: Offer| {
            let offer = offer.name("localhost").roots(self.authority.certificate());
            Client::new(self.address, &offer)
        };
        Visitors::start(&offers.map(client), 4)
    }
}
