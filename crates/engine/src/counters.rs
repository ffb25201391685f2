//! The counters of the engine.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use slipstream_accelerators::lanes::LANES;
use slipstream_metrics::Histogram;
use slipstream_metrics::published::{Layout, Region};
use slipstream_offload::Kind;

/// Counts that all threads add to, and durations that each thread counts for itself.
#[derive(Debug)]
pub(crate) struct Counters {
    region: Region,
    pub(crate) accepted: &'static AtomicU64,
    pub(crate) foreign_users: &'static AtomicU64,
    pub(crate) refused_messages: &'static AtomicU64,
    pub(crate) malformed_messages: &'static AtomicU64,
    pub(crate) malformed_rings: &'static AtomicU64,
    pub(crate) requests: &'static [AtomicU64],
    pub(crate) refused: &'static AtomicU64,
    pub(crate) faults: &'static AtomicU64,
    pub(crate) responses: &'static AtomicU64,
    pub(crate) dropped: &'static AtomicU64,
    pub(crate) events: &'static AtomicU64,
    /// Batches by the number of live lanes: entry `n - 1` counts those with `n`.
    pub(crate) fill: &'static [AtomicU64],
    pub(crate) compressed_chunks: &'static AtomicU64,
    pub(crate) content_bytes: &'static AtomicU64,
    pub(crate) compressed_bytes: &'static AtomicU64,
    pub(crate) connections: &'static AtomicU64,
    pub(crate) instances: &'static AtomicU64,
    pub(crate) sessions: &'static AtomicU64,
    pub(crate) keys: &'static AtomicU64,
}

/// The durations of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durations(&'static [AtomicU64]);

/// The place of the durations among the figures of a thread.
const DURATIONS: usize = 13 + Kind::COUNT + LANES;

/// The figures of an engine since it was started.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that have an instance.
    pub instances: u64,
    /// Sets of keys.
    pub sessions: u64,
    /// Keys in all of them.
    pub keys: u64,
    /// Connections that have been accepted since the start.
    pub accepted: u64,
    /// Connections of users that are not allowed to connect.
    pub foreign_users: u64,
    /// Messages that were answered with a refusal.
    pub refused_messages: u64,
    /// Connections that were closed for a malformed message.
    pub malformed_messages: u64,
    /// Instances that were ended for malformed content of their rings.
    pub malformed_rings: u64,
    /// Requests taken, by the name of their kind.
    pub requests: ByKind,
    /// Requests that were refused: no such key, buffer or level, or operands of a wrong length.
    pub refused: u64,
    /// Requests whose operands violate the standard, or whose result failed its check.
    pub faults: u64,
    /// Responses delivered.
    pub responses: u64,
    /// Responses that were dropped since their client had gone.
    pub dropped: u64,
    /// Events by which sleeping clients were woken.
    pub events: u64,
    /// Batches computed in lanes.
    pub batches: u64,
    /// Mean number of live lanes.
    pub mean_fill: f64,
    /// Batches by the number of live lanes: entry `n - 1` counts those with `n`.
    pub fill: [u64; LANES],
    /// Chunks of content that were compressed.
    pub compressed_chunks: u64,
    /// The length of their content in bytes.
    pub content_bytes: u64,
    /// The length of their compressed content in bytes.
    pub compressed_bytes: u64,
}

/// A number for each kind, in the order of [`Kind::index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByKind(pub [u64; Kind::COUNT]);

impl Serialize for ByKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Kind::ALL.map(Kind::name).into_iter().zip(self.0))
    }
}

impl Counters {
    /// Counters of an engine with so many threads, published in `directory` if there is one. The
    /// error is the reason why they are not published.
    ///
    /// # Errors
    /// If the system has no memory.
    pub(crate) fn new(
        threads: usize,
        directory: Option<&Path>,
    ) -> io::Result<(Self, Option<io::Error>)> {
        let layout = layout(threads);
        let (region, error) = match directory {
            Some(directory) => Region::publish_or_count(directory, &layout, None)?,
            None => (Region::anonymous(&layout)?, None),
        };
        for owner in region.owners() {
            owner.store(std::process::id().into(), Ordering::Relaxed);
        }
        let mut rest = region.totals();
        let mut several = |count| {
            let (first, others) = rest.split_at(count);
            rest = others;
            first
        };
        let counters = Self {
            accepted: &several(1)[0],
            foreign_users: &several(1)[0],
            refused_messages: &several(1)[0],
            malformed_messages: &several(1)[0],
            malformed_rings: &several(1)[0],
            requests: several(Kind::COUNT),
            refused: &several(1)[0],
            faults: &several(1)[0],
            responses: &several(1)[0],
            dropped: &several(1)[0],
            events: &several(1)[0],
            fill: several(LANES),
            compressed_chunks: &several(1)[0],
            content_bytes: &several(1)[0],
            compressed_bytes: &several(1)[0],
            // Durations are counted in the slots of threads.
            connections: &several(1 + Kind::COUNT * Histogram::FIGURES)
                [Kind::COUNT * Histogram::FIGURES],
            instances: &several(1)[0],
            sessions: &several(1)[0],
            keys: &several(1)[0],
            region,
        };
        Ok((counters, error))
    }

    /// The durations that a thread counts.
    ///
    /// # Panics
    /// If there is no such thread.
    pub(crate) fn durations(&self, thread: usize) -> Durations {
        Durations(&self.region.slot(thread)[DURATIONS..])
    }

    /// Removes what has been published.
    pub(crate) fn withdraw(&self) {
        self.region.remove();
    }

    /// Returns the current figures. Counts of the same moment need not agree exactly.
    pub(crate) fn status(&self) -> Status {
        let fill = std::array::from_fn(|index| read(&self.fill[index]));
        let batches: u64 = fill.iter().sum();
        let operations: u64 = (1..).zip(fill).map(|(lanes, count)| lanes * count).sum();
        Status {
            connections: read(self.connections),
            instances: read(self.instances),
            sessions: read(self.sessions),
            keys: read(self.keys),
            accepted: read(self.accepted),
            foreign_users: read(self.foreign_users),
            refused_messages: read(self.refused_messages),
            malformed_messages: read(self.malformed_messages),
            malformed_rings: read(self.malformed_rings),
            requests: ByKind(std::array::from_fn(|index| read(&self.requests[index]))),
            refused: read(self.refused),
            faults: read(self.faults),
            responses: read(self.responses),
            dropped: read(self.dropped),
            events: read(self.events),
            batches,
            mean_fill: operations as f64 / batches.max(1) as f64,
            fill,
            compressed_chunks: read(self.compressed_chunks),
            content_bytes: read(self.content_bytes),
            compressed_bytes: read(self.compressed_bytes),
        }
    }
}

impl Durations {
    /// Counts the time from taking a request of this kind to its response.
    pub(crate) fn observe(self, kind: Kind, duration: Duration) {
        let figures = &self.0[kind.index() * Histogram::FIGURES..];
        Histogram::observe_in(figures, duration);
    }
}

/// The figures in the order in which [`Counters::new`] takes them.
fn layout(threads: usize) -> Layout {
    let named = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
    let kinds = Kind::ALL.map(|kind| format!("operation=\"{}\"", kind.name()));
    let mut counters = named(&[
        "connections_total",
        "foreign_users_total",
        "refused_messages_total",
        "malformed_messages_total",
        "malformed_rings_total",
    ]);
    counters.extend(
        kinds
            .iter()
            .map(|kind| format!("operations_total{{{kind}}}")),
    );
    counters.extend(named(&[
        "refused_operations_total",
        "faults_total",
        "responses_total",
        "dropped_responses_total",
        "events_total",
    ]));
    let lanes = 1..=LANES;
    counters.extend(lanes.map(|lanes| format!("batches_by_fill_total{{lanes=\"{lanes}\"}}")));
    counters.extend(named(&[
        "compressed_chunks_total",
        "compressed_content_bytes_total",
        "compressed_output_bytes_total",
    ]));
    for kind in &kinds {
        counters.extend(Histogram::names("operation_duration", kind));
    }
    Layout {
        program: "engine",
        version: env!("CARGO_PKG_VERSION"),
        counters,
        gauges: named(&["open_connections", "instances", "sessions", "keys"]),
        slots: threads,
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `number`.
pub(crate) fn add(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}

/// Subtracts one.
pub(crate) fn uncount(counter: &AtomicU64) {
    counter.fetch_sub(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use slipstream_metrics::published::list;

    use super::*;

    fn counters() -> Counters {
        Counters::new(2, None).expect("memory").0
    }

    #[test]
    fn the_mean_fill_is_of_all_batches() {
        let counters = counters();
        assert_eq!(counters.status().mean_fill, 0.0);
        counters.fill[0].store(1, Ordering::Relaxed);
        counters.fill[7].store(3, Ordering::Relaxed);
        let status = counters.status();
        assert_eq!((status.batches, status.mean_fill), (4, 6.25));
    }

    #[test]
    fn figures_fit_into_a_message() {
        let counters = counters();
        for counter in counters.fill.iter().chain(counters.requests) {
            counter.store(u64::MAX / 100, Ordering::Relaxed);
        }
        let text = serde_json::to_string(&counters.status()).expect("numbers and names");
        assert!(text.contains("\"RSA-2048\":"), "{text}");
        assert!(text.len() < 2000, "{} bytes", text.len());
    }

    #[test]
    fn each_count_is_published_under_its_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let (counters, error) = Counters::new(2, Some(directory.path())).expect("memory");
        assert!(error.is_none(), "{error:?}");
        for (counter, value) in [
            (counters.accepted, 1),
            (counters.malformed_rings, 2),
            (&counters.requests[0], 3),
            (counters.refused, 4),
            (counters.events, 5),
            (&counters.fill[7], 6),
            (counters.compressed_bytes, 7),
            (counters.connections, 8),
            (counters.keys, 9),
        ] {
            add(counter, value);
        }
        let second = Kind::ALL[1];
        for thread in [0, 1] {
            counters
                .durations(thread)
                .observe(second, Duration::from_micros(3));
        }
        let entries = list(&[directory.path().to_owned()]);
        let published = entries[0].content.as_ref().expect("our own file");
        let label = format!("operation=\"{}\"", second.name());
        for (name, value) in [
            ("connections_total".to_owned(), 1),
            ("malformed_rings_total".to_owned(), 2),
            ("operations_total{operation=\"RSA-2048\"}".to_owned(), 3),
            ("refused_operations_total".to_owned(), 4),
            ("events_total".to_owned(), 5),
            ("batches_by_fill_total{lanes=\"8\"}".to_owned(), 6),
            ("compressed_output_bytes_total".to_owned(), 7),
            ("open_connections".to_owned(), 8),
            ("keys".to_owned(), 9),
            (
                format!("operation_duration_seconds_bucket{{{label},le=\"0.000004\"}}"),
                2,
            ),
            (
                format!("operation_duration_nanoseconds_sum{{{label}}}"),
                6000,
            ),
        ] {
            assert_eq!(published.figures.get(&name), Some(&value), "{name}");
        }
        counters.withdraw();
        assert!(list(&[directory.path().to_owned()]).is_empty());
    }
}
