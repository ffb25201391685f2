//! Which chunks go to the device.

use crate::session::Place;

/// Chunks shorter than this are not worth the way to the device and back, in bytes.
const WORTH_WHILE: usize = 4 << 10;

/// So many chunks of a thread at the device keep it busy; where its cores are free to compress as well, more would only wait.
const ENOUGH: usize = 4;

/// What is known when a chunk is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Situation {
    /// Where the response is to be compressed.
    pub place: Place,
    /// The content of the chunk, in bytes.
    pub length: usize,
    /// How many chunks of this thread the device has.
    pub in_flight: usize,
    /// How many it may have.
    pub requests: usize,
    /// Other responses are being compressed as well.
    pub others_wait: bool,
    /// More content of the response is to come.
    pub more_follows: bool,
    /// The chunk before this one went to the device.
    pub was_last_sent: bool,
}

impl Situation {
    /// Whether the device has as many chunks of this thread as it is given.
    pub fn is_device_busy(self) -> bool {
        let most = match self.place {
            Place::Software => 0,
            Place::Failover => self.requests.min(ENOUGH),
            Place::Device => self.requests,
        };
        self.in_flight >= most
    }

    /// Whether the chunk goes to the device; otherwise it is compressed here.
    pub fn is_for_device(self) -> bool {
        if self.length < WORTH_WHILE || self.is_device_busy() {
            return false;
        }
        match self.place {
            Place::Software => false,
            Place::Device => true,
            Place::Failover if self.others_wait => true,
            // Alone, a response is done soonest if both compress at the same time: this core takes every second chunk, and
            // the last one, since nothing would be left to do here meanwhile.
            Place::Failover => self.more_follows && !self.was_last_sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Situation = Situation {
        place: Place::Failover,
        length: 64 << 10,
        in_flight: 0,
        requests: 16,
        others_wait: false,
        more_follows: true,
        was_last_sent: false,
    };

    const IN_COMPANY: Situation = Situation {
        others_wait: true,
        ..ALONE
    };

    #[test]
    fn a_lone_response_shares_its_chunks_between_device_and_core() {
        let mut situation = ALONE;
        let sent = [(); 5].map(|()| {
            situation.was_last_sent = situation.is_for_device();
            situation.was_last_sent
        });
        assert_eq!(sent, [true, false, true, false, true]);
    }

    #[test]
    fn the_last_chunk_of_a_lone_response_stays_here() {
        let last = Situation {
            more_follows: false,
            ..ALONE
        };
        assert!(!last.is_for_device());
        let in_company = Situation {
            others_wait: true,
            ..last
        };
        assert!(in_company.is_for_device());
    }

    #[test]
    fn in_company_the_device_is_kept_busy_and_no_more() {
        for (in_flight, requests, is_for_device) in [
            (0, 16, true),
            (3, 16, true),
            (4, 16, false),
            (1, 2, true),
            (2, 2, false),
            (0, 0, false),
        ] {
            let situation = Situation {
                in_flight,
                requests,
                was_last_sent: true,
                ..IN_COMPANY
            };
            assert_eq!(situation.is_for_device(), is_for_device, "{situation:?}");
        }
    }

    #[test]
    fn a_device_that_is_asked_for_gets_what_it_has_room_for() {
        for (in_flight, is_for_device) in [(0, true), (15, true), (16, false)] {
            let situation = Situation {
                place: Place::Device,
                in_flight,
                more_follows: false,
                was_last_sent: true,
                ..ALONE
            };
            assert_eq!(situation.is_for_device(), is_for_device);
        }
    }

    #[test]
    fn what_is_short_stays_here() {
        for place in [Place::Device, Place::Failover] {
            for (length, is_for_device) in [(0, false), (4095, false), (4096, true)] {
                let situation = Situation {
                    place,
                    length,
                    ..IN_COMPANY
                };
                assert_eq!(situation.is_for_device(), is_for_device);
            }
        }
    }

    #[test]
    fn software_means_here() {
        let situation = Situation {
            place: Place::Software,
            ..IN_COMPANY
        };
        assert!(!situation.is_for_device());
    }
}
