//! Blocks of rows: a few digits times a run of digits, added to the columns of a product.
//!
//! A block of rows r_0, ..., r_(R-1) adds Σ r_k · d_(c-k) to column c for a run of digits d_0, d_1,
//! .... Taking one digit at a time touches R columns at once, so these are held in registers, the
//! *window*; each step completes the lowest column of the window and lets in the next. A column is
//! thus loaded and stored once in R products.
//!
//! The two vector ports are the limit only if everything is unrolled and the window stays in
//! registers. LLVM neither unrolls loops of this size nor inlines functions of this size, hence
//! macros.

use crate::vector::Multiply32;

/// Repeats a block with the constant `$index` = 0, 1, ... below `$limit`, which is at most 8.
macro_rules! unrolled {
    ($index:ident < $limit:expr => $body:block) => {
        unrolled!(@ $index, $limit, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $index:ident, $limit:expr, $body:block, $($value:literal)*) => {
        $({
            const $index: usize = $value;
            if $index < $limit $body
        })*
    };
}

/// Runs a block with the constant `$rows` equal to `$remainder`, which is at most 7, unless it is
/// zero.
macro_rules! with_remainder {
    ($remainder:expr, $rows:ident => $body:block) => {
        with_remainder!(@ $remainder, $rows, $body, 1 2 3 4 5 6 7)
    };
    (@ $remainder:expr, $rows:ident, $body:block, $($value:literal)*) => {
        match $remainder {
            $($value => {
                const $rows: usize = $value;
                $body
            })*
            _ => {}
        }
    };
}

/// Adds a block's rows times one digit: completes `$columns[0]` and lets `$columns[$R - 1]` into
/// the window.
///
/// Before and after, the first `$R - 1` elements of `$window` hold the columns from the lowest
/// incomplete one on.
macro_rules! step {
    ($R:ident, $columns:expr, $window:ident, $rows:ident, $digit:expr) => {{
        let columns: &mut [_; $R] = $columns.first_chunk_mut().expect("a column for each row");
        let digit = $digit;
        $window[$R - 1] = columns[$R - 1];
        columns[0] = multiply_add($window[0], $rows[0], digit);
        unrolled!(K < $R - 1 => {
            $window[K] = multiply_add($window[K + 1], $rows[K + 1], digit);
        });
    }};
}

/// Takes a [`step!`] for each digit of a run; `$columns` begins with the lowest column of the
/// window.
macro_rules! slide {
    ($R:ident, $columns:expr, $window:ident, $rows:ident, $digits:expr) => {{
        let mut columns: &mut [_] = $columns;
        let (chunks, rest) = $digits.as_chunks::<8>();
        for chunk in chunks {
            let touched = &mut columns[..$R + 7];
            unrolled!(J < 8 => {
                step!($R, touched[J..], $window, $rows, chunk[J]);
            });
            columns = &mut columns[8..];
        }
        for digit in rest {
            step!($R, columns, $window, $rows, *digit);
            columns = &mut columns[1..];
        }
    }};
}

pub(super) use {slide, step, unrolled, with_remainder};

/// `sum` plus a·b for the low 32 bits of each 64-bit lane of `a` and `b`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn multiply_add<V: Multiply32>(sum: V, a: V, b: V) -> V {
    sum.add(a.multiply_low(b))
}

/// The window of a block of R rows whose lowest column is `columns[0]`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn open<V: Multiply32, const R: usize>(columns: &[V]) -> [V; R] {
    let columns = &columns[..R - 1];
    // SAFETY: callers have vectors of this type.
    let mut window = [unsafe { V::splat(0) }; R];
    unrolled!(K < R - 1 => { window[K] = columns[K]; });
    window
}

/// Stores the incomplete columns of a window, the lowest to `columns[0]`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn close<V: Multiply32, const R: usize>(columns: &mut [V], window: &[V; R]) {
    let columns = &mut columns[..R - 1];
    unrolled!(K < R - 1 => { columns[K] = window[K]; });
}

/// Adds the product of a block of rows and a run of digits to the columns. The first column has the
/// weight of `rows[0]`·`digits[0]`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add<V: Multiply32, const R: usize>(columns: &mut [V], rows: &[V; R], digits: &[V]) {
    let columns = &mut columns[..digits.len() + R - 1];
    let mut window = open::<V, R>(columns);
    slide!(R, columns, window, rows, digits);
    close(&mut columns[digits.len()..], &window);
}
