//! Thousands of clients that behave badly, and well-behaved ones beside them that must not notice.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;

use slipstream_integration::abuse::{Abuse, client_hello};
use slipstream_integration::process::{anonymous_memory, descriptors};
use slipstream_integration::{
    Authority, Begun, Build, Client, Configuration, InFlight, KeyType, Nginx, Offer, Random,
    Stopped, Visitors, concurrently, each_build, eventually, unused_address,
};

each_build!(
    ten_thousand_aborted_connections,
    clients_leave_while_their_operations_are_in_flight,
    clients_have_left_before_the_worker_looks,
    connections_run_out_while_operations_are_in_flight,
);

/// Errors of clients are critical to a stock nginx too. The number is OpenSSL's for its TLS, not
/// its crypto.
const PROTOCOL_ERROR: &str = "SSL_do_handshake() failed (SSL: error:0A";

fn ten_thousand_aborted_connections(build: Build) {
    const WARM_UP: usize = 2_000;
    const CONNECTIONS: usize = 10_000;
    const CROWD: usize = 64;
    let server = Server::start(build);
    // What is wrong with a ClientHello is critical to a stock nginx too.
    server
        .nginx
        .expect_log("SSL_do_handshake() failed (SSL: error:0A");
    let mut random = Random::of_this_run();
    let clients = [Offer::tls13(), Offer::tls12(), Offer::rsa_key_exchange()]
        .map(|offer| server.client(&offer));

    // That they are not more later, however long the machine does not run the worker, is up to the
    // clients: each waits for the server again and again.
    for client in &clients {
        server.serve_at_once(client, CROWD);
    }
    server.abuse(&clients, WARM_UP, &mut random);
    let before = server.usage();
    let visitors = Visitors::start(&clients, 1);
    server.abuse(&clients, CONNECTIONS - WARM_UP, &mut random);
    visitors.wait_for(10);
    visitors.stop().expect_all_served();
    server.expect_no_growth(before);

    let metrics = server.nginx.metrics();
    assert!(metrics.closed_handshakes() > 1_000, "{metrics:#?}");
    assert_eq!(metrics.all_software_operations(), 0, "{metrics:#?}");
    assert_eq!(server.nginx.log_lines_with("internal error"), 0);
}

/// Some reset the connection, some close it, some send more than they should, and others wait and
/// are served.
fn clients_leave_while_their_operations_are_in_flight(build: Build) {
    let server = Server::start_slow(build);
    server.nginx.expect_log(PROTOCOL_ERROR);
    let client = server.client(&Offer::tls13());
    server.serve_at_once(&client, server.in_flight);
    let before = server.usage();
    let earlier = server.nginx.settled();
    let mut waiting = Vec::new();
    let InFlight {
        begun,
        stopped,
        operations,
    } = Begun::many_in_flight(&server.nginx, &client, server.in_flight);
    for (number, begun) in begun.into_iter().enumerate() {
        match number % 8 {
            0 => begun.reset().unwrap(),
            1 => drop(begun),
            2 => begun.socket().shutdown(Shutdown::Write).unwrap(),
            3 => begun.socket().shutdown(Shutdown::Both).unwrap(),
            4 => begun.socket().write_all(&[0x5a; 4096]).unwrap(),
            5 => {
                begun.socket().write_all(&client_hello(&client)).unwrap();
                begun.reset().unwrap();
            }
            _ => waiting.push(begun),
        }
    }
    drop(stopped);
    let served = waiting.len() as u64;
    Begun::expect_service(waiting);
    let metrics = server.nginx.settled();
    let in_lanes = metrics.lane_operations() - earlier.lane_operations();
    assert_eq!(in_lanes, operations, "{metrics:#?}");
    let handshakes = metrics.handshakes() - earlier.handshakes();
    assert!(handshakes >= served, "{metrics:#?}");
    assert!(metrics.closed_handshakes() > 0, "{metrics:#?}");
    server.expect_no_growth(before);
    assert_eq!(client.get("/").unwrap().status, 200);
}

fn clients_have_left_before_the_worker_looks(build: Build) {
    let server = Server::start(build);
    let before = server.usage();
    for offer in [Offer::tls13(), Offer::rsa_key_exchange()] {
        let client = server.client(&offer);
        let stopped = Stopped::new(vec![server.worker]);
        for number in 0..128 {
            let begun = Begun::new(&client).unwrap();
            if number % 2 == 0 {
                begun.reset().unwrap();
            }
        }
        drop(stopped);
        server.expect_no_growth(before);
        assert_eq!(client.get("/").unwrap().status, 200);
    }
}

/// nginx then closes connections that have sent nothing yet. Those whose handshake is under way are
/// not among them.
fn connections_run_out_while_operations_are_in_flight(build: Build) {
    // As many as there are, less a sixteenth: nginx starts closing then.
    const NEARLY_ALL: usize = 2048 - 2048 / 16;
    let server = Server::start_slow(build);
    let client = server.client(&Offer::tls13());
    server.serve_at_once(&client, server.in_flight);
    let before = server.usage();
    let InFlight { begun, stopped, .. } =
        Begun::many_in_flight(&server.nginx, &client, server.in_flight);
    let silent: Vec<TcpStream> = (0..NEARLY_ALL).map(|_| client.open().unwrap()).collect();
    drop(stopped);
    let lines = "worker_connections are not enough, reusing connections";
    eventually("connections run out", || {
        server.nginx.log_lines_with(lines) > 0
    });
    // The worker answers when it has accepted all of them. A client that completed its handshake
    // before could rightly be closed in favour of a silent one, for want of a request.
    server.nginx.metrics();
    Begun::expect_service(begun);
    drop(silent);
    server.expect_no_growth(before);
    assert_eq!(client.get("/").unwrap().status, 200);
}

struct Server {
    nginx: Nginx,
    address: SocketAddr,
    authority: Authority,
    worker: u32,
    /// Number of operations that keep the worker busy long enough for clients to do something
    /// meanwhile.
    in_flight: usize,
}

/// Memory and descriptors of the worker while nobody is connected.
#[derive(Clone, Copy, Debug)]
struct Usage {
    descriptors: usize,
    memory: u64,
    stacks: u64,
}

impl Server {
    fn start(build: Build) -> Self {
        Self::start_with(build, KeyType::Rsa(2048), 0)
    }

    fn start_slow(build: Build) -> Self {
        if std::arch::is_x86_feature_detected!("avx512f") {
            Self::start_with(build, KeyType::Rsa(4096), 320)
        } else {
            // Portable lanes are slow as it is.
            Self::start_with(build, KeyType::Rsa(2048), 64)
        }
    }

    fn start_with(build: Build, key: KeyType, in_flight: usize) -> Self {
        let authority = Authority::new();
        let address = unused_address();
        let configuration = Configuration::new().events("multi_accept on;").server(
            format!("{address} ssl backlog=4096"),
            &[&authority.issue(key, &["localhost"])],
            "location / { return 200 served; }",
        );
        let nginx = Nginx::start(build, &configuration);
        let worker = nginx.workers()[0];
        Self {
            nginx,
            address,
            authority,
            worker,
            in_flight,
        }
    }

    fn client(&self, offer: &Offer) -> Client {
        let offer = offer
            .clone()
            .name("localhost")
            .roots(self.authority.certificate());
        Client::new(self.address, &offer)
    }

    /// Serves `count` handshakes that are there at once: the more there are, the more memory the
    /// allocator keeps afterwards.
    /// (OpenSSL 3.5: 60 KiB of each.)
    fn serve_at_once(&self, client: &Client, count: usize) {
        Begun::expect_service(Begun::many(&self.nginx, client, count));
    }

    /// Has `connections` clients behave badly, some at a time.
    fn abuse(&self, clients: &[Client], connections: usize, random: &mut Random) {
        const ABUSERS: usize = 16;
        let randoms: Vec<_> = (0..ABUSERS).map(|_| Mutex::new(random.split())).collect();
        let complaints = concurrently(ABUSERS, |abuser| {
            let mut random = randoms[abuser].lock().unwrap();
            let mut complaints = Vec::new();
            for _ in 0..connections / ABUSERS {
                let abuse = random.one_of(&Abuse::ALL);
                let client = &clients[random.below(clients.len())];
                if let Err(error) = abuse.commit(client, &mut random) {
                    complaints.push(format!("{abuse:?}: {error}"));
                }
            }
            complaints
        })
        .concat();
        assert!(
            complaints.is_empty(),
            "{}: {complaints:#?}",
            complaints.len()
        );
    }

    fn usage(&self) -> Usage {
        let metrics = self.nginx.settled();
        Usage {
            descriptors: descriptors(self.worker),
            memory: anonymous_memory(self.worker),
            stacks: metrics.fiber_stacks(),
        }
    }

    /// Nothing is in flight, connections are closed, and memory is given back but for pooled
    /// stacks, and for what the allocator keeps.
    fn expect_no_growth(&self, before: Usage) {
        const KEPT_BYTES: u64 = 2 << 20;
        const STACK_BYTES: u64 = 64 << 10;
        // Pooled stacks may have been used to a lesser depth before.
        const DEEPER_BYTES: u64 = 16 << 10;
        eventually("connections are closed", || {
            self.usage().descriptors <= before.descriptors
        });
        let after = self.usage();
        let new = after.stacks.saturating_sub(before.stacks);
        let stacks = new * STACK_BYTES + (after.stacks - new) * DEEPER_BYTES;
        assert!(
            after.memory <= before.memory + stacks + KEPT_BYTES,
            "{before:?} {after:?}"
        );
        assert_eq!(self.nginx.workers(), [self.worker]);
    }
}
