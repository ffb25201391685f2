//! Requests that have been taken from rings and wait to be computed, sorted by kind.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slipstream_accelerators::lanes::LANES;
use slipstream_offload::costs::{Cost, PATIENCE_BATCHES};
use slipstream_offload::{Kind, PerKind};

/// Returns the number of requests that fill a batch of this kind, so that waiting gains nothing.
/// Four operations of RSA take half the time of eight, but with a configured `linger` only eight
/// fill a batch. Content is not computed in lanes.
fn least_full(kind: Kind, linger: Option<Duration>) -> usize {
    match (kind, linger) {
        (Kind::Compress(_), _) => 1,
        (Kind::Rsa(_), None) => LANES / 2,
        _ => LANES,
    }
}

/// Returns the number of requests of this kind that are computed together at most.
fn most(kind: Kind) -> usize {
    match kind {
        Kind::Compress(_) => 1,
        _ => LANES,
    }
}

/// Returns the number of requests of this kind that are taken from rings before they are computed:
/// a batch. Of content it is one more than is computed next, since each chunk may take long, and
/// requests that arrive later wait for all of them.
fn enough(kind: Kind) -> usize {
    match kind {
        Kind::Compress(_) => 2,
        _ => LANES,
    }
}

/// Returns true if requests of this kind share lanes, so that waiting for others can pay off.
fn shares_lanes(kind: Kind) -> bool {
    !matches!(kind, Kind::Compress(_))
}

/// One queue for each kind.
#[derive(Debug)]
pub(crate) struct Queues<T> {
    queues: [VecDeque<Waiting<T>>; Kind::COUNT],
    /// The cost of the last batch of each kind.
    costs: PerKind<Cost>,
    /// The number of waiting requests that [share lanes](shares_lanes).
    waiting: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    arrived: Instant,
    request: T,
}

/// The next step of an engine thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Compute a batch of this kind.
    Batch(Kind),
    /// Wait for more requests, until this time.
    Linger(Instant),
    /// Nothing waits.
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
        self.waiting += usize::from(shares_lanes(kind));
    }

    /// Returns true if enough requests of a kind wait, so that no more are taken from rings.
    /// Requests that stay in the rings keep their fair order.
    pub(crate) fn has_enough(&self) -> bool {
        let mut queues = Kind::ALL.into_iter().zip(&self.queues);
        queues.any(|(kind, queue)| queue.len() >= enough(kind))
    }

    fn fills_batch(&self, kind: Kind, linger: Option<Duration>) -> bool {
        self.queues[kind.index()].len() >= least_full(kind, linger)
    }

    /// Returns the next step, when a batch may wait for `linger` as long as fewer requests wait
    /// than `concurrency`, the most that can come to wait together. Without `linger` it waits as
    /// long as it takes to compute: so the gain if others join is never much less than the loss if
    /// none comes.
    ///
    /// It is the oldest full batch, or a request that has waited too long for one; without a full
    /// batch of lanes it is the oldest request that has lingered. Content is a full batch that
    /// keeps no lanes busy: it is never waited for, and only its age counts.
    pub(crate) fn choose(
        &self,
        now: Instant,
        linger: Option<Duration>,
        concurrency: impl FnOnce() -> usize,
    ) -> Choice {
        let has_full_lanes = Kind::ALL
            .into_iter()
            .any(|kind| shares_lanes(kind) && self.fills_batch(kind, linger));
        let are_all_here = || self.waiting > 0 && self.waiting >= concurrency();
        let due = if has_full_lanes {
            self.oldest(|kind, arrived| {
                self.fills_batch(kind, linger)
                    || now.saturating_duration_since(arrived)
                        >= PATIENCE_BATCHES * self.costs[kind].or_zero()
            })
        } else if are_all_here() {
            self.oldest(|_, _| true)
        } else {
            self.oldest(|kind, arrived| self.deadline(kind, arrived, linger) <= now)
        };
        if let Some((_, kind)) = due {
            return Choice::Batch(kind);
        }
        let deadlines = self
            .arrivals()
            .map(|(arrived, kind)| self.deadline(kind, arrived, linger));
        deadlines.min().map_or(Choice::Nothing, Choice::Linger)
    }

    /// Returns the time until which a request of this kind waits for others, if nothing else fills
    /// a batch.
    fn deadline(&self, kind: Kind, arrived: Instant, linger: Option<Duration>) -> Instant {
        match shares_lanes(kind) {
            true => arrived + linger.unwrap_or(self.costs[kind].or_zero()),
            false => arrived,
        }
    }

    /// Takes the batch of this kind, the oldest first: as many as [most], or as [fill](least_full)
    /// one, or all that wait.
    pub(crate) fn take(&mut self, kind: Kind, linger: Option<Duration>) -> Vec<T> {
        let queue = &mut self.queues[kind.index()];
        let least = least_full(kind, linger);
        let count = match queue.len() {
            waiting if waiting >= LANES => most(kind),
            waiting => waiting.min(least),
        };
        self.waiting -= if shares_lanes(kind) { count } else { 0 };
        queue
            .drain(..count)
            .map(|waiting| waiting.request)
            .collect()
    }

    /// Notes the cost of a batch of this kind.
    pub(crate) fn measured(&mut self, kind: Kind, cost: Duration) {
        self.costs[kind] = Cost::Known(cost);
    }

    /// Drops requests that fulfil a condition.
    pub(crate) fn discard(&mut self, condition: impl Fn(&T) -> bool) {
        for queue in &mut self.queues {
            queue.retain(|waiting| !condition(&waiting.request));
        }
        let lanes = Kind::ALL.into_iter().zip(&self.queues);
        self.waiting = lanes
            .filter_map(|(kind, queue)| shares_lanes(kind).then_some(queue.len()))
            .sum();
    }

    fn oldest(&self, condition: impl Fn(Kind, Instant) -> bool) -> Option<(Instant, Kind)> {
        self.arrivals()
            .filter(|(arrived, kind)| condition(*kind, *arrived))
            .min_by_key(|(arrived, _)| *arrived)
    }

    /// Returns the arrival of the oldest request of each kind.
    fn arrivals(&self) -> impl Iterator<Item = (Instant, Kind)> {
        let queues = Kind::ALL.into_iter().zip(&self.queues);
        queues.filter_map(|(kind, queue)| Some((queue.front()?.arrived, kind)))
    }
}

#[cfg(test)]
mod tests;
