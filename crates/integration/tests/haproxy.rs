//! The loadable provider in HAProxy, which runs its handshakes in OpenSSL's own asynchronous jobs.

use std::sync::Mutex;

use slipstream_integration::abuse::Abuse;
use slipstream_integration::process::{anonymous_memory, descriptors, is_running};
use slipstream_integration::{
    Authority, Begun, Client, Haproxy, HaproxyConfiguration, KeyType, Offer, Random, Stopped,
    Visitors, concurrently, eventually,
};

/// Every operation goes through lanes, whatever it costs: the same on all machines.
const ALWAYS: &str = "flush = always\nlanes = portable";

/// Bytes that OpenSSL loses for one job that HAProxy leaves behind: its stack of 32 KiB, and the
/// memory that the handshake had allocated.
const LOST_JOB_BYTES: u64 = 48 << 10;
/// The provider's limit for such jobs.
const MOST_LOST_JOBS: u64 = 4096;
/// Bytes that the allocator and HAProxy's own pools keep.
const KEPT_BYTES: u64 = 8 << 20;

#[test]
fn concurrent_handshakes_are_computed_in_lanes() {
    const CLIENTS: usize = 24;
    for threads in [1, 2] {
        let server = Server::start(HaproxyConfiguration::with_provider(ALWAYS).threads(threads));
        for (offer, name) in offers() {
            let client = server.client(&offer);
            let before = server.haproxy.lane_operations();
            let connections = concurrently(CLIENTS, |_| {
                let mut connection = client.connect().expect(name);
                assert_eq!(connection.get("/").expect(name).text(), "served");
                connection
            });
            let operations = server.haproxy.lane_operations() - before;
            let expected = CLIENTS as u64 * operations_in_lanes(name);
            assert_eq!(operations, expected, "{name}, {threads} threads");
            // Each has paused, and keeps its descriptor until it is closed.
            assert_eq!(server.haproxy.event_descriptors(), CLIENTS, "{name}");
            drop(connections);
            eventually("event descriptors are closed", || {
                server.haproxy.event_descriptors() == 0
            });
        }
    }
}

#[test]
fn the_measured_cost_decides_by_default() {
    let server = Server::start(HaproxyConfiguration::with_provider(""));
    for (offer, name) in offers() {
        let client = server.client(&offer);
        // One at a time has no company, but may be as cheap in lanes: X25519, and RSA with half a
        // batch. It is computed once.
        let before = server.haproxy.lane_operations();
        assert_eq!(client.get("/").expect(name).text(), "served");
        let operations = server.haproxy.lane_operations() - before;
        assert!(operations <= operations_in_lanes(name), "{name}");
        let pages = concurrently(64, |_| client.get("/").expect(name).status);
        assert!(pages.iter().all(|&status| status == 200), "{name}");
    }
}

#[test]
fn without_lanes_nothing_is_paused() {
    let server = Server::start(HaproxyConfiguration::with_provider("lanes = off"));
    for (offer, name) in offers() {
        let mut connection = server.client(&offer).connect().expect(name);
        assert_eq!(connection.get("/").expect(name).text(), "served");
        assert_eq!(server.haproxy.event_descriptors(), 0, "{name}");
    }
    assert_eq!(server.haproxy.lane_operations(), 0);
}

#[test]
fn badly_behaved_clients_leave_no_descriptor_behind() {
    const ABUSERS: usize = 16;
    const CONNECTIONS: usize = 4_000;
    // HAProxy closes a connection without TLS, and does not say why.
    let abuses: Vec<Abuse> = Abuse::ALL
        .into_iter()
        .filter(|&abuse| abuse != Abuse::PlainHttp)
        .collect();
    for threads in [1, 2] {
        let server = Server::start(HaproxyConfiguration::with_provider(ALWAYS).threads(threads));
        let clients = offers().map(|(offer, _)| server.client(&offer));
        concurrently(64, |number| {
            clients[number % clients.len()].get("/").expect("a page");
        });
        let before = server.idle_memory();
        let visitors = Visitors::start(&clients, 1);
        let mut random = Random::of_this_run();
        let randoms: Vec<_> = (0..ABUSERS).map(|_| Mutex::new(random.split())).collect();
        let impatient = concurrently(ABUSERS, |abuser| {
            let mut random = randoms[abuser].lock().expect("used by this thread only");
            let mut impatient = 0;
            for _ in 0..CONNECTIONS / ABUSERS {
                let abuse = random.one_of(&abuses);
                let client = random.below(clients.len());
                abuse
                    .commit(&clients[client], &mut random)
                    .unwrap_or_else(|error| panic!("{abuse:?}: {error}"));
                impatient += u64::from(may_leave_while_paused(abuse, offers()[client].1));
            }
            impatient
        });
        visitors.wait_for(10);
        visitors.stop().expect_all_served();
        let after = server.idle_memory();
        // A client that leaves while its job is paused costs that job. How many do depends on the
        // machine.
        let lost = impatient.iter().sum::<u64>() * LOST_JOB_BYTES;
        assert!(after < before + lost + KEPT_BYTES, "{before} {after}");
    }
}

/// Returns true if a client with the offer of this name leaves before it has the server's answer to
/// a ClientHello, for which there are operations.
fn may_leave_while_paused(abuse: Abuse, name: &str) -> bool {
    let is_impatient = matches!(
        abuse,
        Abuse::ClientHello
            | Abuse::DamagedClientHello
            | Abuse::GarbageBehindClientHello
            | Abuse::DataBehindClientHello
            | Abuse::TwoClientHellos
    );
    is_impatient && operations_in_lanes(name) > 1
}

/// OpenSSL has no way to free the job of a connection that HAProxy frees while it is paused. After
/// this many the provider pauses no more, so an attacker gains no more memory either.
#[test]
fn the_memory_that_clients_can_waste_is_bounded() {
    const STORM: usize = 384;
    // A machine that runs HAProxy, but not this thread, lets all handshakes go on before anybody
    // leaves.
    const MOST_STORMS: usize = 1000;
    // HAProxy takes up one handshake in each turn of its loop. If it accepts all connections first,
    // the handshakes pause one after the other before the first is resumed.
    let configuration = HaproxyConfiguration::with_provider(ALWAYS).global("tune.maxaccept 1000");
    let server = Server::start(configuration);
    let client = server.client(&Offer::tls13());
    let pauses = || {
        let mut connection = client.connect().expect("a handshake");
        connection.get("/").expect("a page");
        server.haproxy.event_descriptors() > 0
    };
    let storm = || {
        let stopped = Stopped::new(vec![server.haproxy.worker()]);
        let begun: Vec<_> = (0..STORM)
            .map(|_| Begun::new(&client).expect("the kernel takes a connection"))
            .collect();
        drop(stopped);
        let stopped = stop_once_paused(&server.haproxy, STORM / 2);
        for begun in begun {
            begun.reset().expect("an open socket");
        }
        drop(stopped);
        server.idle_memory()
    };
    assert!(pauses());
    let before = storm();
    let bound = before + MOST_LOST_JOBS * LOST_JOB_BYTES + KEPT_BYTES;
    let mut storms = 0;
    let mut after = before;
    while pauses() {
        storms += 1;
        assert!(storms < MOST_STORMS, "too few jobs are lost: {after}");
        after = storm();
        assert!(
            after < bound,
            "jobs are lost without a limit: {before} {after}"
        );
    }
    let lanes = server.haproxy.lane_operations();
    for _ in 0..2 {
        let last = storm();
        assert!(last < after + KEPT_BYTES, "{after} {last}");
    }
    assert_eq!(server.haproxy.lane_operations(), lanes);
    assert_eq!(client.get("/").expect("a page").text(), "served");
}

#[test]
fn a_reload_under_load_turns_nobody_away() {
    const RELOADS: usize = 3;
    for configuration in [
        HaproxyConfiguration::stock(),
        HaproxyConfiguration::with_provider(ALWAYS),
    ] {
        let server = Server::start(configuration.threads(2).master());
        let clients = offers().map(|(offer, _)| server.client(&offer));
        let visitors = Visitors::start(&clients, 2);
        for _ in 0..RELOADS {
            visitors.wait_for(20);
            let old = server.haproxy.reload();
            visitors.wait_for(20);
            eventually("the old process exits", || !is_running(old));
        }
        visitors.stop().expect_all_served();
    }
}

/// Stops HAProxy when it is seen to have paused that many handshakes. It is not if it pauses none,
/// and need not be if this process is kept from looking.
fn stop_once_paused(haproxy: &Haproxy, handshakes: usize) -> Option<Stopped> {
    const LOOKS: usize = 100;
    let paused = (0..LOOKS).any(|_| haproxy.event_descriptors() >= handshakes);
    paused.then(|| Stopped::new(vec![haproxy.worker()]))
}

/// Number of operations of a handshake that lanes can compute: the signature or the decryption, and
/// the key exchange.
fn operations_in_lanes(name: &str) -> u64 {
    if name == "TLS 1.2, RSA key exchange" {
        1
    } else {
        2
    }
}

fn offers() -> [(Offer, &'static str); 3] {
    [
        (Offer::tls13(), "TLS 1.3"),
        (
            Offer::tls12().ciphers("ECDHE-RSA-AES128-GCM-SHA256"),
            "TLS 1.2, ECDHE-RSA",
        ),
        (Offer::rsa_key_exchange(), "TLS 1.2, RSA key exchange"),
    ]
}

struct Server {
    haproxy: Haproxy,
    authority: Authority,
    /// Memory of the serving process while nobody is connected.
    idle_descriptors: usize,
}

impl Server {
    fn start(configuration: HaproxyConfiguration) -> Self {
        let authority = Authority::new();
        let credentials = authority.issue(KeyType::Rsa(2048), &["localhost"]);
        let mut server = Self {
            haproxy: Haproxy::start(&configuration, &credentials),
            authority,
            idle_descriptors: 0,
        };
        // A process that serves a page has opened all that it needs for itself.
        let client = server.client(&Offer::tls13());
        assert_eq!(client.get("/").expect("a page").text(), "served");
        eventually("connections are closed", || {
            server.haproxy.connections() == 0 && server.haproxy.event_descriptors() == 0
        });
        server.idle_descriptors = descriptors(server.haproxy.worker());
        server
    }

    fn client(&self, offer: &Offer) -> Client {
        let offer = offer
            .clone()
            .name("localhost")
            .roots(self.authority.certificate());
        Client::new(self.haproxy.address(), &offer)
    }

    /// The memory that the serving process keeps once all descriptors of connections are closed, in
    /// bytes. They have to be.
    fn idle_memory(&self) -> u64 {
        let worker = self.haproxy.worker();
        eventually("descriptors are closed", || {
            descriptors(worker) <= self.idle_descriptors
        });
        anonymous_memory(worker)
    }
}
