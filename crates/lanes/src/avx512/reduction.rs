//! Montgomery reduction of a product's columns, four rows at a time.

use super::rows::{close, multiply_add, open, slide, step, unrolled, with_remainder};
use super::{DIGIT_BITS, DIGIT_MASK};
use crate::digits::splat;
use crate::vector::Multiply32;

/// Rows in a block. The quotient digits of a block form one chain of dependent instructions of some
/// 14 cycles each; a chain of four is short enough to run while the previous block is still being
/// added.
const ROWS: usize = 4;

/// Adds the multiple of the modulus to the 2N columns of `product` which makes the lower N vanish,
/// and carries these into column N: `product[N..]` then holds the columns of the reduced value. The
/// lower half is left undefined.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn reduce<V: Multiply32, const N: usize>(product: &mut [V], modulus: &[V; N], k0: V) {
    const { assert!(N >= 3 * ROWS) };
    with_remainder!(N % ROWS, R => {
        let quotient = quotient_digits::<V, R>(product, modulus, k0);
        let mut window = open_above_quotient(product, modulus, &quotient);
        slide!(R, &mut product[R..], window, quotient, modulus[R..]);
        close(&mut product[N..], &window);
    });

    let mut quotient = quotient_digits::<V, ROWS>(&mut product[N % ROWS..], modulus, k0);
    for block in (N % ROWS..N - ROWS).step_by(ROWS) {
        let columns = &mut product[block..block + N + ROWS];
        let mut window = open_above_quotient(columns, modulus, &quotient);
        // The columns that the next block's quotient digits come from go first, then those digits,
        // and then the rest of this block, whose independent work hides how long the digits take.
        let columns = &mut columns[ROWS..];
        unrolled!(J < ROWS => {
            step!(ROWS, columns[J..], window, quotient, modulus[ROWS + J]);
        });
        columns[ROWS] = window[0];
        let next = quotient_digits::<V, ROWS>(columns, modulus, k0);
        window[0] = columns[ROWS];
        slide!(
            ROWS,
            &mut columns[ROWS..],
            window,
            quotient,
            modulus[2 * ROWS..]
        );
        close(&mut columns[N - ROWS..], &window);
        quotient = next;
    }
    let columns = &mut product[N - ROWS..];
    let mut window = open_above_quotient(columns, modulus, &quotient);
    slide!(
        ROWS,
        &mut columns[ROWS..],
        window,
        quotient,
        modulus[ROWS..]
    );
    close(&mut columns[N..], &window);
}

/// The quotient digits which make the lowest R columns vanish; carries these columns into the one
/// above.
#[inline]
#[target_feature(enable = "avx512f")]
fn quotient_digits<V: Multiply32, const R: usize>(
    columns: &mut [V],
    modulus: &[V],
    k0: V,
) -> [V; R] {
    let columns = &mut columns[..R + 1];
    let modulus: &[V; R] = modulus.first_chunk().expect("more digits than rows");
    let mask = splat(k0, DIGIT_MASK);
    let mut quotient = [splat(k0, 0); R];
    let mut carry = splat(k0, 0);
    unrolled!(K < R => {
        let mut column = columns[K];
        unrolled!(J < K => {
            column = multiply_add(column, quotient[J], modulus[K - J]);
        });
        // Added last: it is the last to be known.
        column = column.add(carry);
        quotient[K] = column.multiply_low(k0).and(mask);
        column = multiply_add(column, quotient[K], modulus[0]);
        carry = column.shift_right(DIGIT_BITS);
    });
    columns[R] = columns[R].add(carry);
    quotient
}

/// The window above the columns that a block's quotient digits have made vanish, with the products
/// of these digits and the lowest R digits of the modulus that fall into it.
#[inline]
#[target_feature(enable = "avx512f")]
fn open_above_quotient<V: Multiply32, const R: usize>(
    columns: &[V],
    modulus: &[V],
    quotient: &[V; R],
) -> [V; R] {
    let modulus: &[V; R] = modulus.first_chunk().expect("more digits than rows");
    let mut window = open::<V, R>(&columns[R..]);
    unrolled!(K < R - 1 => {
        unrolled!(J < R - 1 - K => {
            window[K] = multiply_add(window[K], quotient[K + 1 + J], modulus[R - 1 - J]);
        });
    });
    window
}
