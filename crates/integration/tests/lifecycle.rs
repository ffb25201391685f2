//! Signals, reloads, upgrades and time-outs, under load and while operations are in flight. What a
//! stock nginx would have served is served: it goes through the same first.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use slipstream_integration::process::{self, descriptors, is_running, quit, signal};
use slipstream_integration::sockets::sockets;
use slipstream_integration::{
    Authority, Begun, Build, Client, Configuration, InFlight, KeyType, Nginx, Offer, Stopped,
    Visitors, each_build, eventually, unused_address,
};

each_build!(
    six_reloads_under_load,
    the_module_is_removed_and_restored_under_load,
    an_upgrade_under_load,
    a_reload_while_operations_are_in_flight,
    quit_while_operations_are_in_flight,
    termination_while_operations_are_in_flight,
    the_shutdown_timeout_while_operations_are_in_flight,
    handshakes_time_out_while_operations_are_in_flight,
);

/// Operations in flight when something happens, and their key: together they take long enough for
/// it to happen meanwhile.
fn many_operations() -> (usize, KeyType) {
    if std::arch::is_x86_feature_detected!("avx512f") {
        (320, KeyType::Rsa(4096))
    } else {
        // Portable lanes are slow as it is.
        (64, KeyType::Rsa(2048))
    }
}

/// Longer than the time-out of one second that is configured, which is waited for while the
/// worker is stopped, so that it expires before any operation ends, however fast the machine.
const LONGER_THAN_A_SECOND: Duration = Duration::from_millis(1500);

fn six_reloads_under_load(build: Build) {
    for module in [false, true] {
        let site = Site::new();
        let configuration = site.configuration(module);
        let mut nginx = Nginx::start(build, &configuration);
        let visitors = site.visitors();
        let mut old = Vec::new();
        for _ in 0..6 {
            visitors.wait_for(20);
            old.extend(nginx.reload(&configuration));
        }
        visitors.wait_for(20);
        expect_exit(&old);
        visitors.stop().expect_all_served();
        expect_rest(&nginx);
    }
}

fn the_module_is_removed_and_restored_under_load(build: Build) {
    let site = Site::new();
    let mut nginx = Nginx::start(build, &site.configuration(true));
    let visitors = site.visitors();
    for _ in 0..2 {
        visitors.wait_for(20);
        let with = nginx.metrics().handshakes();
        assert!(with > 0);

        let old = nginx.reload(&site.configuration(false));
        visitors.wait_for(20);
        expect_exit(&old);
        assert_eq!(nginx.status_page("GET").unwrap().status, 404);
        visitors.wait_for(20);

        let old = nginx.reload(&site.configuration(true));
        visitors.wait_for(20);
        expect_exit(&old);
        eventually("handshakes are on fibers again", || {
            nginx.metrics().handshakes() > with
        });
    }
    visitors.stop().expect_all_served();
    expect_rest(&nginx);
}

fn an_upgrade_under_load(build: Build) {
    for module in [false, true] {
        let site = Site::new();
        let mut nginx = Nginx::start(build, &site.configuration(module).daemon());
        let visitors = site.visitors();
        visitors.wait_for(20);
        let old = nginx.upgrade();
        visitors.wait_for(20);
        quit(old);
        eventually("the old master exits", || !is_running(old));
        visitors.wait_for(20);
        visitors.stop().expect_all_served();
        expect_rest(&nginx);
    }
}

fn a_reload_while_operations_are_in_flight(build: Build) {
    for module in [false, true] {
        let site = Site::slow();
        let configuration = site.configuration(module);
        let mut nginx = Nginx::start(build, &configuration);
        let (begun, stopped) = site.begin(&nginx, module);
        let old = nginx.reload(&configuration);
        let visitors = site.visitors();
        drop(stopped);
        Begun::expect_service(begun);
        expect_exit(&old);
        visitors.wait_for(1);
        visitors.stop().expect_all_served();
    }
}

fn quit_while_operations_are_in_flight(build: Build) {
    for module in [false, true] {
        let site = Site::slow();
        let mut nginx = Nginx::start(build, &site.configuration(module));
        let (begun, stopped) = site.begin(&nginx, module);
        nginx.signal(Signal::QUIT);
        if let Some(stopped) = stopped {
            // The master may be long in telling it.
            nginx.workers().into_iter().for_each(quit);
            drop(stopped);
        }
        Begun::expect_service(begun);
        nginx.wait_for_exit();
    }
}

/// A stock nginx serves nobody any more either.
fn termination_while_operations_are_in_flight(build: Build) {
    for termination in [Signal::TERM, Signal::INT] {
        let site = Site::slow();
        let mut nginx = Nginx::start(build, &site.configuration(true));
        let (begun, stopped) = site.begin(&nginx, true);
        let worker = nginx.workers()[0];
        // A master kills workers that take a second and a half, as on a busy machine they may. This
        // one must not have to be killed.
        let master = Stopped::new(vec![nginx.master()]);
        signal(worker, termination);
        drop(stopped);
        let ends = Begun::visit(begun);
        assert!(ends.iter().any(Result::is_err), "all operations had ended");
        expect_exit(&[worker]);
        nginx.signal(termination);
        drop(master);
        nginx.wait_for_exit();
    }
}

fn the_shutdown_timeout_while_operations_are_in_flight(build: Build) {
    let site = Site::slow();
    // No machine ends half of the operations in so short a time.
    let configuration = site
        .configuration(true)
        .main("worker_shutdown_timeout 1ms;");
    let mut nginx = Nginx::start(build, &configuration);
    let (begun, stopped) = site.begin(&nginx, true);
    nginx.signal(Signal::QUIT);
    // The master may be long in telling it.
    nginx.workers().into_iter().for_each(quit);
    drop(stopped);
    let ends = Begun::visit(begun);
    assert!(ends.iter().any(Result::is_err), "all operations had ended");
    nginx.wait_for_exit();
}

fn handshakes_time_out_while_operations_are_in_flight(build: Build) {
    let site = Site::slow();
    let configuration = site.configuration_with(true, "client_header_timeout 1s;");
    let nginx = Nginx::start(build, &configuration);
    nginx.expect_orphans();
    let worker = nginx.workers()[0];
    let unused = descriptors(worker);
    let (begun, stopped) = site.begin(&nginx, true);
    thread::sleep(LONGER_THAN_A_SECOND);
    drop(stopped);
    let ends = Begun::visit(begun);
    assert!(ends.iter().any(Result::is_err), "all operations had ended");
    let metrics = nginx.settled();
    assert!(
        metrics.orphans() > 0 && metrics.closed_handshakes() > 0,
        "{metrics:#?}"
    );
    eventually("connections are closed", || descriptors(worker) <= unused);
    // A later client is served; on a busy machine not at the first attempt.
    eventually("a handshake is in time", || {
        site.client(&Offer::tls13()).get("/").is_ok()
    });
    expect_rest(&nginx);
}

/// One server, the same whether with the module or without.
struct Site {
    authority: Authority,
    address: SocketAddr,
    key: KeyType,
    in_flight: usize,
}

impl Site {
    fn new() -> Self {
        Self {
            authority: Authority::new(),
            address: unused_address(),
            key: KeyType::Rsa(2048),
            in_flight: 0,
        }
    }

    fn slow() -> Self {
        let (in_flight, key) = many_operations();
        Self {
            key,
            in_flight,
            ..Self::new()
        }
    }

    fn configuration(&self, module: bool) -> Configuration {
        self.configuration_with(module, "")
    }

    /// With more directives for the server.
    fn configuration_with(&self, module: bool, directives: &str) -> Configuration {
        let base = if module {
            Configuration::new()
        } else {
            Configuration::stock()
        };
        base.events("multi_accept on;").server(
            format!("{} ssl", self.address),
            &[&self.authority.issue(self.key, &["localhost"])],
            format!("{directives} location / {{ return 200 served; }}"),
        )
    }

    fn client(&self, offer: &Offer) -> Client {
        let offer = offer
            .clone()
            .name("localhost")
            .roots(self.authority.certificate());
        Client::new(self.address, &offer)
    }

    fn visitors(&self) -> Visitors {
        let offers = [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()];
        Visitors::start(&offers.map(|offer| self.client(&offer)), 2)
    }

    /// Handshakes that nginx has accepted. With the module their operations are in flight, and the
    /// worker is stopped.
    fn begin(&self, nginx: &Nginx, module: bool) -> (Vec<Begun>, Option<Stopped>) {
        let client = self.client(&Offer::tls13());
        if module {
            let InFlight { begun, stopped, .. } =
                Begun::many_in_flight(nginx, &client, self.in_flight);
            return (begun, Some(stopped));
        }
        let begun = Begun::many(nginx, &client, self.in_flight);
        eventually("all are accepted", || {
            sockets(self.address)
                .iter()
                .all(|socket| !socket.is_listening || socket.queued == 0)
        });
        (begun, None)
    }
}

fn expect_exit(workers: &[u32]) {
    eventually("old workers exit", || {
        !workers.iter().any(|&worker| is_running(worker))
    });
}

/// Nobody is connected, so the worker sleeps.
fn expect_rest(nginx: &Nginx) {
    eventually("old workers exit", || nginx.workers().len() == 1);
    process::expect_rest(&nginx.workers(), Duration::from_secs(1));
}
