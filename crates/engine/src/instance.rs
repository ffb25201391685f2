//! A pair of rings with their buffers, as the engine sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::event::EventfdFlags;
use rustix::net::Shutdown;
use rustix::pipe::PipeFlags;
use slipstream_accelerators::engine::protocol::buffers;
use slipstream_accelerators::engine::protocol::layout::{
    BUFFERS_USED, CLIENT_BELL, CONCURRENCY, ENGINE_BELL, Layout,
};
use slipstream_accelerators::engine::protocol::message::Aggregation;
use slipstream_accelerators::engine::protocol::wire::{Response, Slot, write_response};
use slipstream_ring::Words;
use slipstream_ring::bell::Bell;
use slipstream_ring::memory::Memory;
use slipstream_ring::ring::{Consumer, Corrupt, Geometry, Producer};

use crate::aggregation::{Aggregator, Due};
use crate::counters::{Counters, count, uncount};
use crate::lock;
use crate::quotas::Share;
use crate::session::Session;

/// The number of requests that are taken in a client's turn at most.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=16;

/// The parameters that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) layout: Layout,
    pub(crate) weight: u32,
    pub(crate) aggregation: Aggregation,
}

/// A client's instance. It is alive until its connection has been closed.
#[derive(Debug)]
pub(crate) struct Instance {
    /// The keys that the client may use.
    pub(crate) session: Arc<Session>,
    /// The user that its lanes are charged to.
    pub(crate) user: u32,
    /// The number of requests that are taken in its turn, among the instances of its user.
    pub(crate) weight: u32,
    /// The bell that the engine arms when it sleeps.
    pub(crate) bell: Bell<Arc<Memory>>,
    /// Written by the client when it has seen the engine asleep. The engine never reads it: the
    /// write itself is the event.
    pub(crate) doorbell: OwnedFd,
    /// The places of its rings and buffers.
    pub(crate) layout: Layout,
    memory: Arc<Memory>,
    outbox: Mutex<Outbox>,
    has_ended: AtomicBool,
    is_abandoned: AtomicBool,
    /// The connection, to be shut down when the client has broken the rules.
    socket: Arc<OwnedFd>,
    counters: Arc<Counters>,
    /// Its place and its memory, which count for its user.
    _shares: [Share; 2],
}

/// The state for the delivery of responses.
#[derive(Debug)]
struct Outbox {
    responses: Producer<Arc<Memory>>,
    pushed: u64,
    client_bell: Bell<Arc<Memory>>,
    event: OwnedFd,
    aggregator: Aggregator,
}

/// The descriptors that are sent to the client, in this order.
pub(crate) type Handover = [OwnedFd; 3];

impl Instance {
    /// Makes an instance. Returns it with the ring of its requests and the descriptors for the
    /// client.
    ///
    /// # Errors
    /// If the system has no memory or no descriptors for it.
    pub(crate) fn new(
        terms: Terms,
        session: Arc<Session>,
        socket: Arc<OwnedFd>,
        counters: Arc<Counters>,
        (user, shares): (u32, [Share; 2]),
    ) -> io::Result<(Self, Consumer<Arc<Memory>>, Handover)> {
        let layout = terms.layout;
        let (memory, file) = Memory::create(layout.words())?;
        let memory = Arc::new(memory);
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // A pipe, since its two ends can differ in blocking. With a shared eventfd the client could
        // make writes block, and fill it up.
        let (readable, event) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let for_client = [
            file,
            rustix::io::fcntl_dupfd_cloexec(&doorbell, 0)?,
            readable,
        ];
        let requests = Consumer::new(memory.clone(), layout.requests());
        let outbox = Outbox {
            responses: Producer::new(memory.clone(), layout.responses()),
            pushed: 0,
            client_bell: Bell::new(memory.clone(), CLIENT_BELL),
            event,
            aggregator: Aggregator::new(terms.aggregation),
        };
        count(counters.instances);
        let instance = Self {
            session,
            user,
            weight: terms.weight.clamp(*WEIGHTS.start(), *WEIGHTS.end()),
            bell: Bell::new(memory.clone(), ENGINE_BELL),
            doorbell,
            layout,
            memory,
            outbox: Mutex::new(outbox),
            has_ended: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            socket,
            counters,
            _shares: shares,
        };
        Ok((instance, requests, for_client))
    }

    /// Returns the number of requests that the client expects to have waiting together; 0 if it
    /// does not tell.
    pub(crate) fn concurrency(&self) -> usize {
        let concurrency = self.memory.words()[CONCURRENCY].load(Ordering::Relaxed);
        usize::try_from(concurrency).map_or(self.layout.slots(), |concurrency| {
            concurrency.min(self.layout.slots())
        })
    }

    /// Returns the number of further responses that there will be room for, when `taken` requests
    /// have been taken so far.
    ///
    /// # Errors
    /// If the client has written an impossible count.
    pub(crate) fn room(&self, taken: u64) -> Result<usize, Corrupt> {
        let mut outbox = lock(&self.outbox);
        let unanswered = (taken - outbox.pushed) as usize;
        Ok(outbox.responses.room()?.saturating_sub(unanswered))
    }

    /// Copies the content of a buffer. A client that writes to the buffer meanwhile gets a mixture
    /// of both contents.
    ///
    /// # Panics
    /// If there is no such buffer, or `content` is longer.
    pub(crate) fn read_buffer(&self, index: usize, content: &mut [u8]) {
        buffers::read(&self.memory.words()[self.layout.buffer(index)], content);
    }

    /// Puts a result into a buffer. Returns false if the buffer is too short.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub(crate) fn write_buffer(&self, index: usize, result: &[u8]) -> bool {
        let has_room = result.len() <= self.layout.buffer_bytes();
        if has_room {
            buffers::write(&self.memory.words()[self.layout.buffer(index)], result);
        }
        has_room
    }

    /// Puts a response into the ring. [`signal`](Self::signal) wakes the client.
    pub(crate) fn deliver(&self, response: &Response) {
        if self.has_ended() {
            return count(self.counters.dropped);
        }
        let mut slot = Slot::default();
        let words = write_response(&mut slot, response);
        let mut outbox = lock(&self.outbox);
        match outbox.responses.push(&slot.0[..words]) {
            Ok(true) => {
                outbox.pushed += 1;
                outbox.aggregator.count();
                count(self.counters.responses);
            }
            // There is room: it was checked before, so the client has decreased its count.
            Ok(false) | Err(Corrupt) => {
                drop(outbox);
                self.fail();
            }
        }
    }

    /// Wakes the client if that is due and it sleeps. Otherwise returns the time for the next call,
    /// if the client has not been told of all responses.
    pub(crate) fn signal(&self, now: Instant) -> Option<Instant> {
        let mut outbox = lock(&self.outbox);
        // Untrusted, but a client that lies only wakes itself at the wrong time.
        let filled = self.memory.words()[self.layout.requests().tail].load(Ordering::Relaxed);
        let outstanding = filled.saturating_sub(outbox.pushed);
        match outbox.aggregator.due(now, outstanding) {
            Due::Nothing => return None,
            Due::At(deadline) => return Some(deadline),
            Due::Now => {}
        }
        if outbox.client_bell.must_ring() {
            count(self.counters.events);
            // Fails if the pipe is full. Then the client has been told often enough.
            let _ = rustix::io::write(&outbox.event, &1_u64.to_ne_bytes());
        }
        None
    }

    /// Shuts down the connection of a client that has broken the rules, which ends the instance.
    pub(crate) fn fail(&self) {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            count(self.counters.malformed_rings);
            // Fails if the client has closed its side already.
            let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
        }
    }

    /// Ends the instance when its connection has been closed: from now on responses are dropped.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Notes that the client has exited.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns true if the instance has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn wipe(&self, ring: Geometry) {
        let words = self.memory.words();
        let filled = words[ring.tail].load(Ordering::Relaxed);
        let used = usize::try_from(filled).map_or(ring.slots, |filled| filled.min(ring.slots));
        for word in &words[ring.first..ring.first + used * ring.slot_words] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Wipes the buffers that the client says it has used. The others have no pages yet.
    fn wipe_buffers(&self) {
        let words = self.memory.words();
        let used = words[BUFFERS_USED].load(Ordering::Relaxed);
        let all = self.layout.buffers();
        for index in 0..usize::try_from(used).map_or(all, |used| used.min(all)) {
            for word in &words[self.layout.buffer(index)] {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        uncount(self.counters.instances);
        // Requests that have not been taken may hold secrets.
        self.wipe(self.layout.requests());
        // So may responses and buffers that have not been read, but a client that is still
        // connected may read them later.
        if self.is_abandoned.load(Ordering::Relaxed) {
            self.wipe(self.layout.responses());
            self.wipe_buffers();
        }
    }
}
