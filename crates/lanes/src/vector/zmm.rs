//! The vectors of AVX-512F, and of AVX-512F with IFMA.

use core::arch::asm;
use core::arch::x86_64::*;

use super::{Multiply32, MultiplyAdd52, Vector};

/// The vector of AVX-512F.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Zmm(pub(crate) __m512i);

/// The vector of AVX-512F with IFMA.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct IfmaVector(__m512i);

macro_rules! avx512_vector {
    ($name:ident) => {
        // SAFETY: transparent around `__m512i`, which is 64 bytes, aligned to 64, lane 0 first, any
        // bits. In every method below, `self` or the contract of `splat` says that the CPU has
        // AVX-512F.
        unsafe impl Vector for $name {
            type Mask = __mmask8;

            #[inline(always)]
            unsafe fn splat(value: u64) -> Self {
                // SAFETY: the CPU has AVX-512F, by the contract of this function.
                $name(unsafe { _mm512_set1_epi64(value.cast_signed()) })
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: the CPU has AVX-512F, else `self` would not exist.
                $name(unsafe { _mm512_add_epi64(self.0, other.0) })
            }

            #[inline(always)]
            fn subtract(self, other: Self) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_sub_epi64(self.0, other.0) })
            }

            #[inline(always)]
            fn and(self, other: Self) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_and_si512(self.0, other.0) })
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_xor_si512(self.0, other.0) })
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_or_si512(self.0, other.0) })
            }

            #[inline(always)]
            fn shift_left(self, count: u32) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_sll_epi64(self.0, _mm_cvtsi32_si128(count.cast_signed())) })
            }

            #[inline(always)]
            fn shift_right(self, count: u32) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_srl_epi64(self.0, _mm_cvtsi32_si128(count.cast_signed())) })
            }

            #[inline(always)]
            fn shift_right_signed(self, count: u32) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_sra_epi64(self.0, _mm_cvtsi32_si128(count.cast_signed())) })
            }

            #[inline(always)]
            fn equal(self, other: Self) -> Self::Mask {
                // SAFETY: as in `add`.
                unsafe { _mm512_cmpeq_epi64_mask(self.0, other.0) }
            }

            #[inline(always)]
            fn select(self, other: Self, mask: Self::Mask) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_mask_blend_epi64(mask, other.0, self.0) })
            }

            #[inline(always)]
            fn look_up(self, table: &[Self; 2]) -> Self {
                // SAFETY: as in `add`.
                $name(unsafe { _mm512_permutex2var_epi64(table[0].0, self.0, table[1].0) })
            }
        }
    };
}

avx512_vector!(Zmm);
avx512_vector!(IfmaVector);

impl MultiplyAdd52 for IfmaVector {
    #[inline(always)]
    fn madd_low(&mut self, a: &Self, b: &Self) {
        // SAFETY: the CPU has AVX-512 IFMA, else `self` would not exist.
        self.0 = unsafe { _mm512_madd52lo_epu64(self.0, a.0, b.0) };
    }

    #[inline(always)]
    fn madd_high(&mut self, a: &Self, b: &Self) {
        // SAFETY: as in `madd_low`.
        self.0 = unsafe { _mm512_madd52hi_epu64(self.0, a.0, b.0) };
    }
}

impl Multiply32 for Zmm {
    #[inline(always)]
    fn multiply_low(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512F, else `self` would not exist.
        Zmm(unsafe { multiply_low(self.0, other.0) })
    }
}

/// a·b for the low 32 bits of each 64-bit lane.
///
/// Not `_mm512_mul_epu32`: LLVM defines it as a 64-bit multiplication of masked operands, hoists
/// the masks out of a loop, and then no longer sees that one instruction will do.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply_low(a: __m512i, b: __m512i) -> __m512i {
    let product: __m512i;
    // SAFETY: the instruction belongs to AVX-512F, which this function enables; it reads two
    // registers and writes one, and touches neither memory nor flags.
    unsafe {
        asm!(
            "vpmuludq {product}, {a}, {b}",
            product = lateout(zmm_reg) product,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    product
}
