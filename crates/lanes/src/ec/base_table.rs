//! Multiples of the base point, computed once.
//!
//! Window i of the scalar has the multiples 1, 3, 5, ... times 2^(w i). All lanes look up in the
//! same table, so its entries are not vectors but single integers. A vector holds one digit of
//! eight entries, and lanes select theirs by permutations of registers.
//!
//! A wrong entry would make signatures that reveal digits of their nonces. So the pages of a table
//! are read-only, and the products are [checked](AffinePoint::is_on_curve). The tables are not
//! constants: the compiler takes a second to evaluate the 162 points of X25519, and here are 4,416,
//! of up to twice the length. And every binary would be 450 KB longer.

use slipstream_keys::pages::ReadOnly;

use super::arithmetic::Arithmetic;
use super::curve::Parameters;
use super::field::{Element, Factor, multiply};
use super::moduli::digits;
use super::multiplication::{odd_multiples, to_montgomery_form, windows};
use super::point::{AffinePoint, Point};
use crate::LANES;
use crate::digits::{lanes_mut, lanes_of, splat};
#[cfg(any(test, feature = "fault-test"))]
use crate::fault_test::Damage;
use crate::vector::{Lanes, Vector};

/// Entries that one look-up chooses among.
const GROUP: usize = 2 * LANES;

/// The multiples of a curve's base point: 190 KB for P-256, 256 KB for P-384.
pub(super) struct BaseTable {
    /// By window, then by digit of x and then of y, then by group of entries.
    groups: ReadOnly<Lanes<2>>,
}

impl BaseTable {
    /// Computes the table.
    ///
    /// # Panics
    /// If the system has no memory for it.
    ///
    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    pub(super) unsafe fn new<C, V, const L: usize, const N: usize>() -> Self
    where
        C: Parameters<L, N>,
        V: Arithmetic,
    {
        // SAFETY: the CPU has the instructions of `V`, by the contract of this function.
        let zero = unsafe { V::splat(0) };
        let windows = windows::<L>(C::BASE_WINDOW);
        let mut groups = vec![Lanes::splat(0); windows * window_length::<C, L, N>()];
        let x = Element::splat(zero, &digits(&C::BASE_X));
        let y = Element::splat(zero, &digits(&C::BASE_Y));
        let mut base = AffinePoint {
            x: to_montgomery_form::<C::Field, V, N>(&x.0),
            y: to_montgomery_form::<C::Field, V, N>(&y.0),
        }
        .to_point::<C::Field>();

        let mut multiples = vec![base; entries::<C, L, N>()];
        let mut products = vec![base.z; entries::<C, L, N>()];
        for first in (0..windows).step_by(LANES) {
            let mut bases = base;
            for lane in 0..LANES {
                copy_lane(&mut base, &mut bases, lane);
                for _ in 0..C::BASE_WINDOW {
                    base.double::<C::Field>();
                }
            }
            odd_multiples::<C::Field, V, N>(&bases, &mut multiples);
            let rest = &mut groups[first * window_length::<C, L, N>()..];
            store::<C, V, L, N>(rest, &multiples, &mut products);
        }
        BaseTable::of(&groups)
    }

    /// # Panics
    /// If the system has no memory for it.
    fn of(groups: &[Lanes<2>]) -> Self {
        BaseTable {
            groups: ReadOnly::copy_of(groups).expect("memory for a table"),
        }
    }

    /// The entries of a window at the indices in the lanes of `index`. No address depends on these.
    #[inline(always)]
    pub(super) fn look_up<C, V, const L: usize, const N: usize>(
        &self,
        window: usize,
        index: V,
    ) -> AffinePoint<V, N>
    where
        C: Parameters<L, N>,
        V: Arithmetic,
    {
        let (length, count) = (window_length::<C, L, N>(), groups::<C, L, N>());
        let groups = &self.groups[window * length..][..length];
        let bit4 = is_set(index, 4);
        let bit5 = is_set(index, 5);
        let mut point = AffinePoint {
            x: Element([index; N]),
            y: Element([index; N]),
        };
        unroll!(I below N, {
            let (x, y) = (&groups[I * count..][..count], &groups[(N + I) * count..][..count]);
            point.x.0[I] = choose(x, index, bit4, bit5);
            point.y.0[I] = choose(y, index, bit4, bit5);
        });
        point
    }
}

/// Stores the multiples for the windows at the beginning of `table`, one window per lane. Lanes
/// beyond the last window are ignored. `products` is scratch.
#[inline(always)]
fn store<C, V, const L: usize, const N: usize>(
    table: &mut [Lanes<2>],
    multiples: &[Point<V, N>],
    products: &mut [Factor<V, N>],
) where
    C: Parameters<L, N>,
    V: Arithmetic,
{
    // One inversion for all entries (P. L. Montgomery, "Speeding the Pollard and elliptic curve
    // methods of factorization", 1987).
    let mut product = multiples[0].z;
    for (kept, multiple) in products.iter_mut().zip(multiples).skip(1) {
        *kept = product;
        product = multiply::<C::Field, V, N>(&product, &multiple.z).factor();
    }
    let mut inverse = V::invert::<C::Field, N>(&product);
    for (entry, multiple) in multiples.iter().enumerate().rev() {
        let own = if entry == 0 {
            inverse
        } else {
            multiply::<C::Field, V, N>(&inverse, &products[entry]).factor()
        };
        inverse = multiply::<C::Field, V, N>(&inverse, &multiple.z).factor();
        let point = multiple.to_affine::<C::Field>(&own);
        for (digit, vector) in point.x.0.into_iter().chain(point.y.0).enumerate() {
            let windows = table.chunks_exact_mut(window_length::<C, L, N>());
            for (window, lane) in windows.zip(lanes_of(vector)) {
                let group = digit * groups::<C, L, N>() + entry / GROUP;
                window[group].0.as_flattened_mut()[entry % GROUP] = lane;
            }
        }
    }
}

/// The entries of `groups` at the indices in the lanes of `index`. `bit4` and `bit5` are these bits
/// of the indices.
#[inline(always)]
fn choose<V: Vector>(groups: &[Lanes<2>], index: V, bit4: V::Mask, bit5: V::Mask) -> V {
    match groups {
        [a] => look_up(a, index),
        [a, b] => look_up(b, index).select(look_up(a, index), bit4),
        [a, b, c, d] => {
            let low = look_up(b, index).select(look_up(a, index), bit4);
            let high = look_up(d, index).select(look_up(c, index), bit4);
            high.select(low, bit5)
        }
        _ => unreachable!("windows have five to seven bits"),
    }
}

#[inline(always)]
fn look_up<V: Vector>(group: &Lanes<2>, index: V) -> V {
    // SAFETY: there is a value of `V`, so the CPU has its instructions.
    index.look_up(unsafe { group.as_vectors() })
}

#[inline(always)]
fn is_set<V: Vector>(index: V, bit: u32) -> V::Mask {
    let one = splat(index, 1);
    index.shift_right(bit).and(one).equal(one)
}

/// Entries per window.
const fn entries<C: Parameters<L, N>, const L: usize, const N: usize>() -> usize {
    1 << (C::BASE_WINDOW - 1)
}

/// Groups per digit.
const fn groups<C: Parameters<L, N>, const L: usize, const N: usize>() -> usize {
    entries::<C, L, N>() / GROUP
}

/// Groups per window.
const fn window_length<C: Parameters<L, N>, const L: usize, const N: usize>() -> usize {
    2 * N * groups::<C, L, N>()
}

/// Copies one lane of a point.
#[inline(always)]
fn copy_lane<V: Vector, const N: usize>(
    source: &mut Point<V, N>,
    target: &mut Point<V, N>,
    lane: usize,
) {
    for (source, target) in [
        (&mut source.x.0, &mut target.x.0),
        (&mut source.y.0, &mut target.y.0),
        (&mut source.z.0, &mut target.z.0),
    ] {
        for (source, target) in lanes_mut(source).iter().zip(lanes_mut(target)) {
            target[lane] = source[lane];
        }
    }
}

#[cfg(any(test, feature = "fault-test"))]
impl BaseTable {
    /// A copy of the table in which the first window is damaged.
    pub(super) fn damaged<C, const L: usize, const N: usize>(&self, damage: Damage) -> Self
    where
        C: Parameters<L, N>,
    {
        let mut damaged = self.groups.to_vec();
        let window = &mut damaged[..window_length::<C, L, N>()];
        for (digit, groups) in window.chunks_exact_mut(groups::<C, L, N>()).enumerate() {
            let mut entries: Vec<&mut u64> = groups
                .iter_mut()
                .flat_map(|group| group.0.as_flattened_mut())
                .collect();
            match damage {
                Damage::Bit { multiple } if digit == 0 => *entries[multiple] ^= 1,
                Damage::Bits if digit == 0 => entries.iter_mut().for_each(|entry| **entry ^= 1),
                Damage::Bit { .. } | Damage::Bits => {}
                Damage::Places => {
                    for pair in entries.chunks_exact_mut(2) {
                        let (first, second) = pair.split_at_mut(1);
                        core::mem::swap(&mut *first[0], &mut *second[0]);
                    }
                }
            }
        }
        BaseTable::of(&damaged)
    }
}
