//! Steps of handshakes on fibers: a step pauses while its operation is in flight, and the future of
//! its connection resolves when the step has ended.
//! Fibers stay on their thread and are never unwound, so they live in the thread's own tables, and
//! a future only knows the number of its job. A future that is dropped, since its client has gone
//! or has taken too long, leaves its job behind: the step goes on when its answer is there, and its
//! state is dropped when it ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rustls::server::ServerConnection;
use slab::Slab;
use slipstream_offload::JobToken;
use slipstream_offload::Notification;

use crate::crypto;
use slipstream_offload::fiber::{self, Fiber, Fibers, Progress, Rules};

/// The most steps of one event loop that are paused at a time; more wait for their turn. A fraction
/// of it fills batches.
const FIBERS: usize = 512;

/// The connection after a step, and the result of the step.
pub(crate) type Outcome = (
    Box<ServerConnection>,
    Result<rustls::IoState, rustls::Error>,
);

/// Prepares this thread for steps.
pub(crate) fn prepare() {
    FIBERS_OF_LOOP.set(Some(Fibers::new(FIBERS, crypto::STACK_BYTES)));
    fiber::set_rules(Rules {
        admits: |_| Ok(()),
        concurrency: || HANDSHAKES.get(),
        notification: Notification::ReadyQueue,
    });
}

/// Lets `connection` process the bytes that it has read, on a fiber. Only on a thread that is
/// [prepared](prepare).
pub(crate) fn process(connection: Box<ServerConnection>) -> Step {
    Step(State::Waiting(connection, None))
}

/// A handshake that has begun and not ended. As many operations can come to wait together.
pub(crate) struct UnderWay(());

impl UnderWay {
    pub(crate) fn begin() -> Self {
        HANDSHAKES.set(HANDSHAKES.get() + 1);
        Self(())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        HANDSHAKES.set(HANDSHAKES.get() - 1);
    }
}

/// Resumes the step that waits as `job`.
pub(crate) fn resume(job: JobToken) {
    note_progress();
    let Some(fiber) = JOBS.with_borrow_mut(|jobs| jobs.get_mut(job.0)?.fiber.take()) else {
        return;
    };
    match with_fibers(|fibers| fibers.resume(fiber)) {
        Progress::Paused(fiber) => pause(job.0, fiber),
        Progress::Finished => {
            let waker = JOBS.with_borrow_mut(|jobs| match &mut jobs[job.0].waiting {
                Waiting::For(waker) => Some(waker.clone()),
                Waiting::Dropped => {
                    jobs.remove(job.0);
                    None
                }
            });
            if let Some(waker) = waker {
                waker.wake();
            }
            wake_next();
        }
    }
}

/// Changes whenever a step has begun or gone on.
pub(crate) fn progress() -> u64 {
    PROGRESS.get()
}

/// Sets the waker of the poller, which is woken when a step has paused.
pub(crate) fn set_poller(waker: &Waker) {
    POLLER.with_borrow_mut(|poller| match poller {
        Some(known) => known.clone_from(waker),
        None => *poller = Some(waker.clone()),
    });
}

/// The future of a step.
pub(crate) struct Step(State);

enum State {
    /// No fiber was free yet; this is its place in the queue.
    Waiting(Box<ServerConnection>, Option<u64>),
    /// It has paused, and is this job.
    Paused(usize),
    Ended,
}

impl Future for Step {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let state = std::mem::replace(&mut self.0, State::Ended);
        let (next, outcome) = match state {
            State::Waiting(connection, place) => start(connection, place, context.waker()),
            State::Paused(job) => match outcome_of(job, context.waker()) {
                Some(outcome) => (State::Ended, Some(outcome)),
                None => (State::Paused(job), None),
            },
            State::Ended => unreachable!("a future is not polled after its end"),
        };
        self.0 = next;
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        match self.0 {
            State::Paused(job) => JOBS.with_borrow_mut(|jobs| {
                if jobs[job].outcome.is_some() {
                    jobs.remove(job);
                } else {
                    jobs[job].waiting = Waiting::Dropped;
                }
            }),
            State::Waiting(_, Some(place)) => {
                let left = QUEUE.with_borrow_mut(|queue| queue.waiting.remove(&place));
                // It has been told of a free fiber, which another step can have now.
                if left.is_none() {
                    wake_next();
                }
            }
            State::Waiting(_, None) | State::Ended => {}
        }
    }
}

/// Steps that wait for a fiber, the first in the queue first.
struct Queue {
    waiting: BTreeMap<u64, Waker>,
    next: u64,
}

/// A step that has begun.
struct Job {
    /// While it is paused.
    fiber: Option<Fiber>,
    /// When it has ended.
    outcome: Option<Outcome>,
    waiting: Waiting,
}

enum Waiting {
    For(Waker),
    /// The future has been dropped.
    Dropped,
}

thread_local! {
    // In cells of their own: a fiber runs while the fibers are borrowed, and reads all the others.
    static FIBERS_OF_LOOP: RefCell<Option<Fibers>> = const { RefCell::new(None) };
    static JOBS: RefCell<Slab<Job>> = const { RefCell::new(Slab::new()) };
    static QUEUE: RefCell<Queue> = const {
        RefCell::new(Queue {
            waiting: BTreeMap::new(),
            next: 0,
        })
    };
    static POLLER: RefCell<Option<Waker>> = const { RefCell::new(None) };
    static HANDSHAKES: Cell<usize> = const { Cell::new(0) };
    static PROGRESS: Cell<u64> = const { Cell::new(0) };
}

fn start(
    mut connection: Box<ServerConnection>,
    place: Option<u64>,
    waker: &Waker,
) -> (State, Option<Outcome>) {
    if with_fibers(|fibers| fibers.live()) >= FIBERS {
        let place = QUEUE.with_borrow_mut(|queue| queue.join(place, waker));
        return (State::Waiting(connection, Some(place)), None);
    }
    if let Some(place) = place {
        QUEUE.with_borrow_mut(|queue| queue.waiting.remove(&place));
    }
    note_progress();
    let job = JOBS.with_borrow_mut(|jobs| {
        jobs.insert(Job {
            fiber: None,
            outcome: None,
            waiting: Waiting::For(waker.clone()),
        })
    });
    // The connection is stored where it is found again if there is no memory for a stack.
    let parked = std::rc::Rc::new(Cell::new(None));
    let handed_over = parked.clone();
    let body = move || {
        let mut connection: Box<ServerConnection> =
            handed_over.take().expect("a connection was handed over");
        let result = connection.process_new_packets();
        JOBS.with_borrow_mut(|jobs| jobs[job].outcome = Some((connection, result)));
    };
    parked.set(Some(connection));
    match with_fibers(|fibers| fibers.start(JobToken(job), body)) {
        Ok(Progress::Paused(fiber)) => {
            pause(job, fiber);
            (State::Paused(job), None)
        }
        Ok(Progress::Finished) => {
            wake_next();
            (State::Ended, take(job))
        }
        Err(_) => {
            wake_next();
            take(job);
            connection = parked.take().expect("nothing has taken it");
            let result = connection.process_new_packets();
            (State::Ended, Some((connection, result)))
        }
    }
}

fn pause(job: usize, fiber: Fiber) {
    JOBS.with_borrow_mut(|jobs| jobs[job].fiber = Some(fiber));
    POLLER.with_borrow(|poller| {
        if let Some(poller) = poller {
            poller.wake_by_ref();
        }
    });
}

fn outcome_of(job: usize, waker: &Waker) -> Option<Outcome> {
    JOBS.with_borrow_mut(|jobs| {
        if jobs[job].outcome.is_some() {
            return jobs.remove(job).outcome;
        }
        match &mut jobs[job].waiting {
            Waiting::For(known) => known.clone_from(waker),
            Waiting::Dropped => unreachable!("the future is here"),
        }
        None
    })
}

fn take(job: usize) -> Option<Outcome> {
    JOBS.with_borrow_mut(|jobs| jobs.remove(job).outcome)
}

impl Queue {
    /// Adds a step to the queue. A step that has a place keeps it.
    fn join(&mut self, place: Option<u64>, waker: &Waker) -> u64 {
        let place = place.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.waiting.insert(place, waker.clone());
        place
    }
}

/// Wakes the next step in the queue: a fiber is free.
fn wake_next() {
    let first = QUEUE.with_borrow_mut(|queue| queue.waiting.pop_first());
    if let Some((_, waker)) = first {
        waker.wake();
    }
}

fn note_progress() {
    PROGRESS.set(PROGRESS.get().wrapping_add(1));
}

fn with_fibers<R>(f: impl FnOnce(&mut Fibers) -> R) -> R {
    FIBERS_OF_LOOP.with_borrow_mut(|fibers| f(fibers.as_mut().expect("the thread is prepared")))
}
