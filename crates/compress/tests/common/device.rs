//! A device for this thread that compresses, or misbehaves.

use std::sync::{Arc, Mutex};

use slipstream_compress::{Compressor, Method};
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::request::{Request, Response};
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{
    Answer, Class, Compression, JobToken, Kind, Notification, Operation, Output, Pause, Reason,
};

use super::Random;

/// The device's answer to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    Right,
    Lost,
    Fault,
    Empty,
    TooLong,
}

impl Answering {
    pub const ALL: [Answering; 5] = [
        Answering::Right,
        Answering::Lost,
        Answering::Fault,
        Answering::Empty,
        Answering::TooLong,
    ];
}

/// The behaviour of the device.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Each chunk gets one of these at random.
    pub answers: Vec<Answering>,
    /// The most polls before a chunk is answered. The order is random.
    pub polls: usize,
    /// The most chunks that the device holds. Others wait in the instance's backlog.
    pub room: usize,
    /// False if the device refuses everything.
    pub is_there: bool,
    pub seed: u64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            answers: vec![Answering::Right],
            polls: 1,
            room: 64,
            is_there: true,
            seed: 5,
        }
    }
}

/// Figures of the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub chunks: u64,
    pub most_at_once: usize,
    pub longest: usize,
}

/// Installs the device until it is dropped.
pub struct Installed(Arc<Mutex<Seen>>);

impl Installed {
    pub fn new(behaviour: Behaviour) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let device = Device {
            random: Random(behaviour.seed | 1),
            behaviour,
            compressor: Compressor::new(),
            waiting: Vec::new(),
            seen: seen.clone(),
        };
        let instance = Instance::new(vec![Box::new(device)], Scheduler::default(), 64);
        instance::install(instance.expect("an instance"));
        Self(seen)
    }

    pub fn seen(&self) -> Seen {
        *self.0.lock().expect("one thread")
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        instance::uninstall();
    }
}

/// Polls the device. Returns the jobs to resume.
pub fn poll() -> Vec<usize> {
    instance::with(|instance| {
        instance.poll(Moment::Idle);
        std::iter::from_fn(|| instance.next_ready())
            .map(|job| job.0)
            .collect()
    })
    .unwrap_or_default()
}

/// The number of chunks in flight.
pub fn in_flight() -> usize {
    instance::with(|instance| instance.in_flight(Class::Compression)).unwrap_or(0)
}

/// A job that is notified through the ready queue, and never pauses.
pub struct Job(pub usize);

impl Pause for Job {
    fn notification(&self) -> Notification {
        Notification::ReadyQueue(JobToken(self.0))
    }

    fn pause(&self) -> bool {
        unreachable!("sessions do not pause jobs")
    }
}

struct Device {
    behaviour: Behaviour,
    random: Random,
    compressor: Compressor,
    /// Requests, and the number of polls until each is answered.
    waiting: Vec<(usize, Request)>,
    seen: Arc<Mutex<Seen>>,
}

impl Device {
    fn answer(&mut self, compression: &Compression) -> Answer {
        let answers = &self.behaviour.answers;
        let method = Method::from_wire(compression.coding, compression.level).expect("a method");
        match answers[self.random.below(answers.len())] {
            Answering::Right => {
                let mut output = Vec::new();
                let (content, is_last) = (&compression.content, compression.is_last);
                self.compressor
                    .compress(method, content, is_last, &mut output);
                Answer::Computed(Output::content(output))
            }
            Answering::Lost => Answer::Software(Reason::Lost),
            Answering::Fault => Answer::Software(Reason::Fault),
            Answering::Empty => Answer::Computed(Output::content(Vec::new())),
            Answering::TooLong => {
                let length = method.bound(compression.content.len()) + 1;
                Answer::Computed(Output::content(vec![0x55; length]))
            }
        }
    }
}

impl Accelerator for Device {
    fn name(&self) -> &str {
        "device"
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        self.behaviour.is_there && matches!(operation, Operation::Compress(_))
    }

    fn estimate(&self, work: &Work) -> Option<Estimate> {
        matches!(work.kind, Kind::Compress(_)).then(Estimate::default)
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if self.waiting.len() == self.behaviour.room {
            return Err(request);
        }
        let Operation::Compress(compression) = &request.operation else {
            panic!("{:?}", request.operation);
        };
        let mut seen = self.seen.lock().expect("one thread");
        seen.chunks += 1;
        seen.longest = seen.longest.max(compression.content.len());
        seen.most_at_once = seen.most_at_once.max(self.waiting.len() + 1);
        let polls = 1 + self.random.below(self.behaviour.polls);
        self.waiting.push((polls, request));
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn poll(&mut self, _moment: Moment, responses: &mut Vec<Response>, _counters: &mut Counters) {
        for (polls, _) in &mut self.waiting {
            *polls -= 1;
        }
        let (mut due, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(polls, _)| *polls == 0);
        self.waiting = waiting;
        while !due.is_empty() {
            let (_, Request { id, operation, .. }) = due.swap_remove(self.random.below(due.len()));
            let Operation::Compress(compression) = operation else {
                unreachable!("nothing else is taken");
            };
            let answer = self.answer(&compression);
            responses.push(Response::new(id, answer));
        }
    }
}
