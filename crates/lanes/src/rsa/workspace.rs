//! The memory that a batch computes in.

use core::ops::{Deref, DerefMut};
use core::slice;

use zeroize::{DefaultIsZeroes, Zeroize};

use super::batch::Memory;
use crate::vector::{Portable, Vector};

/// The memory that [`private_operation`](super::private_operation) computes in: about 230 KB, allocated once,
/// and all zero between calls.
#[derive(Debug)]
pub struct Workspace {
    blocks: Box<[Block]>,
}

/// A cache line: as aligned as any vector.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C, align(64))]
struct Block([u64; 8]);

impl DefaultIsZeroes for Block {}

impl Workspace {
    /// Allocates a workspace for keys of any size and backend.
    pub fn new() -> Box<Workspace> {
        // The largest memory: RSA-4096 in 28-bit digits.
        let blocks = size_of::<Memory<Portable, 74, 147>>() / size_of::<Block>();
        Box::new(Workspace {
            blocks: vec![Block::default(); blocks].into_boxed_slice(),
        })
    }

    /// The memory to compute in, wiped when the loan ends, also by a panic.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn lend<V: Vector, const N: usize, const P: usize>(
        &mut self,
    ) -> Loan<'_, V, N, P> {
        assert!(size_of::<Memory<V, N, P>>() <= size_of_val(&*self.blocks));
        // SAFETY: `Memory` consists of `Vector`s alone, for which any bit pattern is a value and which need
        // no more alignment than a block; it fits into the blocks; the borrow is exclusive and lasts as
        // long. That the CPU has the instructions is the contract of this function.
        Loan(unsafe { &mut *self.blocks.as_mut_ptr().cast() })
    }

    /// Whether all of the memory is zero.
    #[cfg(test)]
    pub(super) fn is_zero(&self) -> bool {
        self.blocks.iter().all(|block| block.0 == [0; 8])
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.blocks.zeroize();
    }
}

/// A [`Workspace`] in use.
pub(super) struct Loan<'a, V: Vector, const N: usize, const P: usize>(&'a mut Memory<V, N, P>);

impl<V: Vector, const N: usize, const P: usize> Deref for Loan<'_, V, N, P> {
    type Target = Memory<V, N, P>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl<V: Vector, const N: usize, const P: usize> DerefMut for Loan<'_, V, N, P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0
    }
}

impl<V: Vector, const N: usize, const P: usize> Drop for Loan<'_, V, N, P> {
    fn drop(&mut self) {
        let count = size_of::<Memory<V, N, P>>() / size_of::<Block>();
        // SAFETY: the memory consists of whole blocks, since a vector has the size of one, and came from
        // them; the borrow is exclusive.
        let blocks =
            unsafe { slice::from_raw_parts_mut((&raw mut *self.0).cast::<Block>(), count) };
        blocks.zeroize();
    }
}
