//! Limits of connections to backends, and of requests of all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slipstream_http::settings::{ProxyProtocol, Service as Settings, Upstream};
use slipstream_http::usage::{Overload, Usage};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(3600);
/// A busy machine may stand still for as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Backend whose answers wait until they are released.
struct Gate {
    backend: TestBackend,
    release: watch::Sender<bool>,
    /// Most connections at a time.
    most: Arc<AtomicUsize>,
}

async fn gate() -> Gate {
    let (release, released) = watch::channel(false);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::<AtomicUsize>::default());
    let seen = Arc::clone(&most);
    let backend = backend(move |mut stream| {
        let (now, seen, mut released) = (Arc::clone(&now), Arc::clone(&seen), released.clone());
        async move {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            while let Some((head, _)) = read_message(&mut stream).await {
                released.wait_for(|released| *released).await.unwrap();
                if head.contains("upgrade: ") {
                    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                    break;
                }
                let _ = stream.write_all(OK.as_bytes()).await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    Gate {
        backend,
        release,
        most,
    }
}

impl Gate {
    fn settings(&self, max_connections: usize, queue: usize) -> Upstream {
        Upstream {
            max_connections,
            queue,
            queue_timeout: LONG,
            ..upstream(&[self.backend.address])
        }
    }
}

/// Asks in a task of its own.
fn asking(site: &Site) -> JoinHandle<String> {
    let mut client = site.connect();
    tokio::spawn(async move { ask(&mut client, GET).await })
}

async fn until(condition: impl Fn() -> bool) {
    let come_true = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, come_true).await.expect("it comes true");
}

fn waiting(site: &Site) -> usize {
    site.upstreams.status()[0].waiting
}

#[tokio::test]
async fn a_backend_gets_no_more_connections_than_it_may_have() {
    let gate = gate().await;
    let site = Site::new(Settings::Http(gate.settings(2, 100)));
    let clients: Vec<_> = (0..20).map(|_| asking(&site)).collect();
    until(|| waiting(&site) == 18).await;
    gate.release.send(true).unwrap();
    for client in clients {
        let seen = client.await.unwrap();
        assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    }
    assert_eq!(gate.most.load(Ordering::SeqCst), 2);
    // Those who wait get the connections of those before them.
    assert_eq!(gate.backend.connections(), 2);
    assert_eq!(waiting(&site), 0);
}

#[tokio::test]
async fn the_queue_for_a_backend_is_limited() {
    let gate = gate().await;
    let site = Site::new(Settings::Http(gate.settings(1, 1)));
    let first = asking(&site);
    until(|| gate.backend.connections() == 1).await;
    let second = asking(&site);
    until(|| waiting(&site) == 1).await;
    let third = ask(&mut site.connect(), GET).await;
    assert!(third.starts_with("HTTP/1.1 503"), "{third}");
    assert_eq!(site.counters.overloads[Overload::Backend.index()].get(), 1);
    // Whoever leaves makes room.
    second.abort();
    let _ = second.await;
    until(|| waiting(&site) == 0).await;
    let fourth = asking(&site);
    until(|| waiting(&site) == 1).await;
    gate.release.send(true).unwrap();
    for client in [first, fourth] {
        let seen = client.await.unwrap();
        assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    }
    // A full queue is no failure of the backend.
    assert_eq!(site.upstreams.status()[0].failures, 0);
}

#[tokio::test]
async fn nobody_waits_for_a_backend_for_too_long() {
    let gate = gate().await;
    let mut settings = gate.settings(1, 1);
    settings.queue_timeout = SHORT;
    let site = Site::new(Settings::Http(settings));
    let _first = asking(&site);
    until(|| gate.backend.connections() == 1).await;
    let second = asking(&site).await.unwrap();
    assert!(second.starts_with("HTTP/1.1 503"), "{second}");
}

#[tokio::test]
async fn another_backend_is_taken_for_one_that_is_full() {
    let (full, free) = (gate().await, responder(OK).await);
    let mut settings = full.settings(1, 1);
    settings.backends = upstream(&[full.backend.address, free.address]).backends;
    let site = Site::new(Settings::Http(settings));
    let _first = asking(&site);
    until(|| full.backend.connections() == 1).await;
    for _ in 0..4 {
        let seen = ask(&mut site.connect(), GET).await;
        assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    }
    assert_eq!(waiting(&site), 0);
}

#[tokio::test]
async fn idle_connections_of_other_clients_make_room() {
    let backend = backend(|mut stream| async move {
        while stream.read_u8().await.is_ok_and(|byte| byte != b'\n') {}
        while read_message(&mut stream).await.is_some() {
            let _ = stream.write_all(OK.as_bytes()).await;
        }
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    (settings.max_connections, settings.queue_timeout) = (1, LONG);
    settings.proxy_protocol = Some(ProxyProtocol::V1);
    let site = Site::new(Settings::Http(settings));
    let (mut one, mut other) = (site.connect(), site.connect());
    for count in 1..4 {
        for client in [&mut one, &mut other] {
            let seen = ask(client, GET).await;
            assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
        }
        assert_eq!(backend.connections(), 2 * count);
    }
}

#[test]
fn idle_connections_of_other_event_loops_make_room() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (here, there) = (runtime(), runtime());
    let (backend, site) = here.block_on(async {
        let backend = echo().await;
        let mut settings = upstream(&[backend.address]);
        (settings.max_connections, settings.queue_timeout) = (1, LONG);
        let site = Arc::new(Site::new(Settings::Http(settings)));
        (backend, site)
    });
    here.block_on(async { ask(&mut site.connect(), GET).await });
    let other_site = Arc::clone(&site);
    let asked = std::thread::spawn(move || {
        there.block_on(async { ask(&mut other_site.connect(), GET).await })
    });
    here.block_on(async {
        while !asked.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(asked.join().unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(backend.connections(), 2);
}

#[tokio::test]
async fn tunnels_wait_for_a_place_and_keep_it() {
    let backend = backend(|mut stream| async move {
        let _ = stream.write_all(b"hello").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    (settings.max_connections, settings.queue_timeout) = (1, LONG);
    let site = Site::new(Settings::Tcp(settings));
    let mut greeting = [0; 5];
    let mut first = site.connect();
    first.read_exact(&mut greeting).await.unwrap();
    let mut second = site.connect();
    until(|| waiting(&site) == 1).await;
    assert_eq!(backend.connections(), 1);
    drop(first);
    second.read_exact(&mut greeting).await.unwrap();
    assert_eq!(backend.connections(), 2);
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_place() {
    let gate = gate().await;
    gate.release.send(true).unwrap();
    let site = Site::new(Settings::Http(gate.settings(1, 1)));
    let mut upgraded: DuplexStream = site.connect();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    upgraded.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut upgraded).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let second = asking(&site);
    until(|| waiting(&site) == 1).await;
    drop(upgraded);
    let seen = second.await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    assert_eq!(gate.most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_and_descriptors_of_all_clients_are_limited() {
    for (usage, overload) in [
        (Usage::new(1, 100, 1 << 20), Overload::Requests),
        (Usage::new(100, 1, 1 << 20), Overload::Descriptors),
    ] {
        let gate = gate().await;
        let mut site = Site::new(Settings::Http(gate.settings(100, 100)));
        site.usage = usage;
        let first = asking(&site);
        until(|| gate.backend.connections() == 1).await;
        let second = ask(&mut site.connect(), GET).await;
        assert!(second.starts_with("HTTP/1.1 503"), "{second}");
        assert_eq!(site.counters.overloads[overload.index()].get(), 1);
        gate.release.send(true).unwrap();
        let first = first.await.unwrap();
        assert!(first.starts_with("HTTP/1.1 200"), "{first}");
        let third = ask(&mut site.connect(), GET).await;
        assert!(third.starts_with("HTTP/1.1 200"), "{third}");
    }
}
