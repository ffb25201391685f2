//! Simulating a card: results are real, but none is released before a card would have it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use slipstream_keys::Group;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;

/// The speed of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests that it computes at the same time, each on an engine of its own.
    pub engines: usize,
    /// Requests for compression that it computes at the same time, on engines that compute nothing
    /// else.
    pub compression_engines: usize,
    /// The time that an engine takes for a request of each kind, by [`Kind::index`].
    pub latencies: [Duration; Kind::COUNT],
    /// The additional time for each KiB of content that is to be compressed.
    pub kibibyte: Duration,
}

impl Pace {
    /// The engines of one endpoint of an Intel DH8970, which computes about 100,000 RSA-2048
    /// operations a second on three endpoints: at 745 us each, that keeps 75 engines busy.
    pub const DH8970_ENGINES: usize = 25;

    /// An endpoint of an Intel DH8970 with that many engines, and the ten for compression that each
    /// of the three has, according to Dell's description of the chipset (C62x).
    ///
    /// RSA-2048 and RSA-4096 are from QWEB, table 2. The others are not in that table and derived:
    /// RSA-3072 by the power law between these two; operations on P-256 and X25519 from the limit
    /// of 40,000 ECDHE-RSA handshakes a second on 75 engines (QTLS, figure 7b), each of which takes
    /// a signature of 745 us and two operations on a curve, a new key and an exchange; on P-384
    /// from P-256 by the third power of the length.
    ///
    /// Compression is from QWEB, table 2: 28, 41, 66, 110 and 194 us for 4 to 64 KB. The straight
    /// line through the first and the last is never more than 5 us below. The card has no
    /// Zstandard, which is given the same pace.
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
                Kind::Compress(_) => 17,
            })
        };
        Self {
            engines,
            compression_engines: 10,
            latencies: Kind::ALL.map(latency),
            kibibyte: Duration::from_nanos(2_770),
        }
    }
}

/// A simulated card.
#[derive(Debug)]
pub(crate) struct Card {
    latencies: [Duration; Kind::COUNT],
    kibibyte: Duration,
    engines: Engines,
    compression_engines: Engines,
}

impl Card {
    pub(crate) fn new(pace: &Pace, now: Instant) -> Self {
        Self {
            latencies: pace.latencies,
            kibibyte: pace.kibibyte,
            engines: Engines::new(pace.engines, now),
            compression_engines: Engines::new(pace.compression_engines, now),
        }
    }

    /// Returns the time at which the card would answer a request of this kind, with this much
    /// content, that arrives now.
    pub(crate) fn answers(&mut self, kind: Kind, content_bytes: usize, now: Instant) -> Instant {
        let engines = match kind {
            Kind::Compress(_) => &mut self.compression_engines,
            _ => &mut self.engines,
        };
        let content = self.kibibyte.mul_f64(content_bytes as f64 / 1024.0);
        engines.take(self.latencies[kind.index()] + content, now)
    }
}

/// The engines of a kind: the time at which each becomes idle.
#[derive(Debug)]
struct Engines(BinaryHeap<Reverse<Instant>>);

impl Engines {
    fn new(count: usize, now: Instant) -> Self {
        Self(std::iter::repeat_n(Reverse(now), count).collect())
    }

    /// Returns the time at which the engine that is idle first has computed a request that arrives
    /// now.
    fn take(&mut self, latency: Duration, now: Instant) -> Instant {
        let mut earliest = self.0.peek_mut().expect("at least one engine");
        let end = earliest.0.max(now) + latency;
        *earliest = Reverse(end);
        end
    }
}

#[cfg(test)]
mod tests {
    use slipstream_offload::Coding;

    use super::*;

    #[test]
    fn requests_queue_for_the_engines() {
        let start = Instant::now();
        let mut card = Card::new(&Pace::dh8970(2), start);
        let kind = Kind::Rsa(Size::Rsa2048);
        let answers = |card: &mut Card, now| (card.answers(kind, 0, now) - start).as_micros();
        assert_eq!(answers(&mut card, start), 745);
        assert_eq!(answers(&mut card, start), 745);
        assert_eq!(answers(&mut card, start), 1490);
        let later = start + Duration::from_micros(1000);
        assert_eq!(answers(&mut card, later), 1745, "the other one is free");
        assert_eq!(answers(&mut card, later), 2235);
    }

    #[test]
    fn compression_takes_as_long_as_in_the_table_and_keeps_nobody_waiting() {
        let start = Instant::now();
        let kind = Kind::Compress(Coding::Deflate);
        for (kibibytes, micros) in [(4, 28), (8, 41), (16, 66), (32, 110), (64, 194)] {
            let mut card = Card::new(&Pace::dh8970(1), start);
            let answered = card.answers(kind, kibibytes << 10, start) - start;
            let expected = Duration::from_micros(micros);
            assert!(
                answered.abs_diff(expected) <= Duration::from_micros(5),
                "{kibibytes} KiB: {answered:?}"
            );
        }
        let mut card = Card::new(&Pace::dh8970(1), start);
        let alone = card.answers(kind, 65536, start);
        for _ in 1..10 {
            assert_eq!(card.answers(kind, 65536, start), alone);
        }
        assert_eq!(card.answers(kind, 65536, start) - alone, alone - start);
        let rsa = card.answers(Kind::Rsa(Size::Rsa2048), 0, start) - start;
        assert_eq!(rsa.as_micros(), 745);
    }
}
