//! Backends that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slipstream_http::settings::{ProxyProtocol, Service as Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CLOSING: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
/// A busy machine may stand still for as long.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn another_backend_answers_for_one_that_refuses() {
    let backend = responder(OK).await;
    let site = Site::http(&[refusing().await, backend.address]);
    let mut client = site.connect();
    for _ in 0..4 {
        let seen = ask(&mut client, GET).await;
        assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    }
    let status = site.upstreams.status();
    // The backend is avoided after its first failure.
    assert_eq!((status[0].failures, status[0].is_up), (1, false));
    assert!(status[1].is_up);
    assert_eq!(site.counters.backend_failures.get(), 1);
    assert_eq!(site.counters.backend_retries.get(), 1);
}

#[tokio::test]
async fn a_client_without_a_backend_is_told() {
    let site = Site::http(&[refusing().await]);
    let seen = ask(&mut site.connect(), GET).await;
    assert!(seen.starts_with("HTTP/1.1 502"), "{seen}");
    assert!(seen.ends_with("502 Bad Gateway\n"), "{seen}");
    assert_eq!(site.upstreams.status()[0].failures, 2);
    assert_eq!(site.counters.responses[4].get(), 1);
}

#[tokio::test]
async fn a_slow_backend_is_not_waited_for() {
    let backend = backend(|mut stream| async move {
        read_message(&mut stream).await;
        std::future::pending().await
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    settings.response_timeout = Duration::from_millis(50);
    let site = Site::new(Settings::Http(settings));
    let seen = ask(&mut site.connect(), GET).await;
    assert!(seen.starts_with("HTTP/1.1 504"), "{seen}");
}

#[tokio::test]
async fn a_backends_nonsense_is_a_bad_gateway() {
    for nonsense in [
        "\x16\x03\x01 what?\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "",
    ] {
        let backend = backend(move |mut stream| async move {
            read_message(&mut stream).await;
            let _ = stream.write_all(nonsense.as_bytes()).await;
        })
        .await;
        let seen = ask(&mut Site::http(&[backend.address]).connect(), GET).await;
        assert!(seen.starts_with("HTTP/1.1 502"), "{nonsense}: {seen}");
    }
}

#[tokio::test]
async fn a_response_that_is_cut_off_does_not_look_whole() {
    for start in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let backend = backend(move |mut stream| async move {
            read_message(&mut stream).await;
            let _ = stream.write_all(start.as_bytes()).await;
        })
        .await;
        let mut client = Site::http(&[backend.address]).connect();
        client.write_all(GET.as_bytes()).await.unwrap();
        let seen = read_rest(&mut client).await;
        assert!(!seen.ends_with("0\r\n\r\n"), "{seen}");
        assert!(!seen.contains("502"), "{seen}");
    }
}

#[tokio::test]
async fn a_connection_that_the_backend_has_closed_is_not_used() {
    let (closed, mut has_closed) = mpsc::unbounded_channel();
    // The backend answers one request, does not announce that it closes the connection, and closes
    // it.
    let backend = backend(move |mut stream| {
        let closed = closed.clone();
        async move {
            read_message(&mut stream).await;
            let _ = stream.write_all(OK.as_bytes()).await;
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            closed.send(()).unwrap();
        }
    })
    .await;
    let site = Site::http(&[backend.address]);
    let mut client = site.connect();
    for count in 1..=5 {
        let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        let seen = ask(&mut client, request).await;
        assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
        assert_eq!(backend.connections(), count);
        // The process has seen the end by now.
        has_closed.recv().await.unwrap();
    }
    assert_eq!(site.counters.backend_failures.get(), 0);
}

#[tokio::test]
async fn a_request_that_may_be_repeated_is_when_a_kept_connection_fails() {
    // The backend reads a second request on each connection, and closes it without an answer.
    let backend = backend(|mut stream| async move {
        read_message(&mut stream).await;
        let _ = stream.write_all(OK.as_bytes()).await;
        read_message(&mut stream).await;
    })
    .await;
    let site = Site::http(&[backend.address]);
    let mut client = site.connect();
    ask(&mut client, GET).await;
    let seen = ask(&mut client, GET).await;
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let seen = ask(&mut client, post).await;
    assert!(seen.starts_with("HTTP/1.1 502"), "{seen}");
}

#[tokio::test]
async fn each_connection_to_a_backend_begins_with_one_header() {
    let backend = backend(|mut stream| async move {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(stream.read_u8().await.unwrap());
        }
        while read_message(&mut stream).await.is_some() {
            let length = line.len();
            let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(&[start.as_bytes(), &line].concat()).await;
        }
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    settings.proxy_protocol = Some(ProxyProtocol::V1);
    let site = Site::new(Settings::Http(settings));
    let (mut first, mut second) = (site.connect(), site.connect());
    for _ in 0..2 {
        for client in [&mut first, &mut second] {
            let seen = ask(client, GET).await;
            assert!(
                seen.ends_with("PROXY TCP4 192.0.2.1 198.51.100.2 50000 443\r\n"),
                "{seen}"
            );
        }
    }
    assert_eq!(backend.connections(), 2);
}

#[tokio::test]
async fn a_backend_that_pauses_inside_a_body_is_not_waited_for() {
    let backend = backend(|mut stream| async move {
        read_message(&mut stream).await;
        let start = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
        let _ = stream.write_all(start.as_bytes()).await;
        std::future::pending().await
    })
    .await;
    let mut settings = upstream(&[backend.address]);
    settings.body_timeout = Duration::from_millis(50);
    let site = Site::new(Settings::Http(settings));
    let (mut client, task) = site.connect_as(connection());
    client.write_all(GET.as_bytes()).await.unwrap();
    let ended = timeout(PATIENCE, read_rest(&mut client)).await;
    assert!(ended.unwrap().ends_with("\r\n\r\nabc"));
    task.await.unwrap();
    assert_eq!(site.upstreams.status()[0].active, 0);
}

/// Manners of a backend that does not answer to the end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Resets,
    SaysNothing,
    ResetsInsideTheBody,
    PausesInsideTheBody,
}

#[tokio::test]
async fn a_backend_that_does_not_answer_to_the_end_is_avoided() {
    let good = responder(OK).await;
    for manner in [
        Manner::Resets,
        Manner::SaysNothing,
        Manner::ResetsInsideTheBody,
        Manner::PausesInsideTheBody,
    ] {
        let bad = backend(move |mut stream| async move {
            read_message(&mut stream).await;
            if matches!(
                manner,
                Manner::ResetsInsideTheBody | Manner::PausesInsideTheBody
            ) {
                let start = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
                let _ = stream.write_all(start.as_bytes()).await;
            }
            if matches!(manner, Manner::SaysNothing | Manner::PausesInsideTheBody) {
                std::future::pending().await
            }
        })
        .await;
        let mut settings = upstream(&[bad.address, good.address]);
        settings.response_timeout = Duration::from_millis(50);
        settings.body_timeout = Duration::from_millis(50);
        let site = Site::new(Settings::Http(settings));
        for _ in 0..20 {
            let mut client = site.connect();
            let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            client.write_all(request).await.unwrap();
            let ended = timeout(PATIENCE, read_rest(&mut client)).await;
            ended.unwrap_or_else(|_| panic!("{manner:?}"));
        }
        let status = site.upstreams.status();
        assert_eq!(
            (bad.connections(), status[0].is_up),
            (3, false),
            "{manner:?}"
        );
        assert!(status[1].is_up);
    }
}

#[tokio::test]
async fn a_backend_that_breaks_off_now_and_then_is_not_avoided() {
    let count = AtomicUsize::new(0);
    let backend = backend(move |mut stream| {
        let is_good = count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        async move {
            read_message(&mut stream).await;
            if is_good {
                let _ = stream.write_all(CLOSING.as_bytes()).await;
            }
        }
    })
    .await;
    let site = Site::http(&[backend.address]);
    for _ in 0..10 {
        ask(&mut site.connect(), GET).await;
    }
    assert!(site.upstreams.status()[0].is_up);
}
