//! Lanes as the accelerator of an event loop.

use std::collections::VecDeque;
use std::time::Duration;

use slipstream_lanes::rsa::Workspace;
use slipstream_lanes::{Backend, LANES};
use slipstream_offload::accelerator::{Accelerator, AtOnce, Estimate, Moment, Work};
use slipstream_offload::costs::{Cost, PATIENCE_POLLS};
use slipstream_offload::counters::Counters;
use slipstream_offload::request::{Output, Request, Response};
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{Answer, Kind, Operation, PerKind, Reason, RequestId};

use super::batch;
use super::calibration::LaneCosts;
use super::flush::Plan;
use super::machine::Machine;
use super::precomputed::Precomputed;

/// The lanes of this CPU, run on the thread that polls: a batch when eight operations of a kind
/// wait, and the remaining operations when the event loop would sleep.
pub struct Lanes {
    backend: Backend,
    costs: LaneCosts,
    scheduler: Scheduler,
    precomputed: Option<Precomputed>,
    /// Made for the first batch.
    workspace: Option<Box<Workspace>>,
    has_batches: bool,
    queues: PerKind<VecDeque<Waiting>>,
    /// The number of times that this has been polled.
    polls: u64,
}

/// The settings of [`Lanes`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The instruction set.
    pub backend: Backend,
    /// The measured costs.
    pub costs: LaneCosts,
    /// The flush policy, and the costs of the software that lanes have to beat.
    pub scheduler: Scheduler,
    /// True if requests are computed in batches. Otherwise lanes only compute
    /// [at once](Accelerator::at_once).
    pub has_batches: bool,
    /// Entries of each pool of precomputed key pairs. Less than a batch is none.
    pub key_pairs: usize,
    /// Entries of each pool of precomputed nonces for ECDSA. Less than a batch is none: each
    /// signature then draws its nonce when it is computed. If a machine is cloned or restored while
    /// nonces lie in a pool, two copies of it sign with the same ones, and the key is lost. They
    /// are wiped after [`NONCE_LIFE`](slipstream_offload::costs::NONCE_LIFE), after
    /// [`NONCE_REST`](slipstream_offload::costs::NONCE_REST), and if something tells that the
    /// machine was copied. On most machines nothing does.
    pub nonces: usize,
}

struct Waiting {
    id: RequestId,
    /// The polls that had been made when it was submitted.
    submitted: u64,
    operation: Operation,
}

impl Lanes {
    /// Lanes with these settings.
    pub fn new(options: Options) -> Self {
        let (backend, machine) = (options.backend, Machine::new());
        let precomputed = Precomputed::new(backend, machine, options.key_pairs, options.nonces);
        Self {
            backend: options.backend,
            costs: options.costs,
            scheduler: options.scheduler,
            precomputed,
            workspace: None,
            has_batches: options.has_batches,
            queues: PerKind::default(),
            polls: 0,
        }
    }

    /// Fewest operations of `kind` from which a batch is run, if ever.
    fn least_batch(&self, kind: Kind) -> Option<usize> {
        self.scheduler.least_batch(kind, self)
    }

    /// Returns true if one operation of `kind` takes lanes no longer than software.
    fn is_cheap_alone(&self, kind: Kind) -> bool {
        let Some(cost) = self.costs.batches[kind] else {
            return false;
        };
        match (cost.half, self.scheduler.software[kind]) {
            (Cost::Known(lanes), Cost::Known(software)) => software > lanes,
            // Measured on every CPU so far. Software first has to be handed the key.
            _ => kind == Kind::X25519 && self.backend == Backend::Ifma,
        }
    }

    fn precomputes(&self, kind: Kind) -> bool {
        let precomputed = self.precomputed.as_ref();
        precomputed.is_some_and(|precomputed| precomputed.has_pool(kind))
    }

    /// Returns true unless software is known to be cheaper than a precomputed value.
    fn is_cheap_precomputed(&self, kind: Kind) -> bool {
        match (self.costs.precomputed[kind], self.scheduler.software[kind]) {
            (Cost::Known(lanes), Cost::Known(software)) => lanes <= software,
            _ => true,
        }
    }

    /// The polls that had been made when the oldest waiting request of `kind` was submitted.
    fn oldest(&self, kind: Kind) -> u64 {
        self.queues[kind]
            .front()
            .map_or(u64::MAX, |request| request.submitted)
    }

    fn run_batch(
        &mut self,
        kind: Kind,
        live: usize,
        responses: &mut Vec<Response>,
        counters: &mut Counters,
    ) {
        let queue = &mut self.queues[kind];
        let operations = queue.iter().take(live).map(|request| &request.operation);
        let workspace = self.workspace.get_or_insert_with(Workspace::new);
        let answers = batch::compute(self.backend, workspace, operations);
        counters.count_batch(kind, live);
        for (request, answer) in queue.drain(..live).zip(answers) {
            responses.push(Response::new(request.id, answer));
        }
    }

    fn hand_back(&mut self, kind: Kind, count: usize, responses: &mut Vec<Response>) {
        for request in self.queues[kind].drain(..count) {
            let answer = Answer::Software(Reason::Cheaper);
            responses.push(Response::new(request.id, answer));
        }
    }
}

impl Accelerator for Lanes {
    fn name(&self) -> &str {
        "lanes"
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        self.has_batches
            && batch::can_compute(self.backend, operation)
            && self.least_batch(operation.kind()).is_some()
    }

    fn estimate(&self, work: &Work) -> Option<Estimate> {
        if !self.has_batches {
            return None;
        }
        let cost = self.costs.batches[work.kind]?;
        Some(Estimate::here(match work.count > LANES / 2 {
            true => cost.full,
            false => cost.half,
        }))
    }

    fn batch_size(&self, _kind: Kind) -> usize {
        LANES
    }

    fn at_once(&self, kind: Kind) -> AtOnce {
        match kind {
            Kind::KeyPair(_) | Kind::Ecdsa(_)
                if self.precomputes(kind) && self.is_cheap_precomputed(kind) =>
            {
                AtOnce::Always
            }
            Kind::X25519 | Kind::Ecdh(_) if self.is_cheap_alone(kind) => AtOnce::WhenAlone,
            _ => AtOnce::Never,
        }
    }

    fn compute_at_once(&mut self, operation: &Operation) -> Result<Output, Reason> {
        match operation {
            Operation::X25519 { .. } | Operation::Ecdh { .. }
                if batch::can_compute(self.backend, operation) =>
            {
                let workspace = self.workspace.get_or_insert_with(Workspace::new);
                let alone = std::iter::once(operation);
                match batch::compute(self.backend, workspace, alone).pop() {
                    Some(Answer::Computed(output)) => Ok(output),
                    Some(Answer::Software(reason)) => Err(reason),
                    None => Err(Reason::NotOffered),
                }
            }
            _ => match &mut self.precomputed {
                Some(precomputed) => precomputed.compute(operation),
                None => Err(Reason::NotOffered),
            },
        }
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.queues[request.operation.kind()].push_back(Waiting {
            id: request.id,
            submitted: self.polls,
            operation: request.operation,
        });
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.queues.0.iter().map(VecDeque::len).sum()
    }

    fn poll(&mut self, moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters) {
        self.polls += 1;
        // Oldest first, or a kind that keeps filling batches would starve the others.
        let mut kinds = Kind::ALL;
        kinds.sort_by_key(|kind| self.oldest(*kind));
        for kind in kinds {
            let waiting = self.queues[kind].len();
            if waiting == 0 {
                // The kinds that follow have no waiting requests, either.
                return;
            }
            let overdue = self.polls > self.oldest(kind).saturating_add(PATIENCE_POLLS);
            let idle = moment == Moment::Idle || overdue;
            let plan = Plan::new(self.least_batch(kind), waiting, idle);
            self.hand_back(kind, plan.software, responses);
            if plan.lanes > 0 {
                self.run_batch(kind, plan.lanes, responses, counters);
                // One batch at a time: its jobs go on, and new events are seen, before the next.
                return;
            }
        }
    }

    fn precompute(&mut self) {
        if let Some(precomputed) = &mut self.precomputed {
            precomputed.top_up();
        }
    }

    fn expire(&mut self) -> Option<Duration> {
        self.precomputed.as_mut()?.expire()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use slipstream_keys::ec::{self, Curve};
    use slipstream_keys::example::example_key;
    use slipstream_keys::rsa::{PrivateKey, Size};
    use slipstream_keys::{Group, Key, Operand};
    use slipstream_offload::scheduler::FlushPolicy;
    use slipstream_offload::{JobToken, Notification};

    use super::super::calibration::BatchCost;
    use super::*;

    /// Lanes that win from two operations on, and the requests submitted to them.
    struct Fixture {
        lanes: Lanes,
        requests: usize,
        keys: [Arc<PrivateKey>; Size::ALL.len()],
        counters: Counters,
    }

    fn options() -> Options {
        let known = |micros| Cost::Known(Duration::from_micros(micros));
        let batch = BatchCost {
            full: known(15),
            half: known(15),
        };
        let mut costs = LaneCosts::unknown(Backend::Portable);
        costs
            .batches
            .0
            .iter_mut()
            .flatten()
            .for_each(|cost| *cost = batch);
        Options {
            backend: Backend::Portable,
            costs,
            scheduler: Scheduler {
                flush: FlushPolicy::Cheapest,
                software: PerKind::new(|_| known(10)),
            },
            has_batches: true,
            key_pairs: 0,
            nonces: 0,
        }
    }

    impl Fixture {
        fn new() -> Self {
            let key = |size| {
                let components = &example_key(size).components;
                Arc::new(PrivateKey::new(components).expect("a good key"))
            };
            Self {
                lanes: Lanes::new(options()),
                requests: 0,
                keys: Size::ALL.map(key),
                counters: Counters::default(),
            }
        }

        fn submit(&mut self, size: Size, count: usize) {
            for _ in 0..count {
                let mut input = Operand::zeroed(size.bytes());
                input.as_mut_slice()[size.bytes() - 1] = 1;
                let key = Key::Value(self.keys[size.index()].clone());
                let operation = Operation::Rsa { key, input };
                assert!(self.lanes.accepts(&operation));
                let request = Request {
                    id: RequestId::numbered(self.requests),
                    operation,
                    notification: Notification::ReadyQueue(JobToken(0)),
                    deadline: None,
                };
                self.requests += 1;
                assert!(self.lanes.submit(request).is_ok());
            }
        }

        /// The number of operations that were computed, and of those that were handed back.
        fn poll(&mut self, moment: Moment) -> (usize, usize) {
            let mut responses = Vec::new();
            self.lanes.poll(moment, &mut responses, &mut self.counters);
            let computed = |response: &&Response| matches!(response.answer, Answer::Computed(_));
            let computed = responses.iter().filter(computed).count();
            (computed, responses.len() - computed)
        }
    }

    #[test]
    fn a_busy_loop_runs_full_batches_only() {
        let mut fixture = Fixture::new();
        fixture.submit(Size::Rsa2048, 11);
        assert_eq!(fixture.poll(Moment::Busy), (8, 0));
        assert_eq!(fixture.poll(Moment::Busy), (0, 0));
        assert_eq!(fixture.poll(Moment::Idle), (3, 0));
        assert_eq!(fixture.lanes.waiting(), 0);
        assert_eq!((fixture.counters.fill[7], fixture.counters.fill[2]), (1, 1));
    }

    #[test]
    fn a_lone_operation_is_handed_back() {
        let mut fixture = Fixture::new();
        fixture.submit(Size::Rsa2048, 1);
        assert_eq!(fixture.poll(Moment::Idle), (0, 1));
    }

    #[test]
    fn a_size_that_fills_batches_does_not_starve_another() {
        let mut fixture = Fixture::new();
        fixture.submit(Size::Rsa3072, 8);
        for _ in 0..3 {
            fixture.submit(Size::Rsa2048, 8);
            fixture.poll(Moment::Busy);
        }
        assert!(fixture.lanes.queues[Kind::Rsa(Size::Rsa3072)].is_empty());
    }

    #[test]
    fn a_batch_that_never_fills_is_run_although_the_loop_stays_busy() {
        let mut fixture = Fixture::new();
        fixture.submit(Size::Rsa3072, 3);
        for _ in 0..2 * PATIENCE_POLLS {
            fixture.submit(Size::Rsa2048, 8);
            fixture.poll(Moment::Busy);
        }
        assert!(fixture.lanes.queues[Kind::Rsa(Size::Rsa3072)].is_empty());
    }

    #[test]
    fn lanes_without_batches_only_compute_at_once() {
        let mut lanes = Lanes::new(Options {
            has_batches: false,
            key_pairs: LANES,
            nonces: LANES,
            ..options()
        });
        let work = Work {
            kind: Kind::X25519,
            count: 8,
            bytes: 0,
        };
        assert_eq!(lanes.estimate(&work), None);
        let exchange = || Operation::X25519 {
            private: Operand::new(&[1; 32]),
            peer: Operand::new(&[9; 32]),
        };
        assert!(!lanes.accepts(&exchange()));
        assert_eq!(lanes.at_once(Kind::KeyPair(Group::P256)), AtOnce::Always);
        assert_eq!(lanes.at_once(Kind::Ecdsa(Curve::P384)), AtOnce::Always);
        assert!(lanes.compute_at_once(&exchange()).is_ok());
    }

    #[test]
    fn without_a_pool_of_nonces_signatures_are_computed_in_batches() {
        let mut lanes = Lanes::new(Options {
            key_pairs: LANES,
            ..options()
        });
        let kind = Kind::Ecdsa(Curve::P256);
        assert_eq!(lanes.at_once(kind), AtOnce::Never);
        assert_eq!(lanes.at_once(Kind::KeyPair(Group::P256)), AtOnce::Always);
        let key = ec::PrivateKey::new(Curve::P256, &[1; 32]).expect("a good key");
        let operation = Operation::Ecdsa {
            key: Key::Value(Arc::new(key)),
            digest: Operand::new(&[2; 32]),
        };
        assert!(lanes.compute_at_once(&operation).is_err());
        assert!(lanes.accepts(&operation));
    }

    #[test]
    fn what_is_known_to_be_cheaper_in_software_is_left_to_software() {
        let mut options = Options {
            key_pairs: LANES,
            nonces: LANES,
            ..options()
        };
        let ecdsa = Kind::Ecdsa(Curve::P256);
        options.costs.precomputed[ecdsa] = Cost::Known(Duration::from_micros(11));
        let lanes = Lanes::new(options);
        assert_eq!(lanes.at_once(ecdsa), AtOnce::Never);
        assert_eq!(lanes.at_once(Kind::X25519), AtOnce::Never, "15 against 10");
        assert_eq!(lanes.at_once(Kind::KeyPair(Group::P384)), AtOnce::Always);
    }
}
