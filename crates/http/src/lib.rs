//! Forwards the content of connections to backends, and serves files.
//!
//! The crate knows tokio and hyper, and no TLS. A connection is a stream and the facts of its
//! handshake as plain values ([`Connection`]). The program that uses the crate supplies a
//! [`TlsConnector`] for backends with TLS.

pub mod access_log;
mod connect;
pub mod counters;
mod files;
pub mod gauge;
mod headers;
mod health;
mod identity;
mod keepalive;
mod places;
pub mod proxy_header;
mod requests;
pub mod settings;
mod subject;
mod tcp;
mod tunnel;
mod upstream;
pub mod usage;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use access_log::AccessLog;
pub use connect::{Connecting, Socket, Stream, TlsConnector};
use counters::Counters;
use files::Files;
pub use keepalive::keepalive;
use requests::Handler;
use upstream::Group;
pub use upstream::{BackendStatus, Upstreams};
use usage::Usage;

/// The service of a listener. It is made once from the settings and shared by all event loops.
pub struct Service(Kind);

enum Kind {
    Tcp(Arc<Group>),
    Http(Arc<Group>),
    Files(Files),
}

/// Error of [`Service::new`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The backends of the service are not among those that were passed.
    #[error("the backends were made from other settings: make both from the same ones")]
    UnknownUpstream,
    /// The path of the files is not a directory.
    #[error("{}: not a directory, or not readable: name one whose files are to be served", .0.display())]
    NotADirectory(PathBuf),
}

/// Facts of a connection that has completed its handshake.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Address of the client, from the PROXY header if the connection began with one.
    pub client: SocketAddr,
    /// Address that the client connected to.
    pub server: SocketAddr,
    /// Version of TLS, such as `TLSv1.3`.
    pub tls_version: &'static str,
    /// Cipher suite, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// Server name that the client asked for (SNI).
    pub server_name: Option<String>,
    /// Protocol that ALPN selected.
    pub alpn: Option<Vec<u8>>,
    /// Verified end-entity certificate of the client, in DER.
    pub client_certificate: Option<Vec<u8>>,
    /// Time at which the connection was accepted.
    pub accepted: std::time::SystemTime,
}

/// Resources of an event loop that its connections share.
#[derive(Clone)]
pub struct ConnectionContext {
    /// Counters of the event loop.
    pub counters: Arc<Counters>,
    /// Access log, if one is configured.
    pub access_log: Option<AccessLog>,
    /// Becomes true when the process drains: connections must then end as soon as they can without
    /// losing data.
    pub draining: watch::Receiver<bool>,
    /// Resources that the connections of all event loops share.
    pub usage: Usage,
    /// Limits of time and size.
    pub limits: Arc<settings::Limits>,
}

impl Service {
    /// Makes the service that `service` describes. `upstreams` must have been made from the same
    /// settings.
    ///
    /// # Errors
    /// Returns an error if `upstreams` lacks the backends, or if the directory of files does not
    /// exist.
    pub fn new(service: &settings::Service, upstreams: &Upstreams) -> Result<Self, ServiceError> {
        let group = |settings| {
            let group = upstreams.group(settings).cloned();
            group.ok_or(ServiceError::UnknownUpstream)
        };
        Ok(Self(match service {
            settings::Service::Tcp(settings) => Kind::Tcp(group(settings)?),
            settings::Service::Http(settings) => Kind::Http(group(settings)?),
            settings::Service::Files(directory) => Kind::Files(Files::new(directory)?),
        }))
    }

    /// Returns true if the backend may send bytes before the client does.
    pub fn speaks_first(&self) -> bool {
        matches!(self.0, Kind::Tcp(_))
    }

    /// Serves a connection until it ends. Must be called on the thread of an event loop.
    pub async fn serve<S>(
        self: Arc<Self>,
        stream: S,
        connection: Connection,
        context: ConnectionContext,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handler = match &self.0 {
            Kind::Tcp(group) => {
                return tcp::serve(Arc::clone(group), stream, connection, context).await;
            }
            Kind::Http(group) => Handler::Backends(Arc::clone(group)),
            Kind::Files(files) => Handler::Files(files.clone()),
        };
        requests::serve(handler, stream, connection, context).await;
    }
}
