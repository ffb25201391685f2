//! Requests that have been taken from rings and wait to be computed, sorted by kind.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use slipstream_lanes::LANES;
use slipstream_offload::Kind;

/// A request that does not fill a batch goes before full batches of other kinds once it has waited for as many times what
/// its own batch takes. So it waits for a bounded time, and lanes that stay empty cost no more than a part of what was
/// computed meanwhile.
const PATIENCE: u32 = 2;

/// One queue for each kind.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    queues: [VecDeque<Waiting<T>>; Kind::COUNT],
    /// What a batch of each kind has taken last.
    costs: [Duration; Kind::COUNT],
    waiting: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    arrived: Instant,
    request: T,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Computing a batch of this kind.
    Batch(Kind),
    /// Waiting for more requests, until then.
    Linger(Instant),
    /// Nothing.
    Nothing,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self {
            queues: Default::default(),
            costs: Default::default(),
            waiting: 0,
        }
    }
}

impl<T> Queues<T> {
    /// Adds a request that has arrived now.
    pub(crate) fn push(&mut self, kind: Kind, now: Instant, request: T) {
        self.queues[kind.index()].push_back(Waiting {
            arrived: now,
            request,
        });
        self.waiting += 1;
    }

    /// Whether requests of a kind fill a batch, so that no more need be taken from rings: what waits there waits in the
    /// order that is fair.
    pub(crate) fn has_full_batch(&self) -> bool {
        self.queues.iter().any(|queue| queue.len() >= LANES)
    }

    /// What is to be done when a batch may wait for `linger` as long as fewer requests wait than `company`, so many as can
    /// come to wait together.
    ///
    /// The oldest full batch, or what has waited too long for one; without a full batch the oldest request, after it has
    /// lingered.
    pub(crate) fn choose(
        &self,
        now: Instant,
        linger: Duration,
        company: impl FnOnce() -> usize,
    ) -> Choice {
        let Some((arrived, oldest)) = self.oldest(|_, _| true) else {
            return Choice::Nothing;
        };
        if self.has_full_batch() {
            let due = self.oldest(|kind, waited| {
                self.queues[kind.index()].len() >= LANES
                    || now.saturating_duration_since(waited) >= PATIENCE * self.costs[kind.index()]
            });
            return Choice::Batch(due.expect("a full batch").1);
        }
        let deadline = arrived + linger;
        if now < deadline && self.waiting < company() {
            return Choice::Linger(deadline);
        }
        Choice::Batch(oldest)
    }

    /// Takes the batch of this kind: up to eight requests, the oldest first.
    pub(crate) fn take(&mut self, kind: Kind) -> ArrayVec<T, LANES> {
        let queue = &mut self.queues[kind.index()];
        let count = queue.len().min(LANES);
        self.waiting -= count;
        queue.drain(..count).map(|waiting| waiting.request).collect()
    }

    /// A batch of this kind has taken so long.
    pub(crate) fn measured(&mut self, kind: Kind, cost: Duration) {
        self.costs[kind.index()] = cost;
    }

    /// Drops requests that fulfil a condition.
    pub(crate) fn discard(&mut self, condition: impl Fn(&T) -> bool) {
        for queue in &mut self.queues {
            queue.retain(|waiting| !condition(&waiting.request));
        }
        self.waiting = self.queues.iter().map(VecDeque::len).sum();
    }

    fn oldest(&self, condition: impl Fn(Kind, Instant) -> bool) -> Option<(Instant, Kind)> {
        let arrivals = Kind::ALL.into_iter().zip(&self.queues);
        arrivals
            .filter_map(|(kind, queue)| Some((queue.front()?.arrived, kind)))
            .filter(|(arrived, kind)| condition(*kind, *arrived))
            .min_by_key(|(arrived, _)| *arrived)
    }
}
