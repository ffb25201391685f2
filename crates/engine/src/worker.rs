//! An engine thread: takes batches, computes them and delivers the results.

use std::io;
use std::iter;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rustix::event::epoll;
use rustix::thread::CpuSet;
use slipstream_accelerators::engine::protocol::wire::{Outcome, Response};
use slipstream_accelerators::lanes::{LANES, Workspace, batch};
use slipstream_compress::Compressor;
use slipstream_offload::{Answer, Kind, Operation};

use crate::Shared;
use crate::counters::{Durations, add, count};
use crate::instance::Instance;
use crate::scheduler::{Batch, Held, Step};
use crate::validation::{Chunk, Task};

/// The number of events that are taken from the kernel at a time. Only the fact that there is one
/// matters.
const EVENTS: usize = 16;

/// Ties the calling thread to a core.
///
/// # Errors
/// If there is no such core, or this process may not use it.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        set.set(core);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(
            error.kind(),
            format!("cannot compute on core {core}: {error}"),
        )
    })?;
    // Deadlines are tens of microseconds away. By default the kernel may be 50 us late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    Ok(())
}

/// The state of an engine thread.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    workspace: Box<Workspace>,
    compressor: Compressor,
    /// A copy of the content to be compressed, and the result.
    content: Vec<u8>,
    compressed: Vec<u8>,
    epoll: Arc<OwnedFd>,
    /// The responses that are handed to the scheduler when it is locked next.
    held: Vec<Held>,
    signals: Vec<(Instant, Arc<Instance>)>,
    measured: Option<(Kind, Duration)>,
    durations: Durations,
}

impl Worker {
    /// Makes the state of thread number `index`.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> io::Result<Self> {
        let epoll = shared.scheduler().epoll();
        let durations = shared.counters.durations(index);
        Ok(Self {
            shared,
            workspace: Workspace::new(),
            compressor: Compressor::new(),
            content: Vec::new(),
            compressed: Vec::new(),
            epoll,
            held: Vec::new(),
            signals: Vec::new(),
            measured: None,
            durations,
        })
    }

    /// Works until the engine stops.
    pub(crate) fn run(mut self) {
        let mut has_slept = false;
        while !self.shared.is_stopping() {
            match self.next_step(has_slept) {
                Step::Deliver(held) => {
                    held.instance.deliver(&held.response);
                    self.signal(held.instance);
                }
                Step::Signal(instance) => self.signal(instance),
                Step::Compute(batch) => self.compute(batch),
                Step::Again => {}
                Step::Sleep => {
                    self.sleep();
                    has_slept = true;
                    continue;
                }
            }
            has_slept = false;
        }
    }

    fn next_step(&mut self, has_slept: bool) -> Step {
        let mut scheduler = self.shared.scheduler();
        if has_slept {
            scheduler.rise();
        }
        if let Some((kind, cost)) = self.measured.take() {
            scheduler.measured(kind, cost);
        }
        for held in self.held.drain(..) {
            scheduler.hold(held);
        }
        for (deadline, instance) in self.signals.drain(..) {
            scheduler.signal_at(deadline, instance);
        }
        scheduler.step()
    }

    fn sleep(&self) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        // A signal or an error is as good a reason to look again as an event.
        let _ = epoll::wait(&*self.epoll, &mut events, None);
    }

    fn compute(&mut self, batch: Batch) {
        let kind = batch[0].kind;
        let start = Instant::now();
        let outcomes = self.outcomes(&batch);
        let end = Instant::now();
        self.measured = Some((kind, end - start));

        let mut instances: ArrayVec<Arc<Instance>, LANES> = ArrayVec::new();
        for (request, outcome) in batch.into_iter().zip(outcomes) {
            if let Outcome::Fault = outcome {
                count(self.shared.counters.faults);
            }
            // A simulated card holds some of them back for longer.
            let answered = request.release.map_or(end, |release| release.max(end));
            self.durations.observe(kind, answered - request.taken);
            let id = request.id;
            let response = Response { id, outcome };
            let instance = request.instance;
            match request.release {
                Some(release) if release > end => self.held.push(Held {
                    release,
                    instance,
                    response,
                }),
                Some(_) | None => {
                    instance.deliver(&response);
                    if !instances.iter().any(|known| Arc::ptr_eq(known, &instance)) {
                        instances.push(instance);
                    }
                }
            }
        }
        for instance in instances {
            self.signal(instance);
        }
    }

    fn outcomes(&mut self, batch: &Batch) -> ArrayVec<Outcome, LANES> {
        if let Task::Compress(chunk) = batch[0].task {
            return iter::once(self.compress(&batch[0].instance, chunk)).collect();
        }
        count(&self.shared.counters.fill[batch.len() - 1]);
        let operations: ArrayVec<&Operation, LANES> = batch
            .iter()
            .map(|request| match &request.task {
                Task::Compute(operation) => operation,
                Task::Compress(_) => unreachable!("a batch is of one kind"),
            })
            .collect();
        let answers = self.answers(&operations);
        let outcomes = answers.into_iter().map(|answer| match answer {
            Answer::Computed(output) => Outcome::Computed(output),
            Answer::Software(_) => Outcome::Fault,
        });
        outcomes.collect()
    }

    fn answers(&mut self, operations: &[&Operation]) -> ArrayVec<Answer, LANES> {
        let backend = self.shared.backend;
        let all = operations.iter().copied();
        let mut answers = batch::compute(backend, &mut self.workspace, all);
        // One in 2^32 random numbers for signatures and key pairs is out of range. The next one
        // will not be.
        if matches!(operations[0].kind(), Kind::Ecdsa(_) | Kind::KeyPair(_)) {
            for (operation, answer) in operations.iter().zip(&mut answers) {
                if matches!(answer, Answer::Software(_)) {
                    let again = iter::once(*operation);
                    let mut answers = batch::compute(backend, &mut self.workspace, again);
                    *answer = answers.remove(0);
                }
            }
        }
        answers
    }

    fn compress(&mut self, instance: &Instance, chunk: Chunk) -> Outcome {
        // The client may change the content at any time, which no compressor expects.
        self.content.resize(chunk.length, 0);
        instance.read_buffer(chunk.buffer, &mut self.content);
        self.compressed.clear();
        self.compressor.compress(
            chunk.method,
            &self.content,
            chunk.is_last,
            &mut self.compressed,
        );
        if !instance.write_buffer(chunk.buffer, &self.compressed) {
            return Outcome::Fault;
        }
        let counters = &self.shared.counters;
        count(counters.compressed_chunks);
        add(counters.content_bytes, self.content.len());
        add(counters.compressed_bytes, self.compressed.len());
        Outcome::Compressed(self.compressed.len())
    }

    fn signal(&mut self, instance: Arc<Instance>) {
        if let Some(deadline) = instance.signal(Instant::now()) {
            self.signals.push((deadline, instance));
        }
    }
}
