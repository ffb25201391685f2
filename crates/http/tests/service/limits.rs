//! Limits of time and size, and draining.

use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;

use crate::support::*;

const SHORT: Duration = Duration::from_millis(30);

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let backend = echo().await;
    let mut site = Site::http(&[backend.address]);
    site.limits.idle_timeout = SHORT;
    for request in ["", GET] {
        let (mut client, task) = site.connect_as(connection());
        if !request.is_empty() {
            ask(&mut client, request).await;
        }
        assert_eq!(read_rest(&mut client).await, "");
        task.await.unwrap();
    }
}

#[tokio::test]
async fn an_idle_connection_of_http2_is_closed() {
    let mut site = Site::http(&[refusing().await]);
    site.limits.idle_timeout = SHORT;
    let mut as_http2 = connection();
    as_http2.alpn = Some(b"h2".to_vec());
    let (stream, task) = site.connect_as(as_http2);
    let (_sender, driver) =
        http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    driver.await.unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn a_download_over_http2_outlasts_the_idle_timeout() {
    const LENGTH: usize = 300_000;
    let backend = backend(|mut stream| async move {
        while read_message(&mut stream).await.is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&[7; LENGTH]).await;
        }
    })
    .await;
    let mut site = Site::http(&[backend.address]);
    site.limits.idle_timeout = SHORT * 20;
    let mut as_http2 = connection();
    as_http2.alpn = Some(b"h2".to_vec());
    let (stream, _task) = site.connect_as(as_http2);
    // The client's window takes the whole response, so the backend is done after a moment.
    let (mut sender, driver) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 20)
        .handshake(TokioIo::new(slowed(stream)))
        .await
        .unwrap();
    tokio::spawn(driver);
    // A connection that was found idle would take no second request.
    for _ in 0..2 {
        let request = Request::get("https://example.org/").body(Empty::<Bytes>::new());
        let response = sender.send_request(request.unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), LENGTH);
    }
}

/// Returns `stream` for a client behind a slow network: a response takes long, but never pauses for
/// long.
fn slowed(stream: DuplexStream) -> DuplexStream {
    let (near, far) = duplex(16 * 1024);
    let (mut responses, mut requests) = tokio::io::split(stream);
    let (mut from_client, mut to_client) = tokio::io::split(far);
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut requests).await });
    tokio::spawn(async move {
        let mut part = [0; 8192];
        while let Ok(length @ 1..) = responses.read(&mut part).await {
            to_client.write_all(&part[..length]).await.unwrap();
            tokio::time::sleep(SHORT).await;
        }
    });
    near
}

#[tokio::test]
async fn a_header_that_does_not_end_is_not_waited_for() {
    let backend = echo().await;
    let mut site = Site::http(&[backend.address]);
    site.limits.header_timeout = SHORT;
    let (mut client, task) = site.connect_as(connection());
    client.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
    read_rest(&mut client).await;
    task.await.unwrap();
    assert_eq!(backend.connections(), 0);
    assert_eq!(site.client_errors(), 1, "counted as 408");
}

#[tokio::test]
async fn a_body_that_does_not_go_on_is_not_waited_for() {
    let backend = echo().await;
    let mut site = Site::http(&[backend.address]);
    site.limits.idle_timeout = SHORT;
    let seen = ask(
        &mut site.connect(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
    )
    .await;
    assert!(seen.starts_with("HTTP/1.1 408"), "{seen}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let backend = backend(|mut stream| async move {
        read_message(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
            .await;
        while stream.write_all(&[0; 65_536]).await.is_ok() {}
    })
    .await;
    let mut site = Site::http(&[backend.address]);
    site.limits.idle_timeout = SHORT;
    let (mut client, task) = site.connect_as(connection());
    client.write_all(GET.as_bytes()).await.unwrap();
    task.await.unwrap();
    assert_eq!(site.upstreams.status()[0].active, 0);
}

#[tokio::test]
async fn a_backend_may_think_for_longer_than_clients_may_idle() {
    let backend = backend(|mut stream| async move {
        read_message(&mut stream).await;
        tokio::time::sleep(SHORT * 5).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
            .await;
        tokio::time::sleep(SHORT * 5).await;
        let _ = stream.write_all(b"cd").await;
    })
    .await;
    let mut site = Site::http(&[backend.address]);
    site.limits.idle_timeout = SHORT;
    let seen = ask(&mut site.connect(), GET).await;
    assert!(seen.ends_with("abcd"), "{seen}");
}

#[tokio::test]
async fn a_long_header_is_refused() {
    let backend = echo().await;
    let mut site = Site::http(&[backend.address]);
    site.limits.header_bytes = 10_000;
    let long = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "x".repeat(11_000)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: 1\r\n".repeat(200)
    );
    for request in [long, many] {
        let (mut client, task) = site.connect_as(connection());
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 431"), "{head}");
        drop(client);
        task.await.unwrap();
    }
    assert_eq!(backend.connections(), 0);
    assert_eq!(site.client_errors(), 2);
}

#[tokio::test]
async fn draining_completes_requests_in_flight() {
    let (began, mut has_begun) = mpsc::unbounded_channel();
    let (finish, may_finish) = tokio::sync::watch::channel(false);
    let backend = backend(move |mut stream| {
        let (began, mut may_finish) = (began.clone(), may_finish.clone());
        async move {
            read_message(&mut stream).await;
            began.send(()).unwrap();
            may_finish.wait_for(|it| *it).await.unwrap();
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .await;
        }
    })
    .await;
    let site = Site::http(&[backend.address]);
    let (mut idle, idle_task) = site.connect_as(connection());
    let (mut busy, busy_task) = site.connect_as(connection());
    busy.write_all(GET.as_bytes()).await.unwrap();
    has_begun.recv().await.unwrap();
    site.draining.send(true).unwrap();
    assert_eq!(read_rest(&mut idle).await, "");
    idle_task.await.unwrap();
    finish.send(true).unwrap();
    let seen = read_rest(&mut busy).await;
    assert!(
        seen.contains("connection: close") && seen.ends_with("ok"),
        "{seen}"
    );
    busy_task.await.unwrap();
}
