//! What is done with a connection after its handshake.

mod connect;
mod files;
mod headers;
mod health;
mod http;
pub mod proxy_header;
mod subject;
mod tcp;
mod tunnel;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::configuration;
use crate::operations::access_log::AccessLog;
use crate::operations::metrics::Metrics;
use files::Files;
use http::Handler;
use upstream::Group;
pub use upstream::{BackendStatus, Upstreams};

/// What a listener does with connections: made of its configuration once, shared by all event loops.
pub struct Service(Kind);

enum Kind {
    Tcp(Arc<Group>),
    Http(Arc<Group>),
    Files(Files),
}

/// What is known of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client, as a PROXY header said if one was taken.
    pub client: SocketAddr,
    /// Where it connected to.
    pub server: SocketAddr,
    /// Such as `TLSv1.3`.
    pub tls_version: &'static str,
    /// Such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// SNI.
    pub server_name: Option<String>,
    /// The protocol that ALPN has chosen.
    pub alpn: Option<Vec<u8>>,
    /// The client's own certificate, verified.
    pub client_certificate: Option<CertificateDer<'static>>,
    /// When it was accepted.
    pub accepted: std::time::SystemTime,
}

/// What an event loop lends to the connections it serves.
#[derive(Clone)]
pub struct Surroundings {
    /// Of this event loop.
    pub metrics: Arc<Metrics>,
    /// If there is one.
    pub access_log: Option<AccessLog>,
    /// True from the moment on when connections are to end as soon as they can without losing anything.
    pub draining: watch::Receiver<bool>,
    /// Limits of time and size.
    pub limits: Arc<configuration::Limits>,
}

impl Service {
    /// What `service` says. Backends come from `upstreams`, which has been made of the same configuration.
    ///
    /// # Errors
    /// If a file that it names cannot be used.
    pub fn new(service: &configuration::Service, upstreams: &Upstreams) -> Result<Self, String> {
        let group = |settings| {
            upstreams.group(settings).cloned().ok_or_else(|| {
                "the backends were made of another configuration: make both of the same one"
                    .to_owned()
            })
        };
        Ok(Self(match service {
            configuration::Service::Tcp(settings) => Kind::Tcp(group(settings)?),
            configuration::Service::Http(settings) => Kind::Http(group(settings)?),
            configuration::Service::Files(directory) => Kind::Files(Files::new(directory)?),
        }))
    }

    /// Whether a backend may have something to say before the client has.
    pub fn speaks_first(&self) -> bool {
        matches!(self.0, Kind::Tcp(_))
    }

    /// Serves a connection until it ends. Must be called on an event loop's thread.
    pub async fn serve<S>(
        self: Arc<Self>,
        stream: S,
        connection: Connection,
        surroundings: Surroundings,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handler = match &self.0 {
            Kind::Tcp(group) => {
                return tcp::serve(Arc::clone(group), stream, connection, surroundings).await;
            }
            Kind::Http(group) => Handler::Backends(Arc::clone(group)),
            Kind::Files(files) => Handler::Files(files.clone()),
        };
        http::serve(handler, stream, connection, surroundings).await;
    }
}
