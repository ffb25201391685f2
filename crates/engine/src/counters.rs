//! The counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use slipstream_accelerators::lanes::LANES;
use slipstream_offload::Kind;

/// Counts that all threads add to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) instances: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) keys: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) foreign_users: AtomicU64,
    pub(crate) refused_messages: AtomicU64,
    pub(crate) malformed_messages: AtomicU64,
    pub(crate) malformed_rings: AtomicU64,
    pub(crate) requests: [AtomicU64; Kind::COUNT],
    pub(crate) refused: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) responses: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) events: AtomicU64,
    /// Batches by the number of live lanes: entry `n - 1` counts those with `n`.
    pub(crate) fill: [AtomicU64; LANES],
    pub(crate) compressed_chunks: AtomicU64,
    pub(crate) content_bytes: AtomicU64,
    pub(crate) compressed_bytes: AtomicU64,
}

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
    /// Returns the current figures. Counts of the same moment need not agree exactly.
    pub(crate) fn status(&self) -> Status {
        let fill = self.fill.each_ref().map(read);
        let batches: u64 = fill.iter().sum();
        let operations: u64 = (1..).zip(fill).map(|(lanes, count)| lanes * count).sum();
        Status {
            connections: read(&self.connections),
            instances: read(&self.instances),
            sessions: read(&self.sessions),
            keys: read(&self.keys),
            accepted: read(&self.accepted),
            foreign_users: read(&self.foreign_users),
            refused_messages: read(&self.refused_messages),
            malformed_messages: read(&self.malformed_messages),
            malformed_rings: read(&self.malformed_rings),
            requests: ByKind(self.requests.each_ref().map(read)),
            refused: read(&self.refused),
            faults: read(&self.faults),
            responses: read(&self.responses),
            dropped: read(&self.dropped),
            events: read(&self.events),
            batches,
            mean_fill: operations as f64 / batches.max(1) as f64,
            fill,
            compressed_chunks: read(&self.compressed_chunks),
            content_bytes: read(&self.content_bytes),
            compressed_bytes: read(&self.compressed_bytes),
        }
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
    use super::*;

    #[test]
    fn the_mean_fill_is_of_all_batches() {
        let counters = Counters::default();
        assert_eq!(counters.status().mean_fill, 0.0);
        counters.fill[0].store(1, Ordering::Relaxed);
        counters.fill[7].store(3, Ordering::Relaxed);
        let status = counters.status();
        assert_eq!((status.batches, status.mean_fill), (4, 6.25));
    }

    #[test]
    fn figures_fit_into_a_message() {
        let counters = Counters::default();
        for counter in counters.fill.iter().chain(&counters.requests) {
            counter.store(u64::MAX / 100, Ordering::Relaxed);
        }
        let text = serde_json::to_string(&counters.status()).expect("numbers and names");
        assert!(text.contains("\"RSA-2048\":"), "{text}");
        assert!(text.len() < 2000, "{} bytes", text.len());
    }
}
