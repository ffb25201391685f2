//! Backends: their selection and their health.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::connect::TlsConnector;
use crate::health;
use crate::places::Places;
use crate::settings::{Address, Balance, Service, Upstream};

/// Requests in a row that a backend breaks off until it is avoided.
const BROKEN_OFF_UNTIL_AVOIDED: u32 = 3;

/// Backends of all services, with their health. Shared by all event loops.
pub struct Upstreams {
    groups: Vec<Arc<Group>>,
    /// One state per address, in the order of the settings.
    states: Vec<Arc<State>>,
}

/// State and counters of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// Address of the backend.
    pub address: String,
    /// True if the backend is selected for new connections.
    pub is_up: bool,
    /// Current connections or requests of this process.
    pub active: usize,
    /// All connections or requests of this process so far.
    pub total: u64,
    /// Failed connections so far.
    pub failures: u64,
    /// Connections or requests that wait for a connection to it.
    pub waiting: usize,
}

impl Upstreams {
    /// Collects the backends of `services`. `tls` makes the connector of a service that has a
    /// backend with TLS. Counters and health of backends that are also in `previous` are kept.
    ///
    /// # Errors
    /// Returns the error of `tls`.
    pub fn new<'a, E>(
        services: impl IntoIterator<Item = &'a Service>,
        tls: impl Fn(&Upstream) -> Result<Arc<dyn TlsConnector>, E>,
        previous: Option<&Upstreams>,
    ) -> Result<Self, E> {
        let mut upstreams = Self {
            groups: Vec::new(),
            states: Vec::new(),
        };
        for service in services {
            let (Service::Tcp(settings) | Service::Http(settings)) = service else {
                continue;
            };
            if upstreams.group(settings).is_none() {
                let has_tls = settings.backends.iter().any(|it| it.tls.is_some());
                let connector = has_tls.then(|| tls(settings)).transpose()?;
                let group = upstreams.make_group(settings, connector.as_ref(), previous);
                upstreams.groups.push(Arc::new(group));
            }
        }
        // A backend that is no longer checked must not stay down because of its last check.
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

    /// Returns the status of every backend.
    pub fn status(&self) -> Vec<BackendStatus> {
        self.states.iter().map(|state| state.status()).collect()
    }

    /// Runs active health checks for as long as this future is polled. One event loop does so for
    /// all.
    pub async fn watch_health(&self) {
        let mut seen: Vec<&Arc<State>> = Vec::new();
        let mut watches = Vec::new();
        for group in &self.groups {
            let Some(how) = &group.settings.health else {
                continue;
            };
            for backend in &group.backends {
                // A backend of two services is checked with the settings of the first.
                if !seen.iter().any(|state| backend.has(state)) {
                    seen.push(&backend.state);
                    watches.push(health::watch(backend, how, &group.settings));
                }
            }
        }
        join_all(watches).await;
        std::future::pending().await
    }

    /// Returns the backends of a service.
    pub(crate) fn group(&self, settings: &Upstream) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.settings == *settings)
    }

    fn make_group(
        &mut self,
        settings: &Upstream,
        connector: Option<&Arc<dyn TlsConnector>>,
        previous: Option<&Upstreams>,
    ) -> Group {
        let mut backends = Vec::with_capacity(settings.backends.len());
        for backend in &settings.backends {
            let tls = connector.zip(backend.tls.clone());
            backends.push(Arc::new(Backend {
                number: next_number(),
                address: backend.address.clone(),
                tls: tls.map(|(connector, name)| Tls {
                    connector: Arc::clone(connector),
                    name,
                }),
                state: self.state(&backend.address, previous),
            }));
        }
        Group {
            settings: settings.clone(),
            backends,
            next: AtomicUsize::new(0),
        }
    }

    /// Returns the state of an address. An existing one is reused, from here or from `previous`.
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

/// Backends of one service.
pub(crate) struct Group {
    pub(crate) settings: Upstream,
    backends: Vec<Arc<Backend>>,
    next: AtomicUsize,
}

impl Group {
    /// Selects a backend. Those that have been `tried`, and those that failed lately, are taken
    /// only if there is no better one; and those whose connections are all in use only if no other
    /// one is well. Returns `None` if active checks have marked all of them as
    /// down.
    pub(crate) fn pick(&self, tried: &[u64]) -> Option<Lease> {
        let now = milliseconds();
        let count = self.backends.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % count;
        let rank = |backend: &Backend| {
            let is_tried = tried.contains(&backend.number);
            let has_failed = backend.state.failed_until.load(Ordering::Relaxed) > now;
            let active = backend.state.active.load(Ordering::Relaxed);
            let is_full = active >= self.settings.max_connections;
            let weight = match self.settings.balance {
                Balance::RoundRobin => 0,
                Balance::LeastConnections => active,
            };
            (is_tried, has_failed, is_full, weight)
        };
        (first..first + count)
            .map(|index| &self.backends[index % count])
            .filter(|backend| backend.state.answers.load(Ordering::Relaxed))
            .min_by_key(|backend| rank(backend))
            .map(Lease::new)
    }
}

/// Backend with the settings of one service.
pub(crate) struct Backend {
    /// Number that is unique in this process. The same backend gets another one after a reload.
    pub(crate) number: u64,
    pub(crate) address: Address,
    /// TLS settings, if the backend has TLS.
    pub(crate) tls: Option<Tls>,
    state: Arc<State>,
}

/// TLS settings of a backend.
pub(crate) struct Tls {
    pub(crate) connector: Arc<dyn TlsConnector>,
    /// Name that the certificate must have.
    pub(crate) name: String,
}

impl Backend {
    /// Returns its address.
    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the places for connections to it.
    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.state.places
    }

    /// Notes a failed connection.
    pub(crate) fn failed(&self, fail_timeout: Duration) {
        let timeout = u64::try_from(fail_timeout.as_millis()).unwrap_or(u64::MAX);
        let until = milliseconds().saturating_add(timeout);
        self.state.failures.fetch_add(1, Ordering::Relaxed);
        self.state.failed_until.store(until, Ordering::Relaxed);
    }

    /// Notes a request that the backend has not answered, or not to the end. One may be due to the
    /// request; after several without an answer in between, the backend is avoided.
    pub(crate) fn broke_off(&self, fail_timeout: Duration) {
        let times = self.state.broken_off.fetch_add(1, Ordering::Relaxed) + 1;
        if times >= BROKEN_OFF_UNTIL_AVOIDED {
            self.failed(fail_timeout);
        }
    }

    /// Notes a response that is complete.
    pub(crate) fn has_answered(&self) {
        // Usually there is nothing to write to memory that other event loops read.
        if self.state.broken_off.load(Ordering::Relaxed) > 0 {
            self.state.broken_off.store(0, Ordering::Relaxed);
        }
    }

    /// Sets the result of an active check.
    pub(crate) fn set_answers(&self, answers: bool) {
        self.state.answers.store(answers, Ordering::Relaxed);
        if answers {
            self.state.broken_off.store(0, Ordering::Relaxed);
            self.state.failed_until.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the result of the last active check.
    pub(crate) fn answers(&self) -> bool {
        self.state.answers.load(Ordering::Relaxed)
    }

    fn has(&self, state: &Arc<State>) -> bool {
        Arc::ptr_eq(&self.state, state)
    }
}

/// Backend that is in use by a connection or a request. It is counted as active until this is
/// dropped.
pub(crate) struct Lease(Arc<Backend>);

impl Lease {
    fn new(backend: &Arc<Backend>) -> Self {
        backend.state.active.fetch_add(1, Ordering::Relaxed);
        backend.state.total.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(backend))
    }

    /// Returns the backend.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.state.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of an address, shared by all services that use it.
struct State {
    name: String,
    /// Result of the last active check.
    answers: AtomicBool,
    /// Time in [`milliseconds`].
    failed_until: AtomicU64,
    active: AtomicUsize,
    total: AtomicU64,
    failures: AtomicU64,
    /// Requests without a complete response since the last one with.
    broken_off: AtomicU32,
    places: Arc<Places>,
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
            broken_off: AtomicU32::new(0),
            places: Arc::default(),
        }
    }

    fn status(&self) -> BackendStatus {
        let has_failed = self.failed_until.load(Ordering::Relaxed) > milliseconds();
        BackendStatus {
            address: self.name.clone(),
            is_up: self.answers.load(Ordering::Relaxed) && !has_failed,
            active: self.active.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            waiting: self.places.waiting(),
        }
    }
}

/// Returns the milliseconds since the first call, plus one: a time that fits into an atomic and is
/// never zero.
pub(crate) fn milliseconds() -> u64 {
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
