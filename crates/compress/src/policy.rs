//! The decision between device and core for each chunk.

use slipstream_offload::costs::{ENOUGH_CHUNKS, SHORTEST_CHUNK};

use crate::session::Offload;

/// A chunk whose content is complete, and the load at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The setting of the response.
    pub offload: Offload,
    /// The content of the chunk, in bytes.
    pub length: usize,
    /// The number of chunks of this thread that are in flight.
    pub in_flight: usize,
    /// The most that may be in flight.
    pub max_in_flight: usize,
    /// Other responses of this thread are being compressed as well.
    pub has_competitors: bool,
    /// More content of the response is to come.
    pub more_follows: bool,
    /// The chunk before this one was submitted to the device.
    pub was_previous_submitted: bool,
}

impl Candidate {
    /// Returns true if no further chunk of this thread is to be in flight.
    pub fn is_device_full(self) -> bool {
        let max_in_flight = match self.offload {
            Offload::Software => 0,
            Offload::Failover => self.max_in_flight.min(ENOUGH_CHUNKS),
            Offload::Device => self.max_in_flight,
        };
        self.in_flight >= max_in_flight
    }

    /// Returns true if the chunk is to be submitted to the device, and false if it is to be
    /// compressed on this core.
    pub fn is_to_be_submitted(self) -> bool {
        if self.length < SHORTEST_CHUNK || self.is_device_full() {
            return false;
        }
        match self.offload {
            Offload::Software => false,
            Offload::Device => true,
            Offload::Failover if self.has_competitors => true,
            // A response without competitors is complete soonest if device and core compress at the
            // same time: the core takes every second chunk, and the last one, since it would have
            // nothing else to do.
            Offload::Failover => self.more_follows && !self.was_previous_submitted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Candidate = Candidate {
        offload: Offload::Failover,
        length: 64 << 10,
        in_flight: 0,
        max_in_flight: 16,
        has_competitors: false,
        more_follows: true,
        was_previous_submitted: false,
    };

    const WITH_COMPETITORS: Candidate = Candidate {
        has_competitors: true,
        ..ALONE
    };

    #[test]
    fn a_response_without_competitors_is_shared_between_device_and_core() {
        let mut candidate = ALONE;
        let sent = [(); 5].map(|()| {
            candidate.was_previous_submitted = candidate.is_to_be_submitted();
            candidate.was_previous_submitted
        });
        assert_eq!(sent, [true, false, true, false, true]);
    }

    #[test]
    fn the_last_chunk_without_competitors_stays_on_the_core() {
        let last = Candidate {
            more_follows: false,
            ..ALONE
        };
        assert!(!last.is_to_be_submitted());
        let with_competitors = Candidate {
            has_competitors: true,
            ..last
        };
        assert!(with_competitors.is_to_be_submitted());
    }

    #[test]
    fn with_competitors_the_device_is_kept_busy_and_no_more() {
        for (in_flight, max_in_flight, is_submitted) in [
            (0, 16, true),
            (3, 16, true),
            (4, 16, false),
            (1, 2, true),
            (2, 2, false),
            (0, 0, false),
        ] {
            let candidate = Candidate {
                in_flight,
                max_in_flight,
                was_previous_submitted: true,
                ..WITH_COMPETITORS
            };
            assert_eq!(
                candidate.is_to_be_submitted(),
                is_submitted,
                "{candidate:?}"
            );
        }
    }

    #[test]
    fn offload_to_the_device_only_fills_it() {
        for (in_flight, is_submitted) in [(0, true), (15, true), (16, false)] {
            let candidate = Candidate {
                offload: Offload::Device,
                in_flight,
                more_follows: false,
                was_previous_submitted: true,
                ..ALONE
            };
            assert_eq!(candidate.is_to_be_submitted(), is_submitted);
        }
    }

    #[test]
    fn short_chunks_stay_on_the_core() {
        for offload in [Offload::Device, Offload::Failover] {
            for (length, is_submitted) in [(0, false), (4095, false), (4096, true)] {
                let candidate = Candidate {
                    offload,
                    length,
                    ..WITH_COMPETITORS
                };
                assert_eq!(candidate.is_to_be_submitted(), is_submitted);
            }
        }
    }

    #[test]
    fn software_submits_nothing() {
        let candidate = Candidate {
            offload: Offload::Software,
            ..WITH_COMPETITORS
        };
        assert!(!candidate.is_to_be_submitted());
    }
}
