//! Waking the other side only if it sleeps: an event costs a system call on both sides.

use std::sync::atomic::Ordering;

use crate::Words;

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

/// A word that one side sets when it is about to sleep. It then looks at its ring once more; the
/// other side looks at the word after it has filled a slot. So at least one of them sees the other.
#[derive(Debug)]
pub struct Bell<M> {
    memory: M,
    place: usize,
}

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;

impl<M: Words> Bell<M> {
    /// Makes the bell in the word at `place`.
    ///
    /// # Panics
    /// If `memory` has no such word.
    pub fn new(memory: M, place: usize) -> Self {
        assert!(place < memory.words().len(), "no word at {place}");
        Self { memory, place }
    }

    /// Announces that this side is about to sleep. It must look at its ring again after this call,
    /// before it sleeps.
    pub fn arm(&self) {
        self.memory.words()[self.place].store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that this side is awake.
    pub fn disarm(&self) {
        self.memory.words()[self.place].store(AWAKE, Ordering::Relaxed);
    }

    /// Called after a slot has been filled. Returns true if the other side has to be woken, once
    /// for each [`arm`](Self::arm).
    #[must_use]
    pub fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        let word = &self.memory.words()[self.place];
        word.load(Ordering::Relaxed) != AWAKE && word.swap(AWAKE, Ordering::Relaxed) != AWAKE
    }
}
