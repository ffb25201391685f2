//! Tunnels to backends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use slipstream_http::proxy_header;
use slipstream_http::settings::{Address, Backend, ProxyProtocol, Service as Settings};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, join};
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::support::*;

#[tokio::test]
async fn bytes_pass_after_the_header_until_both_sides_have_ended() {
    let backend = backend(|mut stream| async move {
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        let header = proxy_header::read(&received).unwrap().unwrap();
        assert_eq!(header.addresses.unwrap().0, connection().client);
        received.drain(..header.length);
        stream.write_all(&received).await.unwrap();
    })
    .await;
    let mut settings = upstream(&[refusing().await, backend.address]);
    settings.proxy_protocol = Some(ProxyProtocol::V2);
    let site = Site::new(Settings::Tcp(settings));
    let (mut client, task) = site.connect_as(connection());
    client.write_all(b"whatever").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_rest(&mut client).await, "whatever");
    task.await.unwrap();
    assert_eq!(site.counters.received_bytes.get(), 8);
    assert_eq!(site.counters.sent_bytes.get(), 8);
    assert_eq!(site.counters.backend_failures.get(), 1);
}

#[tokio::test]
async fn a_client_that_speaks_first_is_heard_with_the_header() {
    let (accepted, mut has_accepted) = mpsc::unbounded_channel();
    let (seen, mut has_seen) = mpsc::unbounded_channel();
    let backend = backend(move |mut stream| {
        let (accepted, seen) = (accepted.clone(), seen.clone());
        async move {
            accepted.send(()).unwrap();
            let mut first = [0; 1024];
            let length = stream.read(&mut first).await.unwrap();
            seen.send(first[..length].to_vec()).unwrap();
        }
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    settings.proxy_protocol = Some(ProxyProtocol::V1);
    let site = Site::new(Settings::Tcp(settings));
    let start = Instant::now();
    // The header waits for a few milliseconds only, and a busy machine may delay any client for
    // longer.
    loop {
        let mut client = site.connect();
        has_accepted.recv().await.unwrap();
        client.write_all(b"whatever").await.unwrap();
        let first = has_seen.recv().await.unwrap();
        assert!(first.starts_with(b"PROXY TCP4 "));
        if first.ends_with(b"\r\nwhatever") {
            break;
        }
        assert!(first.ends_with(b"\r\n"));
        assert!(start.elapsed() < PATIENCE, "the header never waits");
    }
}

/// Longer than any machine is busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_backend_may_speak_first_after_the_header() {
    let backend = backend(|mut stream| async move {
        let mut received = Vec::new();
        while !received.ends_with(b"\n") {
            received.push(stream.read_u8().await.unwrap());
        }
        assert!(received.starts_with(b"PROXY TCP4 "));
        stream.write_all(b"220 hello").await.unwrap();
        std::future::pending().await
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    settings.proxy_protocol = Some(ProxyProtocol::V1);
    let mut client = Site::new(Settings::Tcp(settings)).connect();
    let mut banner = [0; 9];
    client.read_exact(&mut banner).await.unwrap();
    assert_eq!(&banner, b"220 hello");
}

#[tokio::test]
async fn a_client_that_breaks_off_is_not_taken_for_one_that_ends() {
    let (ended, mut has_ended) = mpsc::unbounded_channel();
    let backend = backend(move |mut stream| {
        let ended = ended.clone();
        async move {
            let mut received = Vec::new();
            let end = stream.read_to_end(&mut received).await;
            ended.send(end.map_err(|error| error.kind())).unwrap();
        }
    })
    .await;
    let site = Site::new(Settings::Tcp(upstream(&[backend.address])));

    let client = join(b"half of".as_slice().chain(Broken), tokio::io::sink());
    site.serve(client, connection()).await.unwrap();
    let reset = Some(Err(io::ErrorKind::ConnectionReset));
    assert_eq!(has_ended.recv().await, reset);

    // This is how a drain ends.
    let before = site.counters.received_bytes.get();
    let (mut client, task) = site.connect_as(connection());
    client.write_all(b"half of").await.unwrap();
    while site.counters.received_bytes.get() == before {
        tokio::task::yield_now().await;
    }
    task.abort();
    assert_eq!(has_ended.recv().await, reset);

    let (mut client, task) = site.connect_as(connection());
    client.write_all(b"all").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(has_ended.recv().await, Some(Ok(3)));
    task.await.unwrap();
}

/// Client whose connection fails.
struct Broken;

impl AsyncRead for Broken {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
    }
}

#[tokio::test]
async fn a_client_of_a_backend_that_is_down_is_let_go() {
    let site = Site::new(Settings::Tcp(upstream(&[refusing().await])));
    let (mut client, task) = site.connect_as(connection());
    assert_eq!(read_rest(&mut client).await, "");
    task.await.unwrap();
    assert_eq!(site.counters.backend_failures.get(), 2);
}

#[tokio::test]
async fn a_backend_may_be_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let accept = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
    });
    let mut settings = upstream(&[]);
    settings.backends = vec![Backend {
        address: Address::Unix(path),
        tls: None,
    }];
    let mut client = Site::new(Settings::Tcp(settings)).connect();
    let mut greeting = [0; 5];
    client.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello");
    accept.await.unwrap();
}
