//! Resources that all connections of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::gauge::Gauge;

/// Use of resources by all connections, with its limits.
#[derive(Clone, Debug)]
pub struct Usage {
    /// Requests whose response has not ended.
    pub requests: Arc<Gauge>,
    /// Descriptors beyond those of clients' connections: connections to backends, and open files.
    pub descriptors: Arc<Gauge>,
    /// Content of responses that clients have not taken yet.
    pub content: Arc<Content>,
}

impl Usage {
    /// Returns the use of nothing, with the most of each. `content` is in bytes.
    pub fn new(requests: usize, descriptors: usize, content: usize) -> Self {
        Self {
            content: Arc::new(Content::new(content)),
            requests: Arc::new(Gauge::new(requests)),
            descriptors: Arc::new(Gauge::new(descriptors)),
        }
    }
}

impl Default for Usage {
    /// Returns the use of nothing, without limits.
    fn default() -> Self {
        Self::new(usize::MAX, usize::MAX, usize::MAX)
    }
}

/// Bytes of content, and from how many on connections are held short.
#[derive(Debug)]
pub struct Content {
    held: AtomicUsize,
    limit: AtomicUsize,
}

impl Content {
    /// Returns no content.
    pub fn new(limit: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        }
    }

    /// Changes the limit.
    pub fn set(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the bytes that are held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.held() >= self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
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
