//! The flush policy: run waiting operations in lanes or hand them back, whichever is cheaper.
//!
//! A batch costs the same with five live lanes as with eight, and with one as with four, so there is a number of operations
//! from which lanes win. It is derived from measured costs, not guessed: at a concurrency of one a
//! server must be as fast as without lanes.

use std::time::Duration;

use slipstream_lanes::LANES;

use crate::request::Kind;

/// Measured cost of each operation, by kind, on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// One batch with more than half of its lanes live; `None` if lanes do not offer the kind.
    pub batch: [Option<Duration>; Kind::COUNT],
    /// One batch with fewer, where that has been measured separately: RSA takes half the time.
    pub half_batch: [Option<Duration>; Kind::COUNT],
    /// One operation in the caller's software; `None` if unknown.
    pub software: [Option<Duration>; Kind::COUNT],
}

/// What to do with the operations of one kind that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many to compute in one batch now.
    pub lanes: usize,
    /// How many to hand back for software now.
    pub software: usize,
}

/// How a batch may be formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Whatever is cheaper by the measured [`Costs`].
    #[default]
    Cheapest,
    /// A batch as soon as this many operations wait when the loop is idle, whatever it costs.
    AtLeast(usize),
}

impl Costs {
    /// The smallest number of operations for which a batch is cheaper than software, 1 to
    /// [`LANES`]; `None` if lanes never win. Without a measurement of the software, only full
    /// batches are assumed to win.
    pub fn break_even(&self, kind: Kind) -> Option<usize> {
        let batch = self.batch[kind.index()]?;
        let half_batch = self.half_batch[kind.index()].unwrap_or(batch);
        let Some(software) = self.software[kind.index()] else {
            return Some(LANES);
        };
        (1..=LANES).find(|&live| {
            let lanes = if live > LANES / 2 { batch } else { half_batch };
            software * live as u32 > lanes
        })
    }

    /// The smallest number of jobs under way from which one of them waits for others with an operation of `kind`; `None`
    /// if none ever does. A job that is alone gains nothing by waiting, even where a batch of one is as cheap as software.
    pub fn company(&self, policy: Policy, kind: Kind) -> Option<usize> {
        match policy {
            Policy::Cheapest => self.break_even(kind).map(|least| least.max(2)),
            Policy::AtLeast(_) => self.least(policy, kind),
        }
    }

    /// The smallest number of operations of `kind` from which a batch is run; `None` if none ever is.
    pub fn least(&self, policy: Policy, kind: Kind) -> Option<usize> {
        match policy {
            Policy::Cheapest => self.break_even(kind),
            Policy::AtLeast(live) => self.batch[kind.index()].map(|_| live),
        }
    }

    /// What to do now with `waiting` operations of `kind`. Unless `idle`, the event loop still has
    /// other events to serve, more operations may come, and only a full batch is run.
    pub fn plan(&self, policy: Policy, kind: Kind, waiting: usize, idle: bool) -> Plan {
        match self.least(policy, kind) {
            None => Plan {
                lanes: 0,
                software: waiting,
            },
            Some(_) if waiting >= LANES => Plan {
                lanes: LANES,
                software: 0,
            },
            Some(_) if !idle => Plan {
                lanes: 0,
                software: 0,
            },
            Some(least) if waiting >= least => Plan {
                lanes: waiting,
                software: 0,
            },
            Some(_) => Plan {
                lanes: 0,
                software: waiting,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use slipstream_lanes::rsa::Size;

    use super::*;

    const KIND: Kind = Kind::X25519;

    fn costs(batch_us: u64, software_us: u64) -> Costs {
        let mut costs = Costs::default();
        costs.batch[KIND.index()] = Some(Duration::from_micros(batch_us));
        costs.software[KIND.index()] = Some(Duration::from_micros(software_us));
        costs
    }

    #[test]
    fn a_full_batch_runs_without_waiting_for_idleness() {
        let plan = costs(900, 400).plan(Policy::Cheapest, KIND, 11, false);
        assert_eq!(
            plan,
            Plan {
                lanes: 8,
                software: 0
            }
        );
    }

    #[test]
    fn a_partial_batch_waits_until_the_loop_is_idle() {
        let costs = costs(900, 400);
        assert_eq!(
            costs.plan(Policy::Cheapest, KIND, 7, false),
            Plan {
                lanes: 0,
                software: 0
            }
        );
        assert_eq!(
            costs.plan(Policy::Cheapest, KIND, 7, true),
            Plan {
                lanes: 7,
                software: 0
            }
        );
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        let costs = costs(900, 400);
        assert_eq!(costs.break_even(KIND), Some(3));
        assert_eq!(
            costs.plan(Policy::Cheapest, KIND, 2, true),
            Plan {
                lanes: 0,
                software: 2
            }
        );
        assert_eq!(
            costs.plan(Policy::Cheapest, KIND, 3, true),
            Plan {
                lanes: 3,
                software: 0
            }
        );
        assert_eq!(
            costs.plan(Policy::AtLeast(1), KIND, 1, true),
            Plan {
                lanes: 1,
                software: 0
            }
        );
    }

    #[test]
    fn half_a_batch_wins_earlier_where_it_costs_less() {
        let mut costs = costs(900, 400);
        costs.half_batch[KIND.index()] = Some(Duration::from_micros(450));
        assert_eq!(costs.break_even(KIND), Some(2));
    }

    #[test]
    fn a_job_that_is_alone_does_not_wait() {
        let costs = costs(390, 400);
        assert_eq!(costs.least(Policy::Cheapest, KIND), Some(1));
        assert_eq!(costs.company(Policy::Cheapest, KIND), Some(2));
        assert_eq!(costs.company(Policy::AtLeast(1), KIND), Some(1));
    }

    #[test]
    fn lanes_slower_than_eight_software_operations_are_never_used() {
        let costs = costs(4000, 400);
        assert_eq!(costs.break_even(KIND), None);
        assert_eq!(
            costs.plan(Policy::Cheapest, KIND, 8, false),
            Plan {
                lanes: 0,
                software: 8
            }
        );
    }

    #[test]
    fn a_kind_without_lanes_is_handed_back() {
        let plan = costs(900, 400).plan(Policy::AtLeast(1), Kind::Rsa(Size::Rsa4096), 3, true);
        assert_eq!(
            plan,
            Plan {
                lanes: 0,
                software: 3
            }
        );
    }
}
