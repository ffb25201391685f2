//! Clients of HTTP/2 that ask for much and do not read it.

use std::time::Duration;

use slipstream_http::settings::Service as Settings;
use slipstream_http::usage::Usage;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::*;

const SHORT: Duration = Duration::from_millis(100);
/// A busy machine may stand still for as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest window (RFC 9113, 6.9.1).
const LARGEST: u32 = (1 << 31) - 1;

/// Content that all backends share, so that it does not count as memory.
static CHUNK: [u8; 1 << 14] = [7; 1 << 14];

/// Starts a backend that sends without end, or never answers where the target is `/never`.
async fn endless() -> TestBackend {
    backend(|mut stream| async move {
        let Some((head, _)) = read_message(&mut stream).await else {
            return;
        };
        if head.starts_with("GET /never ") {
            let _ = stream.read_u8().await;
            return;
        }
        let start = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
        let _ = stream.write_all(start).await;
        while stream.write_all(&CHUNK).await.is_ok() {}
    })
    .await
}

/// Returns the beginning of a connection whose client grants windows of `window` bytes, and the
/// requests for `targets`.
fn requests(window: u32, targets: &[&str]) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind, flags]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(payload);
    };
    // SETTINGS_INITIAL_WINDOW_SIZE
    frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
    if window == LARGEST {
        // WINDOW_UPDATE of the connection, which has 65,535 already.
        frame(8, 0, 0, &(LARGEST - 65_535).to_be_bytes());
    }
    for (index, target) in targets.iter().enumerate() {
        // :method GET, :scheme https, :authority a, and :path as a literal (RFC 7541, A and 6.2.2).
        let path = [&[0x04, target.len() as u8], target.as_bytes()].concat();
        let header = [&[0x82, 0x87, 0x01, 1, b'a'][..], &path].concat();
        // HEADERS with END_STREAM and END_HEADERS
        frame(1, 5, 2 * index as u32 + 1, &header);
    }
    bytes
}

/// Connects a client that sends `bytes` and does not read.
async fn silent(site: &Site, bytes: &[u8]) -> (DuplexStream, JoinHandle<()>) {
    let mut as_http2 = connection();
    as_http2.alpn = Some(b"h2".to_vec());
    let (mut client, task) = site.connect_as(as_http2);
    client.write_all(bytes).await.unwrap();
    (client, task)
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped_whatever_else_it_waits_for() {
    let backend = endless().await;
    for window in [LARGEST, 65_535, 0] {
        let mut settings = upstream(&[backend.address]);
        settings.response_timeout = 60 * PATIENCE;
        let mut site = Site::new(Settings::Http(settings));
        site.limits.idle_timeout = SHORT;
        let (_client, task) = silent(&site, &requests(window, &["/", "/never"])).await;
        let ended = timeout(PATIENCE, task).await;
        ended.unwrap_or_else(|_| panic!("window {window}")).unwrap();
        assert_eq!(site.upstreams.status()[0].active, 0);
    }
}

#[tokio::test]
async fn a_client_that_waits_for_nothing_else_may_wait() {
    let backend = endless().await;
    let mut site = Site::http(&[backend.address]);
    site.limits.idle_timeout = SHORT;
    let (mut client, task) = silent(&site, &requests(LARGEST, &["/never", "/never"])).await;
    tokio::time::sleep(3 * SHORT).await;
    assert!(!task.is_finished());
    client.shutdown().await.unwrap();
}

#[tokio::test]
async fn content_that_clients_do_not_read_is_limited() {
    const CLIENTS: usize = 4;
    const STREAMS: usize = 100;
    let backend = endless().await;
    let site = Site::http(&[backend.address]);
    let bytes = requests(LARGEST, &["/"; STREAMS]);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(silent(&site, &bytes).await);
    }
    let most = site.limits.unread_bytes;
    let reached = async {
        while site.usage.content.held() < CLIENTS * most {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, reached).await.expect("all are held up");
    // All bodies have content, which nobody takes.
    tokio::time::sleep(3 * SHORT).await;
    // A piece may be as long as what is read from a backend at once.
    let longest = CLIENTS * (most + 64 * 1024);
    assert!(site.usage.content.held() <= longest);
    // What hyper and the network have taken is little.
    let sent = site.counters.sent_bytes.get() as usize;
    assert!(sent <= longest + CLIENTS * 64 * 1024, "{sent}");
    for (client, task) in clients {
        drop(client);
        task.await.unwrap();
    }
    assert_eq!(site.usage.content.held(), 0);
}

#[tokio::test]
async fn a_client_that_reads_is_served_while_others_hold_everything() {
    let backend = endless().await;
    let mut site = Site::http(&[backend.address]);
    site.usage = Usage::new(1000, 1000, 1 << 20);
    let bytes = requests(LARGEST, &["/"; 10]);
    let mut silent_clients = Vec::new();
    for _ in 0..8 {
        silent_clients.push(silent(&site, &bytes).await);
    }
    let exhausted = async {
        while site.usage.content.held() < 1 << 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, exhausted).await.expect("no more is free");
    let mut reader = site.connect();
    reader.write_all(GET.as_bytes()).await.unwrap();
    let mut content = vec![0; 3_000_000];
    timeout(PATIENCE, reader.read_exact(&mut content))
        .await
        .expect("its share")
        .unwrap();
}

/// Run by itself, since it counts the memory of the whole process, backends and clients included:
/// `cargo test -p slipstream-http --test service -- --ignored --exact unread::a_thousand_clients`
#[tokio::test]
#[ignore = "takes 10,000 descriptors and up to a gigabyte"]
async fn a_thousand_clients() {
    const CLIENTS: usize = 1000;
    const MOST_BYTES: usize = 1_000_000_000;
    let backend = endless().await;
    let mut site = Site::new(Settings::Http(slipstream_http::settings::Upstream {
        queue_timeout: 10 * SHORT,
        ..upstream(&[backend.address])
    }));
    site.limits.idle_timeout = 10 * PATIENCE;
    site.usage = Usage::new(16_384, 10_000, 256 << 20);
    let before = resident();
    let mut asked = 0;
    for streams in [128, 4] {
        let bytes = requests(LARGEST, &vec!["/"; streams]);
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(silent(&site, &bytes).await);
        }
        asked += CLIENTS * streams;
        // Those that find no place at the backend are refused.
        let answered = || {
            site.counters
                .responses
                .iter()
                .map(|it| it.get())
                .sum::<u64>()
        };
        while answered() < asked as u64 {
            tokio::time::sleep(SHORT).await;
        }
        tokio::time::sleep(20 * SHORT).await;
        let held = site.usage.content.held();
        let taken = resident() - before;
        println!("{streams} streams each: {taken} bytes, of which {held} are content");
        assert!(clients.iter().all(|(_, task)| !task.is_finished()));
        assert!(taken < MOST_BYTES, "{taken}");
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
