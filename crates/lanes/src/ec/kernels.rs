//! The kernels for each backend.

use super::base_table::BaseTable;
use super::curve::Parameters;
use super::multiplication::{self, Integers, Points, Scalars};
use crate::Backend;
use crate::vector::Portable;

/// Sets `products` to the affine coordinates of the multiples of the base point.
pub(super) fn multiply_base<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    scalars: &Scalars,
    products: &mut Points<N>,
) {
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: callers offer available backends only.
        Backend::Ifma => unsafe {
            let table = C::base_table().get_or_init(|| x86_64::base_table::<C, L, N>());
            x86_64::multiply_base::<C, L, N>(scalars, table, products);
        },
        // SAFETY: the portable vector needs no particular CPU.
        _ => unsafe {
            let table = C::base_table().get_or_init(|| BaseTable::new::<C, Portable, L, N>());
            multiplication::multiply_base::<C, Portable, L, N>(scalars, table, products);
        },
    }
}

/// Replaces `points`, which are affine coordinates below p, by those of the points' multiples.
pub(super) fn multiply_points<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    scalars: &Scalars,
    points: &mut Points<N>,
) {
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: callers offer available backends only.
        Backend::Ifma => unsafe { x86_64::multiply_points::<C, L, N>(scalars, points) },
        // SAFETY: the portable vector needs no particular CPU.
        _ => unsafe { multiplication::multiply_points::<C, Portable, L, N>(scalars, points) },
    }
}

/// Replaces `scalars`, which are 1 to n - 1, by `power` divided by them modulo n.
pub(super) fn invert_scalars<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    scalars: &mut Integers<N>,
    power: &[u64; N],
) {
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: callers offer available backends only.
        Backend::Ifma => unsafe { x86_64::invert_scalars::<C, L, N>(scalars, power) },
        // SAFETY: the portable vector needs no particular CPU.
        _ => unsafe { multiplication::invert_scalars::<C, Portable, L, N>(scalars, power) },
    }
}

/// The functions that turn the generic code into AVX-512 code: everything is inlined into them.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{BaseTable, Integers, Parameters, Points, Scalars, multiplication};
    use crate::vector::IfmaVector;

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    pub(super) fn base_table<C: Parameters<L, N>, const L: usize, const N: usize>() -> BaseTable {
        // SAFETY: the CPU has AVX-512 IFMA, else this function must not be called.
        unsafe { BaseTable::new::<C, IfmaVector, L, N>() }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    pub(super) fn multiply_base<C: Parameters<L, N>, const L: usize, const N: usize>(
        scalars: &Scalars,
        table: &BaseTable,
        products: &mut Points<N>,
    ) {
        // SAFETY: the CPU has AVX-512 IFMA, else this function must not be called.
        unsafe { multiplication::multiply_base::<C, IfmaVector, L, N>(scalars, table, products) }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    pub(super) fn multiply_points<C: Parameters<L, N>, const L: usize, const N: usize>(
        scalars: &Scalars,
        points: &mut Points<N>,
    ) {
        // SAFETY: the CPU has AVX-512 IFMA, else this function must not be called.
        unsafe { multiplication::multiply_points::<C, IfmaVector, L, N>(scalars, points) }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    pub(super) fn invert_scalars<C: Parameters<L, N>, const L: usize, const N: usize>(
        scalars: &mut Integers<N>,
        power: &[u64; N],
    ) {
        // SAFETY: the CPU has AVX-512 IFMA, else this function must not be called.
        unsafe { multiplication::invert_scalars::<C, IfmaVector, L, N>(scalars, power) }
    }
}
