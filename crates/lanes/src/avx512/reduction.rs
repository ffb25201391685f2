//! Montgomery reduction of a product's columns, four rows at a time.

use super::rows::{close, multiply_add, multiply_low, open, slide, step, unrolled, with_remainder};
use super::{DIGIT_BITS, DIGIT_MASK};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_srli_epi64,
};

/// Rows in a block. The quotient digits of a block form one chain of dependent instructions of some
/// 14 cycles each; a chain of four is short enough to run while the previous block is still being
/// added.
const ROWS: usize = 4;

/// Adds the multiple of the modulus to the 2N columns of `product` which makes the lower N vanish,
/// and carries these into column N: `product[N..]` then holds the columns of the reduced value. The
/// lower half is left undefined.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn reduce<const N: usize>(product: &mut [__m512i], modulus: &[__m512i; N], k0: __m512i) {
    const { assert!(N >= 3 * ROWS) };
    with_remainder!(N % ROWS, R => {
        let quotient = quotient_digits::<R>(product, modulus, k0);
        let mut window = open_above_quotient(product, modulus, &quotient);
        slide!(R, &mut product[R..], window, quotient, modulus[R..]);
        close(&mut product[N..], &window);
    });

    let mut quotient = quotient_digits::<ROWS>(&mut product[N % ROWS..], modulus, k0);
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
        let next = quotient_digits::<ROWS>(columns, modulus, k0);
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
fn quotient_digits<const R: usize>(
    columns: &mut [__m512i],
    modulus: &[__m512i],
    k0: __m512i,
) -> [__m512i; R] {
    let columns = &mut columns[..R + 1];
    let modulus: &[__m512i; R] = modulus.first_chunk().expect("more digits than rows");
    let mask = _mm512_set1_epi64(DIGIT_MASK);
    let mut quotient = [_mm512_setzero_si512(); R];
    let mut carry = _mm512_setzero_si512();
    unrolled!(K < R => {
        let mut column = columns[K];
        unrolled!(J < K => {
            column = multiply_add(column, quotient[J], modulus[K - J]);
        });
        // Added last: it is the last to be known.
        column = _mm512_add_epi64(column, carry);
        quotient[K] = _mm512_and_si512(multiply_low(column, k0), mask);
        column = multiply_add(column, quotient[K], modulus[0]);
        carry = _mm512_srli_epi64::<DIGIT_BITS>(column);
    });
    columns[R] = _mm512_add_epi64(columns[R], carry);
    quotient
}

/// The window above the columns that a block's quotient digits have made vanish, with the products
/// of these digits and the lowest R digits of the modulus that fall into it.
#[inline]
#[target_feature(enable = "avx512f")]
fn open_above_quotient<const R: usize>(
    columns: &[__m512i],
    modulus: &[__m512i],
    quotient: &[__m512i; R],
) -> [__m512i; R] {
    let modulus: &[__m512i; R] = modulus.first_chunk().expect("more digits than rows");
    let mut window = open::<R>(&columns[R..]);
    unrolled!(K < R - 1 => {
        unrolled!(J < R - 1 - K => {
            window[K] = multiply_add(window[K], quotient[K + 1 + J], modulus[R - 1 - J]);
        });
    });
    window
}
