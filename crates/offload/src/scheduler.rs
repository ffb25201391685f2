//! The scheduler of an instance: it decides for each operation if waiting for an accelerator
//! pays, and which accelerator computes it.
//!
//! The decisions follow from measured costs, not from guesses. At a concurrency of one a server
//! must be as fast as without accelerators.

use crate::accelerator::{Accelerator, AtOnce, Work};
use crate::costs::{Cost, LEAST_CONCURRENCY, SoftwareCosts};
use crate::operation::{Kind, Operation};

/// Decides where operations run.
#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    /// When a batch that is not full is run.
    pub flush: FlushPolicy,
    /// The costs of the caller's own software, which an accelerator has to beat.
    pub software: SoftwareCosts,
}

/// When a batch that is not full is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FlushPolicy {
    /// When it is cheaper than software by the measured costs.
    #[default]
    Cheapest,
    /// As soon as this many operations wait when the event loop is idle, whatever it costs.
    AtLeast(usize),
}

/// The way in which one operation is to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Route {
    /// On the calling thread, without a pause: see [`compute_at_once`](crate::compute_at_once).
    AtOnce,
    /// By an accelerator while the caller is paused: see [`run`](crate::run).
    Pause,
}

impl Scheduler {
    /// Fewest operations of `kind` for which computing them together at `accelerator` takes less
    /// time than in software, one after the other; `None` if it never does.
    ///
    /// If the software or the accelerator has not been measured, full batches are assumed to win.
    pub fn break_even(&self, kind: Kind, accelerator: &dyn Accelerator) -> Option<usize> {
        let size = accelerator.batch_size(kind);
        let time = |count| {
            let work = Work {
                kind,
                count,
                bytes: 0,
            };
            accelerator.estimate(&work).map(|estimate| estimate.time())
        };
        // An accelerator that computes some of a kind computes all of it.
        let full = time(size)?;
        let (Cost::Known(software), Cost::Known(_)) = (self.software[kind], full) else {
            return Some(size);
        };
        (1..=size).find(|&count| {
            let time = time(count).and_then(Cost::known);
            time.is_some_and(|time| software * count as u32 > time)
        })
    }

    /// Fewest operations of `kind` from which `accelerator` runs a batch; `None` if it never does.
    pub fn least_batch(&self, kind: Kind, accelerator: &dyn Accelerator) -> Option<usize> {
        match self.flush {
            FlushPolicy::Cheapest => self.break_even(kind, accelerator),
            FlushPolicy::AtLeast(count) => {
                let work = Work {
                    kind,
                    count: 1,
                    bytes: 0,
                };
                accelerator.estimate(&work).map(|_| count)
            }
        }
    }

    /// Fewest concurrent jobs at which pausing one of them for an operation of `kind` pays off, or
    /// `None` if it never does.
    pub fn min_concurrency(
        &self,
        kind: Kind,
        accelerators: &[Box<dyn Accelerator>],
    ) -> Option<usize> {
        let least = accelerators
            .iter()
            .filter_map(|accelerator| self.least_batch(kind, &**accelerator));
        let count = least.min()?;
        Some(match self.flush {
            FlushPolicy::Cheapest => count.max(LEAST_CONCURRENCY),
            FlushPolicy::AtLeast(_) => count,
        })
    }

    /// The route of an operation of `kind` of a job that may pause if `jobs` is given, the number
    /// of concurrent jobs; `None` if software is cheaper.
    pub(crate) fn route(
        &self,
        kind: Kind,
        accelerators: &[Box<dyn Accelerator>],
        jobs: Option<usize>,
    ) -> Option<Route> {
        let can = |at_once| {
            let mut accelerators = accelerators.iter();
            accelerators.any(|accelerator| accelerator.at_once(kind) == at_once)
        };
        if can(AtOnce::Always) {
            return Some(Route::AtOnce);
        }
        let least = self.min_concurrency(kind, accelerators);
        if jobs.zip(least).is_some_and(|(jobs, least)| jobs >= least) {
            return Some(Route::Pause);
        }
        can(AtOnce::WhenAlone).then_some(Route::AtOnce)
    }

    /// The place of the accelerator that computes `operation`: the first one of those that accept
    /// it, since they are configured in the order of preference.
    pub(crate) fn choose(
        &self,
        operation: &Operation,
        accelerators: &mut [Box<dyn Accelerator>],
    ) -> Option<usize> {
        accelerators
            .iter_mut()
            .position(|accelerator| accelerator.accepts(operation))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slipstream_keys::Group;

    use super::*;
    use crate::accelerator::{Estimate, Moment};
    use crate::counters::Counters;
    use crate::request::{Request, Response};

    const KIND: Kind = Kind::X25519;

    /// An accelerator of which only the costs matter.
    struct Mock {
        batch_size: usize,
        full: Cost,
        half: Cost,
        at_once: AtOnce,
    }

    impl Mock {
        fn lanes(full_us: u64) -> Self {
            let full = Cost::Known(Duration::from_micros(full_us));
            Self {
                batch_size: 8,
                full,
                half: full,
                at_once: AtOnce::Never,
            }
        }

        fn unmeasured() -> Self {
            Self {
                batch_size: 1,
                full: Cost::Unknown,
                half: Cost::Unknown,
                at_once: AtOnce::Never,
            }
        }
    }

    impl Accelerator for Mock {
        fn name(&self) -> &str {
            "mock"
        }

        fn accepts(&mut self, operation: &Operation) -> bool {
            operation.kind() == KIND
        }

        fn estimate(&self, work: &Work) -> Option<Estimate> {
            let cost = match work.count > 4 {
                true => self.full,
                false => self.half,
            };
            (work.kind == KIND).then(|| Estimate::here(cost))
        }

        fn batch_size(&self, _kind: Kind) -> usize {
            self.batch_size
        }

        fn at_once(&self, kind: Kind) -> AtOnce {
            match kind == KIND {
                true => self.at_once,
                false => AtOnce::Never,
            }
        }

        fn submit(&mut self, request: Request) -> Result<(), Request> {
            Err(request)
        }

        fn waiting(&self) -> usize {
            0
        }

        fn poll(&mut self, _: Moment, _: &mut Vec<Response>, _: &mut Counters) {}
    }

    fn scheduler(software_us: u64) -> Scheduler {
        let mut scheduler = Scheduler::default();
        scheduler.software[KIND] = Cost::Known(Duration::from_micros(software_us));
        scheduler
    }

    fn concurrency(scheduler: &Scheduler, mock: Mock) -> Option<usize> {
        scheduler.min_concurrency(KIND, &[Box::new(mock)])
    }

    #[test]
    fn a_batch_breaks_even_where_it_costs_less_than_software() {
        let scheduler = scheduler(400);
        assert_eq!(scheduler.break_even(KIND, &Mock::lanes(900)), Some(3));
        let half = Mock {
            half: Cost::Known(Duration::from_micros(450)),
            ..Mock::lanes(900)
        };
        assert_eq!(scheduler.break_even(KIND, &half), Some(2));
        assert_eq!(scheduler.break_even(KIND, &Mock::lanes(4000)), None);
        let other = Kind::KeyPair(Group::P256);
        assert_eq!(scheduler.break_even(other, &Mock::lanes(1)), None);
    }

    #[test]
    fn a_job_that_is_alone_does_not_wait() {
        let scheduler = scheduler(400);
        assert_eq!(scheduler.break_even(KIND, &Mock::lanes(390)), Some(1));
        assert_eq!(concurrency(&scheduler, Mock::lanes(390)), Some(2));
        let always = Scheduler {
            flush: FlushPolicy::AtLeast(1),
            ..scheduler
        };
        assert_eq!(concurrency(&always, Mock::lanes(390)), Some(1));
        assert_eq!(concurrency(&always, Mock::lanes(40_000)), Some(1));
    }

    #[test]
    fn full_batches_are_assumed_to_win_until_there_is_a_measurement() {
        let unknown = Scheduler::default();
        assert_eq!(concurrency(&unknown, Mock::lanes(900)), Some(8));
        assert_eq!(concurrency(&unknown, Mock::unmeasured()), Some(2));
        assert_eq!(concurrency(&scheduler(400), Mock::unmeasured()), Some(2));
    }

    #[test]
    fn the_least_of_several_accelerators_counts() {
        let scheduler = scheduler(400);
        let both: [Box<dyn Accelerator>; 2] =
            [Box::new(Mock::lanes(2000)), Box::new(Mock::lanes(900))];
        assert_eq!(scheduler.min_concurrency(KIND, &both), Some(3));
        assert_eq!(scheduler.min_concurrency(KIND, &[]), None);
    }

    #[test]
    fn the_route_follows_from_concurrency_and_from_what_is_precomputed() {
        let scheduler = scheduler(400);
        let route = |at_once, jobs| {
            let mock = Mock {
                at_once,
                ..Mock::lanes(900)
            };
            scheduler.route(KIND, &[Box::new(mock)], jobs)
        };
        assert_eq!(route(AtOnce::Never, Some(3)), Some(Route::Pause));
        assert_eq!(route(AtOnce::Never, Some(2)), None);
        assert_eq!(route(AtOnce::Never, None), None);
        assert_eq!(route(AtOnce::WhenAlone, Some(3)), Some(Route::Pause));
        assert_eq!(route(AtOnce::WhenAlone, Some(2)), Some(Route::AtOnce));
        assert_eq!(route(AtOnce::WhenAlone, None), Some(Route::AtOnce));
        assert_eq!(route(AtOnce::Always, Some(64)), Some(Route::AtOnce));
    }
}
