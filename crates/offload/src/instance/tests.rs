//! Tests with an accelerator that answers at the next poll.

use std::time::Instant;

use slipstream_keys::{Group, Operand};

use super::*;
use crate::accelerator::Estimate;
use crate::costs::{ABANDONED, UNREAD};
use crate::pause::Never;

#[derive(Default)]
struct Prompt(Vec<RequestId>);

impl Accelerator for Prompt {
    fn name(&self) -> &str {
        "prompt"
    }

    fn accepts(&mut self, _operation: &Operation) -> bool {
        true
    }

    fn estimate(&self, _work: &Work) -> Option<Estimate> {
        Some(Estimate::default())
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.0.push(request.id);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.0.len()
    }

    fn poll(&mut self, _moment: Moment, responses: &mut Vec<Response>, _counters: &mut Counters) {
        let answer = |id| Response::new(id, Answer::Computed(Operand::new(&[7; 64])));
        responses.extend(self.0.drain(..).map(answer));
    }
}

#[test]
fn jobs_that_a_server_abandons_do_not_use_up_the_requests_for_good() {
    const REQUESTS: usize = 4;
    let accelerators: Vec<Box<dyn Accelerator>> = vec![Box::new(Prompt::default())];
    let instance = Instance::new(accelerators, Scheduler::default(), REQUESTS);
    let mut instance = instance.expect("an instance");
    let start = Instant::now();
    let mut submit = |now| {
        let submitted = instance.submit(Operation::KeyPair(Group::X25519), &Never, now);
        instance.poll(Moment::Idle);
        (submitted, instance.counters.orphans)
    };
    // Nobody reads the answers.
    for _ in 0..REQUESTS {
        assert!(submit(start).0.is_ok());
    }
    assert_eq!(submit(start).0, Err(Reason::Full));
    let wiped = Instant::now() + UNREAD;
    assert_eq!(submit(wiped), (Err(Reason::Full), REQUESTS as u64));
    let (submitted, orphans) = submit(wiped + ABANDONED);
    assert!(submitted.is_ok());
    assert_eq!(orphans, REQUESTS as u64);
}
