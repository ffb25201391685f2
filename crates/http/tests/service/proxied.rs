//! Requests and responses that are forwarded.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::support::*;

#[tokio::test]
async fn a_backend_is_told_the_address_of_the_client() {
    let backend = echo().await;
    let mut client = Site::http(&[backend.address]).connect();
    let seen = ask(
        &mut client,
        "GET /path?query HTTP/1.1\r\nHost: example.org:8443\r\nX-Forwarded-For: 203.0.113.1\r\nX-Forwarded-For: 203.0.113.2\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 80\r\nX-Real-IP: 10.0.0.1\r\n\r\n",
    )
    .await;
    assert!(seen.contains("GET /path?query HTTP/1.1\r\n"), "{seen}");
    for line in [
        "host: example.org:8443",
        "x-forwarded-for: 192.0.2.1",
        "x-forwarded-proto: https",
        "x-forwarded-host: example.org:8443",
        "x-forwarded-port: 443",
        "x-real-ip: 192.0.2.1",
    ] {
        assert!(seen.contains(&format!("{line}\r\n")), "{line} in {seen}");
    }
    for claim in ["evil", "10.0.0.1", "203.0.113."] {
        assert!(!seen.contains(claim), "{seen}");
    }
}

#[tokio::test]
async fn hop_by_hop_headers_are_removed() {
    let backend = echo().await;
    let mut client = Site::http(&[backend.address]).connect();
    let seen = ask(
        &mut client,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\n\
         Proxy-Connection: close\r\nTE: trailers, deflate\r\nUpgrade: h2c\r\nX-Kept: 2\r\n\r\n",
    )
    .await
    .to_ascii_lowercase();
    for gone in [
        "x-secret",
        "keep-alive",
        "proxy-connection",
        "upgrade",
        "deflate",
    ] {
        assert!(!seen.contains(gone), "{gone} in {seen}");
    }
    assert!(
        seen.contains("x-kept: 2") && seen.contains("te: trailers"),
        "{seen}"
    );
    let backend = responder(
        "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-Kept: 2\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let mut client = Site::http(&[backend.address]).connect();
    let seen = ask(&mut client, GET).await.to_ascii_lowercase();
    assert!(
        !seen.contains("hop") && !seen.contains("keep-alive"),
        "{seen}"
    );
    assert!(seen.contains("x-kept: 2"), "{seen}");
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let backend = echo().await;
    let site = Site::http(&[backend.address]);
    let mut client = site.connect();
    for _ in 0..5 {
        ask(&mut client, GET).await;
    }
    ask(&mut site.connect(), GET).await;
    assert_eq!(backend.connections(), 1);
    let status = &site.upstreams.status()[0];
    assert_eq!((status.active, status.total, status.failures), (0, 6, 0));
    assert_eq!(site.counters.responses[1].get(), 6);
}

#[tokio::test]
async fn chunks_pass_in_both_directions() {
    let backend = echo().await;
    let mut client = Site::http(&[backend.address]).connect();
    let seen = ask(
        &mut client,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    )
    .await;
    assert!(seen.contains("3\r\nabc\r\n0\r\n\r\n"), "{seen}");
    let backend = responder(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n",
    )
    .await;
    let mut client = Site::http(&[backend.address]).connect();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\n\r\n")
        .await
        .unwrap();
    let seen = read_rest(&mut client).await;
    assert!(seen.contains("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n"), "{seen}");
}

#[tokio::test]
async fn a_body_of_unknown_length_is_kept_whatever_the_method() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let backend = backend(move |mut stream| {
        let tell = tell.clone();
        async move {
            while let Some(message) = read_message(&mut stream).await {
                tell.send(message).unwrap();
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            }
        }
    })
    .await;
    let site = Site::http(&[backend.address]);
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "POST"] {
        let mut client = site.connect();
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 204"), "{method}: {head}");
        let (head, body) = told.recv().await.unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body, "3\r\nabc\r\n0\r\n\r\n", "{head}");
    }
    let mut as_http2 = connection();
    as_http2.alpn = Some(b"h2".to_vec());
    let (stream, _task) = site.connect_as(as_http2);
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(driver);
    for method in [Method::GET, Method::HEAD] {
        let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc")))];
        let request = Request::builder()
            .method(method)
            .uri("https://example.org/")
            .body(StreamBody::new(futures_util::stream::iter(frames)))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        let (head, body) = told.recv().await.unwrap();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(body, "3\r\nabc\r\n0\r\n\r\n", "{head}");
    }
}

#[tokio::test]
async fn big_bodies_pass_in_both_directions() {
    let backend = echo().await;
    let mut client = Site::http(&[backend.address]).connect();
    let body: Vec<u8> = (0..3_000_000_u32).map(|index| index as u8).collect();
    let head = format!(
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&body).await.unwrap();
    let (_, answer) = read_message(&mut client).await.unwrap();
    assert!(answer.ends_with(&body));
}

#[tokio::test]
async fn http2_becomes_http1() {
    let backend = echo().await;
    let site = Site::http(&[backend.address]);
    let mut as_http2 = connection();
    as_http2.alpn = Some(b"h2".to_vec());
    let (stream, task) = site.connect_as(as_http2);
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    let driver = tokio::spawn(driver);
    for _ in 0..2 {
        let request = Request::post("https://example.org/path")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(Full::new(Bytes::from_static(b"content")))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let seen = String::from_utf8(body.to_vec()).unwrap();
        assert!(seen.starts_with("POST /path HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("host: example.org\r\n"), "{seen}");
        assert!(seen.contains("cookie: a=1; b=2\r\n"), "{seen}");
        assert!(seen.ends_with("content"), "{seen}");
    }
    assert_eq!(backend.connections(), 1);
    drop(sender);
    driver.await.unwrap().unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn responses_without_content_stay_so() {
    let backend = responder("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").await;
    let site = Site::http(&[backend.address]);
    let mut client = site.connect();
    for _ in 0..2 {
        client
            .write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        let head = read_head(&mut client).await.unwrap();
        assert!(head.contains("content-length: 5\r\n"), "{head}");
    }
    for response in [
        "HTTP/1.1 204 No Content\r\nX-It: 1\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nX-It: 1\r\n\r\n",
    ] {
        let backend = responder(response).await;
        let mut client = Site::http(&[backend.address]).connect();
        for _ in 0..2 {
            client.write_all(GET.as_bytes()).await.unwrap();
            let head = read_head(&mut client).await.unwrap();
            assert!(head.starts_with(&response[..12]), "{head}");
            assert!(!head.contains("content-length"), "{head}");
        }
        assert_eq!(backend.connections(), 1);
    }
}

#[tokio::test]
async fn a_client_that_expects_it_is_told_to_go_on() {
    let backend = echo().await;
    let mut client = Site::http(&[backend.address]).connect();
    client
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
        )
        .await
        .unwrap();
    assert!(
        read_head(&mut client)
            .await
            .unwrap()
            .starts_with("HTTP/1.1 100 ")
    );
    let seen = ask(&mut client, "abc").await;
    assert!(seen.ends_with("abc") && !seen.contains("expect"), "{seen}");
}

#[tokio::test]
async fn interim_responses_are_no_responses() {
    let backend = responder(
        "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let seen = ask(&mut Site::http(&[backend.address]).connect(), GET).await;
    assert!(
        seen.starts_with("HTTP/1.1 200") && seen.ends_with("ok"),
        "{seen}"
    );
}

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel() {
    let backend = backend(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.contains("upgrade: websocket\r\n"), "{head}");
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
            .await
            .unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
    })
    .await;
    let site = Site::http(&[backend.address]);
    let (mut client, task) = site.connect_as(connection());
    client
        .write_all(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await
        .unwrap();
    let head = read_head(&mut client).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    client.write_all(b"ping").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_rest(&mut client).await, "helloping");
    task.await.unwrap();
    assert_eq!(site.counters.sent_bytes.get(), 9);
    assert_eq!(site.upstreams.status()[0].active, 0);
}

#[tokio::test]
async fn targets_of_every_form() {
    let backend = echo().await;
    let site = Site::http(&[backend.address]);
    let cases = [
        (
            "GET http://user@b/path HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /path HTTP/1.1\r\n",
        ),
        (
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\n",
        ),
        (
            "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "host: example.com\r\n",
        ),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", " 400 "),
        ("GET / HTTP/1.1\r\n\r\n", " 400 "),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", " 400 "),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", " 405 "),
    ];
    for (request, expected) in cases {
        let seen = ask(&mut site.connect(), request).await;
        assert!(seen.contains(expected), "{request}: {seen}");
    }
    let seen = ask(&mut site.connect(), cases[0].0).await;
    assert!(seen.contains("host: b\r\n"), "{seen}");
}

#[tokio::test]
async fn no_request_is_smuggled() {
    let backend = echo().await;
    let site = Site::http(&[backend.address]);
    let both = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
                0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let swapped = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n\
                   0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for request in [both, swapped] {
        let mut client = site.connect();
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let seen = read_rest(&mut client).await.to_ascii_lowercase();
        assert!(!seen.contains("/smuggled"), "{seen}");
        assert!(!seen.contains("content-length: 4\r\n"), "{seen}");
    }
    for (headers, status) in [
        ("Content-Length: 1\r\nContent-Length: 2\r\n", "400"),
        ("Content-Length: +1\r\n", "400"),
        ("Transfer-Encoding: chunked, identity\r\n", "400"),
        ("Transfer-Encoding : chunked\r\n", "400"),
        ("Transfer-Encoding: gzip, chunked\r\n", "501"),
        ("X: 1\r\n folded\r\n", "400"),
    ] {
        let mut client = site.connect();
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n0\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await.unwrap();
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{headers}: {head}"
        );
    }
}
