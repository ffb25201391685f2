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

    /// Counts one batch of `kind` with `live` lanes.
    pub fn count_batch(&mut self, kind: Kind, live: usize) {
        self.batches += 1;
        self.lane_operations[kind.index()] += live as u64;
        self.fill[live - 1] += 1;
    }
}
