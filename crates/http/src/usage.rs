//! Resources that all connections of a process share.

use std::sync::Arc;

use crate::gauge::Gauge;

/// Use of resources by all connections, with its limits.
#[derive(Clone, Debug)]
pub struct Usage {
    /// Requests whose response has not ended.
    pub requests: Arc<Gauge>,
    /// Descriptors beyond those of clients' connections: connections to backends, and open files.
    pub descriptors: Arc<Gauge>,
}

impl Usage {
    /// Returns the use of nothing.
    pub fn new(requests: usize, descriptors: usize) -> Self {
        Self {
            requests: Arc::new(Gauge::new(requests)),
            descriptors: Arc::new(Gauge::new(descriptors)),
        }
    }
}

impl Default for Usage {
    /// Returns the use of nothing, without limits.
    fn default() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }
}

/// Limit that a request has met. It is answered with 503.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// All requests of the process.
    Requests,
    /// Connections of the backend, and the queue for them.
    Backend,
    /// Descriptors of the process.
    Descriptors,
}

impl Overload {
    /// All limits in the order of their index.
    pub const ALL: [Overload; 3] = [Overload::Requests, Overload::Backend, Overload::Descriptors];

    /// Returns the position in tables with one entry per limit.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Overload::Requests => "requests",
            Overload::Backend => "backend",
            Overload::Descriptors => "descriptors",
        }
    }
}
