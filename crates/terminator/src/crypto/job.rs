//! Jobs: operations of handshakes on fibers are offloaded; all others are left to aws-lc at once.

use slipstream_offload::{Answer, Kind, Operation, Output, Pause, Reason, Route, fiber};

pub(super) use slipstream_offload::refuse;

/// Decides how an operation of `kind` of the caller is computed. Asked once for each operation,
/// before it is prepared.
///
/// # Errors
/// The reason why it is left to aws-lc, which [`refuse`] counts.
pub(super) fn admit(kind: Kind) -> Result<Route, Reason> {
    let fiber = fiber::current().ok_or(Reason::NotOffered)?;
    slipstream_offload::admit(kind, &fiber)
}

/// Computes `operation` on the route that it was [admitted](admit) to. `None` if aws-lc has to
/// compute it.
pub(super) fn compute(route: Route, operation: Operation) -> Option<Output> {
    let length = operation.kind().output_bytes();
    let output = match route {
        Route::AtOnce => slipstream_offload::compute_at_once(&operation)?,
        Route::Pause => match slipstream_offload::run(operation, &fiber::current()?) {
            Answer::Computed(output) => output,
            Answer::Software(_) => return None,
        },
    };
    (output.as_slice().len() == length).then_some(output)
}

/// Has the accelerator that holds the key of `operation` compute it. `None` if it does not answer.
/// A caller that must not yield blocks until the answer arrives.
pub(super) fn compute_held(operation: Operation) -> Option<Output> {
    let length = operation.kind().output_bytes();
    let answer = match fiber::current().filter(|fiber| fiber.admits().is_ok()) {
        Some(fiber) => slipstream_offload::run(operation, &fiber),
        None => slipstream_offload::run(operation, &slipstream_offload::pause::Never),
    };
    match answer {
        Answer::Computed(output) if output.as_slice().len() == length => Some(output),
        Answer::Computed(_) | Answer::Software(_) => None,
    }
}
