//! Limits of connections and handshakes, with a terminator in this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::X509;
use openssl::x509::extension::SubjectAlternativeName;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use slipstream_terminator::configuration::{
    CertificateFiles, Crypto, Limits, Listener, Service, values,
};
use slipstream_terminator::{Configuration, Terminator};
use socket2::{Domain, Socket, Type};

/// A busy machine may stand still for as long.
const PATIENCE: Duration = Duration::from_secs(60);
const FOREVER: Duration = Duration::from_secs(3600);

#[test]
fn a_handshake_that_waits_for_its_client_keeps_nobody_waiting() {
    let site = Site::new(
        Limits {
            handshakes: 1,
            handshake_timeout: FOREVER,
            ..Limits::default()
        },
        &[],
    );
    let mut silent: Vec<TcpStream> = (0..4).map(|_| site.connect(CLIENT)).collect();
    for stream in &mut silent {
        let mut tls = site.tls();
        tls.write_tls(stream).unwrap();
        // The server has answered, and waits for this client.
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    assert_eq!(site.get(CLIENT).unwrap(), "served");
    drop(silent);
    site.end();
}

#[test]
fn a_connection_that_lingers_counts_as_open() {
    let site = Site::new(
        Limits {
            connections: 1,
            ..Limits::default()
        },
        &[],
    );
    let mut stream = site.open(CLIENT);
    let response = ask(&mut stream).unwrap();
    assert!(response.ends_with("served"), "{response}");
    // The server has ended the connection, and takes what this client might still send.
    assert!(site.get(OTHER_CLIENT).is_err());
    drop(stream);
    eventually(|| site.get(OTHER_CLIENT).is_ok());
    site.end();
}

#[test]
fn one_address_does_not_take_all_connections() {
    let limits = Limits {
        connections_per_address: 2,
        ..Limits::default()
    };
    let site = Site::new(limits, &[]);
    let mut open: Vec<_> = (0..2).map(|_| site.open(CLIENT)).collect();
    assert!(site.get(CLIENT).is_err());
    assert_eq!(site.get(OTHER_CLIENT).unwrap(), "served");
    open.pop();
    eventually(|| site.get(CLIENT).is_ok());
    drop(open);
    site.end();
}

#[test]
fn clients_behind_a_proxy_header_count_by_their_own_address() {
    let limits = Limits {
        connections_per_address: 2,
        ..Limits::default()
    };
    let site = Site::new(limits, &["127.0.0.0/8"]);
    let open_as = |client: &str| {
        let mut stream = site.connect(CLIENT);
        let header = format!("PROXY TCP6 {client} 2001:db8::ffff 50000 443\r\n");
        stream.write_all(header.as_bytes()).unwrap();
        let mut stream = StreamOwned::new(site.tls(), stream);
        stream.flush().map(|()| stream)
    };
    let open = ["2001:db8::1", "2001:db8::2"].map(|client| open_as(client).unwrap());
    assert!(open_as("2001:db8::3").is_err());
    assert!(open_as("2001:db8:0:1::1").is_ok());
    drop(open);
    eventually(|| open_as("2001:db8::3").is_ok());
    site.end();
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const OTHER_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Terminator that serves one file.
struct Site {
    address: SocketAddr,
    client: Arc<ClientConfig>,
    terminator: Terminator,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new(limits: Limits, proxies: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("index.html"), "served").unwrap();
        let files = write_certificate(folder.path());
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(&files.certificate).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = unused_address();
        let service = Service::Files(folder.path().to_owned());
        let mut listener = Listener::new(vec![address], vec![files], service);
        listener.proxy_protocol_from = proxies
            .iter()
            .map(|network| values::network(network).unwrap())
            .collect();
        let mut configuration = Configuration::new(vec![listener]);
        configuration.workers = Some(2);
        configuration.crypto = Crypto::AwsLc;
        configuration.drain_timeout = Duration::ZERO;
        configuration.limits = limits;
        Self {
            address,
            client: Arc::new(client),
            terminator: Terminator::start(configuration).unwrap(),
            _folder: folder,
        }
    }

    /// Connects from the address `client`.
    fn connect(&self, client: IpAddr) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(client, 0).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn tls(&self) -> ClientConnection {
        ClientConnection::new(Arc::clone(&self.client), "localhost".try_into().unwrap()).unwrap()
    }

    /// Completes a handshake.
    fn open(&self, client: IpAddr) -> StreamOwned<ClientConnection, TcpStream> {
        let mut stream = StreamOwned::new(self.tls(), self.connect(client));
        stream.flush().unwrap();
        stream
    }

    /// Returns the content of the file.
    fn get(&self, client: IpAddr) -> std::io::Result<String> {
        let mut stream = StreamOwned::new(self.tls(), self.connect(client));
        let response = ask(&mut stream)?;
        match response.split_once("\r\n\r\n") {
            Some((_, body)) => Ok(body.to_owned()),
            None => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn end(self) {
        self.terminator.drain();
    }
}

/// Asks for the file, and for the end of the connection.
fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn eventually(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "it does not come true");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns an address that no other process and no other test uses: ports are taken at random by
/// others, addresses of the loopback interface are not.
fn unused_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let host = NEXT.fetch_add(1, Ordering::Relaxed);
    let address = Ipv4Addr::new(127, high | 1, low, host);
    SocketAddr::new(address.into(), 8443)
}

fn write_certificate(folder: &Path) -> CertificateFiles {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_pubkey(&key).unwrap();
    let (begin, end) = (Asn1Time::days_from_now(0), Asn1Time::days_from_now(1));
    builder.set_not_before(&begin.unwrap()).unwrap();
    builder.set_not_after(&end.unwrap()).unwrap();
    let names = SubjectAlternativeName::new()
        .dns("localhost")
        .build(&builder.x509v3_context(None, None))
        .unwrap();
    builder.append_extension(names).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    let files = CertificateFiles {
        certificate: folder.join("site.pem"),
        key: folder.join("site.key"),
        ocsp: None,
    };
    std::fs::write(&files.certificate, builder.build().to_pem().unwrap()).unwrap();
    let key = key.private_key_to_pem_pkcs8().unwrap();
    std::fs::write(&files.key, key).unwrap();
    files
}
