//! Metrics. Each event loop counts in its own [`Metrics`], and the page adds them up.

mod page;
mod server;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slipstream_http::Upstreams;
use slipstream_metrics::Histogram;
use slipstream_metrics::published::{Layout, Region, directory};
use slipstream_offload::counters::Counters as OffloadCounters;

pub use self::server::serve;
pub use slipstream_http::counters::{Count, Counters};

/// Metrics of one event loop.
#[derive(Debug)]
pub struct Metrics {
    /// Accepted connections.
    pub connections: Count,
    /// Open connections.
    pub open: Count,
    /// Refused connections by [`Refusal`].
    pub refused: [Count; Refusal::ALL.len()],
    /// Handshakes completed with TLS 1.2.
    pub handshakes_tls12: Count,
    /// Handshakes completed with TLS 1.3.
    pub handshakes_tls13: Count,
    /// Resumptions among the completed handshakes.
    pub resumptions: Count,
    /// Handshakes that failed with an alert, malformed bytes or the end of the connection.
    pub handshakes_failed: Count,
    /// Handshakes that exceeded their time limit.
    pub handshakes_timed_out: Count,
    /// Handshakes in progress.
    pub handshakes_active: Count,
    /// Counters of requests and tunnels.
    pub http: Arc<Counters>,
    /// Memory that is shared with readers in other processes: copies of the above, the counters of
    /// the loop's instance of the offload framework, and durations of handshakes.
    figures: &'static [AtomicU64],
}

/// Makes the memory for the figures of `workers` event loops, which `slipstream status` reads.
/// Members of `group` may read it, too. The error is the reason why it is not published.
///
/// # Errors
/// If the system has no memory.
pub(crate) fn share(workers: usize, group: Option<u32>) -> io::Result<(Region, Option<io::Error>)> {
    let layout = Metrics::layout(workers);
    let (region, error) = Region::publish_or_count(&directory::own(), &layout, group)?;
    for owner in region.owners() {
        owner.store(std::process::id().into(), Ordering::Relaxed);
    }
    Ok((region, error))
}

impl Metrics {
    /// The place of the durations of handshakes, after the counters of the offload framework.
    const HANDSHAKE: usize = OffloadCounters::FIGURES;

    /// The place of the copies of counts.
    const COUNTS: usize = Self::HANDSHAKE + Histogram::FIGURES;

    /// Makes metrics whose figures stand in `figures`, which are as long as the layout says.
    pub(crate) fn new(figures: &'static [AtomicU64]) -> Self {
        Self {
            connections: Count::default(),
            open: Count::default(),
            refused: Default::default(),
            handshakes_tls12: Count::default(),
            handshakes_tls13: Count::default(),
            resumptions: Count::default(),
            handshakes_failed: Count::default(),
            handshakes_timed_out: Count::default(),
            handshakes_active: Count::default(),
            http: Arc::default(),
            figures,
        }
    }

    /// Counts a completed handshake that took this long. For the owner's thread only.
    pub(crate) fn count_handshake(&self, duration: Duration) {
        Histogram::observe_in(&self.figures[Self::HANDSHAKE..], duration);
    }

    /// Copies all counts to the figures. For the owner's thread only.
    pub(crate) fn publish(&self, offload: Option<&OffloadCounters>) {
        if let Some(offload) = offload {
            offload.store(self.figures);
        }
        let figures = &self.figures[Self::COUNTS..];
        for (figure, (_, count)) in figures.iter().zip(self.counts()) {
            figure.store(count.get(), Ordering::Relaxed);
        }
    }

    /// The counters of the offload framework when they were last published.
    pub(crate) fn offload(&self) -> OffloadCounters {
        OffloadCounters::load(self.read(0))
    }

    /// The durations of handshakes.
    pub(crate) fn handshakes(&self) -> Histogram {
        Histogram::from_figures(self.read(Self::HANDSHAKE))
    }

    fn read(&self, from: usize) -> impl Iterator<Item = u64> {
        let figures = self.figures[from..].iter();
        figures.map(|figure| figure.load(Ordering::Relaxed))
    }

    /// All counts with their published names, gauges last.
    fn counts(&self) -> [(&'static str, &Count); COUNTS] {
        let http = &self.http;
        let [connections, handshakes, rate, address] = &self.refused;
        let [requests, backend, descriptors] = &http.overloads;
        [
            ("connections_total", &self.connections),
            (
                "refused_connections_total{limit=\"connections\"}",
                connections,
            ),
            (
                "refused_connections_total{limit=\"handshakes\"}",
                handshakes,
            ),
            ("refused_connections_total{limit=\"rate\"}", rate),
            ("refused_connections_total{limit=\"address\"}", address),
            (
                "handshakes_total{version=\"TLSv1.2\"}",
                &self.handshakes_tls12,
            ),
            (
                "handshakes_total{version=\"TLSv1.3\"}",
                &self.handshakes_tls13,
            ),
            ("resumptions_total", &self.resumptions),
            (
                "failed_handshakes_total{reason=\"failed\"}",
                &self.handshakes_failed,
            ),
            (
                "failed_handshakes_total{reason=\"timed_out\"}",
                &self.handshakes_timed_out,
            ),
            ("received_bytes_total", &http.received_bytes),
            ("sent_bytes_total", &http.sent_bytes),
            ("responses_total{status=\"1xx\"}", &http.responses[0]),
            ("responses_total{status=\"2xx\"}", &http.responses[1]),
            ("responses_total{status=\"3xx\"}", &http.responses[2]),
            ("responses_total{status=\"4xx\"}", &http.responses[3]),
            ("responses_total{status=\"5xx\"}", &http.responses[4]),
            ("refused_requests_total{limit=\"requests\"}", requests),
            ("refused_requests_total{limit=\"backend\"}", backend),
            ("refused_requests_total{limit=\"descriptors\"}", descriptors),
            ("backend_failures_total", &http.backend_failures),
            ("backend_retries_total", &http.backend_retries),
            ("open_connections", &self.open),
            ("active_handshakes", &self.handshakes_active),
        ]
    }

    fn layout(workers: usize) -> Layout {
        let mut counters = OffloadCounters::names();
        counters.extend(Histogram::names("handshake_duration", ""));
        let mut counts = Self::new(&[])
            .counts()
            .map(|(name, _)| name.to_owned())
            .to_vec();
        let gauges = counts.split_off(COUNTS - GAUGES);
        counters.extend(counts);
        Layout {
            program: "serve",
            version: env!("CARGO_PKG_VERSION"),
            counters,
            gauges,
            slots: workers,
        }
    }
}

/// The counts that are copied, and the gauges among them.
const COUNTS: usize = 24;
const GAUGES: usize = 2;

#[cfg(test)]
impl Default for Metrics {
    fn default() -> Self {
        let region = Region::anonymous(&Self::layout(1)).expect("memory");
        Self::new(region.slot(0))
    }
}

/// Reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of open connections is reached.
    Connections,
    /// The limit of concurrent handshakes was reached for too long.
    Handshakes,
    /// The address has opened too many connections in a second.
    Rate,
    /// The limit of open connections of the address is reached.
    Address,
}

impl Refusal {
    /// All reasons in the order of their index.
    pub const ALL: [Refusal; 4] = [
        Refusal::Connections,
        Refusal::Handshakes,
        Refusal::Rate,
        Refusal::Address,
    ];

    /// Returns the position in tables with one entry per reason.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Connections => "connections",
            Refusal::Handshakes => "handshakes",
            Refusal::Rate => "rate",
            Refusal::Address => "address",
        }
    }
}

/// Sources of the metrics page and of the health page.
#[derive(Clone)]
pub struct StatusSource {
    /// Metrics of each event loop.
    pub loops: Vec<Arc<Metrics>>,
    /// Returns the backends that are in use now.
    pub upstreams: Arc<dyn Fn() -> Arc<Upstreams> + Send + Sync>,
    /// Returns true while connections are accepted, false while the process drains.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
}
