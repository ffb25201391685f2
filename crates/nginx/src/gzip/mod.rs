//! `slipstream_gzip`: responses compressed in parallel pipelines (QWEB sections 3.3 and 4.2).
//!
//! [`filter`] stands among nginx's filters where its own gzip filter does, one place before it, so that what is compressed here
//! is not compressed again. What is sent compressed is decided in [`eligibility`]; compressing is done by
//! `slipstream_deflate`, whose sessions may have chunks in flight at the device; [`jobs`] finds the request of a session
//! again when the device has answered.

mod configuration;
mod directives;
mod eligibility;
mod filter;
mod headers;
mod jobs;
mod output;
mod request;
mod variable;

pub(crate) use configuration::{create_location, create_main, merge_location};
pub(crate) use directives::COMMANDS;
pub(crate) use filter::install;
pub(crate) use jobs::{begin_turn, make_context, resume, waiting};
pub(crate) use variable::add as add_variables;

use nginx_sys::ngx_cycle_t;

use configuration::Main;

/// Chunks that a worker has in flight at the device at most: so many buffers its instance has.
const REQUESTS: usize = 16;

/// What the locations of a configuration need of their workers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Some location compresses.
    pub(crate) compresses: bool,
    /// The longest chunk that is handed to a device, in bytes; 0 if none is.
    pub(crate) device_chunk: usize,
    /// Some location is to compress at a device only.
    pub(crate) asks_for_device: bool,
}

impl Needs {
    /// How many buffers an instance has to have.
    pub(crate) fn requests(self) -> usize {
        if self.device_chunk == 0 { 0 } else { REQUESTS }
    }
}

/// What the configuration of `cycle` needs.
///
/// # Safety
/// `cycle` is a cycle of nginx whose configuration has been read.
pub(crate) unsafe fn needs(cycle: *const ngx_cycle_t) -> Needs {
    // SAFETY: by the caller's promise.
    unsafe { Main::of_cycle(cycle) }.map_or(Needs::default(), |main| main.needs)
}
