//! What computes requests. The first accelerator is the CPU's own lanes, on the worker's thread.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use slipstream_lanes::rsa::{self, Size, Workspace};
use slipstream_lanes::{Backend, LANES};

use crate::counters::Counters;
use crate::policy::{Costs, Policy};
use crate::request::{Answer, Operand, Operation, Output, Reason};
use crate::slots::RequestId;

/// When an accelerator is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The event loop has other work; more requests may come before it sleeps.
    Busy,
    /// The event loop would sleep: every connection waits for the accelerator or for the network.
    Idle,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Response {
    /// The request.
    pub id: RequestId,
    /// Its answer.
    pub answer: Answer,
}

/// Computes requests. Calls never block on anything but computation.
pub trait Accelerator {
    /// Whether `operation` is worth submitting here at all.
    fn accepts(&self, operation: &Operation) -> bool;

    /// Takes a request over.
    ///
    /// # Errors
    /// Gives the operation back if there is no room for it.
    fn submit(&mut self, id: RequestId, operation: Operation) -> Result<(), Operation>;

    /// How many requests have been taken over and not been answered.
    fn waiting(&self) -> usize;

    /// Adds the answers that are ready to `responses`, after computing what is due at `moment`.
    fn poll(&mut self, moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters);
}

/// The lanes of this CPU, run on the thread that polls: a batch when eight operations of a size
/// wait, what is left when the event loop would sleep.
pub struct WorkerLanes {
    backend: Backend,
    workspace: Box<Workspace>,
    costs: Costs,
    policy: Policy,
    queues: [VecDeque<RsaRequest>; Size::ALL.len()],
    /// How often this has been polled.
    polls: u64,
}

/// For how many polls a batch that is not full waits for more while the event loop is busy. A busy
/// loop polls after each batch, so this bounds the wait of a rare size to as many batches.
const PATIENCE: u64 = 8;

struct RsaRequest {
    id: RequestId,
    /// The polls that had been made when it was submitted.
    submitted: u64,
    key: Arc<rsa::PrivateKey>,
    input: Operand,
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

    /// The polls that had been made when the oldest waiting request of `size` was submitted.
    fn oldest(&self, size: Size) -> u64 {
        self.queues[size.index()]
            .front()
            .map_or(u64::MAX, |request| request.submitted)
    }

    fn run_batch(
        &mut self,
        size: Size,
        live: usize,
        responses: &mut Vec<Response>,
        counters: &mut Counters,
    ) {
        let mut outputs: [Output; LANES] = std::array::from_fn(|_| Output::zeroed(size.bytes()));
        let mut operations: ArrayVec<rsa::Operation<'_>, LANES> = self.queues[size.index()]
            .iter()
            .take(live)
            .zip(&mut outputs)
            .map(|(request, output)| rsa::Operation {
                key: &request.key,
                input: request.input.as_slice(),
                output: output.as_mut_slice(),
            })
            .collect();
        let outcomes = rsa::private_operation(&mut self.workspace, &mut operations);
        drop(operations);
        counters.count_batch(live);
        for (outcome, output) in outcomes.iter().zip(outputs) {
            let request = self.queues[size.index()]
                .pop_front()
                .expect("counted above");
            let answer = match outcome {
                Ok(()) => Answer::Computed(output),
                Err(_) => Answer::Software(Reason::Fault),
            };
            responses.push(Response {
                id: request.id,
                answer,
            });
        }
    }

    fn hand_back(&mut self, size: Size, count: usize, responses: &mut Vec<Response>) {
        for request in self.queues[size.index()].drain(..count) {
            let answer = Answer::Software(Reason::Cheaper);
            responses.push(Response {
                id: request.id,
                answer,
            });
        }
    }
}

impl Accelerator for WorkerLanes {
    fn accepts(&self, operation: &Operation) -> bool {
        match operation {
            Operation::RsaPrivate { key, input } => {
                key.backend() == self.backend
                    && input.as_slice().len() == key.size().bytes()
                    && self.costs.plan(self.policy, key.size(), LANES, true).lanes > 0
            }
        }
    }

    fn submit(&mut self, id: RequestId, operation: Operation) -> Result<(), Operation> {
        match operation {
            Operation::RsaPrivate { key, input } => {
                self.queues[key.size().index()].push_back(RsaRequest {
                    id,
                    submitted: self.polls,
                    key,
                    input,
                });
            }
        }
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    fn poll(&mut self, moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters) {
        self.polls += 1;
        // Oldest first, or a size that keeps filling batches would starve the others.
        let mut sizes = Size::ALL;
        sizes.sort_by_key(|size| self.oldest(*size));
        for size in sizes {
            let overdue = self.polls > self.oldest(size).saturating_add(PATIENCE);
            let idle = moment == Moment::Idle || overdue;
            let waiting = self.queues[size.index()].len();
            let plan = self.costs.plan(self.policy, size, waiting, idle);
            self.hand_back(size, plan.software, responses);
            if plan.lanes > 0 {
                self.run_batch(size, plan.lanes, responses, counters);
                // One batch at a time: its jobs go on, and new events are seen, before the next.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use slipstream_lanes::rsa::PrivateKey;

    use super::*;
    use crate::calibration::example_key;
    use crate::pause::{JobToken, Notification};
    use crate::request::Class;
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
                batch: [Some(Duration::from_micros(15)); Size::ALL.len()],
                software: [Some(Duration::from_micros(10)); Size::ALL.len()],
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
                self.lanes.submit(id, operation).expect("room");
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
