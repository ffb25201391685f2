//! TLS to backends.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use slipstream_http::{Connecting, Socket, Stream, TlsConnector};

use super::error::TlsError;
use super::pem;
use crate::configuration::Upstream;

/// Connector for the backends of one service.
struct Connector(tokio_rustls::TlsConnector);

impl TlsConnector for Connector {
    fn connect<'a>(&'a self, name: &'a str, socket: Socket) -> Connecting<'a> {
        Box::pin(async move {
            let name = ServerName::try_from(name.to_owned())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let stream = self.0.connect(name, socket).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Returns the connector for the backends of `upstream`.
///
/// # Errors
/// Returns an error if the authorities cannot be read, or if a backend has a name that no
/// certificate can have.
pub(crate) fn connector(upstream: &Upstream) -> Result<Arc<dyn TlsConnector>, TlsError> {
    for backend in &upstream.backends {
        if let Some(name) = &backend.tls
            && ServerName::try_from(name.as_str()).is_err()
        {
            return Err(TlsError::BackendName {
                address: backend.address.clone(),
                name: name.clone(),
            });
        }
    }
    let roots = match &upstream.authorities {
        Some(file) => pem::authorities(file)?.0,
        None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let settings = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Backends)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(settings));
    Ok(Arc::new(Connector(connector)))
}

#[cfg(all(test, feature = "system-openssl"))]
mod tests {
    use std::net::SocketAddr;
    use std::time::SystemTime;

    use openssl::asn1::Asn1Time;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::PKey;
    use openssl::x509::X509;
    use openssl::x509::extension::SubjectAlternativeName;
    use rustls::ServerConfig;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::configuration::{Address, Backend, HttpLimits, Service as Settings};
    use slipstream_http::usage::Usage;
    use slipstream_http::{Connection, ConnectionContext, Service, Upstreams};

    #[tokio::test]
    async fn a_backend_with_tls_is_verified() {
        let directory = tempfile::tempdir().unwrap();
        let (acceptor, certificate) = tls_server("backend.example");
        let authorities = directory.path().join("authorities.pem");
        std::fs::write(&authorities, certificate).unwrap();
        let address = backend(acceptor).await;
        for (name, expected) in [("backend.example", "hello"), ("other.example", "")] {
            let backend = Backend {
                address: Address::Tcp(address.ip().to_string(), address.port()),
                tls: Some(name.to_owned()),
            };
            let mut upstream = Upstream::new(vec![backend]);
            upstream.authorities = Some(authorities.clone());
            assert_eq!(greeting(&Settings::Tcp(upstream)).await, expected);
        }
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_refused() {
        let backend = Backend {
            address: Address::Tcp("127.0.0.1".to_owned(), 443),
            tls: Some("no name".to_owned()),
        };
        let error = connector(&Upstream::new(vec![backend])).err().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("backend 127.0.0.1:443: \"no name\""),
            "{text}"
        );
    }

    /// Returns everything that a client of `service` receives.
    async fn greeting(service: &Settings) -> String {
        let upstreams = Upstreams::new([service], connector, None).ok().unwrap();
        let service = Arc::new(Service::new(service, &upstreams).unwrap());
        let connection = Connection {
            client: "192.0.2.1:50000".parse().unwrap(),
            server: "198.51.100.2:443".parse().unwrap(),
            tls_version: "TLSv1.3",
            cipher_suite: "TLS_AES_256_GCM_SHA384".to_owned(),
            server_name: None,
            alpn: None,
            client_certificate: None,
            accepted: SystemTime::now(),
        };
        let context = ConnectionContext {
            counters: Arc::default(),
            access_log: None,
            draining: watch::channel(false).1,
            usage: Usage::default(),
            limits: Arc::new(HttpLimits::default()),
        };
        let (mut client, server) = duplex(1024);
        tokio::spawn(service.serve(server, connection, context));
        let mut received = String::new();
        let _ = client.read_to_string(&mut received).await;
        received
    }

    /// Starts a server that greets clients.
    async fn backend(acceptor: TlsAcceptor) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    stream.write_all(b"hello").await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            }
        });
        address
    }

    /// Returns a TLS server and its self-signed certificate in PEM.
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
}
