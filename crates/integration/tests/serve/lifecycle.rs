//! Reload, drain, and activation by sockets, under load.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use slipstream_integration::{
    Authority, Client, ClientError, KeyType, Offer, Terminator, TerminatorConfiguration, Visitors,
    eventually, unused_address,
};

use crate::site::{Backend, Site, configuration};

#[test]
fn certificates_are_replaced_under_load() {
    let backend = Backend::start("served").address;
    let listener = format!("backends = [\"http://{backend}\"]");
    let site = Site::new(&[KeyType::Rsa(2048)], "", &listener);
    let visitors = visitors(&site);
    for _ in 0..6 {
        visitors.wait_for(20);
        let new = site.authority.issue(KeyType::Rsa(2048), &["localhost"]);
        site.terminator.reload(&configuration(
            site.address,
            std::slice::from_ref(&new),
            "",
            &listener,
        ));
        let shown = site
            .client(&Offer::tls13())
            .connect()
            .unwrap()
            .certificate();
        assert!(shown == new.certificate);
    }
    visitors.wait_for(20);
    visitors.stop().expect_all_served();
}

/// As Kubernetes does: what the path leads to is another folder from one moment to the next.
#[test]
fn certificates_that_change_are_found_without_a_signal() {
    let authority = Authority::new();
    let address = unused_address();
    let folder = authority.directory().join("current");
    let issue = |version: &str| {
        let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
        let new = authority.directory().join(version);
        fs::create_dir(&new).unwrap();
        fs::copy(&credentials.certificate_file, new.join("c.pem")).unwrap();
        fs::copy(&credentials.key_file, new.join("k.pem")).unwrap();
        let link = authority.directory().join("next");
        symlink(&new, &link).unwrap();
        fs::rename(&link, &folder).unwrap();
        credentials
    };
    let first = issue("first");
    let mut credentials = first.clone();
    credentials.certificate_file = folder.join("c.pem");
    credentials.key_file = folder.join("k.pem");
    let root = format!("root = {:?}", authority.directory());
    let configuration = configuration(address, &[credentials], "watch = \"100ms\"", &root);
    let _terminator = Terminator::start(&configuration);
    let client = Client::new(address, &Offer::tls13());
    let shown = || client.connect().unwrap().certificate();
    assert!(shown() == first.certificate);
    let second = issue("second");
    eventually("the new certificate is shown", || {
        shown() == second.certificate
    });
}

#[test]
fn what_is_wrong_leaves_the_old_configuration_in_use() {
    let backend = Backend::start("served").address;
    let listener = format!("backends = [\"http://{backend}\"]");
    let site = Site::new(&[KeyType::EcdsaP256], "", &listener);
    let foreign = site
        .authority
        .issue_for(&KeyType::EcdsaP256.generate(), &["localhost"]);
    let mut mixed = site.credentials[0].clone();
    mixed.key_file = foreign.key_file;
    let other = unused_address();
    let attempts = [
        (configuration(site.address, &[mixed], "", &listener), "key"),
        (
            configuration(other, &site.credentials, "", &listener),
            "restart",
        ),
        (
            configuration(site.address, &site.credentials, "nonsense = 1", &listener),
            "nonsense",
        ),
    ];
    for (attempt, complaint) in attempts {
        site.terminator.try_reload(&attempt);
        eventually("it says why", || {
            site.terminator.errors().contains(complaint)
        });
        assert_eq!(
            site.client(&Offer::tls13()).get("/").unwrap().text(),
            "served"
        );
    }
    // And a good one is taken after that.
    site.terminator.reload(&configuration(
        site.address,
        &site.credentials,
        "",
        &listener,
    ));
}

#[test]
fn a_drain_completes_what_has_begun() {
    for signal in [Signal::TERM, Signal::QUIT] {
        let backend = Backend::start("served");
        let mut site = Site::before(&backend, &[KeyType::Rsa(2048)], "");
        let client = site.client(&Offer::tls13());
        let mut idle = client.connect().unwrap();
        idle.get("/").unwrap();
        let mut slow = client.connect().unwrap();
        slow.send(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        backend.wait_for_slow();
        site.terminator.signal(signal);
        eventually("no more connections are wanted", || {
            site.terminator.page("/health/ready").status == 503
        });
        backend.release();
        let response = slow.read_response().unwrap();
        assert_eq!(response.text(), "served slowly");
        assert!(site.terminator.wait().success());
        assert!(client.get("/").is_err(), "nobody listens any more");
        assert!(idle.get("/").is_err());
    }
}

/// Clients that come back at once are no reason to go on.
#[test]
fn a_drain_ends_under_load_although_a_client_asks_for_nothing() {
    let mut site = Site::http(&[KeyType::EcdsaP256], "");
    let silent = site.client(&Offer::tls13()).connect().unwrap();
    let visitors = visitors(&site);
    visitors.wait_for(50);
    site.terminator.signal(Signal::TERM);
    assert!(site.terminator.wait().success());
    let errors = site.terminator.errors();
    assert!(!errors.contains("cut off"), "{errors}");
    visitors.stop();
    drop(silent);
}

#[test]
fn a_drain_that_takes_too_long_is_cut_off() {
    let backend = Backend::start("served");
    let keys = [KeyType::Rsa(2048)];
    let mut site = Site::before(&backend, &keys, "drain_timeout = \"300ms\"");
    let client = site.client(&Offer::tls13());
    let mut slow = client.connect().unwrap();
    slow.send(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    backend.wait_for_slow();
    site.terminator.signal(Signal::TERM);
    site.terminator.wait();
    assert!(slow.read_response().is_err());
    assert!(
        site.terminator.errors().contains("cut off"),
        "{}",
        site.terminator.errors()
    );
}

/// Nobody is refused while one process ends and another begins, since the socket is systemd's.
#[test]
fn a_restart_under_load_with_sockets_of_systemd() {
    let authority = Authority::new();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let backend = Backend::start("served").address;
    let listener = format!("backends = [\"http://{backend}\"]");
    let credentials = [authority.issue(KeyType::Rsa(2048), &["localhost"])];
    let configuration = configuration(address, &credentials, "", &listener);
    let start = || {
        let socket = socket.try_clone().unwrap();
        Terminator::start_with(&configuration, vec![socket.into()])
    };
    let mut terminator = start();
    let clients: Vec<Client> = [Offer::tls13(), Offer::tls12()]
        .iter()
        .flat_map(|offer| [Client::new(address, offer), Client::new(address, offer)])
        .collect();
    let (is_over, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let wait_for = |more: u64| {
        let wanted = served.load(Ordering::Relaxed) + more;
        eventually("clients are served", || {
            served.load(Ordering::Relaxed) >= wanted
        });
    };
    thread::scope(|scope| {
        let _end = End(&is_over);
        for client in &clients {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    visit(client).unwrap();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..3 {
            wait_for(20);
            terminator.signal(Signal::TERM);
            assert!(terminator.wait().success());
            terminator = start();
        }
        wait_for(20);
    });
}

/// Threads that go on until then must end although a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Fetches a page. A client that has been given no processor between its handshake and its request
/// may be let go by a terminator that drains.
fn visit(client: &Client) -> Result<(), ClientError> {
    /// For so long the terminator waits for a request that is on its way.
    const ON_ITS_WAY: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let mut connection = client.connect()?;
    let sent = connection.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let is_late = start.elapsed() >= ON_ITS_WAY;
    match sent.and_then(|()| connection.read_response()) {
        Err(_) if is_late => {}
        response => assert_eq!(response?.status, 200),
    }
    Ok(())
}

#[test]
fn an_address_in_use_is_refused_with_the_cure() {
    let site = Site::http(&[KeyType::EcdsaP256], "");
    let again = configuration(
        site.address,
        &site.credentials,
        "",
        "backends = [\"127.0.0.1:1\"]",
    );
    let errors = Terminator::refused(&again);
    assert!(errors.contains("another process listens there"), "{errors}");
}

#[test]
fn a_process_that_is_told_to_gives_up_its_rights() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let authority = Authority::new();
    let credentials = authority.issue(KeyType::EcdsaP256, &["localhost"]);
    let address = unused_address();
    let backend = Backend::start("served").address;
    let listener = format!("backends = [\"http://{backend}\"]");
    let configuration = TerminatorConfiguration::new()
        .main("user = \"www-data\"")
        .listener(address, &[&credentials], &listener);
    let terminator = Terminator::start(&configuration);
    assert_eq!(
        Client::new(address, &Offer::tls13())
            .get("/")
            .unwrap()
            .text(),
        "served"
    );
    let process = terminator.process();
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let of = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_ascii_whitespace()
                .skip(1)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert!(of("Uid:").iter().all(|id| id == "33"), "{status}");
        assert!(of("Gid:").iter().all(|id| id == "33"), "{status}");
        for set in ["CapPrm:", "CapEff:"] {
            assert_eq!(of(set), ["0000000000000000"], "{status}");
        }
        assert_eq!(of("NoNewPrivs:"), ["1"]);
    }
}

fn visitors(site: &Site) -> Visitors {
    let clients = [Offer::tls13(), Offer::tls12()].map(|offer| site.client(&offer));
    Visitors::start(&clients, 2)
}
