//! Requests that have been taken from rings and wait to be computed, sorted by kind and user.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slipstream_accelerators::lanes::LANES;
use slipstream_offload::costs::{Cost, PATIENCE_BATCHES};
use slipstream_offload::{Kind, PerKind};

use crate::shares::{Place, Shares};

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
    /// The number of waiting requests of each kind, for each user.
    counts: Vec<[usize; Kind::COUNT]>,
    shares: Shares,
}

#[derive(Debug)]
struct Waiting<T> {
    arrived: Instant,
    user: Place,
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
            counts: Vec::new(),
            shares: Shares::default(),
        }
    }
}

impl<T> Queues<T> {
    /// Returns the place of a user, which stays the same.
    pub(crate) fn place(&mut self, user: u32) -> Place {
        let place = self.shares.place(user);
        let known = self.counts.len().max(place + 1);
        self.counts.resize(known, [0; Kind::COUNT]);
        place
    }

    /// Adds a request of a user that has arrived now.
    pub(crate) fn push(&mut self, kind: Kind, user: Place, now: Instant, request: T) {
        if !self.waits(user) {
            self.shares.begin(user);
        }
        self.counts[user][kind.index()] += 1;
        self.queues[kind.index()].push_back(Waiting {
            arrived: now,
            user,
            request,
        });
        self.waiting += usize::from(shares_lanes(kind));
    }

    /// Returns true if enough requests of a user and a kind wait, so that no more of this user are
    /// taken from rings. So a user cannot make the queues long for others. Requests that stay in the
    /// rings keep their fair order.
    pub(crate) fn has_enough(&self, user: Place) -> bool {
        let mut counts = Kind::ALL.into_iter().zip(&self.counts[user]);
        counts.any(|(kind, count)| *count >= enough(kind))
    }

    fn waits(&self, user: Place) -> bool {
        self.counts[user].iter().any(|count| *count > 0)
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
    ///
    /// Among several users, the one that has been served least goes before the oldest. While others
    /// fill batches, its requests do not wait for company either, if it stays the one that has been
    /// served less: it pays for the lanes that stay empty.
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
            self.first(|kind, head| {
                self.fills_batch(kind, linger)
                    || now.saturating_duration_since(head.arrived)
                        >= PATIENCE_BATCHES * self.costs[kind].or_zero()
                    || self.is_behind(kind, head.user)
            })
        } else if are_all_here() {
            self.first(|_, _| true)
        } else {
            self.first(|kind, head| {
                self.deadline(kind, head.arrived, linger) <= now || self.is_behind(kind, head.user)
            })
        };
        if let Some(kind) = due {
            return Choice::Batch(kind);
        }
        let deadlines = self
            .heads()
            .map(|(kind, head)| self.deadline(kind, head.arrived, linger));
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

    /// Takes the batch of this kind, the oldest first, and of several users those of the one that
    /// has been served least: as many as [most], or as [fill](least_full) one, or all that wait.
    pub(crate) fn take(&mut self, kind: Kind, linger: Option<Duration>) -> Vec<T> {
        let queue = &mut self.queues[kind.index()];
        let first = queue.front().map(|waiting| waiting.user);
        if queue.iter().any(|waiting| Some(waiting.user) != first) {
            let shares = &self.shares;
            let queue = queue.make_contiguous();
            queue.sort_by_key(|waiting| (shares.served(waiting.user), waiting.arrived));
        }
        let least = least_full(kind, linger);
        let count = match queue.len() {
            waiting if waiting >= LANES => most(kind),
            waiting => waiting.min(least),
        };
        self.waiting -= if shares_lanes(kind) { count } else { 0 };
        let taken: Vec<Waiting<T>> = queue.drain(..count).collect();
        let users: Vec<Place> = taken.iter().map(|waiting| waiting.user).collect();
        for &user in &users {
            self.counts[user][kind.index()] -= 1;
        }
        self.shares.charge(&users, self.costs[kind].or_zero());
        taken.into_iter().map(|waiting| waiting.request).collect()
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
        self.counts.fill([0; Kind::COUNT]);
        for (kind, queue) in self.queues.iter().enumerate() {
            for waiting in queue {
                self.counts[waiting.user][kind] += 1;
            }
        }
        let lanes = Kind::ALL.into_iter().zip(&self.queues);
        self.waiting = lanes
            .filter_map(|(kind, queue)| shares_lanes(kind).then_some(queue.len()))
            .sum();
    }

    /// Returns true if the user is entitled to a batch of this kind for itself: others wait that
    /// have been served more, and still will have been. Only content and full batches keep it
    /// waiting, so it does not keep waiting for company.
    fn is_behind(&self, kind: Kind, user: Place) -> bool {
        let is_contended = Kind::ALL
            .into_iter()
            .any(|kind| self.queues[kind.index()].len() >= enough(kind));
        let users = (0..self.counts.len()).filter(|&user| self.waits(user));
        let most = users.map(|user| self.shares.served(user)).max();
        let own = self.shares.served(user) + self.costs[kind].or_zero();
        is_contended && most.is_some_and(|most| most > own)
    }

    /// Returns the kind of the request that fulfils a condition, of the user that has been served
    /// least; the oldest of its requests.
    fn first(&self, condition: impl Fn(Kind, &Waiting<T>) -> bool) -> Option<Kind> {
        self.heads()
            .filter(|(kind, head)| condition(*kind, head))
            .min_by_key(|(_, head)| (self.shares.served(head.user), head.arrived))
            .map(|(kind, _)| kind)
    }

    /// Returns the oldest request of each kind and user.
    fn heads(&self) -> impl Iterator<Item = (Kind, &Waiting<T>)> {
        let queues = Kind::ALL.into_iter().zip(&self.queues);
        queues.flat_map(|(kind, queue)| {
            let users = self.counts.iter().enumerate();
            let waiting = users.filter(move |(_, counts)| counts[kind.index()] > 0);
            waiting.filter_map(move |(user, _)| {
                let head = queue.iter().find(|waiting| waiting.user == user);
                Some((kind, head?))
            })
        })
    }
}

#[cfg(test)]
mod tests;
