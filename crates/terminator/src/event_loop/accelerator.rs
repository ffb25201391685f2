//! The accelerators of an event loop.

use std::io;
use std::path::PathBuf;

use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::message::{Aggregation, Token};
use slipstream_accelerators::engine::{self, Device, EngineUser};
use slipstream_accelerators::lanes::{Backend, Lanes, Measured, Options};
use slipstream_offload::costs::START_PATIENCE;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};

/// The accelerators of an event loop, as they are configured and measured before it starts.
#[derive(Clone)]
pub(crate) struct Accelerators {
    /// The loop's own lanes. They compute batches unless there is an engine, and precompute in any
    /// case.
    pub(crate) backend: Option<Backend>,
    /// The costs of lanes, and of aws-lc.
    pub(crate) measured: Measured,
    /// The engine's socket, and the user that it may run as, if there is one.
    pub(crate) engine: Option<(PathBuf, EngineUser)>,
    /// The token with which the engine lets this process use the keys that it holds.
    pub(crate) token: Option<Token>,
}

/// Operations in flight of one loop: more than there are fibers.
const REQUESTS: usize = 1024;
/// Slots of the rings to an engine.
const SLOTS: usize = 256;
/// Entries of each pool of precomputed key pairs.
const KEY_PAIRS: usize = 64;

impl Accelerators {
    /// Makes an instance of them for this thread.
    ///
    /// # Errors
    /// If the system has no memory or no descriptors for it.
    pub(super) fn install(self) -> io::Result<()> {
        let scheduler = Scheduler {
            flush: FlushPolicy::default(),
            software: self.measured.software,
        };
        let mut accelerators: Vec<Box<dyn slipstream_offload::Accelerator>> = Vec::new();
        let has_engine = self.engine.is_some();
        if let Some((socket, user)) = self.engine {
            let options = engine::Options {
                layout: Layout::new(SLOTS).expect("a power of two"),
                weight: 1,
                aggregation: Aggregation::Adaptive,
                token: self.token,
                user,
            };
            let device = Device::new(socket, options, START_PATIENCE)?;
            if let Some(reason) = device.distrust() {
                eprintln!("slipstream serve: {reason}; until then software computes");
            }
            accelerators.push(Box::new(device));
        }
        if let Some(backend) = self.backend {
            accelerators.push(Box::new(Lanes::new(Options {
                backend,
                costs: self.measured.lanes,
                scheduler: scheduler.clone(),
                has_batches: !has_engine,
                key_pairs: KEY_PAIRS,
                nonces: 0,
            })));
        }
        if !accelerators.is_empty() {
            instance::install(Instance::new(accelerators, scheduler, REQUESTS)?);
        }
        Ok(())
    }
}
