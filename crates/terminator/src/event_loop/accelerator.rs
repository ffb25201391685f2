//! What computes the operations of an event loop.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use slipstream_lanes::Backend;
use slipstream_offload::accelerator::{self, WorkerLanes};
use slipstream_offload::ahead::Ahead;
use slipstream_offload::device::layout::Layout;
use slipstream_offload::device::message::{Aggregation, Token};
use slipstream_offload::device::{Device, Options};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::policy::{Costs, Policy};

/// How operations of a loop are computed.
#[derive(Clone)]
pub(crate) struct Accelerator {
    /// The loop's own lanes, which also make keys and nonces ahead.
    pub(crate) backend: Option<Backend>,
    /// What lanes cost, against aws-lc.
    pub(crate) costs: Costs,
    /// The engine's socket; `None` for the loop's own lanes.
    pub(crate) engine: Option<PathBuf>,
    /// With which the engine lets this process use the keys that it holds.
    pub(crate) token: Option<Token>,
}

/// Operations in flight of one loop: more than there are fibers.
const REQUESTS: usize = 1024;
/// Slots of the rings to an engine.
const SLOTS: usize = 256;
/// Key pairs and nonces of each kind that may wait to be used.
const AHEAD: usize = 64;
/// How long the engine is waited for at the start. Without it, aws-lc computes.
const PATIENCE: Duration = Duration::from_millis(500);

impl Accelerator {
    /// Makes an instance of it for this thread.
    ///
    /// # Errors
    /// If the system has no memory or no descriptors for it.
    pub(super) fn install(self) -> io::Result<()> {
        let accelerator: Box<dyn accelerator::Accelerator> = match (self.engine, self.backend) {
            (Some(socket), _) => {
                let options = Options {
                    layout: Layout::new(SLOTS).expect("a power of two"),
                    weight: 1,
                    aggregation: Aggregation::Adaptive,
                    token: self.token,
                };
                let policy = Policy::default();
                Box::new(Device::new(socket, options, policy, self.costs, PATIENCE)?)
            }
            (None, Some(backend)) => {
                Box::new(WorkerLanes::new(backend, Policy::default(), self.costs))
            }
            (None, None) => return Ok(()),
        };
        let mut instance = Instance::new(accelerator, REQUESTS)?;
        if let Some(ahead) = self.backend.and_then(|backend| Ahead::new(backend, AHEAD)) {
            instance.make_ahead(ahead);
        }
        instance::install(instance);
        Ok(())
    }
}
