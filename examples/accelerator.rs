//! An accelerator of one's own: a thread that "computes" key pairs. `cargo run --example accelerator`.

use std::sync::mpsc::{Receiver, Sender, channel};

use slipstream_keys::{Group, Operand};
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::fiber::{self, Fibers, LEAST_STACK_BYTES, Progress};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::request::{Request, Response};
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{Answer, JobToken, Kind, Operation, Route, admit, run};

struct Mock {
    requests: Sender<Request>,
    responses: Receiver<Response>,
    waiting: usize,
}

impl Mock {
    fn new() -> Self {
        let ((requests, inbox), (outbox, responses)) = (channel::<Request>(), channel());
        std::thread::spawn(move || {
            for request in inbox {
                let output = Operand::zeroed(request.operation.kind().output_bytes());
                // Fails when the event loop has gone.
                let _ = outbox.send(Response::new(request.id, Answer::Computed(output)));
            }
        });
        Self {
            requests,
            responses,
            waiting: 0,
        }
    }
}

impl Accelerator for Mock {
    fn name(&self) -> &str {
        "mock"
    }

    fn accepts(&mut self, operation: &Operation) -> bool {
        matches!(operation, Operation::KeyPair(_))
    }

    fn estimate(&self, work: &Work) -> Option<Estimate> {
        // Unknown costs: the scheduler pauses jobs for it from two concurrent ones on.
        matches!(work.kind, Kind::KeyPair(_)).then(Estimate::default)
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.waiting += 1;
        self.requests.send(request).map_err(|error| error.0)
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn poll(&mut self, _: Moment, responses: &mut Vec<Response>, _: &mut Counters) {
        let before = responses.len();
        responses.extend(self.responses.try_iter());
        self.waiting -= responses.len() - before;
    }
}

fn main() {
    let instance = Instance::new(vec![Box::new(Mock::new())], Scheduler::default(), 64);
    instance::install(instance.expect("memory"));
    let mut fibers = Fibers::new(8, LEAST_STACK_BYTES);
    let job = || {
        let fiber = fiber::current().expect("on a fiber");
        let kind = Kind::KeyPair(Group::X25519);
        assert_eq!(admit(kind, &fiber), Ok(Route::Pause));
        // The fiber is paused here until the event loop resumes it.
        match run(Operation::KeyPair(Group::X25519), &fiber) {
            Answer::Computed(pair) => println!("a key pair of {} bytes", pair.as_slice().len()),
            Answer::Software(reason) => panic!("left to software: {reason:?}"),
        }
    };
    let mut paused = Vec::new();
    for number in 0..4 {
        match fibers.start(JobToken(number), job).expect("a stack") {
            Progress::Paused(fiber) => paused.push(Some(fiber)),
            Progress::Finished => panic!("nothing was offloaded"),
        }
    }
    // An event loop: poll when there is nothing else to do, resume the jobs that can go on.
    while fibers.live() > 0 {
        instance::with(|instance| instance.poll(Moment::Idle));
        while let Some(job) = instance::with(Instance::next_ready).flatten() {
            let fiber = paused[job.0].take().expect("a paused job");
            fibers.resume(fiber);
        }
    }
}

#[test]
fn every_job_is_offloaded() {
    main();
    let counted = instance::with(|instance| instance.counters().submitted.iter().sum::<u64>());
    assert_eq!(counted, Some(4));
}
