//! Eight 64-bit lanes: the operations that the kernels are written in.
//!
//! The kernels are generic over [`Vector`], so that the portable type runs exactly the code that
//! the AVX-512 types run.

#[cfg(test)]
mod bounds;
#[cfg(target_arch = "x86_64")]
mod zmm;

#[cfg(target_arch = "x86_64")]
pub(crate) use zmm::{IfmaVector, Zmm};

#[cfg(test)]
pub(crate) use bounds::Bounds;

use crate::LANES;

/// Eight unsigned 64-bit integers, one per lane; arithmetic wraps.
///
/// A value of an implementing type is a proof that this CPU runs the type's instructions: it comes
/// from [`Vector::splat`] or from memory that an `unsafe` function declared to hold such values.
///
/// # Safety
/// An implementing type is laid out like `[u64; 8]`, lane 0 first, aligned to 8 bytes at least and
/// 64 at most, and every bit pattern is a value of it.
pub(crate) unsafe trait Vector: Copy + 'static {
    /// One truth value per lane.
    type Mask: Copy;

    /// `value` in every lane.
    ///
    /// # Safety
    /// The CPU has the instructions of this type. The existence of another value of the type proves
    /// that.
    unsafe fn splat(value: u64) -> Self;

    /// `self + other`.
    fn add(self, other: Self) -> Self;

    /// `self - other`.
    fn subtract(self, other: Self) -> Self;

    /// Bitwise and.
    fn and(self, other: Self) -> Self;

    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;

    /// Bitwise or.
    fn or(self, other: Self) -> Self;

    /// Shift by a public `count` of 0 to 63 bits, the same in every lane.
    fn shift_left(self, count: u32) -> Self;

    /// Logical shift by a public `count` of 0 to 63 bits, the same in every lane.
    fn shift_right(self, count: u32) -> Self;

    /// Arithmetic (sign-copying) shift by a public `count` of 0 to 63 bits, the same in every lane.
    fn shift_right_signed(self, count: u32) -> Self;

    /// The lanes in which `self` and `other` are equal.
    fn equal(self, other: Self) -> Self::Mask;

    /// `self` where `mask` is set, else `other`.
    fn select(self, other: Self, mask: Self::Mask) -> Self;

    /// In each lane, one of the sixteen integers of `table`: the one at the index in the low four
    /// bits of `self`. All lanes look up in the same table, and no address depends on the index.
    fn look_up(self, table: &[Self; 2]) -> Self;

    /// True for the type that holds bounds. Only it checks the bounds that are stated, for all
    /// inputs.
    const IS_BOUNDS: bool = false;

    /// States that all lanes are below `limit`.
    #[inline(always)]
    fn state_below(&self, _limit: u64) {}

    /// States that the integer in these columns of 52 bits is between `low` and `high` times the
    /// modulus.
    #[inline(always)]
    fn state_multiples(_columns: &[Self], _modulus: &[u64], _low: f64, _high: f64) {}
}

/// Multiplication of 52-bit integers, as the AVX-512 IFMA instructions do it.
pub(crate) trait MultiplyAdd52: Vector {
    /// Adds the low 52 bits of the 104-bit product of the low 52 bits of `a` and `b`.
    fn madd_low(&mut self, a: &Self, b: &Self);

    /// Adds the high 52 bits of the 104-bit product of the low 52 bits of `a` and `b`.
    fn madd_high(&mut self, a: &Self, b: &Self);
}

/// Multiplication of 32-bit integers, as AVX-512F does it.
pub(crate) trait Multiply32: Vector {
    /// The product of the low 32 bits of `self` and `other`.
    fn multiply_low(self, other: Self) -> Self;
}

/// `N` vectors in plain memory, aligned for any vector type.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Lanes<const N: usize>(pub(crate) [[u64; LANES]; N]);

impl<const N: usize> Lanes<N> {
    /// `value` in every lane.
    pub(crate) const fn splat(value: u64) -> Self {
        Lanes([[value; LANES]; N])
    }

    /// The same memory as vectors.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(crate) unsafe fn as_vectors<V: Vector>(&self) -> &[V; N] {
        // SAFETY: a `Vector` has the layout of `[u64; 8]`, at most the alignment of `Lanes`, and
        // any bit pattern is a value of it; that the CPU has its instructions is the contract of
        // this function.
        unsafe { &*(&raw const self.0).cast() }
    }

    /// The same memory as vectors, to be written.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(crate) unsafe fn as_vectors_mut<V: Vector>(&mut self) -> &mut [V; N] {
        // SAFETY: as in `as_vectors`; the borrow is exclusive, and any vector is a `[u64; 8]`.
        unsafe { &mut *(&raw mut self.0).cast() }
    }
}

/// The vector for any CPU.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Portable([u64; LANES]);

const DIGIT52: u64 = (1 << 52) - 1;

// The operations are not inlined: the kernels' straight-line code would become a million
// instructions, and the optimizer would take minutes.
//
// SAFETY: `repr(C)` around `[u64; 8]`, aligned to 64 bytes.
unsafe impl Vector for Portable {
    /// All ones in a lane that is set, else zero.
    type Mask = [u64; LANES];

    #[inline(always)]
    unsafe fn splat(value: u64) -> Self {
        Portable([value; LANES])
    }

    #[inline(never)]
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }

    #[inline(never)]
    fn subtract(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_sub)
    }

    #[inline(never)]
    fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(never)]
    fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }

    #[inline(never)]
    fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline(never)]
    fn shift_left(self, count: u32) -> Self {
        Portable(self.0.map(|lane| lane << count))
    }

    #[inline(never)]
    fn shift_right(self, count: u32) -> Self {
        Portable(self.0.map(|lane| lane >> count))
    }

    #[inline(never)]
    fn shift_right_signed(self, count: u32) -> Self {
        Portable(
            self.0
                .map(|lane| (lane.cast_signed() >> count).cast_unsigned()),
        )
    }

    #[inline(never)]
    fn equal(self, other: Self) -> Self::Mask {
        // The sign of `d | -d` is set if d is not zero. A comparison could be compiled to a branch.
        // If the compiler knew that a mask is all ones or zero, it could also turn a selection of
        // values into one of addresses.
        core::hint::black_box(
            self.zip(other, |a, b| {
                let difference = a ^ b;
                ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1)
            })
            .0,
        )
    }

    #[inline(never)]
    fn select(self, other: Self, mask: Self::Mask) -> Self {
        let mut lanes = other.0;
        for (lane, (chosen, mask)) in lanes.iter_mut().zip(self.0.into_iter().zip(mask)) {
            *lane ^= (*lane ^ chosen) & mask;
        }
        Portable(lanes)
    }

    #[inline(never)]
    fn look_up(self, table: &[Self; 2]) -> Self {
        let mut found = Portable([0; LANES]);
        for (index, value) in table.iter().flat_map(|half| half.0).enumerate() {
            let here = self
                .and(Portable([15; LANES]))
                .equal(Portable([index as u64; LANES]));
            found = Portable([value; LANES]).select(found, here);
        }
        found
    }
}

impl MultiplyAdd52 for Portable {
    #[inline(never)]
    fn madd_low(&mut self, a: &Self, b: &Self) {
        for (sum, (a, b)) in self.0.iter_mut().zip(a.0.iter().zip(b.0)) {
            let product = (a & DIGIT52).wrapping_mul(b & DIGIT52);
            *sum = sum.wrapping_add(product & DIGIT52);
        }
    }

    #[inline(never)]
    fn madd_high(&mut self, a: &Self, b: &Self) {
        for (sum, (a, b)) in self.0.iter_mut().zip(a.0.iter().zip(b.0)) {
            let product = u128::from(a & DIGIT52) * u128::from(b & DIGIT52);
            *sum = sum.wrapping_add((product >> 52) as u64);
        }
    }
}

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        let mut lanes = self.0;
        for (lane, other) in lanes.iter_mut().zip(other.0) {
            *lane = operation(*lane, other);
        }
        Portable(lanes)
    }
}
