//! The schemes by which a worker polls its accelerator (QTLS sections 3.3 and 4.3).

use std::time::Duration;

use crate::accelerator::Moment;

/// A polling scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// When the event loop would sleep, and before it looks for events under load. While a request
    /// is in flight at a device, the loop does not sleep.
    Idle,
    /// As [`Scheme::Idle`], but when there is nothing to do until a device answers, the loop sleeps
    /// and is woken by an event: polling under load, interrupt when quiet (QWEB, future work).
    Hybrid,
    /// Only when an event of the device says that there are answers.
    Interrupt,
    /// A thread polls at this interval, and the loop collects the answers that it has found.
    Timer(Duration),
    /// When enough requests are in flight, or as many as there are active connections.
    Heuristic(Heuristic),
}

/// The heuristic scheme of QTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// The number of requests in flight from which to poll, if any of them is asymmetric.
    pub asymmetric: usize,
    /// The number from which to poll otherwise.
    pub otherwise: usize,
}

impl Heuristic {
    /// The thresholds of the paper.
    pub const DEFAULT: Self = Self {
        asymmetric: 48,
        otherwise: 24,
    };
}

/// The numbers of requests in flight and of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Asymmetric requests.
    pub asymmetric: usize,
    /// All others.
    pub otherwise: usize,
    /// Active connections: those with a job that has begun and not ended.
    pub active: usize,
}

impl Heuristic {
    /// Returns the moment of a poll that is due now: idle if all active connections wait
    /// (timeliness), busy if enough requests have come together (efficiency). `None` if no poll is
    /// due.
    pub fn due(&self, load: Load) -> Option<Moment> {
        let in_flight = load.asymmetric + load.otherwise;
        let threshold = match load.asymmetric {
            0 => self.otherwise,
            _ => self.asymmetric,
        };
        if in_flight == 0 {
            None
        } else if in_flight >= load.active {
            Some(Moment::Idle)
        } else if in_flight >= threshold {
            Some(Moment::Busy)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(asymmetric: usize, otherwise: usize, active: usize) -> Option<Moment> {
        Heuristic::DEFAULT.due(Load {
            asymmetric,
            otherwise,
            active,
        })
    }

    #[test]
    fn nothing_in_flight_is_never_polled_for() {
        assert_eq!(due(0, 0, 0), None);
        assert_eq!(due(0, 0, 5), None);
    }

    #[test]
    fn it_is_time_when_all_active_connections_wait() {
        assert_eq!(due(1, 0, 1), Some(Moment::Idle));
        assert_eq!(due(2, 1, 3), Some(Moment::Idle));
        assert_eq!(due(2, 1, 4), None);
        assert_eq!(due(3, 0, 2), Some(Moment::Idle), "more than are active");
    }

    #[test]
    fn it_is_efficient_from_the_thresholds_on() {
        assert_eq!(due(47, 0, 100), None);
        assert_eq!(due(48, 0, 100), Some(Moment::Busy));
        assert_eq!(due(1, 47, 100), Some(Moment::Busy));
        assert_eq!(due(0, 23, 100), None);
        assert_eq!(due(0, 24, 100), Some(Moment::Busy));
    }
}
