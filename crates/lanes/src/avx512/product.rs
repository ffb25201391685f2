//! The columns of a product or square, eight rows at a time.

use super::rows::{add, multiply_add, unrolled, with_remainder};
use crate::digits::splat;
use crate::vector::Multiply32;
use std::hint::black_box;

/// Rows in a block: with their window and the operands of a step they fill the registers well, and
/// squaring finds runs of digits whose lengths are multiples of the eight steps that `slide!`
/// unrolls.
const ROWS: usize = 8;

/// Sets the 2N elements of `product` to the column sums of a·b.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn multiply<V: Multiply32, const N: usize>(product: &mut [V], a: &[V; N], b: &[V; N]) {
    clear(product);
    with_remainder!(N % ROWS, R => {
        let rows: &[V; R] = a.first_chunk().expect("fewer rows than digits");
        add(product, rows, b);
    });
    let remainder = N % ROWS;
    let (blocks, _) = a[remainder..].as_chunks::<ROWS>();
    let mut columns = &mut product[remainder..];
    for rows in blocks {
        add(columns, rows, b);
        columns = &mut columns[ROWS..];
    }
}

/// Sets the 2N elements of `product` to the column sums of a².
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn square<V: Multiply32, const N: usize>(product: &mut [V], a: &[V; N]) {
    clear(product);
    with_remainder!(N % ROWS, R => {
        add_square_rows::<V, R>(product, a);
    });
    for row in (N % ROWS..N).step_by(ROWS) {
        add_square_rows::<V, ROWS>(&mut product[2 * row..], &a[row..]);
    }
}

/// Zeroes the columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn clear<V: Multiply32>(columns: &mut [V]) {
    // A zero that LLVM does not know keeps it from calling memset, which is slower at this size.
    columns.fill(black_box(splat(columns[0], 0)));
}

/// Adds all products of the first R digits with themselves and, twice, with the digits above each.
///
/// The first column has weight `digits[0]`².
#[inline]
#[target_feature(enable = "avx512f")]
fn add_square_rows<V: Multiply32, const R: usize>(columns: &mut [V], digits: &[V]) {
    let (rows, above): (&[V; R], _) = digits.split_first_chunk().expect("a digit for each row");
    let mut doubled = *rows;
    unrolled!(K < R => { doubled[K] = rows[K].add(rows[K]); });

    let triangle = &mut columns[..2 * R];
    unrolled!(K < R => {
        let mut even = triangle[2 * K];
        let mut odd = triangle[2 * K + 1];
        unrolled!(J < K => {
            if 2 * K - J < R {
                even = multiply_add(even, doubled[J], rows[2 * K - J]);
            }
        });
        unrolled!(J < K + 1 => {
            if 2 * K + 1 - J < R {
                odd = multiply_add(odd, doubled[J], rows[2 * K + 1 - J]);
            }
        });
        triangle[2 * K] = multiply_add(even, rows[K], rows[K]);
        triangle[2 * K + 1] = odd;
    });
    if !above.is_empty() {
        add(&mut columns[R..], &doubled, above);
    }
}
