//! The process: starting, reloading and draining.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_accelerators::lanes::Backend;
use slipstream_http::access_log::AccessLog;
use slipstream_metrics::published::Region;
use tokio::sync::watch;

use crate::Configuration;
use crate::configuration::Crypto;
use crate::crypto::{self, Computation, Isolation};
use crate::event_loop::{Accelerators, EventLoop};
use crate::listeners;
use crate::operations::limits::Limiter;
use crate::operations::metrics::{self, Metrics, StatusSource};
use crate::operations::privileges::{self, User};
use crate::site::{Site, SiteError};

/// State of the private keys that an engine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolatedKeys {
    /// The engine has the keys, or no keys are isolated.
    Usable,
    /// The engine has ended, and no other one runs.
    Gone,
    /// Another engine runs, which does not have the keys. A [reload](Terminator::reload) hands them
    /// over.
    Forgotten,
}

/// Error of [`Terminator::reload`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// This key of the configuration has changed, which needs a restart.
    #[error("a change of {0} takes effect with a restart")]
    NeedsRestart(&'static str),
    /// The configuration cannot be served.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The engine does not accept private keys.
    #[error(transparent)]
    Engine(#[from] io::Error),
}

/// Running terminator.
pub struct Terminator {
    configuration: Configuration,
    /// Handle to the keys in the engine, which keeps them until this is dropped.
    isolation: Option<Isolation>,
    access_log: Option<AccessLog>,
    limiter: Arc<Limiter>,
    site: watch::Sender<Arc<Site>>,
    draining: watch::Sender<bool>,
    tokens: watch::Sender<Option<Token>>,
    loops: Vec<JoinHandle<usize>>,
    backend: Option<Backend>,
    /// Figures that `slipstream status` reads.
    figures: Region,
}

impl Terminator {
    /// Binds sockets, reads keys, drops privileges, and starts the event loops.
    ///
    /// # Errors
    /// Returns an error whose text names the remedy.
    pub fn start(configuration: Configuration) -> io::Result<Self> {
        let workers = configuration.workers.map_or_else(cores, Ok)?;
        let sockets = listeners::bind(&addresses(&configuration), workers)?;
        let backend = match Computation::new(&configuration) {
            Computation::Lanes => crypto::backend(),
            Computation::Engine | Computation::AwsLc => None,
        };
        let isolation = isolation(&configuration)?;
        let mut site =
            Site::new(&configuration, isolation.as_ref(), None, None).map_err(io::Error::other)?;
        let accelerators = accelerators(&configuration, backend, isolation.as_ref())?;
        let (figures, unpublished) = metrics::share(workers, group(&configuration)?)?;
        if let Some(error) = unpublished {
            eprintln!("slipstream serve: `slipstream status` does not show this process: {error}");
        }
        // Privileges are dropped before there is another thread, which would keep its own. The log
        // is opened afterwards, so that the same user can reopen it.
        if let Some(user) = &configuration.user {
            privileges::drop_to(user)?;
        }
        let access_log = match &configuration.access_log {
            Some(log) => Some(AccessLog::open(log)?),
            None => None,
        };
        site.access_log.clone_from(&access_log);
        let limiter = Limiter::new(&configuration.limits, privileges::descriptor_limit());
        let (site, sites) = watch::channel(Arc::new(site));
        let (draining, drains) = watch::channel(false);
        let (tokens, renewals) = watch::channel(None);
        let of_loops = (0..workers).map(|index| Arc::new(Metrics::new(figures.slot(index))));
        let of_loops: Vec<Arc<Metrics>> = of_loops.collect();
        if let Some(address) = configuration.metrics {
            metrics::serve(address, status(&of_loops, &sites, &drains))?;
        }
        let loops = sockets
            .into_iter()
            .zip(of_loops)
            .enumerate()
            .map(|(index, (sockets, metrics))| {
                EventLoop {
                    sockets,
                    accelerators: accelerators.clone(),
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
            figures,
        })
    }

    /// Returns the number of event loops.
    pub fn workers(&self) -> usize {
        self.loops.len()
    }

    /// Returns the backend of the lanes. `None` if this CPU has none, or if they are switched off.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// Switches to another configuration. Open connections keep the old one. The access log is
    /// reopened.
    ///
    /// # Errors
    /// Returns the reason why the old configuration stays in use.
    pub fn reload(&mut self, configuration: Configuration) -> Result<(), ReloadError> {
        if let Some(what) = self.needs_restart(&configuration) {
            return Err(ReloadError::NeedsRestart(what));
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

    /// Returns the state of the private keys that an engine holds.
    pub fn isolated_keys(&self) -> IsolatedKeys {
        match &self.isolation {
            Some(used) if !used.is_alive() => match isolation(&self.configuration) {
                Ok(_) => IsolatedKeys::Forgotten,
                Err(_) => IsolatedKeys::Gone,
            },
            _ => IsolatedKeys::Usable,
        }
    }

    /// Stops accepting connections, and waits for open ones to end, at most for the configured
    /// time. Returns the number of connections that were cut off.
    pub fn drain(self) -> usize {
        self.draining.send_replace(true);
        let open = self
            .loops
            .into_iter()
            .map(|event_loop| event_loop.join().expect("a panic aborts the process"))
            .sum();
        self.figures.remove();
        if let Some(log) = &self.access_log {
            log.flush();
        }
        open
    }

    fn site(
        &self,
        configuration: &Configuration,
        isolation: Option<&Isolation>,
    ) -> Result<Site, SiteError> {
        let previous = self.site.borrow().clone();
        let log = self.access_log.clone();
        Site::new(configuration, isolation, log, Some(&previous))
    }

    /// Makes the site with a new engine: one that has been restarted has lost the keys, and
    /// receives them again. Returns `error` if the engine is still the same, or if there is none.
    fn site_with_another_engine(
        &mut self,
        configuration: &Configuration,
        error: SiteError,
    ) -> Result<Site, ReloadError> {
        if self.isolation.as_ref().is_none_or(Isolation::is_alive) {
            return Err(error.into());
        }
        let Some(isolation) = isolation(configuration)? else {
            return Err(error.into());
        };
        let site = self.site(configuration, Some(&isolation))?;
        let token = isolation.token()?;
        self.isolation = Some(isolation);
        self.tokens.send_replace(Some(token));
        Ok(site)
    }

    /// Returns the first setting that differs from the configuration in use and cannot be changed
    /// without a restart.
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
            (used.lanes != configuration.lanes, "`lanes`"),
            (used.engine != configuration.engine, "`engine`"),
            (used.metrics != configuration.metrics, "`metrics`"),
            (used.access_log != configuration.access_log, "`access_log`"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

/// Returns the group whose members may read the figures if this process drops its privileges.
fn group(configuration: &Configuration) -> io::Result<Option<u32>> {
    let user = configuration.user.as_deref().map(User::find).transpose()?;
    Ok(user.map(|user| user.group()))
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
        Some(engine) if engine.isolate_keys => {
            Isolation::new(&engine.socket, &engine.user).map(Some)
        }
        _ => Ok(None),
    }
}

/// Prepares the accelerators of an event loop. Measures costs, which takes a few hundred
/// milliseconds.
fn accelerators(
    configuration: &Configuration,
    backend: Option<Backend>,
    isolation: Option<&Isolation>,
) -> io::Result<Option<Accelerators>> {
    let engine = match configuration.crypto {
        Crypto::Slipstream => configuration.engine.as_ref(),
        Crypto::AwsLc => None,
    };
    if backend.is_none() && engine.is_none() {
        return Ok(None);
    }
    Ok(Some(Accelerators {
        backend,
        measured: crypto::measure(backend),
        engine: engine.map(|engine| (engine.socket.clone(), engine.user.clone())),
        token: isolation.map(Isolation::token).transpose()?,
    }))
}

fn status(
    loops: &[Arc<Metrics>],
    site: &watch::Receiver<Arc<Site>>,
    draining: &watch::Receiver<bool>,
) -> StatusSource {
    let (site, draining) = (site.clone(), draining.clone());
    StatusSource {
        loops: loops.to_vec(),
        upstreams: Arc::new(move || site.borrow().upstreams.clone()),
        is_ready: Arc::new(move || !*draining.borrow()),
    }
}
