//! Counts with a limit, shared by threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of permits in use, and its limit.
#[derive(Debug)]
pub struct Gauge {
    taken: AtomicUsize,
    limit: AtomicUsize,
}

impl Gauge {
    /// Returns a gauge of which at most `limit` permits can be taken.
    pub fn new(limit: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        }
    }

    /// Changes the limit. Permits that are taken stay taken.
    pub fn set(&self, limit: usize) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Returns the number of permits in use.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Takes a permit. Returns false if the limit is reached.
    pub fn take(&self) -> bool {
        let limit = self.limit.load(Ordering::SeqCst);
        let one_more = |taken| (taken < limit).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more)
            .is_ok()
    }

    /// Gives back a permit that was taken.
    pub fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes a permit that is given back when dropped. Returns `None` if the limit is reached.
    pub fn permit(self: &Arc<Self>) -> Option<Permit> {
        self.take().then(|| Permit(Arc::clone(self)))
    }
}

/// Permit of a gauge. Dropping it makes room for another one.
#[derive(Debug)]
pub struct Permit(Arc<Gauge>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}
