//! The flush decision: the number of waiting operations of a kind that are computed now.

use slipstream_lanes::LANES;

/// The plan for the operations of one kind that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Operations to compute in one batch now.
    pub(super) lanes: usize,
    /// Operations to hand back for software now.
    pub(super) software: usize,
}

impl Plan {
    /// The plan for `waiting` operations of a kind of which batches are run from `least` operations
    /// on, or never. Unless `idle`, the event loop still has other events to serve, more operations
    /// may come, and only a full batch is run.
    pub(super) fn new(least: Option<usize>, waiting: usize, idle: bool) -> Self {
        let (lanes, software) = match least {
            None => (0, waiting),
            Some(_) if waiting >= LANES => (LANES, 0),
            Some(_) if !idle => (0, 0),
            Some(least) if waiting >= least => (waiting, 0),
            Some(_) => (0, waiting),
        };
        Self { lanes, software }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(least: Option<usize>, waiting: usize, idle: bool) -> (usize, usize) {
        let plan = Plan::new(least, waiting, idle);
        (plan.lanes, plan.software)
    }

    #[test]
    fn a_full_batch_runs_without_waiting_for_idleness() {
        assert_eq!(plan(Some(3), 11, false), (8, 0));
    }

    #[test]
    fn a_partial_batch_waits_until_the_loop_is_idle() {
        assert_eq!(plan(Some(3), 7, false), (0, 0));
        assert_eq!(plan(Some(3), 7, true), (7, 0));
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        assert_eq!(plan(Some(3), 2, true), (0, 2));
        assert_eq!(plan(Some(3), 3, true), (3, 0));
        assert_eq!(plan(Some(1), 1, true), (1, 0));
    }

    #[test]
    fn operations_for_which_lanes_never_win_are_handed_back() {
        assert_eq!(plan(None, 8, false), (0, 8));
        assert_eq!(plan(None, 3, true), (0, 3));
    }
}
