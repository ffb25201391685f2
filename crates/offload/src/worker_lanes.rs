//! The first accelerator: the lanes of this CPU, on the thread that polls.

use std::collections::VecDeque;

use slipstream_lanes::rsa::Workspace;
use slipstream_lanes::{Backend, LANES, ec, x25519};

use crate::accelerator::{self, Accelerator, Moment, Response, answered};
use crate::batch;
use crate::counters::Counters;
use crate::policy::{Costs, Policy};
use crate::request::{Answer, Kind, Operation, Reason};
use crate::slots::RequestId;

/// The lanes of this CPU, run on the thread that polls: a batch when eight operations of a kind
/// wait, what is left when the event loop would sleep.
pub struct WorkerLanes {
    backend: Backend,
    workspace: Box<Workspace>,
    costs: Costs,
    policy: Policy,
    queues: [VecDeque<Request>; Kind::COUNT],
    /// How often this has been polled.
    polls: u64,
}

/// For how many polls a batch that is not full waits for more while the event loop is busy. A busy
/// loop polls after each batch, so this bounds the wait of a rare kind to as many batches.
const PATIENCE: u64 = 8;

struct Request {
    id: RequestId,
    /// The polls that had been made when it was submitted.
    submitted: u64,
    operation: Operation,
}

impl WorkerLanes {
    /// Lanes of `backend`, used where `policy` and `costs` say so.
    pub fn new(backend: Backend, policy: Policy, costs: Costs) -> Self {
        Self {
            backend,
            workspace: Workspace::new(),
            costs,
            policy,
            queues: Default::default(),
            polls: 0,
        }
    }

    fn computes(&self, operation: &Operation) -> bool {
        match operation {
            Operation::RsaPrivate { key, input } => {
                key.backend() == self.backend && input.as_slice().len() == key.size().bytes()
            }
            Operation::X25519 { private, peer } => {
                x25519::offered(self.backend)
                    && private.as_slice().len() == x25519::KEY_BYTES
                    && peer.as_slice().len() == x25519::KEY_BYTES
            }
            // Lengths are checked, and refused, lane by lane.
            Operation::Ecdh { .. } => ec::offered(self.backend),
            // A key that is held elsewhere is not here.
            Operation::Ecdsa { .. }
            | Operation::KeyPair(_)
            | Operation::Held { .. }
            | Operation::Compress(_) => false,
        }
    }

    /// The polls that had been made when the oldest waiting request of `kind` was submitted.
    fn oldest(&self, kind: Kind) -> u64 {
        self.queues[kind.index()]
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
        let queue = &mut self.queues[kind.index()];
        let operations = queue.iter().take(live).map(|request| &request.operation);
        let answers = batch::compute(self.backend, &mut self.workspace, operations);
        counters.count_batch(kind, live);
        for (request, answer) in queue.drain(..live).zip(answers) {
            responses.push(answered(request.id, answer));
        }
    }

    fn hand_back(&mut self, kind: Kind, count: usize, responses: &mut Vec<Response>) {
        for request in self.queues[kind.index()].drain(..count) {
            let answer = Answer::Software(Reason::Cheaper);
            responses.push(answered(request.id, answer));
        }
    }
}

impl Accelerator for WorkerLanes {
    fn accepts(&mut self, operation: &Operation) -> bool {
        let plan = |kind| self.costs.plan(self.policy, kind, LANES, true);
        self.computes(operation) && plan(operation.kind()).lanes > 0
    }

    fn company(&self, kind: Kind) -> Option<usize> {
        match kind {
            Kind::Rsa(_) | Kind::X25519 | Kind::Ecdh(_) => self.costs.company(self.policy, kind),
            // What is made ahead takes less time than a pause: a key pair, and a signature with a nonce.
            Kind::Ecdsa(_) | Kind::KeyPair(_) => None,
            // Lanes do not compress.
            Kind::Compress(_) => None,
        }
    }

    fn submit(&mut self, request: accelerator::Request) -> Result<(), accelerator::Request> {
        self.queues[request.operation.kind().index()].push_back(Request {
            id: request.id,
            submitted: self.polls,
            operation: request.operation,
        });
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    fn poll(&mut self, moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters) {
        self.polls += 1;
        // Oldest first, or a kind that keeps filling batches would starve the others.
        let mut kinds = Kind::ALL;
        kinds.sort_by_key(|kind| self.oldest(*kind));
        for kind in kinds {
            let overdue = self.polls > self.oldest(kind).saturating_add(PATIENCE);
            let idle = moment == Moment::Idle || overdue;
            let waiting = self.queues[kind.index()].len();
            let plan = self.costs.plan(self.policy, kind, waiting, idle);
            self.hand_back(kind, plan.software, responses);
            if plan.lanes > 0 {
                self.run_batch(kind, plan.lanes, responses, counters);
                // One batch at a time: its jobs go on, and new events are seen, before the next.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use slipstream_lanes::rsa::{PrivateKey, Size};

    use super::*;
    use crate::calibration::example_key;
    use crate::pause::{JobToken, Notification};
    use crate::request::{Class, Operand};
    use crate::slots::Slots;

    /// Lanes that win from two operations on, and the requests submitted to them.
    struct Fixture {
        lanes: WorkerLanes,
        slots: Slots,
        keys: [Arc<PrivateKey>; Size::ALL.len()],
        counters: Counters,
    }

    impl Fixture {
        fn new() -> Self {
            let costs = Costs {
                batch: [Some(Duration::from_micros(15)); Kind::COUNT],
                software: [Some(Duration::from_micros(10)); Kind::COUNT],
                ..Costs::default()
            };
            let key = |size| {
                let components = &example_key(size).components;
                Arc::new(PrivateKey::new(Backend::Portable, components).expect("a good key"))
            };
            Self {
                lanes: WorkerLanes::new(Backend::Portable, Policy::Cheapest, costs),
                slots: Slots::new(1000),
                keys: Size::ALL.map(key),
                counters: Counters::default(),
            }
        }

        fn submit(&mut self, size: Size, count: usize) {
            for _ in 0..count {
                let notification = Notification::ReadyQueue(JobToken(0));
                let id = self
                    .slots
                    .open(Class::Asymmetric, notification)
                    .expect("room");
                let mut input = Operand::zeroed(size.bytes());
                input.as_mut_slice()[size.bytes() - 1] = 1;
                let key = self.keys[size.index()].clone();
                let operation = Operation::RsaPrivate { key, input };
                assert!(self.lanes.accepts(&operation));
                let request = accelerator::Request {
                    id,
                    operation,
                    notification,
                };
                self.lanes.submit(request).expect("room");
            }
        }

        /// How many were computed, and how many handed back.
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
        assert!(fixture.lanes.queues[Size::Rsa3072.index()].is_empty());
    }

    #[test]
    fn a_batch_that_never_fills_is_run_although_the_loop_stays_busy() {
        let mut fixture = Fixture::new();
        fixture.submit(Size::Rsa3072, 3);
        for _ in 0..2 * PATIENCE {
            fixture.submit(Size::Rsa2048, 8);
            fixture.poll(Moment::Busy);
        }
        assert!(fixture.lanes.queues[Size::Rsa3072.index()].is_empty());
    }
}
