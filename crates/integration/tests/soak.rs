//! Tens of thousands of handshakes of all kinds: neither memory nor descriptors grow, and nothing
//! is left over.

use std::net::SocketAddr;

use openssl::ssl::SslVersion;
use slipstream_bench::load::{Behaviour, Limit, Load};
use slipstream_integration::process::{anonymous_memory, descriptors};
use slipstream_integration::{
    Authority, Build, Client, Configuration, KeyType, Nginx, Offer, PATIENCE, concurrently,
    each_build, eventually, unused_address,
};
use slipstream_testbed::suite::{KeyType as SuiteKey, SUITES};

each_build!(
    ten_thousand_handshakes_leave_nothing,
    reloads_leave_nothing_in_the_master,
);

fn ten_thousand_handshakes_leave_nothing(build: Build) {
    expect_no_growth(build, 4_000, 10_000);
}

/// As long as a leak of a dozen bytes takes to be seen.
mod fifty_thousand_handshakes_leave_nothing {
    use slipstream_integration::Build;

    #[test]
    #[ignore = "takes a minute and more: run with --ignored"]
    fn distribution() {
        super::expect_no_growth(Build::Distribution, 10_000, 50_000);
    }

    #[test]
    #[ignore = "takes a minute and more: run with --ignored"]
    fn published() {
        super::expect_no_growth(Build::Published, 10_000, 50_000);
    }
}

fn expect_no_growth(build: Build, from: u64, to: u64) {
    // The allocator keeps as much, in places that differ from sample to sample.
    const MOST_BYTES: u64 = 2 << 20;
    let site = Site::new();
    let nginx = Nginx::start(build, &site.configuration());
    let worker = nginx.workers()[0];
    let mut samples = Samples::default();
    let mut completed = 0;
    while completed < to {
        completed += site.serve_a_mix();
        nginx.settled();
        if completed >= from {
            samples.take(worker);
        }
    }
    samples.expect_no_growth(worker, MOST_BYTES);
    let metrics = nginx.metrics();
    assert_eq!((metrics.in_flight(), metrics.fibers()), (0, 0));
    assert_eq!(metrics.handshakes(), completed);
    assert_eq!(metrics.all_software_operations(), 0);
    assert_eq!(nginx.workers(), [worker]);
}

fn reloads_leave_nothing_in_the_master(build: Build) {
    const WARM_UP: usize = 10;
    const RELOADS: usize = 40;
    const MOST_BYTES: u64 = 256 << 10;
    let site = Site::new();
    let mut nginx = Nginx::start(build, &site.configuration());
    let mut samples = Samples::default();
    for reload in 0..RELOADS {
        let old = nginx.reload(&site.configuration());
        site.client(&Offer::tls13()).get("/").unwrap();
        eventually("old workers exit", || {
            !nginx.workers().iter().any(|worker| old.contains(worker))
        });
        if reload >= WARM_UP {
            samples.take(nginx.master());
        }
    }
    samples.expect_no_growth(nginx.master(), MOST_BYTES);
}

/// Samples of the resources that a process uses.
#[derive(Default, Debug)]
struct Samples {
    memory: Vec<u64>,
    descriptors: Vec<usize>,
}

impl Samples {
    fn take(&mut self, process: u32) {
        self.memory.push(anonymous_memory(process));
        self.descriptors.push(descriptors(process));
    }

    /// Checks that the least use in the second half is no more than in the first, but for `most`
    /// bytes.
    fn expect_no_growth(&self, process: u32, most: u64) {
        let (first, second) = self.memory.split_at(self.memory.len() / 2);
        assert!(
            second.iter().min() <= first.iter().min().map(|least| least + most).as_ref(),
            "{self:?}"
        );
        let least = *self
            .descriptors
            .iter()
            .min()
            .expect("samples have been taken");
        eventually("descriptors are closed", || descriptors(process) <= least);
    }
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

    fn configuration(&self) -> Configuration {
        Configuration::new().server(
            format!("{} ssl", self.address),
            &[&self.authority.issue(KeyType::Rsa(2048), &["localhost"])],
            "ssl_session_cache shared:s:1m; location / { return 200 served; }",
        )
    }

    fn client(&self, offer: &Offer) -> Client {
        Client::new(self.address, offer)
    }

    /// Full handshakes of all suites, by the load generator, and resumed ones. Returns how many.
    fn serve_a_mix(&self) -> u64 {
        const FULL: u64 = 600;
        const CONCURRENCY: usize = 48;
        let full: u64 = SUITES
            .iter()
            .filter(|suite| suite.key == SuiteKey::Rsa2048)
            // nginx runs with the libcrypto that this program runs with.
            .filter(|suite| suite.lacked_by(openssl::version::version()).is_none())
            .map(|suite| {
                let report = Load {
                    address: self.address,
                    suite,
                    resumed_percent: 0,
                    concurrency: CONCURRENCY,
                    limit: Limit::Connections(FULL),
                    behaviour: Behaviour::Request,
                    timeout: PATIENCE,
                }
                .run()
                .unwrap();
                assert_eq!(report.failures.total(), 0, "{}", report.failures);
                report.handshakes
            })
            .sum();
        full + self.resume()
    }

    fn resume(&self) -> u64 {
        const THREADS: usize = 8;
        const RESUMPTIONS: usize = 24;
        let offers = [
            Offer::tls13(),
            Offer::tls12(),
            Offer::rsa_key_exchange().without_tickets(),
        ];
        concurrently(THREADS, |thread| {
            let client = self.client(&offers[thread % offers.len()]);
            client.get("/").unwrap();
            let mut session = client.session();
            for _ in 0..RESUMPTIONS {
                let mut connection = session.connect().unwrap();
                assert!(connection.is_resumed());
                assert_eq!(connection.get("/").unwrap().status, 200);
                // With a session cache, nginx takes a ticket of TLS 1.3 once.
                if connection.version() == SslVersion::TLS1_3 {
                    session = client.session();
                }
            }
            1 + RESUMPTIONS as u64
        })
        .into_iter()
        .sum()
    }
}
