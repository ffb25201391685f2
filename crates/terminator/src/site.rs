//! Everything that is served. A site is made from a configuration, shared by all event loops, and
//! replaced as a whole by a reload.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use slipstream_http::access_log::AccessLog;
use slipstream_http::{Service, ServiceError, Upstreams};

use crate::Configuration;
use crate::configuration::{self, HttpLimits, Network};
use crate::crypto::{self, Computation, Isolation};
use crate::tls::backends;
use crate::tls::certificates::Certificates;
use crate::tls::error::TlsError;
use crate::tls::settings::{self, Tickets};

/// Error of a configuration that cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// A file or a setting of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A service cannot be made.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

/// All listeners, with the resources they share.
pub(crate) struct Site {
    listeners: HashMap<SocketAddr, Arc<Listener>>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) limits: Arc<HttpLimits>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) drain_timeout: Duration,
}

/// Listener: TLS settings and the service for its connections.
pub(crate) struct Listener {
    pub(crate) settings: Arc<ServerConfig>,
    tickets: Tickets,
    pub(crate) service: Arc<Service>,
    proxy_protocol_from: Vec<Network>,
}

impl Site {
    /// Makes the site of `configuration`. Ticket keys, and the health and counters of backends, are
    /// kept from `previous`.
    ///
    /// # Errors
    /// Returns an error that names the file and the reason.
    pub(crate) fn new(
        configuration: &Configuration,
        isolation: Option<&Isolation>,
        access_log: Option<AccessLog>,
        previous: Option<&Site>,
    ) -> Result<Self, SiteError> {
        let known = previous.map(|previous| &*previous.upstreams);
        let services = configuration.listeners.iter().map(|it| &it.service);
        let upstreams = Arc::new(Upstreams::new(services, backends::connector, known)?);
        let mut listeners = HashMap::new();
        for settings in &configuration.listeners {
            let previous = previous.and_then(|site| site.listener(*settings.addresses.first()?));
            let listener = Listener::new(configuration, settings, isolation, &upstreams, previous)?;
            let listener = Arc::new(listener);
            for address in &settings.addresses {
                listeners.insert(*address, listener.clone());
            }
        }
        Ok(Self {
            listeners,
            upstreams,
            handshake_timeout: configuration.limits.handshake_timeout,
            limits: Arc::new(configuration.limits.http.clone()),
            access_log,
            drain_timeout: configuration.drain_timeout,
        })
    }

    /// Returns the listener at `address`.
    pub(crate) fn listener(&self, address: SocketAddr) -> Option<&Listener> {
        self.listeners.get(&address).map(|listener| &**listener)
    }
}

impl Listener {
    fn new(
        configuration: &Configuration,
        listener: &configuration::Listener,
        isolation: Option<&Isolation>,
        upstreams: &Upstreams,
        previous: Option<&Listener>,
    ) -> Result<Self, SiteError> {
        let computation = Computation::new(configuration);
        let provider = Arc::new(crypto::provider(computation, &listener.groups));
        let certificates = Certificates::read(&listener.certificates, &provider, isolation)?;
        let (settings, tickets) = settings::settings(
            listener,
            configuration.tickets,
            provider,
            certificates,
            previous.map(|listener| &listener.tickets),
        )?;
        Ok(Self {
            settings: Arc::new(settings),
            tickets,
            service: Arc::new(Service::new(&listener.service, upstreams)?),
            proxy_protocol_from: listener.proxy_protocol_from.clone(),
        })
    }

    /// Returns true if connections of `peer` begin with a PROXY header.
    pub(crate) fn takes_proxy_header(&self, peer: IpAddr) -> bool {
        self.proxy_protocol_from
            .iter()
            .any(|network| network.contains(peer))
    }
}
