//! Backends: which is taken, and whether it is well.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::health;
use crate::configuration::{Address, Balance, Configuration, Service, Upstream};
use crate::tls::pem;

/// The backends of all services, with their health. Made of a configuration; shared by all event loops.
pub struct Upstreams {
    groups: Vec<Arc<Group>>,
    /// Each address once, in the order of the configuration.
    states: Vec<Arc<State>>,
}

/// How a backend is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its address.
    pub address: String,
    /// It is taken for new connections.
    pub is_well: bool,
    /// Connections or requests of this process that it has now.
    pub active: usize,
    /// Connections or requests it has had.
    pub total: u64,
    /// How often it could not be connected to.
    pub failures: u64,
}

impl Upstreams {
    /// Those of `configuration`. Figures and health of backends that were there in `previous` are kept.
    ///
    /// # Errors
    /// If authorities for a backend's certificate cannot be read.
    pub fn new(
        configuration: &Configuration,
        previous: Option<&Upstreams>,
    ) -> Result<Self, String> {
        let mut upstreams = Self {
            groups: Vec::new(),
            states: Vec::new(),
        };
        for listener in &configuration.listeners {
            let (Service::Tcp(settings) | Service::Http(settings)) = &listener.service else {
                continue;
            };
            if upstreams.group(settings).is_none() {
                let group = upstreams.make_group(settings, previous)?;
                upstreams.groups.push(Arc::new(group));
            }
        }
        // Who is no longer asked must not stay down for what was said last.
        for state in &upstreams.states {
            let is_watched = upstreams.groups.iter().any(|group| {
                group.settings.health.is_some() && group.backends.iter().any(|b| b.has(state))
            });
            if !is_watched {
                state.answers.store(true, Ordering::Relaxed);
            }
        }
        Ok(upstreams)
    }

    /// Every backend.
    pub fn status(&self) -> Vec<BackendStatus> {
        self.states.iter().map(|state| state.status()).collect()
    }

    /// Asks backends whether they are well, for as long as this future is polled. One event loop does it for all.
    pub async fn watch_health(&self) {
        let mut seen: Vec<&Arc<State>> = Vec::new();
        let mut watches = Vec::new();
        for group in &self.groups {
            let Some(how) = &group.settings.health else {
                continue;
            };
            for backend in &group.backends {
                // A backend of two services is asked as the first one wants it.
                if !seen.iter().any(|state| backend.has(state)) {
                    seen.push(&backend.state);
                    watches.push(health::watch(backend, how, &group.settings));
                }
            }
        }
        join_all(watches).await;
        std::future::pending().await
    }

    /// Those of a service.
    pub(super) fn group(&self, settings: &Upstream) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.settings == *settings)
    }

    fn make_group(
        &mut self,
        settings: &Upstream,
        previous: Option<&Upstreams>,
    ) -> Result<Group, String> {
        let has_tls = settings
            .backends
            .iter()
            .any(|backend| backend.tls.is_some());
        let connector = match has_tls {
            true => Some(tls_connector(settings.authorities.as_deref())?),
            false => None,
        };
        let mut backends = Vec::with_capacity(settings.backends.len());
        for backend in &settings.backends {
            let tls = match (&connector, &backend.tls) {
                (Some(connector), Some(name)) => {
                    let name = ServerName::try_from(name.clone()).map_err(|_| {
                        format!(
                            "backend {}: {name:?} is no name that a certificate can have: give a host name or an address",
                            backend.address
                        )
                    })?;
                    Some((connector.clone(), name))
                }
                _ => None,
            };
            backends.push(Arc::new(Backend {
                number: next_number(),
                address: backend.address.clone(),
                tls,
                state: self.state(&backend.address, previous),
            }));
        }
        Ok(Group {
            settings: settings.clone(),
            backends,
            next: AtomicUsize::new(0),
        })
    }

    /// That of an address, which is the one that it has already, here or in `previous`.
    fn state(&mut self, address: &Address, previous: Option<&Upstreams>) -> Arc<State> {
        let name = address.to_string();
        let of_name = |states: &[Arc<State>]| states.iter().find(|s| s.name == name).cloned();
        if let Some(state) = of_name(&self.states) {
            return state;
        }
        let state = previous
            .and_then(|previous| of_name(&previous.states))
            .unwrap_or_else(|| Arc::new(State::new(name.clone())));
        self.states.push(Arc::clone(&state));
        state
    }
}

/// The backends of one service.
pub(super) struct Group {
    pub(super) settings: Upstream,
    backends: Vec<Arc<Backend>>,
    next: AtomicUsize,
}

impl Group {
    /// A backend that is well and, if there is another one, not among those that have been `tried`. One that has failed lately is
    /// taken only if there is no better. `None` if active checks say that all are down.
    pub(super) fn pick(&self, tried: &[u64]) -> Option<Lease> {
        let now = milliseconds();
        let count = self.backends.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % count;
        let rank = |backend: &Backend| {
            let is_tried = tried.contains(&backend.number);
            let has_failed = backend.state.failed_until.load(Ordering::Relaxed) > now;
            let active = match self.settings.balance {
                Balance::RoundRobin => 0,
                Balance::LeastConnections => backend.state.active.load(Ordering::Relaxed),
            };
            (is_tried, has_failed, active)
        };
        (first..first + count)
            .map(|index| &self.backends[index % count])
            .filter(|backend| backend.state.answers.load(Ordering::Relaxed))
            .min_by_key(|backend| rank(backend))
            .map(Lease::new)
    }
}

/// A backend as one service reaches it.
pub(super) struct Backend {
    /// No other backend of this process has it, not even the same one after a reload.
    pub(super) number: u64,
    pub(super) address: Address,
    /// With which TLS is spoken to it.
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    state: Arc<State>,
}

impl Backend {
    /// Its address.
    pub(super) fn name(&self) -> &str {
        &self.state.name
    }

    /// It could not be connected to.
    pub(super) fn failed(&self, fail_timeout: Duration) {
        let timeout = u64::try_from(fail_timeout.as_millis()).unwrap_or(u64::MAX);
        let until = milliseconds().saturating_add(timeout);
        self.state.failures.fetch_add(1, Ordering::Relaxed);
        self.state.failed_until.store(until, Ordering::Relaxed);
    }

    /// What an active check says.
    pub(super) fn set_answers(&self, answers: bool) {
        self.state.answers.store(answers, Ordering::Relaxed);
        if answers {
            self.state.failed_until.store(0, Ordering::Relaxed);
        }
    }

    /// What active checks have said.
    pub(super) fn answers(&self) -> bool {
        self.state.answers.load(Ordering::Relaxed)
    }

    fn has(&self, state: &Arc<State>) -> bool {
        Arc::ptr_eq(&self.state, state)
    }
}

/// A backend that has been taken for a connection or a request, and counts it until this is dropped.
pub(super) struct Lease(Arc<Backend>);

impl Lease {
    fn new(backend: &Arc<Backend>) -> Self {
        backend.state.active.fetch_add(1, Ordering::Relaxed);
        backend.state.total.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(backend))
    }

    /// Which.
    pub(super) fn backend(&self) -> &Arc<Backend> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.state.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is known of an address, in every service that uses it.
struct State {
    name: String,
    /// Active checks have not found it down.
    answers: AtomicBool,
    /// In [`milliseconds`].
    failed_until: AtomicU64,
    active: AtomicUsize,
    total: AtomicU64,
    failures: AtomicU64,
}

impl State {
    fn new(name: String) -> Self {
        Self {
            name,
            answers: AtomicBool::new(true),
            failed_until: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            total: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    fn status(&self) -> BackendStatus {
        let has_failed = self.failed_until.load(Ordering::Relaxed) > milliseconds();
        BackendStatus {
            address: self.name.clone(),
            is_well: self.answers.load(Ordering::Relaxed) && !has_failed,
            active: self.active.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

/// Since this process first asked, plus one: a time that fits into an atomic, and is never zero.
pub(super) fn milliseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_millis())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn tls_connector(authorities: Option<&Path>) -> Result<TlsConnector, String> {
    let roots = match authorities {
        Some(file) => pem::authorities(file)?.0,
        None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let settings = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS to backends: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(settings)))
}
