//! The requests in flight, and the tickets of the jobs that wait for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::costs::{ABANDONED, UNREAD};
use crate::operation::{Class, Kind};
use crate::pause::Notification;
use crate::request::Answer;

/// Identifies one request of an instance. Slots are reused; the generation tells a stale name
/// apart, and the table that of another thread, on which an application may resume a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    table: u64,
    index: usize,
    generation: u64,
}

impl RequestId {
    /// Returns a name that no request of any instance has: for tests of accelerators.
    #[doc(hidden)]
    pub fn numbered(index: usize) -> Self {
        Self {
            table: u64::MAX,
            index,
            generation: 0,
        }
    }
}

struct Slot {
    generation: u64,
    state: State,
    /// The time of submission. It is taken when the answer arrives.
    submitted: Option<(Kind, Instant)>,
}

enum State {
    Free,
    InFlight {
        class: Class,
        notification: Notification,
    },
    Orphaned {
        class: Class,
    },
    Answered {
        answer: Answer,
        /// The moment from which no job is expected to read the answer any more.
        expires: Option<Instant>,
    },
    /// The answer has been wiped unread.
    Abandoned {
        until: Instant,
    },
}

/// The interval at which expired answers are looked for: all slots are read then.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The consequence of an answer that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The waiting job has to be notified.
    Notify(Notification),
    /// No job waits any more: the answer was wiped and dropped.
    Orphan,
}

/// A table of requests that grows to `limit`.
pub(crate) struct Slots {
    table: u64,
    slots: Vec<Slot>,
    free: Vec<usize>,
    limit: usize,
    in_flight: [usize; Class::ALL.len()],
    /// The last time that expired answers were looked for.
    looked: Option<Instant>,
}

impl Slots {
    pub(crate) fn new(limit: usize) -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        Self {
            table: TABLES.fetch_add(1, Ordering::Relaxed),
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            in_flight: [0; Class::ALL.len()],
            looked: None,
        }
    }

    /// Returns the number of requests of `class` that have no answer yet, orphans included.
    pub(crate) fn in_flight(&self, class: Class) -> usize {
        self.in_flight[class.index()]
    }

    /// Returns the number of slots that hold a request or an unread answer.
    #[cfg(test)]
    pub(crate) fn occupied(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a slot; `None` if all are taken.
    pub(crate) fn open(&mut self, class: Class, notification: Notification) -> Option<RequestId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.limit => {
                self.slots.push(Slot {
                    generation: 0,
                    state: State::Free,
                    submitted: None,
                });
                self.slots.len() - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index];
        slot.state = State::InFlight {
            class,
            notification,
        };
        self.in_flight[class.index()] += 1;
        Some(RequestId {
            table: self.table,
            index,
            generation: slot.generation,
        })
    }

    /// Notes the time at which the request was submitted.
    pub(crate) fn note_submission(&mut self, id: RequestId, kind: Kind, time: Instant) {
        self.slots[id.index].submitted = Some((kind, time));
    }

    /// Returns the time at which the request was submitted, once.
    pub(crate) fn take_submission(&mut self, id: RequestId) -> Option<(Kind, Instant)> {
        self.slots[id.index].submitted.take()
    }

    /// Stores the answer for the job that waits, or drops it if the job has gone away. The answer
    /// arrives `now`.
    pub(crate) fn answer(&mut self, id: RequestId, answer: Answer, now: Instant) -> Delivery {
        let slot = &mut self.slots[id.index];
        assert_eq!(
            slot.generation, id.generation,
            "answer to a request that has ended"
        );
        match slot.state {
            State::InFlight {
                class,
                notification,
            } => {
                self.in_flight[class.index()] -= 1;
                let expires = match notification {
                    // The event loop is ours: it resumes each job, or drops its ticket.
                    Notification::ReadyQueue(_) => None,
                    Notification::Descriptor(..) | Notification::ByPauser => Some(now + UNREAD),
                };
                slot.state = State::Answered { answer, expires };
                Delivery::Notify(notification)
            }
            State::Orphaned { class } => {
                self.in_flight[class.index()] -= 1;
                self.release(id);
                Delivery::Orphan
            }
            State::Free | State::Answered { .. } | State::Abandoned { .. } => {
                unreachable!("a request is answered once")
            }
        }
    }

    /// Takes the answer out and frees the slot; `None` while there is no answer, or if the request
    /// is another thread's.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Answer> {
        let slot = self.named(id)?;
        match std::mem::replace(&mut slot.state, State::Free) {
            State::Answered { answer, .. } => {
                self.release(id);
                Some(answer)
            }
            other => {
                slot.state = other;
                None
            }
        }
    }

    /// The job no longer waits. Returns true if its request is still in flight, hence orphaned.
    pub(crate) fn abandon(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.named(id) else {
            return false;
        };
        match slot.state {
            State::InFlight { class, .. } => {
                slot.state = State::Orphaned { class };
                true
            }
            State::Answered { .. } | State::Abandoned { .. } => {
                self.release(id);
                false
            }
            State::Free | State::Orphaned { .. } => false,
        }
    }

    /// Wipes the answers whose jobs have not read them for [`UNREAD`], and returns their number.
    /// Their slots are free after [`ABANDONED`]. Looks once a second at most.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        let is_recent = |looked: Instant| now.saturating_duration_since(looked) < LOOK_INTERVAL;
        if self.looked.is_some_and(is_recent) {
            return 0;
        }
        self.looked = Some(now);
        let mut expired = 0;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            match slot.state {
                State::Answered {
                    expires: Some(expires),
                    ..
                } if expires <= now => {
                    let until = now + ABANDONED;
                    slot.state = State::Abandoned { until };
                    expired += 1;
                }
                State::Abandoned { until } if until <= now => {
                    slot.state = State::Free;
                    slot.generation += 1;
                    self.free.push(index);
                }
                _ => {}
            }
        }
        expired
    }

    fn named(&mut self, id: RequestId) -> Option<&mut Slot> {
        if id.table != self.table {
            return None;
        }
        self.slots
            .get_mut(id.index)
            .filter(|slot| slot.generation == id.generation)
    }

    fn release(&mut self, id: RequestId) {
        let slot = &mut self.slots[id.index];
        slot.state = State::Free;
        slot.generation += 1;
        self.free.push(id.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pause::JobToken;
    use crate::request::{Output, Reason};

    const QUEUE: Notification = Notification::ReadyQueue(JobToken(7));

    #[test]
    fn an_answer_is_kept_until_it_is_taken() {
        let mut slots = Slots::new(1);
        let id = slots.open(Class::Asymmetric, QUEUE).expect("a free slot");
        assert!(slots.take(id).is_none());
        assert_eq!(slots.in_flight(Class::Asymmetric), 1);
        let answer = Answer::Computed(Output::new(&[1, 2, 3]));
        assert_eq!(
            slots.answer(id, answer, Instant::now()),
            Delivery::Notify(QUEUE)
        );
        assert_eq!(slots.in_flight(Class::Asymmetric), 0);
        assert!(
            slots.open(Class::Asymmetric, QUEUE).is_none(),
            "the slot holds an unread answer"
        );
        assert!(matches!(slots.take(id), Some(Answer::Computed(o)) if o.as_slice() == [1, 2, 3]));
        assert_eq!(slots.occupied(), 0);
    }

    #[test]
    fn an_orphan_stays_in_flight_until_it_is_answered_and_then_frees_its_slot() {
        let mut slots = Slots::new(1);
        let id = slots.open(Class::Asymmetric, QUEUE).expect("a free slot");
        assert!(slots.abandon(id));
        assert_eq!(slots.in_flight(Class::Asymmetric), 1);
        assert!(slots.open(Class::Asymmetric, QUEUE).is_none());
        assert_eq!(
            slots.answer(id, Answer::Software(Reason::Cheaper), Instant::now()),
            Delivery::Orphan
        );
        assert_eq!(
            (slots.in_flight(Class::Asymmetric), slots.occupied()),
            (0, 0)
        );
        assert!(slots.open(Class::Asymmetric, QUEUE).is_some());
    }

    #[test]
    fn an_unread_answer_of_a_job_that_went_away_is_dropped() {
        let mut slots = Slots::new(1);
        let id = slots.open(Class::Prf, QUEUE).expect("a free slot");
        slots.answer(id, Answer::Software(Reason::Fault), Instant::now());
        assert!(!slots.abandon(id));
        assert_eq!(slots.occupied(), 0);
        assert!(!slots.abandon(id), "a stale name changes nothing");
    }

    #[test]
    fn the_name_of_another_tables_request_means_nothing() {
        let (mut ours, mut theirs) = (Slots::new(1), Slots::new(1));
        let id = theirs.open(Class::Asymmetric, QUEUE).expect("a free slot");
        let own = ours.open(Class::Asymmetric, QUEUE).expect("a free slot");
        ours.answer(own, Answer::Computed(Output::new(&[1])), Instant::now());
        assert!(ours.take(id).is_none());
        assert!(!ours.abandon(id));
        assert!(ours.take(own).is_some());
    }

    /// A table of one slot, with an answer that arrived at the given moment.
    fn answered(now: Instant) -> (Slots, RequestId) {
        let mut slots = Slots::new(1);
        let id = slots.open(Class::Asymmetric, Notification::ByPauser);
        let id = id.expect("a free slot");
        slots.answer(id, Answer::Computed(Output::new(&[1, 2, 3])), now);
        (slots, id)
    }

    #[test]
    fn an_answer_that_no_job_reads_is_wiped_and_its_slot_is_free_later() {
        let start = Instant::now();
        let (mut slots, lost) = answered(start);
        assert_eq!(slots.expire(start + UNREAD - LOOK_INTERVAL), 0);
        assert_eq!(slots.expire(start + UNREAD), 1);
        assert!(matches!(slots.slots[0].state, State::Abandoned { .. }));
        assert!(slots.take(lost).is_none());
        assert_eq!(slots.expire(start + ABANDONED), 0);
        assert_eq!(slots.occupied(), 1);
        assert_eq!(slots.expire(start + ABANDONED + UNREAD), 0);
        assert_eq!(slots.occupied(), 0);
        let next = slots.open(Class::Asymmetric, Notification::ByPauser);
        let next = next.expect("a free slot");
        assert!(!slots.abandon(lost), "a stale name changes nothing");
        slots.answer(next, Answer::Software(Reason::Fault), start);
        assert!(slots.take(next).is_some());
    }

    #[test]
    fn a_request_in_flight_does_not_expire() {
        let mut slots = Slots::new(1);
        let id = slots.open(Class::Asymmetric, Notification::ByPauser);
        let id = id.expect("a free slot");
        let now = Instant::now();
        assert_eq!(slots.expire(now + 2 * UNREAD), 0);
        slots.answer(id, Answer::Software(Reason::Fault), now + 2 * UNREAD);
        assert!(slots.take(id).is_some());
    }

    #[test]
    fn a_job_that_comes_back_late_frees_its_slot() {
        let start = Instant::now();
        let (mut slots, late) = answered(start);
        assert_eq!(slots.expire(start + UNREAD), 1);
        assert!(slots.take(late).is_none());
        assert!(!slots.abandon(late));
        assert_eq!(slots.occupied(), 0);
        assert_eq!(slots.expire(start + 2 * ABANDONED), 0);
        assert_eq!(slots.occupied(), 0);
    }

    #[test]
    fn the_answer_of_a_job_on_the_ready_queue_does_not_expire() {
        let mut slots = Slots::new(1);
        let id = slots.open(Class::Compression, QUEUE).expect("a free slot");
        let now = Instant::now();
        slots.answer(id, Answer::Computed(Output::new(&[1])), now);
        assert_eq!(slots.expire(now + 100 * UNREAD), 0);
        assert!(slots.take(id).is_some());
    }
}
