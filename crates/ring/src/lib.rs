//! Request and response rings in memory that two processes share, as a QAT endpoint has them (QTLS section 2.3).
//!
//! [`ring`] is one direction, [`bell`] wakes the side that sleeps, [`memory`] is what both map. Neither side trusts
//! the other: what the memory says is checked, indices that cannot be are an error, and a slot is copied before it is
//! looked at, so that the other side cannot change it afterwards.

pub mod bell;
#[cfg(not(loom))]
pub mod memory;
pub mod ring;

#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64 as Word;
#[cfg(not(loom))]
pub use std::sync::atomic::AtomicU64 as Word;

/// Words that both sides see. They are atomic since the other side may write them at any time.
pub trait Words {
    /// All of them, always the same.
    fn words(&self) -> &[Word];
}

impl<T: Words + ?Sized> Words for std::sync::Arc<T> {
    fn words(&self) -> &[Word] {
        (**self).words()
    }
}
