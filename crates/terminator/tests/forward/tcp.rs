//! Tunnels.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::X509;
use openssl::x509::extension::SubjectAlternativeName;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use slipstream_terminator::configuration::{Address, Backend, ProxyProtocol, Service as Settings};
use slipstream_terminator::forward::proxy_header;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, join};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

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
    assert_eq!(site.metrics.received_bytes.get(), 8);
    assert_eq!(site.metrics.sent_bytes.get(), 8);
    assert_eq!(site.metrics.backend_failures.get(), 1);
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
    // A header waits for milliseconds only, which a busy machine may take from any client.
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

/// Much longer than any machine is busy.
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

    // As at the end of a drain.
    let before = site.metrics.received_bytes.get();
    let (mut client, task) = site.connect_as(connection());
    client.write_all(b"half of").await.unwrap();
    while site.metrics.received_bytes.get() == before {
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

/// A client whose connection fails.
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
    assert_eq!(site.metrics.backend_failures.get(), 2);
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

#[tokio::test]
async fn a_backend_with_tls_is_verified() {
    let directory = tempfile::tempdir().unwrap();
    let (acceptor, certificate) = tls_server("backend.example");
    let authorities = directory.path().join("authorities.pem");
    std::fs::write(&authorities, certificate).unwrap();
    let backend = backend(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                stream.write_all(b"hello").await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    })
    .await;
    for (name, expected) in [("backend.example", "hello"), ("other.example", "")] {
        let mut settings = upstream(&[backend.address]);
        settings.backends[0].tls = Some(name.to_owned());
        settings.authorities = Some(authorities.clone());
        let mut client = Site::new(Settings::Tcp(settings)).connect();
        assert_eq!(read_rest(&mut client).await, expected);
    }
}

/// A server of TLS, and its own certificate in PEM.
fn tls_server(name: &str) -> (TlsAcceptor, Vec<u8>) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_pubkey(&key).unwrap();
    let (begin, end) = (Asn1Time::days_from_now(0), Asn1Time::days_from_now(1));
    builder.set_not_before(&begin.unwrap()).unwrap();
    builder.set_not_after(&end.unwrap()).unwrap();
    let names = SubjectAlternativeName::new()
        .dns(name)
        .build(&builder.x509v3_context(None, None))
        .unwrap();
    builder.append_extension(names).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    let certificate = builder.build();
    let chain = vec![certificate.to_der().unwrap().into()];
    let key = PrivatePkcs8KeyDer::from(key.private_key_to_pkcs8().unwrap());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let settings = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key.into())
        .unwrap();
    (
        TlsAcceptor::from(Arc::new(settings)),
        certificate.to_pem().unwrap(),
    )
}
