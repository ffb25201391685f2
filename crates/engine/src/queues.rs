//! Requests that have been taken from rings and wait to be computed, sorted by kind.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slipstream_lanes::LANES;
use slipstream_offload::Kind;

/// A request that does not fill a batch goes before full batches of other kinds once it has waited for as many times what
/// its own batch takes. So it waits for a bounded time, and lanes that stay empty cost no more than a part of what was
/// computed meanwhile.
const PATIENCE: u32 = 2;

/// How many requests fill a batch of this kind, so that waiting gains nothing: four operations of RSA take half the time of
/// eight. Whoever has said how long to wait wants full ones.
fn least_full(kind: Kind, linger: Option<Duration>) -> usize {
    match (kind, linger) {
        (Kind::Rsa(_), None) => LANES / 2,
        _ => LANES,
    }
}

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

    fn fills_batch(&self, kind: Kind, linger: Option<Duration>) -> bool {
        self.queues[kind.index()].len() >= least_full(kind, linger)
    }

    /// What is to be done when a batch may wait for `linger` as long as fewer requests wait than `company`, so many as can
    /// come to wait together. Without `linger` it waits as long as it takes: so what is gained when others join it is never
    /// much less than what is lost when nobody comes.
    ///
    /// The oldest full batch, or what has waited too long for one; without a full batch the oldest request that has
    /// lingered.
    pub(crate) fn choose(
        &self,
        now: Instant,
        linger: Option<Duration>,
        company: impl FnOnce() -> usize,
    ) -> Choice {
        let Some((_, oldest)) = self.oldest(|_, _| true) else {
            return Choice::Nothing;
        };
        if Kind::ALL
            .into_iter()
            .any(|kind| self.fills_batch(kind, linger))
        {
            let due = self.oldest(|kind, waited| {
                self.fills_batch(kind, linger)
                    || now.saturating_duration_since(waited) >= PATIENCE * self.costs[kind.index()]
            });
            return Choice::Batch(due.expect("a full batch").1);
        }
        if self.waiting >= company() {
            return Choice::Batch(oldest);
        }
        let deadline = |kind: Kind, arrived| arrived + linger.unwrap_or(self.costs[kind.index()]);
        match self.oldest(|kind, arrived| deadline(kind, arrived) <= now) {
            Some((_, kind)) => Choice::Batch(kind),
            None => {
                let deadlines = self
                    .arrivals()
                    .map(|(arrived, kind)| deadline(kind, arrived));
                Choice::Linger(deadlines.min().expect("something waits"))
            }
        }
    }

    /// Takes the batch of this kind, the oldest first: eight requests, or as many as [fill](least_full) one, or what is there.
    pub(crate) fn take(&mut self, kind: Kind, linger: Option<Duration>) -> Vec<T> {
        let queue = &mut self.queues[kind.index()];
        let least = least_full(kind, linger);
        let count = match queue.len() {
            waiting if waiting >= LANES => LANES,
            waiting => waiting.min(least),
        };
        self.waiting -= count;
        queue
            .drain(..count)
            .map(|waiting| waiting.request)
            .collect()
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
        self.arrivals()
            .filter(|(arrived, kind)| condition(*kind, *arrived))
            .min_by_key(|(arrived, _)| *arrived)
    }

    /// When the oldest of each kind has arrived.
    fn arrivals(&self) -> impl Iterator<Item = (Instant, Kind)> {
        let queues = Kind::ALL.into_iter().zip(&self.queues);
        queues.filter_map(|(kind, queue)| Some((queue.front()?.arrived, kind)))
    }
}

#[cfg(test)]
mod tests {
    use slipstream_lanes::rsa::Size;

    use super::*;

    const RSA: Kind = Kind::Rsa(Size::Rsa2048);
    const LINGER: Option<Duration> = Some(Duration::from_micros(100));

    /// Requests of these kinds, each a microsecond after the one before.
    fn filled(kinds: &[(Kind, usize)]) -> (Queues<usize>, Instant) {
        let mut queues = Queues::default();
        let mut now = Instant::now();
        for (kind, count) in kinds {
            for number in 0..*count {
                queues.push(*kind, now, number);
                now += Duration::from_micros(1);
            }
        }
        (queues, now)
    }

    #[test]
    fn a_full_batch_goes_at_once_and_in_order() {
        let (mut queues, now) = filled(&[(Kind::X25519, 1), (RSA, 11)]);
        queues.measured(Kind::X25519, Duration::from_secs(1));
        assert_eq!(queues.choose(now, LINGER, || 100), Choice::Batch(RSA));
        assert_eq!(
            queues.take(RSA, LINGER).as_slice(),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        assert!(!queues.has_full_batch());
        assert_eq!(queues.take(RSA, LINGER).as_slice(), [8, 9, 10]);
        assert_eq!(queues.take(Kind::X25519, LINGER).as_slice(), [0]);
        assert_eq!(queues.choose(now, LINGER, || 100), Choice::Nothing);
    }

    #[test]
    fn what_has_waited_for_as_long_as_it_takes_goes_before_full_batches() {
        let (mut queues, now) = filled(&[(Kind::X25519, 1), (RSA, 8)]);
        queues.measured(Kind::X25519, Duration::from_micros(40));
        assert_eq!(queues.choose(now, LINGER, || 100), Choice::Batch(RSA));
        let later = now + Duration::from_micros(80);
        assert_eq!(
            queues.choose(later, LINGER, || 100),
            Choice::Batch(Kind::X25519)
        );
    }

    #[test]
    fn what_does_not_fill_a_batch_lingers_while_more_can_come() {
        let (queues, now) = filled(&[(RSA, 2), (Kind::X25519, 1)]);
        let deadline = now - Duration::from_micros(3) + LINGER.expect("some");
        assert_eq!(queues.choose(now, LINGER, || 4), Choice::Linger(deadline));
        assert_eq!(
            queues.choose(now, LINGER, || 3),
            Choice::Batch(RSA),
            "all are here"
        );
        assert_eq!(
            queues.choose(now, LINGER, || 0),
            Choice::Batch(RSA),
            "unknown"
        );
        assert_eq!(
            queues.choose(now, Some(Duration::ZERO), || 4),
            Choice::Batch(RSA)
        );
        assert_eq!(queues.choose(deadline, LINGER, || 4), Choice::Batch(RSA));
    }

    #[test]
    fn without_a_limit_four_operations_of_rsa_are_enough() {
        let (mut queues, now) = filled(&[(RSA, 6)]);
        assert!(matches!(
            queues.choose(now, LINGER, || 100),
            Choice::Linger(_)
        ));
        assert_eq!(queues.choose(now, None, || 100), Choice::Batch(RSA));
        assert_eq!(queues.take(RSA, None).as_slice(), [0, 1, 2, 3]);
        assert_eq!(queues.take(RSA, None).as_slice(), [4, 5]);
    }

    #[test]
    fn without_a_limit_it_lingers_as_long_as_it_takes() {
        let (mut queues, now) = filled(&[(RSA, 1), (Kind::X25519, 1)]);
        let start = now - Duration::from_micros(2);
        queues.measured(RSA, Duration::from_micros(800));
        queues.measured(Kind::X25519, Duration::from_micros(40));
        let deadline = start + Duration::from_micros(41);
        assert_eq!(queues.choose(now, None, || 4), Choice::Linger(deadline));
        let batch = Choice::Batch(Kind::X25519);
        assert_eq!(queues.choose(deadline, None, || 4), batch, "not the oldest");
        assert_eq!(queues.choose(now, None, || 2), Choice::Batch(RSA));
    }

    #[test]
    fn what_is_discarded_does_not_wait() {
        let (mut queues, now) = filled(&[(RSA, 8), (Kind::X25519, 2)]);
        queues.discard(|number| number % 2 == 1);
        assert_eq!(queues.take(RSA, LINGER).as_slice(), [0, 2, 4, 6]);
        assert_eq!(
            queues.choose(now, LINGER, || 1),
            Choice::Batch(Kind::X25519)
        );
    }
}
