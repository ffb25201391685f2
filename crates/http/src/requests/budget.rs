//! Memory for content of responses that clients have not taken yet.
//!
//! hyper takes content for as many streams as a client has, and for each as much as the client's
//! window allows. A client that does not read could have it take all of that, so bodies wait while
//! their connection holds too much.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::body::{Buf, Bytes};

use crate::upstream::milliseconds;
use crate::usage::Content;

/// Content that a connection may hold whatever all others hold. A client that reads gets along with
/// it.
const SHARE: usize = 16 * 1024;

/// Content that one connection holds. Written and read by one thread.
pub struct Budget {
    most: usize,
    held: AtomicUsize,
    /// Content of all connections.
    all: Arc<Content>,
    /// Time in [`milliseconds`] at which the client last took content, or had taken all of it.
    taken: AtomicU64,
    /// Bodies that wait for the client.
    waiting: Mutex<Vec<Waker>>,
}

impl Budget {
    /// Returns the budget of a connection that may hold `most` bytes, and more only as far as a
    /// single piece of content is longer.
    pub fn new(most: usize, all: &Arc<Content>) -> Self {
        Self {
            most,
            held: AtomicUsize::new(0),
            all: Arc::clone(all),
            taken: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Ready when the connection may hold more.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let held = self.held.load(Ordering::Relaxed);
        if held < self.most.min(SHARE) || (held < self.most && !self.all.is_exhausted()) {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(context.waker().clone());
        Poll::Pending
    }

    /// Returns the time in [`milliseconds`] since which the client has taken nothing although there
    /// is something for it.
    pub fn unread_since(&self) -> Option<u64> {
        let is_held = self.held.load(Ordering::Relaxed) > 0;
        is_held.then(|| self.taken.load(Ordering::Relaxed))
    }

    fn hold(&self, bytes: usize) {
        if self.held.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.taken.store(milliseconds(), Ordering::Relaxed);
        }
        self.all.add(bytes);
    }

    fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let left = self.held.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        self.taken.store(milliseconds(), Ordering::Relaxed);
        self.all.subtract(bytes);
        // Not with each byte: bodies are woken for more than one piece.
        if left <= self.most / 2 {
            let waiting =
                std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

/// Piece of content in the hands of hyper. It is held until it has been written, or is dropped.
pub struct Held {
    bytes: Bytes,
    budget: Arc<Budget>,
}

impl Held {
    /// Counts `bytes` in `budget`.
    pub fn new(bytes: Bytes, budget: &Arc<Budget>) -> Self {
        budget.hold(bytes.len());
        Self {
            bytes,
            budget: Arc::clone(budget),
        }
    }
}

impl Buf for Held {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.budget.release(count);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.release(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_room(budget: &Budget) -> bool {
        budget
            .poll_room(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn what_has_been_written_or_dropped_is_held_no_longer() {
        let all = Arc::new(Content::new(usize::MAX));
        let budget = Arc::new(Budget::new(100_000, &all));
        assert_eq!(budget.unread_since(), None);
        let mut first = Held::new(Bytes::from(vec![0; 60_000]), &budget);
        assert!(has_room(&budget));
        let second = Held::new(Bytes::from(vec![0; 40_000]), &budget);
        assert!(!has_room(&budget));
        assert!(budget.unread_since().is_some());
        first.advance(50_000);
        assert!(has_room(&budget));
        assert_eq!((first.remaining(), all.held()), (10_000, 50_000));
        drop((first, second));
        assert_eq!((budget.unread_since(), all.held()), (None, 0));
    }

    #[test]
    fn a_connection_has_its_share_when_others_hold_everything() {
        let all = Arc::new(Content::new(10));
        let one = Arc::new(Budget::new(100_000, &all));
        let other = Arc::new(Budget::new(100_000, &all));
        let _held = Held::new(Bytes::from(vec![0; 50_000]), &one);
        assert!(!has_room(&one));
        assert!(has_room(&other));
        let _held = Held::new(Bytes::from(vec![0; SHARE]), &other);
        assert!(!has_room(&other));
    }
}
