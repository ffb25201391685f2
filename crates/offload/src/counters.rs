//! Counters of an instance.

use crate::operation::Kind;
use crate::request::Reason;

/// The largest batch that [`Counters::fill`] counts separately.
pub const BATCH_SIZE: usize = 8;

/// Monotonic counts since the instance was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests accepted, by [`Kind`].
    pub submitted: [u64; Kind::COUNT],
    /// Batches that were computed in lanes.
    pub batches: u64,
    /// Operations computed in lanes, by [`Kind`]; their sum over `batches` is the mean fill.
    pub lane_operations: [u64; Kind::COUNT],
    /// Batches by the number of live lanes: entry `n - 1` counts those with `n`.
    pub fill: [u64; BATCH_SIZE],
    /// Operations computed by a device, by [`Kind`].
    pub device_operations: [u64; Kind::COUNT],
    /// Polls of the accelerators.
    pub polls: u64,
    /// Polls that returned no answer although requests were in flight.
    pub ineffective_polls: u64,
    /// Requests for which there was no room at first.
    pub retried: u64,
    /// Operations handed back for software, by [`Reason`].
    pub software: [u64; Reason::ALL.len()],
    /// Operations whose job went away while they were in flight.
    pub orphans: u64,
    /// Operations computed on the calling thread without a pause, by [`Kind`]: precomputed key
    /// pairs, signatures with precomputed nonces, and lone exchanges.
    pub at_once: [u64; Kind::COUNT],
}

impl Counters {
    /// Counts one operation that is handed back for `reason`.
    pub fn count_software(&mut self, reason: Reason) {
        self.software[reason.index()] += 1;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counters) {
        let add = |ours: &mut [u64], theirs: &[u64]| {
            for (ours, theirs) in ours.iter_mut().zip(theirs) {
                *ours += theirs;
            }
        };
        add(&mut self.submitted, &other.submitted);
        add(&mut self.lane_operations, &other.lane_operations);
        add(&mut self.fill, &other.fill);
        add(&mut self.device_operations, &other.device_operations);
        add(&mut self.software, &other.software);
        add(&mut self.at_once, &other.at_once);
        self.batches += other.batches;
        self.polls += other.polls;
        self.ineffective_polls += other.ineffective_polls;
        self.retried += other.retried;
        self.orphans += other.orphans;
    }

    /// The key pairs and signatures for which a precomputed value was used.
    pub fn precomputed(&self) -> u64 {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_precomputed());
        kinds.map(|kind| self.at_once[kind.index()]).sum()
    }

    /// Counts one batch of `kind` with `live` lanes.
    pub fn count_batch(&mut self, kind: Kind, live: usize) {
        self.batches += 1;
        self.lane_operations[kind.index()] += live as u64;
        self.fill[live - 1] += 1;
    }
}
