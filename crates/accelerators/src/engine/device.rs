//! A device as the accelerator of an event loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use slipstream_ring::{Words, ring};

use slipstream_keys::Handle;
use slipstream_offload::accelerator::{Accelerator, Estimate, Health, Moment, Work};
use slipstream_offload::costs::{LATE, LATE_WITH_KEYS, LONGEST_RETRY, RETRY};
use slipstream_offload::counters::Counters;
use slipstream_offload::event;
use slipstream_offload::request::{Request, Response};
use slipstream_offload::{Answer, Kind, Operation, Output, Reason};

use super::connection::{Connection, Instance, Options};
use super::flights::{Flight, Flights};
use super::keys::RegisteredKeys;
use super::probe;
use super::protocol::buffers::Buffers;
use super::protocol::layout::{CONCURRENCY, SLOT_WORDS};
use super::protocol::wire::{self, Content, Outcome, Slot};

/// The name of the accelerator, and of the holder of keys that an engine holds.
pub const NAME: &str = "engine";

/// An engine that this process reaches over a socket. Whenever it does not answer, requests are
/// left to software; it is tried again from time to time, and let in when it has computed an
/// example correctly.
pub struct Device {
    path: PathBuf,
    options: Options,
    /// An epoll descriptor that stays the same while connections come and go.
    watch: OwnedFd,
    state: State,
    /// The time for which the device is left alone after the next failure.
    retry: Duration,
    /// The time for which the device may answer nothing.
    late: Duration,
    jobs: usize,
    /// The reason why the process that listens is not trusted, when it was last looked at.
    distrust: Option<io::Error>,
}

enum State {
    Out {
        until: Instant,
    },
    /// The connection is there, the instance has been asked for.
    Opening {
        connection: Connection,
        since: Instant,
    },
    /// The instance is there. Until the probe has been answered, nothing else is submitted.
    In(Box<Link>),
}

/// An open instance with what is in flight at it.
struct Link {
    connection: Connection,
    instance: Instance,
    slot: Slot,
    flights: Flights,
    buffers: Buffers,
    keys: RegisteredKeys,
    probe: Option<u64>,
    /// The bell has been armed, so the event may have become readable.
    is_armed: bool,
    /// The time of the device's last answer.
    answered: Instant,
    /// The engine has written impossible content.
    is_corrupt: bool,
}

impl Device {
    /// Makes a device that connects to the engine at `path`. Waits for its answer for at most
    /// `patience`; if no engine listens there, the device connects later. Answers are waited for as
    /// long, but at least for [`LATE`], and for [`LATE_WITH_KEYS`] where the engine holds private
    /// keys.
    ///
    /// # Errors
    /// If the system has no descriptor for it.
    pub fn new(path: PathBuf, options: Options, patience: Duration) -> io::Result<Self> {
        let late = match options.token {
            Some(_) => LATE_WITH_KEYS,
            None => LATE,
        };
        let mut device = Self {
            path,
            options,
            watch: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            state: State::Out {
                until: Instant::now(),
            },
            retry: RETRY,
            late: late.max(patience),
            jobs: 0,
            distrust: None,
        };
        let deadline = Instant::now() + patience;
        loop {
            device.advance();
            let is_settled = match &device.state {
                State::Out { .. } => true,
                State::Opening { .. } => false,
                State::In(link) => link.probe.is_none(),
            };
            if is_settled || Instant::now() >= deadline {
                return Ok(device);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the reason why the process that listens is given no key: it runs as a user that
    /// [`Options::user`] does not allow. The device is out then, and looks again later.
    pub fn distrust(&self) -> Option<&io::Error> {
        self.distrust.as_ref()
    }

    /// Returns true if the engine can be used now.
    fn is_in(&self) -> bool {
        matches!(&self.state, State::In(link) if link.probe.is_none())
    }

    /// Continues connecting, if it is time.
    fn advance(&mut self) {
        if self.is_in() {
            // Called for each operation: not even the clock is read.
            return;
        }
        let now = Instant::now();
        match &mut self.state {
            State::Out { until } if now >= *until => match self.connect(now) {
                Ok(opening) => self.state = opening,
                Err(_) => self.take_out(now),
            },
            State::Out { .. } => {}
            State::Opening { connection, since } => match connection.receive() {
                Ok((message, packet)) => {
                    let instance = Instance::new(self.options.layout, &message, packet);
                    if self.let_in(instance).is_err() {
                        self.take_out(now);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if now - *since > self.late {
                        self.take_out(now);
                    }
                }
                Err(_) => self.take_out(now),
            },
            State::In(_) => self.collect(now, &mut Vec::new(), &mut Counters::default()),
        }
    }

    fn connect(&mut self, now: Instant) -> io::Result<State> {
        let connection = Connection::to_anybody(&self.path)?;
        self.distrust = connection.check(&self.path, &self.options.user).err();
        if self.distrust.is_some() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.watch(connection.as_fd())?;
        connection.send(&self.options.message())?;
        Ok(State::Opening {
            connection,
            since: now,
        })
    }

    /// Watches the instance, and submits a probe, whose answer is known.
    fn let_in(&mut self, instance: io::Result<Instance>) -> io::Result<()> {
        let instance = instance?;
        let now = Instant::now();
        let out = State::Out { until: now };
        let State::Opening { connection, .. } = std::mem::replace(&mut self.state, out) else {
            unreachable!("an instance is the answer of a connection that is being opened");
        };
        self.watch(instance.event.as_fd())?;
        let buffers = Buffers::new(self.options.layout, instance.memory.clone());
        let mut link = Box::new(Link {
            connection,
            instance,
            slot: Slot::default(),
            flights: Flights::default(),
            buffers,
            keys: RegisteredKeys::new(self.options.token.is_none()),
            probe: None,
            is_armed: false,
            answered: now,
            is_corrupt: false,
        });
        let id = link.flights.next_id();
        let words = probe::write(&mut link.slot, id);
        link.push(words).map_err(io::Error::other)?;
        link.flights.add(None, now);
        link.probe = Some(id);
        self.state = State::In(link);
        Ok(())
    }

    fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(
            &self.watch,
            descriptor,
            data,
            epoll::EventFlags::IN,
        )?)
    }

    /// Returns true if the device is about to be let in, so that operations that only it can
    /// compute wait for it.
    fn is_coming(&self) -> bool {
        match &self.state {
            State::Out { .. } => false,
            State::Opening { .. } => true,
            State::In(link) => link.probe.is_some(),
        }
    }

    fn take_out(&mut self, now: Instant) {
        self.state = State::Out {
            until: now + self.retry,
        };
        self.retry = (2 * self.retry).min(LONGEST_RETRY);
    }

    /// Reads the device's answers. Takes it out if it has gone, answers nonsense, or is late.
    fn collect(&mut self, now: Instant, responses: &mut Vec<Response>, counters: &mut Counters) {
        let State::In(link) = &mut self.state else {
            return;
        };
        let was_probing = link.probe.is_some();
        match link.collect(now, self.late, responses, counters) {
            Ok(()) if was_probing && link.probe.is_none() => self.retry = RETRY,
            Ok(()) => {}
            Err(_) => {
                let lost = link.flights.drain();
                responses.extend(lost.map(|id| Response::new(id, Answer::Software(Reason::Lost))));
                self.take_out(now);
            }
        }
    }
}

impl Accelerator for Device {
    fn name(&self) -> &str {
        NAME
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        self.advance();
        if self.is_coming() {
            return held_name(operation).is_some();
        }
        let State::In(link) = &mut self.state else {
            return false;
        };
        match operation {
            Operation::Rsa { .. } | Operation::Ecdsa { .. } => link.can_use(operation),
            Operation::X25519 { .. } | Operation::Ecdh { .. } | Operation::KeyPair(_) => true,
            Operation::Compress(compression) => {
                let layout = self.options.layout;
                layout.buffers() > 0 && compression.content.len() <= layout.content_bytes()
            }
            _ => false,
        }
    }

    /// The engine's costs are unknown: it has cores of its own, and may share them with other
    /// clients.
    fn estimate(&self, work: &Work) -> Option<Estimate> {
        let is_computed = match work.kind {
            Kind::Compress(_) => self.options.layout.buffers() > 0,
            _ => true,
        };
        is_computed.then(Estimate::default)
    }

    fn health(&self) -> Health {
        match &self.state {
            State::Out { .. } => Health::Failed,
            _ if self.is_in() => Health::Ready,
            State::Opening { .. } | State::In(_) => Health::Starting,
        }
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        let now = Instant::now();
        let jobs = self.jobs as u64;
        if self.is_coming() {
            return Err(request);
        }
        let State::In(link) = &mut self.state else {
            return Err(request);
        };
        let kind = request.operation.kind();
        let id = link.flights.next_id();
        let mut buffer = None;
        let words = match &request.operation {
            Operation::Rsa { input, .. } | Operation::Ecdsa { digest: input, .. } => {
                let Some(handle) = link.handle(&request.operation) else {
                    return Err(request);
                };
                wire::write_request(&mut link.slot, id, kind, handle, input.as_slice(), &[])
            }
            Operation::X25519 { private, peer } | Operation::Ecdh { private, peer, .. } => {
                let (private, peer) = (private.as_slice(), peer.as_slice());
                wire::write_request(&mut link.slot, id, kind, Handle(0), private, peer)
            }
            Operation::KeyPair(_) => {
                wire::write_request(&mut link.slot, id, kind, Handle(0), &[], &[])
            }
            Operation::Compress(compression) => {
                let Some(index) = link.free_buffer() else {
                    return Err(request);
                };
                link.buffers.put(index, &compression.content);
                buffer = Some(index);
                let content = Content {
                    level: compression.level,
                    is_last: compression.is_last,
                    buffer: index,
                    length: compression.content.len(),
                };
                wire::write_content_request(&mut link.slot, id, compression.coding, &content)
            }
            _ => return Err(request),
        };
        link.instance.memory.words()[CONCURRENCY].store(jobs, Ordering::Relaxed);
        match link.push(words) {
            Ok(true) => {
                if let Some(index) = buffer {
                    link.buffers.take(index);
                }
                let request = request.id;
                let flight = Flight {
                    request,
                    kind,
                    buffer,
                };
                link.flights.add(Some(flight), now);
                Ok(())
            }
            Ok(false) => Err(request),
            Err(ring::Corrupt) => {
                // The next poll takes the device out.
                link.is_corrupt = true;
                Err(request)
            }
        }
    }

    fn waiting(&self) -> usize {
        match &self.state {
            State::In(link) => link.flights.count(),
            State::Out { .. } | State::Opening { .. } => 0,
        }
    }

    fn poll(&mut self, _moment: Moment, responses: &mut Vec<Response>, counters: &mut Counters) {
        if matches!(self.state, State::In(_)) {
            self.collect(Instant::now(), responses, counters);
        } else {
            self.advance();
        }
    }

    fn expect(&mut self, jobs: usize) {
        self.jobs = jobs;
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watch.as_fd())
    }

    fn arm(&mut self) -> bool {
        let State::In(link) = &mut self.state else {
            return true;
        };
        link.is_armed = true;
        link.instance.own_bell.arm();
        link.instance.responses.waiting() == Ok(0)
    }
}

impl Link {
    /// Puts the slot into the ring, and wakes the engine if it sleeps.
    fn push(&mut self, words: usize) -> Result<bool, ring::Corrupt> {
        let is_pushed = self.instance.requests.push(&self.slot.0[..words])?;
        if is_pushed {
            self.wake_engine();
        }
        Ok(is_pushed)
    }

    /// Returns a free buffer for a request that the ring has room for.
    fn free_buffer(&mut self) -> Option<usize> {
        // Checked before content is copied: the ring may be full for a while, and the request is
        // submitted again with each poll.
        let has_room = self.instance.requests.room().is_ok_and(|room| room > 0);
        self.buffers.next().filter(|_| has_room)
    }

    fn wake_engine(&self) {
        if self.instance.engine_bell.must_ring() {
            event::signal(self.instance.doorbell.as_fd());
        }
    }

    fn collect(
        &mut self,
        now: Instant,
        late: Duration,
        responses: &mut Vec<Response>,
        counters: &mut Counters,
    ) -> io::Result<()> {
        if self.is_armed || self.flights.count() == 0 {
            self.is_armed = false;
            self.instance.own_bell.disarm();
            event::drain(self.instance.event.as_fd());
        }
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let slots = self.instance.requests.slots();
        let may_have_been_full = self.flights.count() >= slots;
        let mut slot = Slot([0; SLOT_WORDS]);
        let mut came = false;
        while self
            .instance
            .responses
            .pop(&mut slot.0)
            .map_err(io::Error::other)?
        {
            came = true;
            let response = wire::read_response(&slot).map_err(io::Error::other)?;
            if self.probe == Some(response.id) {
                self.flights.end(response.id);
                if !probe::is_right(&response.outcome) {
                    return Err(broken("the device has answered the probe wrongly"));
                }
                self.probe = None;
                continue;
            }
            let flight = self
                .flights
                .end(response.id)
                .ok_or_else(|| broken("an answer without a request"))?;
            let answer = self.answer(&flight, response.outcome);
            if let Some(Answer::Computed(_)) = answer {
                counters.device_operations[flight.kind.index()] += 1;
            }
            // A request with an impossible answer has been taken out of the flights, and has to be
            // answered all the same.
            let is_possible = answer.is_some();
            let answer = answer.unwrap_or(Answer::Software(Reason::Lost));
            responses.push(Response::new(flight.request, answer));
            if !is_possible {
                return Err(broken("an answer of another kind or length"));
            }
        }
        // The engine takes no request for whose answer there is no room. It may be asleep for that
        // reason.
        if came && may_have_been_full {
            self.wake_engine();
        }
        let room = self.instance.requests.room().map_err(io::Error::other)?;
        if self.is_corrupt || (self.flights.count() == 0 && room != slots) {
            return Err(broken(
                "the counts of the ring do not match the requests in flight",
            ));
        }
        // The socket is read only if something is expected there, or if the ring has brought no
        // answer, which may be since the engine has gone.
        let is_quiet = self.flights.count() == 0 || self.flights.is_old(now);
        if self.keys.awaits_answers() || (!came && is_quiet) {
            self.read_messages()?;
        }
        if came {
            self.answered = now;
        }
        if self.flights.is_late(now, self.answered, late) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the device has not answered in time",
            ));
        }
        Ok(())
    }

    /// Returns the answer for this outcome; `None` if it is no possible outcome of the request.
    fn answer(&mut self, flight: &Flight, outcome: Outcome) -> Option<Answer> {
        if let Some(index) = flight.buffer {
            self.buffers.release(index);
        }
        Some(match (outcome, flight.buffer) {
            (Outcome::Computed(output), None)
                if output.as_slice().len() == flight.kind.output_bytes() =>
            {
                Answer::Computed(output)
            }
            (Outcome::Compressed(length), Some(index)) => {
                let content = self.buffers.get(index, length)?;
                Answer::Computed(Output::content(content))
            }
            (Outcome::Computed(_) | Outcome::Compressed(_), _) => return None,
            (Outcome::Fault, _) => Answer::Software(Reason::Fault),
            (Outcome::Refused, _) => Answer::Software(Reason::NotOffered),
        })
    }

    fn read_messages(&mut self) -> io::Result<()> {
        loop {
            let message = match self.connection.receive() {
                Ok((message, _)) => message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.keys.answered(&message)?;
        }
    }

    /// Returns true if the engine can compute `operation` with `key`, see
    /// [`RegisteredKeys::has`].
    fn can_use(&mut self, operation: &Operation) -> bool {
        if operation.is_held() {
            return held_name(operation).is_some();
        }
        if self.keys.awaits_answers() {
            // The next poll finds the error.
            let _ = self.read_messages();
        }
        self.keys.has(&self.connection, operation)
    }

    /// Returns the engine's name for the key of `operation`; `None` if it does not have it.
    fn handle(&self, operation: &Operation) -> Option<Handle> {
        match operation.is_held() {
            true => held_name(operation),
            false => self.keys.handle(operation),
        }
    }
}

/// Returns the engine's name for the key of `operation` if engines hold that key.
fn held_name(operation: &Operation) -> Option<Handle> {
    let reference = match operation {
        Operation::Rsa { key, .. } => key.reference(),
        Operation::Ecdsa { key, .. } => key.reference(),
        _ => None,
    };
    reference?.handle_at(NAME)
}
