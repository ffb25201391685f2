//! The memory that a batch of RSA computes in.

use core::ops::{Deref, DerefMut};
use core::slice;

use zeroize::{DefaultIsZeroes, Zeroize};

use super::batch::Memory;
use crate::vector::{Portable, Vector};

/// The memory that [`private_operations`](super::private_operations) computes in: about 230 KB,
/// allocated once and all zero between calls.
#[derive(Debug)]
pub struct Workspace {
    blocks: Box<[Block]>,
}

/// A cache line, aligned as strictly as any vector.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(64))]
struct Block([u64; 8]);

impl DefaultIsZeroes for Block {}

impl Workspace {
    /// Allocates a workspace for keys of any size and backend.
    #[must_use]
    pub fn new() -> Box<Workspace> {
        // The largest memory: RSA-4096 in 28-bit digits.
        let blocks = size_of::<Memory<Portable, 74, 147>>() / size_of::<Block>();
        Box::new(Workspace {
            blocks: vec![Block::default(); blocks].into_boxed_slice(),
        })
    }

    /// The memory to compute in. It is wiped when the guard is dropped, also by a panic.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn memory<V: Vector, const N: usize, const P: usize>(
        &mut self,
    ) -> MemoryGuard<'_, V, N, P> {
        assert!(size_of::<Memory<V, N, P>>() <= size_of_val(&*self.blocks));
        // SAFETY: `Memory` consists of `Vector`s alone. Any bit pattern is a value of them, and
        // they need no more alignment than a block. It fits into the blocks; the borrow is
        // exclusive and lasts as long. The CPU has the instructions, by the contract of this
        // function.
        MemoryGuard(unsafe { &mut *self.blocks.as_mut_ptr().cast() })
    }

    /// Returns true if all of the memory is zero.
    #[cfg(all(test, feature = "system-openssl"))]
    pub(super) fn is_zero(&self) -> bool {
        self.blocks.iter().all(|block| block.0 == [0; 8])
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.blocks.zeroize();
    }
}

/// The memory of a [`Workspace`] in use, wiped when dropped.
pub(super) struct MemoryGuard<'a, V: Vector, const N: usize, const P: usize>(
    &'a mut Memory<V, N, P>,
);

impl<V: Vector, const N: usize, const P: usize> Deref for MemoryGuard<'_, V, N, P> {
    type Target = Memory<V, N, P>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl<V: Vector, const N: usize, const P: usize> DerefMut for MemoryGuard<'_, V, N, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0
    }
}

impl<V: Vector, const N: usize, const P: usize> Drop for MemoryGuard<'_, V, N, P> {
    fn drop(&mut self) {
        let count = size_of::<Memory<V, N, P>>() / size_of::<Block>();
        // SAFETY: the memory consists of whole blocks, since a vector has the size of one, and it
        // was made from blocks; the borrow is exclusive.
        let blocks =
            unsafe { slice::from_raw_parts_mut((&raw mut *self.0).cast::<Block>(), count) };
        blocks.zeroize();
    }
}
