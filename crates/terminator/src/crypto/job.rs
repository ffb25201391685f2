//! Pausing: operations of handshakes on fibers are computed together; everybody else's are left to aws-lc at once.

use slipstream_offload::fiber::{self, CurrentFiber};
use slipstream_offload::{Answer, Kind, Operation, Output, Pause, Reason};

/// The fiber that the caller runs on, if an operation of `kind` is worth pausing it for.
pub(super) fn admits(kind: Kind) -> Option<CurrentFiber> {
    fiber::current().filter(|fiber| slipstream_offload::admits(kind, fiber).is_ok())
}

/// Counts an operation of `kind` that is computed without a pause, since it is not [admitted](admits).
pub(super) fn count_refusal(kind: Kind) {
    if let Some(fiber) = fiber::current() {
        slipstream_offload::count_refusal(kind, &fiber);
    }
}

/// Whether the caller is on a fiber whose server takes part: it uses what has been made ahead even where it is not worth while
/// to pause.
pub(super) fn takes_part() -> bool {
    fiber::current().is_some_and(|fiber| fiber.admits() != Err(Reason::NotAdmitted))
}

/// Computes `operation` while `fiber` is paused. `None` if software has to do it.
pub(super) fn compute(operation: Operation, fiber: &CurrentFiber) -> Option<Output> {
    let length = operation.kind().output_bytes();
    match slipstream_offload::run(operation, fiber) {
        Answer::Computed(output) if output.as_slice().len() == length => Some(output),
        Answer::Computed(_) | Answer::Software(_) => None,
    }
}
