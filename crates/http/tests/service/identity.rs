//! Headers that say who a client is.

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use slipstream_http::settings::{Network, Service as Settings};
use tokio::io::AsyncWriteExt;

use crate::support::*;

/// Headers that programs take for facts about a client, as a client may spell them.
const CLAIMS: &[&str] = &[
    "X-Real-IP",
    "X_Real_IP",
    "x-real_ip",
    "X.Real.IP",
    "X-Forwarded-For",
    "X_FORWARDED_FOR",
    "X-Forwarded_Proto",
    "X-Forwarded-Prefix",
    "X-Forwarded-Client-Cert",
    "X-Forwarded-User",
    "Forwarded",
    "Forwarded_",
    "Proxy",
    "X-Client-IP",
    "True-Client-IP",
    "X-Cluster-Client-IP",
    "CF-Connecting-IP",
    "Remote_Addr",
    "X-Remote-User",
    "Front-End-Https",
    "X-Original-URL",
    "X-Rewrite-URL",
    "Client-Cert",
    "Client_Cert_Chain",
    "SSL_Client_S_DN",
    "X-SSL-Client-Verify",
    "Content_Length",
    "Transfer_Encoding",
    "Host_",
];

#[tokio::test]
async fn a_client_cannot_claim_to_be_another() {
    let backend = echo().await;
    let site = Site::http(&[backend.address]);
    for name in CLAIMS {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Kept_1: 2\r\n{name}: evil\r\n\r\n");
        let seen = ask(&mut site.connect(), &request).await;
        assert!(!seen.contains("evil"), "{name}: {seen}");
        assert!(seen.contains("x-kept_1: 2\r\n"), "{name}: {seen}");
        assert!(seen.contains("x-real-ip: 192.0.2.1\r\n"), "{name}: {seen}");
        let single = "x-forwarded-for: 192.0.2.1\r\n";
        assert!(seen.contains(single), "{name}: {seen}");
    }
}

#[tokio::test]
async fn a_client_of_http2_cannot_claim_to_be_another() {
    let backend = echo().await;
    let site = Site::http(&[backend.address]);
    let mut as_http2 = connection();
    as_http2.alpn = Some(b"h2".to_vec());
    let (stream, _task) = site.connect_as(as_http2);
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(driver);
    let mut request = Request::get("https://example.org/").body(Empty::<Bytes>::new());
    let headers = request.as_mut().unwrap().headers_mut();
    for &name in CLAIMS {
        let name = hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, "evil".parse().unwrap());
    }
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let seen = String::from_utf8(body.to_vec()).unwrap();
    assert!(!seen.contains("evil"), "{seen}");
}

#[tokio::test]
async fn a_client_cannot_claim_to_be_another_after_its_request() {
    let backend = backend(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        let body = read_head(&mut stream).await.unwrap();
        let start = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let answer = [start, &head, &body].concat();
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let mut client = Site::http(&[backend.address]).connect();
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\n\
         Trailer: X-Real-IP, X_Real_IP, X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\nX-Real-IP: evil\r\nX_Real_IP: evil\r\nX-Sum: 7\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let seen = read_rest(&mut client).await;
    assert!(!seen.contains("evil"), "{seen}");
    assert!(seen.contains("x-sum: 7\r\n"), "{seen}");
}

#[tokio::test]
async fn a_trusted_proxy_speaks_for_its_clients() {
    let backend = echo().await;
    let mut settings = upstream(&[backend.address]);
    settings.trust_headers_from = vec![Network {
        address: "192.0.2.0".parse().unwrap(),
        prefix: 24,
    }];
    let site = Site::new(Settings::Http(settings));
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.1\r\nX-Forwarded-For: 203.0.113.2\r\n\
        X-Forwarded-Proto: http\r\nX-Forwarded-Prefix: /app\r\nForwarded: for=203.0.113.1\r\n\
        X_Real_IP: evil\r\nProxy: evil\r\n\r\n";
    let seen = ask(&mut site.connect(), request).await;
    for line in [
        "x-forwarded-for: 203.0.113.1, 203.0.113.2, 192.0.2.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: a",
        "x-forwarded-prefix: /app",
        "x-real-ip: 192.0.2.1",
        "forwarded: for=203.0.113.1",
    ] {
        assert!(seen.contains(&format!("{line}\r\n")), "{line} in {seen}");
    }
    assert!(!seen.contains("evil"), "{seen}");

    let mut stranger = connection();
    stranger.client = "198.51.100.1:50000".parse().unwrap();
    let seen = ask(&mut site.connect_as(stranger).0, request).await;
    assert!(!seen.contains("203.0.113.1"), "{seen}");
    assert!(!seen.contains("/app"), "{seen}");
}
