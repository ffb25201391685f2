//! The requests in flight at a device.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slipstream_offload::costs::{LATEST, OLD};
use slipstream_offload::{Kind, RequestId};

/// The requests in flight, by the names under which the device knows them.
#[derive(Default)]
pub(super) struct Flights {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// In the order in which they were submitted; some have ended.
    order: VecDeque<(Instant, u64)>,
}

struct Entry {
    generation: u32,
    state: State,
}

enum State {
    Free,
    /// The probe, for which no job waits.
    Probe,
    Request(Flight),
}

/// A request for which a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) request: RequestId,
    pub(super) kind: Kind,
    /// The buffer of its content, and of the result.
    pub(super) buffer: Option<usize>,
}

impl Flights {
    /// Returns the name that the next request gets.
    pub(super) fn next_id(&self) -> u64 {
        match self.free.last() {
            Some(index) => id(*index, self.entries[*index as usize].generation),
            None => id(self.entries.len() as u32, 0),
        }
    }

    /// Notes that the next request is in flight; `None` is the probe.
    pub(super) fn add(&mut self, flight: Option<Flight>, now: Instant) {
        let name = self.next_id();
        let state = flight.map_or(State::Probe, State::Request);
        match self.free.pop() {
            Some(index) => self.entries[index as usize].state = state,
            None => self.entries.push(Entry {
                generation: 0,
                state,
            }),
        }
        self.order.push_back((now, name));
    }

    /// Ends the flight with this name; `None` if there is none, or if it was the probe.
    pub(super) fn end(&mut self, name: u64) -> Option<Flight> {
        let index = name as u32;
        let entry = self.entries.get_mut(index as usize)?;
        if id(index, entry.generation) != name {
            return None;
        }
        let flight = match std::mem::replace(&mut entry.state, State::Free) {
            State::Free => return None,
            State::Probe => None,
            State::Request(flight) => Some(flight),
        };
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        while self
            .order
            .front()
            .is_some_and(|(_, name)| !self.flies(*name))
        {
            self.order.pop_front();
        }
        flight
    }

    fn flies(&self, name: u64) -> bool {
        let index = name as u32;
        self.entries
            .get(index as usize)
            .is_some_and(|entry| entry.is_taken() && id(index, entry.generation) == name)
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.age(now) > OLD
    }

    /// Returns true if the device, whose last answer came at `answered`, is later than `late`
    /// allows: see [`LATE`].
    pub(super) fn is_late(&self, now: Instant, answered: Instant, late: Duration) -> bool {
        let age = self.age(now);
        age.min(now.saturating_duration_since(answered)) > late || age > late.max(LATEST)
    }

    fn age(&self, now: Instant) -> Duration {
        let oldest = self.order.front();
        oldest.map_or(Duration::ZERO, |(since, _)| {
            now.saturating_duration_since(*since)
        })
    }

    /// Ends all of them.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = RequestId> {
        let entries = std::mem::take(self).entries;
        entries.into_iter().filter_map(|entry| match entry.state {
            State::Request(flight) => Some(flight.request),
            State::Free | State::Probe => None,
        })
    }
}

impl Entry {
    fn is_taken(&self) -> bool {
        !matches!(self.state, State::Free)
    }
}

fn id(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

#[cfg(test)]
mod tests {
    use slipstream_offload::costs::{LATE, LATE_WITH_KEYS};

    use super::*;

    fn flight(number: usize) -> Flight {
        Flight {
            request: RequestId::numbered(number),
            kind: Kind::X25519,
            buffer: None,
        }
    }

    #[test]
    fn a_name_is_good_for_one_flight() {
        let mut flights = Flights::default();
        let now = Instant::now();
        let (first, id) = (flight(1), flights.next_id());
        flights.add(Some(first), now);
        assert_eq!(flights.end(id), Some(first));
        assert_eq!(flights.end(id), None, "ended");
        let again = flights.next_id();
        flights.add(Some(flight(2)), now);
        assert_ne!(again, id, "the place is used again, the name is not");
        assert_eq!(flights.end(id), None);
        assert_eq!(flights.end(7), None, "not in flight");
        assert_eq!(flights.count(), 1);
    }

    #[test]
    fn a_device_is_late_that_answers_nothing_or_one_of_them_never() {
        for late in [LATE, LATE_WITH_KEYS] {
            let mut flights = Flights::default();
            let start = Instant::now();
            let too_late = late.max(LATEST);
            let is_late = |flights: &Flights, now: Duration, answered: Duration| {
                flights.is_late(start + now, start + answered, late)
            };
            let never = Duration::ZERO;
            assert!(!is_late(&flights, too_late * 2, never), "nothing waits");
            let id = flights.next_id();
            flights.add(None, start);
            assert!(!is_late(&flights, late, never));
            assert!(is_late(&flights, late * 2, never));
            assert!(!is_late(&flights, late * 2, late), "others are answered");
            assert!(is_late(&flights, too_late * 2, too_late * 2));
            flights.end(id);
            assert!(!is_late(&flights, too_late * 2, never));
        }
    }

    #[test]
    fn all_that_somebody_waits_for_can_be_ended() {
        let mut flights = Flights::default();
        let now = Instant::now();
        flights.add(None, now);
        let waited_for = flight(2);
        flights.add(Some(waited_for), now);
        let drained: Vec<_> = flights.drain().collect();
        assert_eq!(drained, [waited_for.request]);
        assert_eq!(flights.count(), 0);
    }
}
