//! Montgomery multiplication in radix 2^52 with fused multiply-add, for eight lanes at once.
//!
//! Numbers are digit-sliced: element i of an array holds digit i of all eight lanes. A digit is the
//! low 52 bits of its lane. The 12 bits above it have already been carried to the next digit, and
//! stay there because the multiplier ignores them. Numbers have N digits, a multiple of [`BLOCK`].
//!
//! R = 2^(52 N). All results are *almost* reduced: no final subtraction. For inputs a, b < R the
//! result is congruent to a b / R and less than n + a b / R ("almost Montgomery", Gueron,
//! "Efficient Software Implementations of Modular Exponentiation", 2012).
//!
//! Everything is done in blocks of ten digits by ten digits as straight-line code: ten rows and a
//! sliding window of eleven column sums stay in registers, and every digit loaded feeds twenty
//! multiplications. Column sums rest in `product` between blocks. A multiplication takes 4 N^2
//! multiply-adds, a squaring 3 N^2 + N.
//!
//! Two tricks make the reduction cheap. The low half of m_i n_0 is never computed: it makes column
//! i zero modulo 2^52, so only the carry of the column t is left, ceil(t / 2^52). And every column
//! that will be reduced starts at 2^52 - 1, so that this ceiling is a plain shift. Then m_i =
//! k0 t = k0 (t + 2^52 - 1) + k0 modulo 2^52 is one multiply-add too.
//!
//! No column overflows. It is the sum of at most 2 N digit halves of the product and 2 N of the
//! reduction, each below 2^52, of the initial value below 2^53, and of a carry below 2^12. For N =
//! 80 that is less than 2^61.

use crate::vector::{Lanes, MultiplyAdd52};

/// Digits per block. The number of digits is a multiple of it.
pub(crate) const BLOCK: usize = 10;

/// Bits per digit.
pub(crate) const DIGIT_BITS: u32 = 52;

/// `out = a b / R` modulo `modulus`, almost reduced.
///
/// `negated_inverse` is -1 / modulus modulo 2^52, per lane. `product` is scratch of at least 2 N
/// elements.
///
/// # Panics
/// If N is not a multiple of [`BLOCK`] or `product` is too short.
#[inline(always)]
pub(crate) fn multiply<V: MultiplyAdd52, const N: usize>(
    out: &mut [V; N],
    a: &[V; N],
    b: &[V; N],
    modulus: &[V; N],
    negated_inverse: &V,
    product: &mut [V],
) {
    let blocks = blocks_of::<N>();
    let product = &mut product.as_chunks_mut().0[..2 * blocks];
    let (b, _) = b.as_chunks::<BLOCK>();
    for (index, rows) in b.iter().enumerate() {
        let (columns, _) = load_in_place(a).as_chunks::<BLOCK>();
        let fresh = |block| {
            (index == 0 || block == index + blocks).then(|| initial(negated_inverse, block, blocks))
        };
        let mut window = Window::load(fresh(index).unwrap_or(&product[index]));
        window.sweep(rows, columns, &mut product[index..], |offset| {
            fresh(index + offset)
        });
    }
    reduce(out, modulus, negated_inverse, product);
}

/// `out = a^2 / R` modulo `modulus`, almost reduced.
///
/// Arguments and panics as for [`multiply`].
#[inline(always)]
pub(crate) fn square<V: MultiplyAdd52, const N: usize>(
    out: &mut [V; N],
    a: &[V; N],
    modulus: &[V; N],
    negated_inverse: &V,
    product: &mut [V],
) {
    let blocks = blocks_of::<N>();
    let product = &mut product.as_chunks_mut().0[..2 * blocks];
    let (digits, _) = a.as_chunks::<BLOCK>();
    for (index, rows) in digits.iter().enumerate() {
        let fresh = |block| {
            (index == 0 || block == index + blocks).then(|| initial(negated_inverse, block, blocks))
        };
        let mut window = Window::load(fresh(2 * index).unwrap_or(&product[2 * index]));
        window.multiply_by_later_rows(rows, &mut product[2 * index..], fresh(2 * index + 1));
        let rows = load_in_place(rows);
        window.sweep(
            rows,
            &digits[index + 1..],
            &mut product[2 * index + 1..],
            |offset| fresh(2 * index + 1 + offset),
        );
    }
    double_and_add_squares(a, product.as_flattened_mut());
    reduce(out, modulus, negated_inverse, product);
}

const fn blocks_of<const N: usize>() -> usize {
    assert!(N.is_multiple_of(BLOCK));
    N / BLOCK
}

/// Hides an operand from the optimizer, which would otherwise load the whole operand before a loop
/// and spill it to a stack that is not aligned for it.
#[inline(always)]
fn load_in_place<T>(operand: &T) -> &T {
    core::hint::black_box(operand)
}

/// The initial value of a block of sums: see the documentation of this module.
#[inline(always)]
fn initial<V: MultiplyAdd52>(_witness: &V, block: usize, blocks: usize) -> &'static [V; BLOCK] {
    static CEILING: Lanes<BLOCK> = Lanes::splat((1 << DIGIT_BITS) - 1);
    static ZERO: Lanes<BLOCK> = Lanes::splat(0);
    let lanes = if block < blocks { &CEILING } else { &ZERO };
    // SAFETY: a value of V exists, so the CPU has its instructions.
    unsafe { lanes.as_vectors() }
}

/// Repeats a block with a constant that counts from 0 to 9, or over a part of that. A loop would
/// leave the sums in memory: LLVM allocates registers before it unrolls nested loops of this
/// length.
macro_rules! unroll {
    ($index:ident, $body:block) => {
        unroll!(@ $index, $body, 0 1 2 3 4 5 6 7 8 9)
    };
    ($index:ident from 1, $body:block) => {
        unroll!(@ $index, $body, 1 2 3 4 5 6 7 8 9)
    };
    ($index:ident from 2, $body:block) => {
        unroll!(@ $index, $body, 2 3 4 5 6 7 8 9)
    };
    ($index:ident from 3, $body:block) => {
        unroll!(@ $index, $body, 3 4 5 6 7 8 9)
    };
    ($index:ident below $limit:ident, $body:block) => {
        unroll!($index, { if $index < $limit $body })
    };
    (@ $index:ident, $body:block, $($value:literal)*) => {
        $({ const $index: usize = $value; $body })*
    };
}

/// The column sums that are in registers while ten rows sweep over the columns: those of the
/// current block of columns, and those of the next block, which the products reach into. The two
/// halves alternate: in odd phases the second half is current.
struct Window<V>([V; 2 * BLOCK]);

/// Index of column `J` of a window, counted from the start of the current block.
macro_rules! column {
    ($phase:ident, $index:expr) => {
        ($index + BLOCK * $phase) % (2 * BLOCK)
    };
}

impl<V: MultiplyAdd52> Window<V> {
    #[inline(always)]
    fn load(sums: &[V; BLOCK]) -> Self {
        let mut window = [sums[0]; 2 * BLOCK];
        unroll!(J, { window[J] = sums[J] });
        Window(window)
    }

    /// Adds `rows` times all `columns`, beginning in phase 0, and stores the window.
    ///
    /// `sums` holds the blocks of sums from the current one on. For a block that holds nothing yet,
    /// `fresh` returns the initial value.
    #[inline(always)]
    fn sweep<'a>(
        &mut self,
        rows: &[V; BLOCK],
        columns: &[[V; BLOCK]],
        sums: &mut [[V; BLOCK]],
        fresh: impl Fn(usize) -> Option<&'a [V; BLOCK]>,
    ) where
        V: 'a,
    {
        let (pairs, single) = columns.as_chunks::<2>();
        for (index, [first, second]) in pairs.iter().enumerate() {
            let sums = &mut sums[2 * index..2 * index + 3];
            self.multiply::<0>(rows, first, sums, fresh(2 * index + 1));
            self.multiply::<1>(rows, second, &mut sums[1..], fresh(2 * index + 2));
        }
        let sums = &mut sums[2 * pairs.len()..];
        if let [columns] = single {
            self.multiply::<0>(rows, columns, sums, fresh(2 * pairs.len() + 1));
            self.store::<1>(&mut sums[1]);
        } else {
            self.store::<0>(&mut sums[0]);
        }
    }

    #[inline(always)]
    fn store<const PHASE: usize>(&self, sums: &mut [V; BLOCK]) {
        unroll!(J, { sums[J] = self.0[column!(PHASE, J)] });
    }

    /// Adds `rows` times `columns`. `sums` begins with the current and the next block of sums. The
    /// next block is read from `fresh` instead if that is given.
    #[inline(always)]
    fn multiply<const PHASE: usize>(
        &mut self,
        rows: &[V; BLOCK],
        columns: &[V; BLOCK],
        sums: &mut [[V; BLOCK]],
        fresh: Option<&[V; BLOCK]>,
    ) {
        let [current, next, ..] = sums else {
            unreachable!("a block reaches into two blocks of sums")
        };
        let next = fresh.unwrap_or(next);
        let window = &mut self.0;
        unroll!(J, {
            let digit = &columns[J];
            window[column!(PHASE, J + 10)] = next[J];
            unroll!(I, {
                window[column!(PHASE, J + I)].madd_low(digit, &rows[I])
            });
            unroll!(I, {
                window[column!(PHASE, J + I + 1)].madd_high(digit, &rows[I])
            });
            current[J] = window[column!(PHASE, J)];
        });
    }

    /// Adds every product of two different digits of `rows`, once, and makes the next block current
    /// in phase 0.
    #[inline(always)]
    fn multiply_by_later_rows(
        &mut self,
        rows: &[V; BLOCK],
        sums: &mut [[V; BLOCK]],
        fresh: Option<&[V; BLOCK]>,
    ) {
        let [current, next, ..] = sums else {
            unreachable!("a block reaches into two blocks of sums")
        };
        let next = fresh.unwrap_or(next);
        let window = &mut self.0;
        unroll!(J, {
            let digit = &rows[J];
            window[J + 10] = next[J];
            unroll!(I below J, { window[J + I].madd_low(digit, &rows[I]); });
            unroll!(I below J, { window[J + I + 1].madd_high(digit, &rows[I]); });
            current[J] = window[J];
        });
        unroll!(J, { window[J] = window[J + 10] });
    }

    /// Adds to the ten columns of the window the multiples of `modulus` (its first ten digits) that
    /// make them zero, and their carry to the eleventh. Makes the `next` block current in phase 0.
    /// Returns the ten factors.
    #[inline(always)]
    fn eliminate(
        &mut self,
        modulus: &[V; BLOCK],
        negated_inverse: &V,
        next: &[V; BLOCK],
    ) -> [V; BLOCK] {
        let window = &mut self.0;
        let mut factors = [*negated_inverse; BLOCK];
        factors[0].madd_low(&window[0], negated_inverse);
        unroll!(J, { window[J + 10] = next[J] });
        // Each factor waits for the column below it, so these columns go first and most of a row's
        // work is put off until the next row's factor is under way. The two halves of the column
        // that the next factor needs are computed side by side.
        unroll!(I, {
            if I != 0 {
                window[I + 1].madd_high(&factors[I - 1], &modulus[1]);
                window[I + 1].madd_low(&factors[I - 1], &modulus[2]);
            }
            let mut carry = window[I].shift_right(DIGIT_BITS);
            carry.madd_high(&factors[I], &modulus[0]);
            window[I + 1].madd_low(&factors[I], &modulus[1]);
            window[I + 1] = window[I + 1].add(carry);
            if I != 9 {
                factors[(I + 1) % 10].madd_low(&window[I + 1], negated_inverse);
            }
            if I != 0 {
                unroll!(J from 3, { window[I + J - 1].madd_low(&factors[I - 1], &modulus[J]); });
                unroll!(J from 2, { window[I + J].madd_high(&factors[I - 1], &modulus[J]); });
            }
        });
        unroll!(J from 2, { window[J + 9].madd_low(&factors[9], &modulus[J]); });
        unroll!(J from 1, { window[J + 10].madd_high(&factors[9], &modulus[J]); });
        unroll!(J, { window[J] = window[J + 10] });
        factors
    }
}

/// Doubles the sums of the products of different digits and adds the squares of the digits.
#[inline(always)]
fn double_and_add_squares<V: MultiplyAdd52, const N: usize>(a: &[V; N], sums: &mut [V]) {
    let (pairs, _) = sums.as_chunks_mut::<2>();
    let pairs = &mut pairs[..N];
    for (digit, [even, odd]) in a.iter().zip(pairs.iter_mut()) {
        *even = even.add(*even);
        even.madd_low(digit, digit);
        *odd = odd.add(*odd);
        odd.madd_high(digit, digit);
    }
    // Doubling made the 2^52 - 1 of the lower columns 2^53 - 2. With the 1 added here, column 0 has
    // 2^52 + (2^52 - 1), and so carries one too many into column 1, which then has the same; and so
    // on, until column N, from which the 1 is subtracted.
    // SAFETY: `a` holds values of V.
    let one = unsafe { V::splat(1) };
    sums[0] = sums[0].add(one);
    sums[N] = sums[N].subtract(one);
}

/// `out` = `product` / R modulo `modulus`, where every lower column of `product` is 2^52 - 1 too
/// high.
#[inline(always)]
fn reduce<V: MultiplyAdd52, const N: usize>(
    out: &mut [V; N],
    modulus: &[V; N],
    negated_inverse: &V,
    product: &mut [[V; BLOCK]],
) {
    let blocks = blocks_of::<N>();
    for index in 0..blocks {
        let (modulus, _) = load_in_place(modulus).as_chunks::<BLOCK>();
        let sums = &mut product[index..];
        let mut window = Window::load(&sums[0]);
        let negated_inverse = load_in_place(negated_inverse);
        let factors = window.eliminate(&modulus[0], negated_inverse, &sums[1]);
        window.sweep(&factors, &modulus[1..], &mut sums[1..], |_| None);
    }

    let sums = product[blocks..].as_flattened();
    // SAFETY: the arguments are values of V.
    let mut carry = unsafe { V::splat(0) };
    for (digit, sum) in out.iter_mut().zip(sums) {
        *digit = sum.add(carry);
        carry = digit.shift_right(DIGIT_BITS);
    }
}
