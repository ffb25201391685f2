//! What an instance has done so far.

use crate::request::{Kind, Reason};

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
    pub fill: [u64; slipstream_lanes::LANES],
    /// Operations computed by a device, by [`Kind`].
    pub device_operations: [u64; Kind::COUNT],
    /// How often an accelerator was polled.
    pub polls: u64,
    /// How often that brought nothing, although requests were in flight.
    pub ineffective_polls: u64,
    /// Requests for which there was no room at first.
    pub retried: u64,
    /// Operations handed back for software, by [`Reason`].
    pub software: [u64; Reason::ALL.len()],
    /// Operations whose job went away while they were in flight.
    pub orphans: u64,
    /// Key pairs and nonces that were made ahead and then used.
    pub taken_ahead: u64,
}

impl Counters {
    /// Counts one operation that is handed back for `reason`.
    pub fn count_software(&mut self, reason: Reason) {
        self.software[reason.index()] += 1;
    }

    /// Adds what somebody else has counted.
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
        self.batches += other.batches;
        self.polls += other.polls;
        self.ineffective_polls += other.ineffective_polls;
        self.retried += other.retried;
        self.orphans += other.orphans;
        self.taken_ahead += other.taken_ahead;
    }

    /// Counts one batch of `kind` with `live` lanes.
    pub fn count_batch(&mut self, kind: Kind, live: usize) {
        self.batches += 1;
        self.lane_operations[kind.index()] += live as u64;
        self.fill[live - 1] += 1;
    }
}
