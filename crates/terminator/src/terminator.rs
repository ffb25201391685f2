//! The process: sockets, keys and event loops, and what becomes of them when the configuration changes or the process ends.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use slipstream_lanes::Backend;
use slipstream_offload::device::message::Token;
use tokio::sync::watch;

use crate::Configuration;
use crate::configuration::Crypto;
use crate::crypto::{self, Isolation};
use crate::event_loop::{Accelerator, EventLoop};
use crate::listeners;
use crate::operations::access_log::AccessLog;
use crate::operations::limits::Limiter;
use crate::operations::metrics::{self, Exhibits, Metrics};
use crate::operations::privileges;
use crate::site::Site;

/// What has become of the private keys that an engine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolatedKeys {
    /// It has them, or there are none.
    Usable,
    /// It has ended, and there is no other.
    Gone,
    /// Another one is in its place, and has none: a [reload](Terminator::reload) hands them over.
    Forgotten,
}

/// A terminator that serves.
pub struct Terminator {
    configuration: Configuration,
    /// The engine keeps the keys for as long as this is there.
    isolation: Option<Isolation>,
    access_log: Option<AccessLog>,
    limiter: Arc<Limiter>,
    site: watch::Sender<Arc<Site>>,
    draining: watch::Sender<bool>,
    tokens: watch::Sender<Option<Token>>,
    loops: Vec<JoinHandle<usize>>,
    backend: Option<Backend>,
}

impl Terminator {
    /// Binds, reads keys, gives up rights, and starts an event loop per core.
    ///
    /// # Errors
    /// The text says what to do.
    pub fn start(configuration: Configuration) -> io::Result<Self> {
        let workers = configuration.workers.map_or_else(cores, Ok)?;
        let sockets = listeners::bind(&addresses(&configuration), workers)?;
        let backend = match configuration.crypto {
            Crypto::Slipstream => crypto::backend(),
            Crypto::AwsLc => None,
        };
        let isolation = isolation(&configuration)?;
        let mut site =
            Site::new(&configuration, isolation.as_ref(), None, None).map_err(io::Error::other)?;
        let accelerator = accelerator(&configuration, backend, isolation.as_ref())?;
        // Before there is another thread, which would keep its own rights. A log that is opened now can be opened again.
        if let Some(user) = &configuration.user {
            privileges::drop_to(user)?;
        }
        let access_log = match &configuration.access_log {
            Some(log) => Some(AccessLog::open(log)?),
            None => None,
        };
        site.access_log.clone_from(&access_log);
        let limiter = Limiter::new(&configuration.limits);
        let (site, sites) = watch::channel(Arc::new(site));
        let (draining, drains) = watch::channel(false);
        let (tokens, renewals) = watch::channel(None);
        let of_loops: Vec<Arc<Metrics>> = (0..workers).map(|_| Arc::default()).collect();
        if let Some(address) = configuration.metrics {
            metrics::serve(address, exhibits(&of_loops, &sites, &drains))?;
        }
        let loops = sockets
            .into_iter()
            .zip(of_loops)
            .enumerate()
            .map(|(index, (sockets, metrics))| {
                EventLoop {
                    sockets,
                    accelerator: accelerator.clone(),
                    tokens: renewals.clone(),
                    metrics,
                    limiter: limiter.clone(),
                    site: sites.clone(),
                    draining: drains.clone(),
                    watches_health: index == 0,
                }
                .start(index)
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            configuration,
            isolation,
            access_log,
            limiter,
            site,
            draining,
            tokens,
            loops,
            backend,
        })
    }

    /// How many event loops there are.
    pub fn workers(&self) -> usize {
        self.loops.len()
    }

    /// The lanes that are used; `None` if this CPU has none, or they are not wanted.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// Takes another configuration from now on. Connections that are open keep the old one. The access log is opened anew.
    ///
    /// # Errors
    /// Says why the old one stays in use.
    pub fn reload(&mut self, configuration: Configuration) -> Result<(), String> {
        if let Some(what) = self.needs_restart(&configuration) {
            return Err(format!("a change of {what} takes effect with a restart"));
        }
        let site = match self.site(&configuration, self.isolation.as_ref()) {
            Ok(site) => site,
            Err(error) => self.site_with_another_engine(&configuration, error)?,
        };
        self.limiter.set(&configuration.limits);
        self.site.send_replace(Arc::new(site));
        if let Some(log) = &self.access_log {
            log.reopen();
        }
        self.configuration = configuration;
        Ok(())
    }

    /// Where the private keys are that an engine holds.
    pub fn isolated_keys(&self) -> IsolatedKeys {
        match &self.isolation {
            Some(used) if !used.is_alive() => match isolation(&self.configuration) {
                Ok(_) => IsolatedKeys::Forgotten,
                Err(_) => IsolatedKeys::Gone,
            },
            _ => IsolatedKeys::Usable,
        }
    }

    /// Takes no more connections, and waits for those that are open, for at most the configured time. Returns how many were cut
    /// off.
    pub fn drain(self) -> usize {
        self.draining.send_replace(true);
        let open = self
            .loops
            .into_iter()
            .map(|event_loop| event_loop.join().expect("a panic aborts the process"))
            .sum();
        if let Some(log) = &self.access_log {
            log.flush();
        }
        open
    }

    fn site(
        &self,
        configuration: &Configuration,
        isolation: Option<&Isolation>,
    ) -> Result<Site, String> {
        let previous = self.site.borrow().clone();
        let log = self.access_log.clone();
        Site::new(configuration, isolation, log, Some(&previous))
    }

    /// An engine that has been started again has forgotten the keys, and takes them anew. If it is the old one, or there is none, `error`
    /// is what keeps the configuration from being used.
    fn site_with_another_engine(
        &mut self,
        configuration: &Configuration,
        error: String,
    ) -> Result<Site, String> {
        if self.isolation.as_ref().is_none_or(Isolation::is_alive) {
            return Err(error);
        }
        let Some(isolation) = isolation(configuration).map_err(|error| error.to_string())? else {
            return Err(error);
        };
        let site = self.site(configuration, Some(&isolation))?;
        let token = isolation.token().map_err(|error| error.to_string())?;
        self.isolation = Some(isolation);
        self.tokens.send_replace(Some(token));
        Ok(site)
    }

    /// The first thing in which `configuration` differs from the one in use, and which cannot be changed while it is.
    fn needs_restart(&self, configuration: &Configuration) -> Option<&'static str> {
        let used = &self.configuration;
        let set = |configuration| {
            addresses(configuration)
                .into_iter()
                .collect::<BTreeSet<_>>()
        };
        [
            (set(used) != set(configuration), "`listen`"),
            (used.workers != configuration.workers, "`workers`"),
            (used.user != configuration.user, "`user`"),
            (used.crypto != configuration.crypto, "`crypto`"),
            (used.engine != configuration.engine, "`engine`"),
            (used.metrics != configuration.metrics, "`metrics`"),
            (used.access_log != configuration.access_log, "`access_log`"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

fn cores() -> io::Result<usize> {
    Ok(thread::available_parallelism()?.get())
}

fn addresses(configuration: &Configuration) -> Vec<SocketAddr> {
    let listeners = configuration.listeners.iter();
    listeners
        .flat_map(|listener| listener.addresses.iter().copied())
        .collect()
}

fn isolation(configuration: &Configuration) -> io::Result<Option<Isolation>> {
    match &configuration.engine {
        Some(engine) if engine.isolate_keys => Isolation::new(&engine.socket).map(Some),
        _ => Ok(None),
    }
}

/// What each event loop computes with. Measures what lanes cost, which takes a few hundred milliseconds.
fn accelerator(
    configuration: &Configuration,
    backend: Option<Backend>,
    isolation: Option<&Isolation>,
) -> io::Result<Option<Accelerator>> {
    let engine = match configuration.crypto {
        Crypto::Slipstream => configuration.engine.as_ref(),
        Crypto::AwsLc => None,
    };
    if backend.is_none() && engine.is_none() {
        return Ok(None);
    }
    Ok(Some(Accelerator {
        backend,
        costs: backend.map(crypto::costs).unwrap_or_default(),
        engine: engine.map(|engine| engine.socket.clone()),
        token: isolation.map(Isolation::token).transpose()?,
    }))
}

fn exhibits(
    loops: &[Arc<Metrics>],
    site: &watch::Receiver<Arc<Site>>,
    draining: &watch::Receiver<bool>,
) -> Exhibits {
    let (site, draining) = (site.clone(), draining.clone());
    Exhibits {
        loops: loops.to_vec(),
        upstreams: Arc::new(move || site.borrow().upstreams.clone()),
        is_ready: Arc::new(move || !*draining.borrow()),
    }
}
