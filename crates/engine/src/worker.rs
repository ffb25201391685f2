//! An engine thread: takes batches, computes them, delivers.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rustix::event::epoll;
use rustix::thread::CpuSet;
use slipstream_lanes::LANES;
use slipstream_lanes::rsa::Workspace;
use slipstream_offload::device::wire::{Outcome, Response};
use slipstream_offload::{Answer, Kind, batch};

use crate::Shared;
use crate::counters::count;
use crate::instance::Instance;
use crate::scheduler::{Batch, Held, Step};

/// Events that are taken from the kernel at a time. That there is one is all that matters.
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
    // Deadlines are tens of microseconds away, and the kernel may be 50 late otherwise. Without it they are just that.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    Ok(())
}

/// What an engine thread works with.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    workspace: Box<Workspace>,
    epoll: Arc<OwnedFd>,
    /// What is handed to the scheduler the next time that it is locked.
    held: Vec<Held>,
    signals: Vec<(Instant, Arc<Instance>)>,
    measured: Option<(Kind, Duration)>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let epoll = shared.scheduler().epoll();
        Ok(Self {
            shared,
            workspace: Workspace::new(),
            epoll,
            held: Vec::new(),
            signals: Vec::new(),
            measured: None,
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
        // A signal, or an error, is as good a reason to look again as an event is.
        let _ = epoll::wait(&*self.epoll, &mut events, None);
    }

    fn compute(&mut self, batch: Batch) {
        let kind = batch[0].operation.kind();
        let start = Instant::now();
        let answers = self.answers(&batch, kind);
        let end = Instant::now();
        self.measured = Some((kind, end - start));
        count(&self.shared.counters.fill[batch.len() - 1]);

        let mut instances: ArrayVec<Arc<Instance>, LANES> = ArrayVec::new();
        for (request, answer) in batch.into_iter().zip(answers) {
            let outcome = match answer {
                Answer::Computed(output) => Outcome::Computed(output),
                Answer::Software(_) => {
                    count(&self.shared.counters.faults);
                    Outcome::Fault
                }
            };
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

    fn answers(&mut self, batch: &Batch, kind: Kind) -> ArrayVec<Answer, LANES> {
        let backend = self.shared.backend;
        let operations = batch.iter().map(|request| &request.operation);
        let mut answers = batch::compute(backend, &mut self.workspace, operations);
        // Of the random numbers for signatures and key pairs one in 2^32 is out of range. Another will not be.
        if matches!(kind, Kind::Ecdsa(_) | Kind::KeyPair(_)) {
            for (request, answer) in batch.iter().zip(&mut answers) {
                if matches!(answer, Answer::Software(_)) {
                    let again = std::iter::once(&request.operation);
                    let mut answers = batch::compute(backend, &mut self.workspace, again);
                    *answer = answers.remove(0);
                }
            }
        }
        answers
    }

    fn signal(&mut self, instance: Arc<Instance>) {
        if let Some(deadline) = instance.signal(Instant::now()) {
            self.signals.push((deadline, instance));
        }
    }
}
