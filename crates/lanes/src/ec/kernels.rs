//! The kernels for each backend. Callers wipe their stack.
use super::base_table::BaseTable;
use super::curve::Parameters;
use super::multiplication::{self, Integers, Points, Scalars};
use crate::{Backend, LANES};

/// Sets `products` to the affine coordinates of the multiples of the base point. Returns zero in the
/// lanes whose product is a point of the curve. Another one must not be released.
#[must_use]
pub(super) fn multiply_base<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    scalars: &Scalars,
    products: &mut Points<N>,
) -> [u64; LANES] {
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: callers have checked that the backend is available.
        Backend::Ifma => unsafe { ifma::multiply_base::<C, L, N>(scalars, products) },
        _ => portable::multiply_base::<C, L, N>(scalars, products),
    }
}

/// Replaces `points`, in affine coordinates below p, by their multiples. Returns zero in the lanes
/// whose product is a point of the curve. Another one must not be released.
#[must_use]
pub(super) fn multiply_points<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    scalars: &Scalars,
    points: &mut Points<N>,
) -> [u64; LANES] {
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: callers have checked that the backend is available.
        Backend::Ifma => unsafe { ifma::multiply_points::<C, L, N>(scalars, points) },
        _ => portable::multiply_points::<C, L, N>(scalars, points),
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
        // SAFETY: callers have checked that the backend is available.
        Backend::Ifma => unsafe { ifma::invert_scalars::<C, L, N>(scalars, power) },
        _ => portable::invert_scalars::<C, L, N>(scalars, power),
    }
}

/// Defines the kernels for a vector type. The generic code is inlined into them and so is compiled
/// for their target features. None is inlined into another function, so that none pays for the
/// stack of another.
macro_rules! kernels {
    ($(#[$target_feature:meta])? $vector:path) => {
        use super::{BaseTable, Integers, LANES, Parameters, Points, Scalars, multiplication};

        $(#[$target_feature])?
        #[inline(never)]
        pub(super) fn multiply_base<C: Parameters<L, N>, const L: usize, const N: usize>(
            scalars: &Scalars,
            products: &mut Points<N>,
        ) -> [u64; LANES] {
            let table = C::base_table().get_or_init(|| make_base_table::<C, L, N>());
            #[cfg(any(test, feature = "fault-test"))]
            let damaged = crate::fault_test::damage(8 * L)
                .map(|damage| table.damaged::<C, L, N>(damage));
            #[cfg(any(test, feature = "fault-test"))]
            let table = damaged.as_ref().unwrap_or(table);
            // SAFETY: the CPU has the vector's instructions, else this function must not be called.
            unsafe { multiplication::multiply_base::<C, $vector, L, N>(scalars, table, products) }
        }

        $(#[$target_feature])?
        #[inline(never)]
        fn make_base_table<C: Parameters<L, N>, const L: usize, const N: usize>() -> BaseTable {
            // SAFETY: as in `multiply_base`.
            unsafe { BaseTable::new::<C, $vector, L, N>() }
        }

        $(#[$target_feature])?
        #[inline(never)]
        pub(super) fn multiply_points<C: Parameters<L, N>, const L: usize, const N: usize>(
            scalars: &Scalars,
            points: &mut Points<N>,
        ) -> [u64; LANES] {
            // SAFETY: as in `multiply_base`.
            unsafe { multiplication::multiply_points::<C, $vector, L, N>(scalars, points) }
        }

        $(#[$target_feature])?
        #[inline(never)]
        pub(super) fn invert_scalars<C: Parameters<L, N>, const L: usize, const N: usize>(
            scalars: &mut Integers<N>,
            power: &[u64; N],
        ) {
            // SAFETY: as in `multiply_base`.
            unsafe { multiplication::invert_scalars::<C, $vector, L, N>(scalars, power) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod ifma {
    kernels!(
        #[target_feature(enable = "avx512f,avx512ifma")]
        crate::vector::IfmaVector
    );
}

mod portable {
    kernels!(crate::vector::Portable);
}
