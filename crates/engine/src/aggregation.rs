//! Decides when a client is woken: one interrupt for each response would cost more than the
//! response is worth (ACSA section 3.3).

use std::time::Instant;

use slipstream_accelerators::engine::protocol::message::Aggregation;
use slipstream_offload::costs::AGGREGATION_PATIENCE;

/// The largest number of responses for which one event is sent when the number adapts.
const MAXIMUM: u32 = 32;

/// Counts the responses of which an instance's client has not been told.
#[derive(Debug)]
pub(crate) struct Aggregator {
    adapts: bool,
    threshold: u32,
    unsignalled: u32,
    since: Option<Instant>,
}

/// The notice that is due to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// No notice.
    Nothing,
    /// An event.
    Now,
    /// An event at this time, if none was due before.
    At(Instant),
}

impl Aggregator {
    pub(crate) fn new(aggregation: Aggregation) -> Self {
        let (adapts, threshold) = match aggregation {
            Aggregation::Fixed(count) => (false, count.max(1)),
            Aggregation::Adaptive => (true, 1),
        };
        Self {
            adapts,
            threshold,
            unsignalled: 0,
            since: None,
        }
    }

    /// Counts a response that has been delivered.
    pub(crate) fn count(&mut self) {
        self.unsignalled += 1;
    }

    /// Returns the notice that is due while `outstanding` requests of the client have not been
    /// answered. After [`Due::Now`] counting starts again.
    pub(crate) fn due(&mut self, now: Instant, outstanding: u64) -> Due {
        if self.unsignalled == 0 {
            return Due::Nothing;
        }
        let deadline = *self.since.get_or_insert(now) + AGGREGATION_PATIENCE;
        let is_reached = self.unsignalled >= self.threshold;
        if !is_reached && outstanding > 0 && now < deadline {
            return Due::At(deadline);
        }
        if self.adapts {
            self.threshold = match is_reached {
                true => (2 * self.threshold).min(MAXIMUM),
                false => (self.threshold / 2).max(1),
            };
        }
        self.unsignalled = 0;
        self.since = None;
        Due::Now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(aggregator: &mut Aggregator, count: u32) {
        for _ in 0..count {
            aggregator.count();
        }
    }

    #[test]
    fn a_fixed_number_is_waited_for() {
        let now = Instant::now();
        let mut aggregator = Aggregator::new(Aggregation::Fixed(4));
        assert_eq!(aggregator.due(now, 9), Due::Nothing);
        deliver(&mut aggregator, 3);
        assert_eq!(aggregator.due(now, 9), Due::At(now + AGGREGATION_PATIENCE));
        deliver(&mut aggregator, 1);
        assert_eq!(aggregator.due(now, 9), Due::Now);
        assert_eq!(aggregator.due(now, 9), Due::Nothing);
    }

    #[test]
    fn what_comes_alone_is_announced() {
        let now = Instant::now();
        let mut aggregator = Aggregator::new(Aggregation::Fixed(4));
        deliver(&mut aggregator, 1);
        assert_eq!(aggregator.due(now, 0), Due::Now, "none is left");
        deliver(&mut aggregator, 1);
        assert_eq!(aggregator.due(now, 1), Due::At(now + AGGREGATION_PATIENCE));
        deliver(&mut aggregator, 1);
        // Counted from the first.
        let later = now + AGGREGATION_PATIENCE / 2;
        assert_eq!(
            aggregator.due(later, 1),
            Due::At(now + AGGREGATION_PATIENCE)
        );
        assert_eq!(aggregator.due(now + AGGREGATION_PATIENCE, 1), Due::Now);
    }

    #[test]
    fn the_number_follows_the_load() {
        let now = Instant::now();
        let mut aggregator = Aggregator::new(Aggregation::Adaptive);
        for expected in [2, 4, 8, 16, 32, 32] {
            let threshold = aggregator.threshold;
            deliver(&mut aggregator, threshold);
            assert_eq!(aggregator.due(now, 100), Due::Now);
            assert_eq!(aggregator.threshold, expected);
        }
        for expected in [16, 8, 4, 2, 1] {
            deliver(&mut aggregator, 1);
            assert_eq!(aggregator.due(now, 0), Due::Now);
            assert_eq!(aggregator.threshold, expected);
        }
    }
}
