//! X25519 and NIST curves against OpenSSL's own provider.

mod ecdsa;
pub mod evp;
mod exchange;
mod handshakes;
mod keys;
mod offloaded;

use std::cell::RefCell;
use std::rc::Rc;

use slipstream_accelerators::lanes::{Backend, computes};
use slipstream_keys::Group;
use slipstream_offload::Kind;

use crate::common::on_fibers;

/// The backends that offer curves on this CPU.
fn backends() -> impl Iterator<Item = Backend> {
    let computes_all = |backend: &Backend| {
        let mut kinds = Group::ALL.into_iter().map(Kind::exchange);
        kinds.all(|kind| computes(*backend, kind))
    };
    Backend::available().filter(computes_all)
}

/// Runs jobs on fibers at once, and collects what they answer.
fn collect_on_fibers<T: 'static>(
    backend: Backend,
    jobs: impl IntoIterator<Item = Box<dyn FnOnce() -> T>>,
) -> Vec<T> {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let jobs = jobs.into_iter().enumerate().map(|(index, job)| {
        let answers = answers.clone();
        Box::new(move || {
            let answer = job();
            answers.borrow_mut().push((index, answer));
        }) as Box<dyn FnOnce()>
    });
    on_fibers(backend, jobs.collect());
    let mut answers = answers.take();
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Runs one job on a fiber.
fn on_fiber<T: 'static>(backend: Backend, job: impl FnOnce() -> T + 'static) -> T {
    let job: Box<dyn FnOnce() -> T> = Box::new(job);
    collect_on_fibers(backend, [job]).remove(0)
}
