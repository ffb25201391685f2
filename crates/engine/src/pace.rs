//! Simulating a card: results are real, but none is released before a card would have it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use slipstream_lanes::ec::Curve;
use slipstream_lanes::rsa::Size;
use slipstream_offload::Kind;
use slipstream_offload::ahead::Group;

/// How fast the card is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests that it computes at the same time, each on an engine of its own.
    pub engines: usize,
    /// How long an engine takes for a request of each kind, by [`Kind::index`].
    pub latencies: [Duration; Kind::COUNT],
}

impl Pace {
    /// The engines of one endpoint of an Intel DH8970, which computes about 100,000 RSA-2048 operations a second on three
    /// endpoints: at 745 us each, that keeps 75 engines busy.
    pub const DH8970_ENGINES: usize = 25;

    /// An endpoint of an Intel DH8970 with that many engines.
    ///
    /// RSA-2048 and RSA-4096 are from QWEB, table 2. The others are not in that table and derived: RSA-3072 by the power
    /// law between these two; operations on P-256 and X25519 from the limit of 40,000 ECDHE-RSA handshakes a second on
    /// 75 engines (QTLS, figure 7b), each of which takes a signature of 745 us and two operations on a curve, a new key and
    /// an exchange; on P-384 from P-256 by the third power of the length.
    pub fn dh8970(engines: usize) -> Self {
        let latency = |kind| {
            Duration::from_micros(match kind {
                Kind::Rsa(Size::Rsa2048) => 745,
                Kind::Rsa(Size::Rsa3072) => 2_360,
                Kind::Rsa(Size::Rsa4096) => 5_332,
                Kind::X25519
                | Kind::Ecdh(Curve::P256)
                | Kind::Ecdsa(Curve::P256)
                | Kind::KeyPair(Group::X25519 | Group::P256) => 565,
                Kind::Ecdh(Curve::P384) | Kind::Ecdsa(Curve::P384) | Kind::KeyPair(Group::P384) => {
                    1_900
                }
            })
        };
        Self {
            engines,
            latencies: Kind::ALL.map(latency),
        }
    }
}

/// The engines of a simulated card.
#[derive(Debug)]
pub(crate) struct Card {
    latencies: [Duration; Kind::COUNT],
    /// When each engine has nothing to do any more.
    free: BinaryHeap<Reverse<Instant>>,
}

impl Card {
    pub(crate) fn new(pace: &Pace, now: Instant) -> Self {
        Self {
            latencies: pace.latencies,
            free: std::iter::repeat_n(Reverse(now), pace.engines).collect(),
        }
    }

    /// When the card would answer a request of this kind that arrives now.
    pub(crate) fn answers(&mut self, kind: Kind, now: Instant) -> Instant {
        let mut earliest = self.free.peek_mut().expect("at least one engine");
        let end = earliest.0.max(now) + self.latencies[kind.index()];
        *earliest = Reverse(end);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_queue_for_the_engines() {
        let start = Instant::now();
        let mut card = Card::new(&Pace::dh8970(2), start);
        let kind = Kind::Rsa(Size::Rsa2048);
        let answers = |card: &mut Card, now| (card.answers(kind, now) - start).as_micros();
        assert_eq!(answers(&mut card, start), 745);
        assert_eq!(answers(&mut card, start), 745);
        assert_eq!(answers(&mut card, start), 1490);
        let later = start + Duration::from_micros(1000);
        assert_eq!(answers(&mut card, later), 1745, "the other one is free");
        assert_eq!(answers(&mut card, later), 2235);
    }
}
