//! Request and response rings in memory that two processes share, as a QAT endpoint has them (QTLS
//! section 2.3).
//!
//! [`ring`] is one direction, [`bell`] wakes the side that sleeps, [`memory`] is the memory that
//! both map. Neither side trusts the other: counts in the memory are checked, impossible ones are
//! an error, and a slot is copied before it is read, so that the other side cannot change it
//! afterwards. The crate moves words: it knows no requests, no sockets and no accelerator.

pub mod bell;
#[cfg(not(loom))]
pub mod memory;
pub mod ring;

#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64 as Word;
#[cfg(not(loom))]
pub use std::sync::atomic::AtomicU64 as Word;

/// Words that both processes see. They are atomic since the other process may write them at any
/// time.
pub trait Words {
    /// Returns all words, always the same.
    fn words(&self) -> &[Word];
}

impl<T: Words + ?Sized> Words for std::sync::Arc<T> {
    fn words(&self) -> &[Word] {
        (**self).words()
    }
}
