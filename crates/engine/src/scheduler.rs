//! The scheduler: decides which client's requests are computed next, and when.

use std::cmp::Ordering as Order;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipstream_accelerators::engine::protocol::wire::{
    Malformed, Outcome, Response, Slot, read_request,
};
use slipstream_accelerators::lanes::Backend;
use slipstream_offload::Kind;
use slipstream_ring::memory::Memory;
use slipstream_ring::ring::{Consumer, Corrupt};

use crate::Options;
use crate::counters::{Counters, count};
use crate::instance::Instance;
use crate::pace::Card;
use crate::queues::{Choice, Queues};
use crate::round::Round;
use crate::shares::Place;
use crate::sleep::Sleep;
use crate::validation::{self, Task};

/// The rings of all clients, the requests taken from them, and the deliveries that are due later.
/// Engine threads share it under a lock.
#[derive(Debug)]
pub(crate) struct Scheduler {
    backend: Backend,
    linger: Option<Duration>,
    card: Option<Card>,
    /// The clients of each user, by the user's [place](Place).
    rounds: Vec<Round<Client>>,
    queues: Queues<Request>,
    held: BinaryHeap<Held>,
    /// Clients to be woken, in the order of time.
    signals: VecDeque<(Instant, Arc<Instance>)>,
    sleep: Sleep,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Client {
    instance: Arc<Instance>,
    requests: Consumer<Arc<Memory>>,
    taken: u64,
    /// The number of requests that can be taken before the room for responses is read again.
    allowance: usize,
}

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) instance: Arc<Instance>,
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) task: Task,
    /// The time at which it was taken from its ring.
    pub(crate) taken: Instant,
    /// The time at which the simulated card would have the response.
    pub(crate) release: Option<Instant>,
}

/// A response that waits until the simulated card would have it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) release: Instant,
    pub(crate) instance: Arc<Instance>,
    pub(crate) response: Response,
}

/// The number of requests that are taken while the lock is held.
const SWEEP: usize = 1024;

/// Requests of a kind that are computed together.
pub(crate) type Batch = Vec<Request>;

/// The next step of an engine thread.
#[derive(Debug)]
pub(crate) enum Step {
    /// Deliver this response.
    Deliver(Held),
    /// Wake the client of this instance.
    Signal(Arc<Instance>),
    /// Compute this batch.
    Compute(Batch),
    /// Ask again: more requests may wait in the rings.
    Again,
    /// Sleep until something happens.
    Sleep,
}

impl Scheduler {
    /// Makes a scheduler whose threads stop when `stop` is readable.
    ///
    /// # Errors
    /// If the system has no descriptors for it.
    pub(crate) fn new(
        options: &Options,
        counters: Arc<Counters>,
        stop: &OwnedFd,
    ) -> io::Result<Self> {
        let card = options
            .pace
            .as_ref()
            .map(|pace| Card::new(pace, Instant::now()));
        Ok(Self {
            backend: options.backend,
            linger: options.linger,
            card,
            rounds: Vec::new(),
            queues: Queues::default(),
            held: BinaryHeap::new(),
            signals: VecDeque::new(),
            sleep: Sleep::new(stop)?,
            counters,
        })
    }

    /// Returns the descriptor that engine threads sleep on.
    pub(crate) fn epoll(&self) -> Arc<OwnedFd> {
        self.sleep.epoll.clone()
    }

    /// Adds a new client.
    ///
    /// # Errors
    /// If the system cannot watch its doorbell.
    pub(crate) fn add(
        &mut self,
        instance: Arc<Instance>,
        requests: Consumer<Arc<Memory>>,
    ) -> io::Result<()> {
        self.sleep.watch(&instance.doorbell)?;
        if self.sleep.is_armed {
            instance.bell.arm();
        }
        let user = self.queues.place(instance.user);
        let rounds = self.rounds.len().max(user + 1);
        self.rounds.resize_with(rounds, Round::default);
        self.rounds[user].add(Client {
            instance,
            requests,
            taken: 0,
            allowance: 0,
        });
        Ok(())
    }

    /// Removes a client that has disconnected: its waiting requests are dropped, and those that are
    /// being computed will be.
    pub(crate) fn remove(&mut self, instance: &Arc<Instance>) {
        instance.end();
        self.sleep.forget(&instance.doorbell);
        for round in &mut self.rounds {
            round.remove(|client| Arc::ptr_eq(&client.instance, instance));
        }
        self.queues
            .discard(|request| Arc::ptr_eq(&request.instance, instance));
        self.held
            .retain(|held| !Arc::ptr_eq(&held.instance, instance));
        self.signals
            .retain(|(_, waiting)| !Arc::ptr_eq(waiting, instance));
    }

    /// Notes that an engine thread that slept is awake.
    pub(crate) fn rise(&mut self) {
        self.sleep.sleepers -= 1;
    }

    /// Keeps a response that is due later, if its client is still connected.
    pub(crate) fn hold(&mut self, held: Held) {
        if !held.instance.has_ended() {
            self.held.push(held);
        }
    }

    /// Notes a client that is to be woken later, if it is still connected.
    pub(crate) fn signal_at(&mut self, deadline: Instant, instance: Arc<Instance>) {
        if !instance.has_ended() {
            self.signals.push_back((deadline, instance));
        }
    }

    /// Notes the cost of a batch of this kind.
    pub(crate) fn measured(&mut self, kind: Kind, cost: Duration) {
        self.queues.measured(kind, cost);
    }

    /// Returns the next step of the calling thread. After [`Step::Sleep`] it calls
    /// [`rise`](Self::rise).
    pub(crate) fn step(&mut self) -> Step {
        let now = Instant::now();
        if self.held.peek().is_some_and(|held| held.release <= now) {
            return Step::Deliver(self.held.pop().expect("just seen"));
        }
        if self
            .signals
            .front()
            .is_some_and(|(deadline, _)| *deadline <= now)
        {
            return Step::Signal(self.signals.pop_front().expect("just seen").1);
        }
        self.sweep(now);
        let mut choice = self.choose(now);
        if self.sleep.sleepers > 0 || !matches!(choice, Choice::Batch(_)) {
            // From now on clients wake the threads that sleep. Slots that they filled before they
            // could see the armed bell are found now.
            self.arm();
            let has_seen_all = self.sweep(now);
            choice = self.choose(now);
            if !has_seen_all && !matches!(choice, Choice::Batch(_)) {
                return Step::Again;
            }
        }
        let Choice::Batch(kind) = choice else {
            self.sleep.set_timer(now, self.deadline(choice));
            self.sleep.sleepers += 1;
            return Step::Sleep;
        };
        let batch = self.queues.take(kind, self.linger);
        if self.sleep.sleepers == 0 {
            self.disarm();
        } else {
            self.hand_over(now);
        }
        Step::Compute(batch)
    }

    /// Wakes another thread for the remaining work, in rings too, while this thread computes.
    fn hand_over(&mut self, now: Instant) {
        let has_seen_all = self.sweep(now);
        let choice = self.choose(now);
        match choice {
            Choice::Batch(_) => self.sleep.call(),
            _ if !has_seen_all => self.sleep.call(),
            Choice::Linger(_) | Choice::Nothing => {
                self.sleep.set_timer(now, self.deadline(choice));
            }
        }
    }

    fn choose(&self, now: Instant) -> Choice {
        let concurrency = || {
            self.clients()
                .map(|client| client.instance.concurrency())
                .sum()
        };
        self.queues.choose(now, self.linger, concurrency)
    }

    fn deadline(&self, choice: Choice) -> Option<Instant> {
        let linger = match choice {
            Choice::Linger(deadline) => Some(deadline),
            Choice::Batch(_) | Choice::Nothing => None,
        };
        let held = self.held.peek().map(|held| held.release);
        let signal = self.signals.front().map(|(deadline, _)| *deadline);
        [linger, held, signal].into_iter().flatten().min()
    }

    fn arm(&mut self) {
        self.sleep.is_armed = true;
        for client in self.clients() {
            client.instance.bell.arm();
        }
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.sleep.is_armed) {
            for client in self.clients() {
                client.instance.bell.disarm();
            }
        }
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        self.rounds.iter().flat_map(Round::members)
    }

    /// Takes requests from the rings, of each user in weighted round robin, until they fill a batch
    /// or the user's rings are empty. So no user waits to be looked at until another one, that
    /// floods, has had enough. A chunk of content is a turn by itself, regardless of the weight: it
    /// can take longer than many operations. A simulated card takes all requests, since the time of
    /// each starts when it arrives. Returns false if the sweep stopped earlier to release the lock:
    /// clients may submit, and be refused, as fast as requests are taken.
    fn sweep(&mut self, now: Instant) -> bool {
        let mut has_seen_all = true;
        for user in 0..self.rounds.len() {
            has_seen_all &= self.sweep_user(user, now);
        }
        has_seen_all
    }

    fn sweep_user(&mut self, user: Place, now: Instant) -> bool {
        let mut without = 0;
        let mut taken = 0;
        while without < self.rounds[user].members().len()
            && (self.card.is_some() || !self.queues.has_enough(user))
        {
            if taken == SWEEP {
                return false;
            }
            let kind = match self.rounds[user].is_over() {
                true => None,
                false => self.take(user, now),
            };
            if let Some(kind) = kind {
                let is_content = matches!(kind, Kind::Compress(_));
                self.rounds[user].use_up(if is_content { u32::MAX } else { 1 });
                without = 0;
                taken += 1;
            } else {
                self.rounds[user].advance(|client| client.instance.weight);
                without += 1;
            }
        }
        true
    }

    /// Takes a request of the client that has the user's turn, if there is one and its response will
    /// have room. Returns its kind.
    fn take(&mut self, user: Place, now: Instant) -> Option<Kind> {
        let client = self.rounds[user].current()?;
        if client.instance.has_ended() {
            return None;
        }
        let mut slot = Slot::default();
        match client.pop(&mut slot) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(Corrupt) => {
                client.instance.fail();
                return None;
            }
        }
        let request = match read_request(&slot) {
            Ok(request) => request,
            Err(Malformed(_)) => {
                client.instance.fail();
                return None;
            }
        };
        let (id, kind) = (request.id, request.kind);
        count(&self.counters.requests[kind.index()]);
        let instance = client.instance.clone();
        let (session, layout) = (&instance.session, instance.layout);
        match validation::task(self.backend, session, layout, request) {
            Some(task) => {
                let content_bytes = match &task {
                    Task::Compress(chunk) => chunk.length,
                    Task::Compute(_) => 0,
                };
                let card = self.card.as_mut();
                let release = card.map(|card| card.answers(kind, content_bytes, now));
                let request = Request {
                    instance,
                    id,
                    kind,
                    task,
                    taken: now,
                    release,
                };
                self.queues.push(kind, user, now, request);
            }
            None => self.refuse(instance, id, now),
        }
        Some(kind)
    }

    fn refuse(&mut self, instance: Arc<Instance>, id: u64, now: Instant) {
        count(self.counters.refused);
        let outcome = Outcome::Refused;
        instance.deliver(&Response { id, outcome });
        if let Some(deadline) = instance.signal(now) {
            self.signal_at(deadline, instance);
        }
    }
}

impl Client {
    fn pop(&mut self, slot: &mut Slot) -> Result<bool, Corrupt> {
        if self.requests.waiting()? == 0 {
            return Ok(false);
        }
        if self.allowance == 0 {
            self.allowance = self.instance.room(self.taken)?;
        }
        if self.allowance == 0 {
            return Ok(false);
        }
        self.requests.pop(&mut slot.0)?;
        self.allowance -= 1;
        self.taken += 1;
        Ok(true)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.release == other.release
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

/// The greatest is the one that is due first.
impl Ord for Held {
    fn cmp(&self, other: &Self) -> Order {
        other.release.cmp(&self.release)
    }
}
