//! What is served: made of a configuration, shared by all event loops, and replaced as a whole.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;

use crate::Configuration;
use crate::configuration::{self, Limits, Network};
use crate::crypto::{self, Isolation};
use crate::forward::{Service, Upstreams};
use crate::operations::access_log::AccessLog;
use crate::tls::certificates::Certificates;
use crate::tls::settings::{self, Tickets};

/// All listeners, with what they share.
pub(crate) struct Site {
    doors: HashMap<SocketAddr, Arc<Door>>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) drain_timeout: Duration,
}

/// A listener: who comes in there gets these settings of TLS and this service.
pub(crate) struct Door {
    pub(crate) settings: Arc<ServerConfig>,
    tickets: Tickets,
    pub(crate) service: Arc<Service>,
    proxy_protocol_from: Vec<Network>,
}

impl Site {
    /// What `configuration` says. Tickets, and what is known of backends, is kept from `previous`.
    ///
    /// # Errors
    /// Names the file and says what is wrong.
    pub(crate) fn new(
        configuration: &Configuration,
        isolation: Option<&Isolation>,
        access_log: Option<AccessLog>,
        previous: Option<&Site>,
    ) -> Result<Self, String> {
        let known = previous.map(|previous| &*previous.upstreams);
        let upstreams = Arc::new(Upstreams::new(configuration, known)?);
        let mut doors = HashMap::new();
        for listener in &configuration.listeners {
            let previous = previous.and_then(|site| site.door(*listener.addresses.first()?));
            let door = Door::new(configuration, listener, isolation, &upstreams, previous)?;
            let door = Arc::new(door);
            for address in &listener.addresses {
                doors.insert(*address, door.clone());
            }
        }
        Ok(Self {
            doors,
            upstreams,
            limits: Arc::new(configuration.limits.clone()),
            access_log,
            drain_timeout: configuration.drain_timeout,
        })
    }

    /// The listener at `address`.
    pub(crate) fn door(&self, address: SocketAddr) -> Option<&Door> {
        self.doors.get(&address).map(|door| &**door)
    }
}

impl Door {
    fn new(
        configuration: &Configuration,
        listener: &configuration::Listener,
        isolation: Option<&Isolation>,
        upstreams: &Upstreams,
        previous: Option<&Door>,
    ) -> Result<Self, String> {
        let provider = Arc::new(crypto::provider(configuration.crypto, &listener.groups));
        let certificates = Certificates::read(&listener.certificates, &provider, isolation)?;
        let (settings, tickets) = settings::settings(
            listener,
            configuration.tickets,
            provider,
            certificates,
            previous.map(|door| &door.tickets),
        )?;
        Ok(Self {
            settings: Arc::new(settings),
            tickets,
            service: Arc::new(Service::new(&listener.service, upstreams)?),
            proxy_protocol_from: listener.proxy_protocol_from.clone(),
        })
    }

    /// Whether a peer's connection begins with a PROXY header.
    pub(crate) fn takes_proxy_header(&self, peer: IpAddr) -> bool {
        self.proxy_protocol_from
            .iter()
            .any(|network| network.contains(peer))
    }
}
