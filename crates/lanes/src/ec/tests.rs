//! Arithmetic compared with that of `num-bigint`, at the bounds that the formulas allow, and tables
//! compared with OpenSSL.

use num_bigint::{BigInt, BigUint, Sign};
#[cfg(feature = "system-openssl")]
use openssl::{
    bn::{BigNum, BigNumContext},
    ec::{EcGroup, EcPoint},
    nid::Nid,
};

use super::arithmetic::Arithmetic;
use super::curve::{P256, P384, Parameters};
use super::field::{
    Element, Modulus, Sum, difference_of_products, multiply, product_less_squares, square,
};
use super::moduli::{FieldP256, FieldP384, OrderP256, OrderP384, digits, limbs};
use super::multiplication::{Digit, Scalars, windows};
use super::{integers, wipe};
use crate::digits::{from_lanes, lanes_of, splat};
use crate::vector::{Portable, Vector};
use crate::{Backend, LANES};

/// Calls a function for every vector type that this CPU has.
macro_rules! for_vectors {
    ($function:ident $(, $parameter:tt)*) => {{
        $function::<Portable $(, $parameter)*>();
        #[cfg(target_arch = "x86_64")]
        if Backend::Ifma.missing().next().is_none() {
            $function::<crate::vector::IfmaVector $(, $parameter)*>();
        }
    }};
}

fn witness<V: Vector>() -> V {
    // SAFETY: `for_vectors` names types that the CPU has the instructions of.
    unsafe { V::splat(0) }
}

/// A modulus of N digits, for tests with numbers up to a multiple of it.
struct Subject<const N: usize> {
    modulus: BigUint,
    r: BigUint,
}

impl<const N: usize> Subject<N> {
    fn new<M: Modulus<N>>() -> Self {
        Subject {
            modulus: integer(&M::DIGITS),
            r: BigUint::from(1_u32) << (52 * N),
        }
    }

    /// Numbers below `bound` times the modulus, including the smallest, the largest and random
    /// ones.
    fn numbers(&self, bound: u32) -> Vec<BigUint> {
        let largest = &self.modulus * bound - 1_u32;
        let mut numbers = vec![BigUint::ZERO, BigUint::from(1_u32), largest.clone()];
        for multiple in 1..bound {
            let product = &self.modulus * multiple;
            numbers.extend([&product - 1_u32, product.clone(), product + 1_u32]);
        }
        // All digits but the last have their maximum.
        numbers.push((&largest >> (52 * (N - 1)) << (52 * (N - 1))) - 1_u32);
        while !numbers.len().is_multiple_of(LANES) || numbers.len() < 64 {
            let mut bytes = vec![0; 8 * N];
            getrandom::fill(&mut bytes).expect("randomness");
            numbers.push(BigUint::from_bytes_be(&bytes) % &largest);
        }
        numbers
    }

    /// `number` / R modulo the modulus.
    fn divide_by_r(&self, number: &BigInt) -> BigUint {
        let inverse = self.r.modinv(&self.modulus).expect("R is odd");
        let modulus = BigInt::from(self.modulus.clone());
        let product = number * BigInt::from(inverse);
        let remainder = ((product % &modulus) + &modulus) % modulus;
        remainder.to_biguint().expect("not negative")
    }
}

fn integer(digits: &[u64]) -> BigUint {
    let digit = |(index, digit): (usize, &u64)| BigUint::from(*digit) << (52 * index);
    digits.iter().enumerate().map(digit).sum()
}

fn element<V: Arithmetic, const N: usize>(numbers: &[BigUint]) -> Element<V, N> {
    let mask = BigUint::from((1_u64 << 52) - 1);
    Element(core::array::from_fn(|digit| {
        let lane = |number: &BigUint| u64::try_from((number >> (52 * digit)) & &mask);
        from_lanes(
            witness(),
            core::array::from_fn(|index| lane(&numbers[index]).expect("a digit")),
        )
    }))
}

fn numbers<V: Vector, const N: usize>(element: Element<V, N>) -> Vec<BigUint> {
    let digits = element.0.map(lanes_of);
    (0..LANES)
        .map(|lane| integer(&digits.map(|lanes| lanes[lane])))
        .collect()
}

/// Checks that the lanes of a sum are `expected` / R modulo the modulus, and between 0 and `bound`
/// times the modulus.
fn check<M: Modulus<N>, V: Arithmetic, const N: usize>(
    subject: &Subject<N>,
    sum: Sum<V, N>,
    bound: u32,
    expected: impl Fn(usize) -> BigInt,
) {
    for (lane, found) in numbers(sum.element()).into_iter().enumerate() {
        assert!(found < &subject.modulus * bound, "too large");
        assert_eq!(
            found % &subject.modulus,
            subject.divide_by_r(&expected(lane))
        );
    }
}

fn products<V: Arithmetic, M: Modulus<N>, const N: usize>() {
    let subject = Subject::<N>::new::<M>();
    let all = subject.numbers(4);
    let signed = |number: &BigUint| BigInt::from(number.clone());
    for (offset, a) in all.chunks(LANES).enumerate() {
        let a_element = element::<V, N>(a);
        // 4 * 4 / 16 and what the reduction adds: 2.01 for an order.
        check::<M, V, N>(&subject, square::<M, V, N>(&a_element), 4, |lane| {
            signed(&a[lane]) * signed(&a[lane])
        });
        for shift in 0..all.len() / LANES {
            let mut b = all[(offset + shift) * LANES % all.len()..][..LANES].to_vec();
            b.rotate_left(shift % LANES);
            let b_element = element::<V, N>(&b);
            let product = multiply::<M, V, N>(&a_element, &b_element);
            check::<M, V, N>(&subject, product, 4, |lane| {
                signed(&a[lane]) * signed(&b[lane])
            });
        }
    }
}

#[test]
fn products_are_right_and_bounded() {
    for_vectors!(products, FieldP256, 5);
    for_vectors!(products, FieldP384, 8);
    for_vectors!(products, OrderP256, 5);
    for_vectors!(products, OrderP384, 8);
}

/// The differences of products in point formulas, with factors as large as the formulas allow.
fn differences<V: Arithmetic, M: Modulus<N>, const N: usize>() {
    let subject = Subject::<N>::new::<M>();
    let signed = |number: &BigUint| BigInt::from(number.clone());
    let (fours, sevens, twos) = (subject.numbers(4), subject.numbers(7), subject.numbers(2));
    for (index, b) in sevens.chunks(LANES).enumerate() {
        let at = |all: &[BigUint], shift: usize| -> Vec<BigUint> {
            let mut chosen = all[(index + shift) * LANES % all.len()..][..LANES].to_vec();
            chosen.rotate_left(shift % LANES);
            chosen
        };
        for shift in 0..LANES {
            let (a, c, d) = (
                at(&twos, shift),
                at(&twos, shift + 1),
                at(&fours, shift + 2),
            );
            let (b_element, c_element) = (element::<V, N>(b), element::<V, N>(&c));
            let sum = product_less_squares::<M, V, N>(&element(&a), &b_element, &c_element);
            check::<M, V, N>(&subject, sum.plus_modulus::<M>(2), 4, |lane| {
                signed(&a[lane]) * signed(&b[lane]) - signed(&c[lane]) * signed(&c[lane]) * 8
            });
            let sum = difference_of_products::<M, V, N>(
                &element(&a),
                &b_element,
                &c_element,
                &element(&d),
            );
            check::<M, V, N>(&subject, sum.plus_modulus::<M>(1), 4, |lane| {
                signed(&a[lane]) * signed(&b[lane]) - signed(&c[lane]) * signed(&d[lane])
            });
        }
    }
}

#[test]
fn differences_of_products_are_right_and_bounded() {
    for_vectors!(differences, FieldP256, 5);
    for_vectors!(differences, FieldP384, 8);
}

fn tighten<V: Arithmetic>() {
    let subject = Subject::<5>::new::<FieldP256>();
    let mut all = subject.numbers(15);
    for multiple in 0..15_u32 {
        let power: BigUint = BigUint::from(multiple) << 256;
        let above: BigUint = &power + (BigUint::from(1_u32) << 208);
        all.extend([power.clone(), power + 1_u32, above.clone() - 1_u32, above]);
    }
    for chunk in all.as_chunks::<LANES>().0 {
        let before = element::<V, 5>(chunk);
        // The same in columns of both signs that are not carried.
        let large = Element::splat(before.0[0], &[(1 << 52) - 1, 0, (1 << 52) - 1, 0, 1 << 46]);
        let shifted = Element::splat(before.0[0], &[0, (1 << 52) - 1, 0, (1 << 52) - 1, 0]);
        let sums = [
            before.sum(),
            before.sum().plus(&large).minus_shifted(&shifted, 3),
            before.sum().plus(&shifted).minus(&large),
        ];
        for (index, sum) in sums.into_iter().enumerate() {
            let added = match index {
                0 => BigInt::ZERO,
                1 => value(&large) - value(&shifted) * 8,
                _ => value(&shifted) - value(&large),
            };
            // A lane counts if the sum is between 0 and 16 times the modulus.
            let lanes: Vec<BigInt> = chunk
                .iter()
                .map(|number| BigInt::from(number.clone()) + &added)
                .collect();
            let found = numbers(sum.tighten::<FieldP256>().element());
            for (found, expected) in found.into_iter().zip(lanes) {
                let limit = BigInt::from(&subject.modulus * 16_u32);
                if expected < BigInt::ZERO || expected >= limit {
                    continue;
                }
                assert!(&found * 100_u32 < &subject.modulus * 101_u32);
                let difference = BigInt::from(found) - expected;
                assert_eq!(
                    difference % BigInt::from(subject.modulus.clone()),
                    BigInt::ZERO
                );
            }
        }
    }
}

/// The integer in lane 0.
fn value<V: Vector, const N: usize>(element: &Element<V, N>) -> BigInt {
    BigInt::from(numbers(*element).swap_remove(0))
}

#[test]
fn tightening_leaves_little_more_than_the_modulus() {
    for_vectors!(tighten);
}

fn canonical<V: Arithmetic, M: Modulus<N>, const N: usize>() {
    let subject = Subject::<N>::new::<M>();
    let all = subject.numbers(4);
    for chunk in all.chunks(LANES) {
        let found = numbers(element::<V, N>(chunk).canonical::<M>());
        for (found, number) in found.into_iter().zip(chunk) {
            assert_eq!(found, subject.divide_by_r(&BigInt::from(number.clone())));
        }
        let is_multiple = element::<V, N>(chunk).is_multiple::<M>();
        let one = splat(witness::<V>(), 1);
        let found = lanes_of(one.select(witness(), is_multiple));
        for (found, number) in found.into_iter().zip(chunk) {
            assert_eq!(found == 1, number % &subject.modulus == BigUint::ZERO);
        }
    }
}

#[test]
fn canonical_integers_are_below_the_modulus() {
    for_vectors!(canonical, FieldP256, 5);
    for_vectors!(canonical, FieldP384, 8);
}

fn inverses<V: Arithmetic, M: Modulus<N>, const N: usize>() {
    let subject = Subject::<N>::new::<M>();
    for chunk in subject.numbers(4).chunks(LANES) {
        let number = element::<V, N>(chunk);
        let inverse = V::invert::<M, N>(&number.as_factor());
        let product = multiply::<M, V, N>(&number, &inverse).element();
        let one = &subject.r % &subject.modulus;
        for (found, number) in numbers(product).into_iter().zip(chunk) {
            let is_zero = number % &subject.modulus == BigUint::ZERO;
            let expected = if is_zero { BigUint::ZERO } else { one.clone() };
            assert_eq!(found % &subject.modulus, expected);
        }
    }
}

#[test]
fn inverses_times_numbers_are_one() {
    for_vectors!(inverses, FieldP256, 5);
    for_vectors!(inverses, FieldP384, 8);
    for_vectors!(inverses, OrderP256, 5);
    for_vectors!(inverses, OrderP384, 8);
}

fn windowed_scalars<V: Vector, const L: usize>() {
    for width in 5..=7 {
        let mut scalars = Scalars::new();
        let mut expected = Vec::new();
        for lane in 0..LANES {
            let mut bytes = vec![0; 8 * L];
            match lane {
                0 => {}
                1 => bytes.fill(0xff),
                _ => getrandom::fill(&mut bytes).expect("randomness"),
            }
            bytes[8 * L - 1] |= 1;
            scalars.set(lane, &integers::from_bytes::<L>(&bytes));
            expected.push(BigInt::from_bytes_be(Sign::Plus, &bytes));
        }
        let mut found = vec![BigInt::ZERO; LANES];
        for window in (0..windows::<L>(width)).rev() {
            let Digit { index, negative } = scalars.digit::<L, V>(witness(), width, window);
            let one = splat(index, 1);
            let negative = lanes_of(one.select(witness(), negative));
            for (lane, index) in lanes_of(index).into_iter().enumerate() {
                assert!(index < 1 << (width - 1));
                let digit = BigInt::from(2 * index + 1);
                let digit = if negative[lane] == 1 { -digit } else { digit };
                found[lane] = (&found[lane] << width) + digit;
            }
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn digits_of_scalars_add_up() {
    for_vectors!(windowed_scalars, 4);
    for_vectors!(windowed_scalars, 6);
}

#[cfg(feature = "system-openssl")]
fn base_table<V: Arithmetic, C: Parameters<L, N>, const L: usize, const N: usize>() {
    let name = if L == 4 {
        Nid::X9_62_PRIME256V1
    } else {
        Nid::SECP384R1
    };
    let group = EcGroup::from_curve_name(name).expect("a curve");
    let mut context = BigNumContext::new().expect("memory");
    // SAFETY: `for_vectors` names types that the CPU has the instructions of.
    let table = unsafe { super::base_table::BaseTable::new::<C, V, L, N>() };
    for window in [
        0,
        1,
        windows::<L>(C::BASE_WINDOW) / 2,
        windows::<L>(C::BASE_WINDOW) - 1,
    ] {
        for first in (0..1_u64 << (C::BASE_WINDOW - 1)).step_by(LANES) {
            let indices = core::array::from_fn(|lane| first + lane as u64);
            let found = table.look_up::<C, V, L, N>(window, from_lanes(witness(), indices));
            let x = numbers(found.x.canonical::<C::Field>());
            let y = numbers(found.y.canonical::<C::Field>());
            for (lane, index) in indices.into_iter().enumerate() {
                let scalar = BigUint::from(2 * index + 1) << (C::BASE_WINDOW * window);
                let scalar = BigNum::from_slice(&scalar.to_bytes_be()).expect("memory");
                let mut point = EcPoint::new(&group).expect("memory");
                point
                    .mul_generator2(&group, &scalar, &mut context)
                    .expect("a multiple");
                let [mut px, mut py] = [(); 2].map(|()| BigNum::new().expect("memory"));
                point
                    .affine_coordinates_gfp(&group, &mut px, &mut py, &mut context)
                    .expect("coordinates");
                assert_eq!(x[lane], BigUint::from_bytes_be(&px.to_vec()));
                assert_eq!(y[lane], BigUint::from_bytes_be(&py.to_vec()));
            }
        }
    }
}

#[test]
#[cfg(feature = "system-openssl")]
fn multiples_of_the_base_point_are_those_of_openssl() {
    for_vectors!(base_table, P256, 4, 5);
    for_vectors!(base_table, P384, 6, 8);
}

fn single_integers<const L: usize>(modulus: integers::Modulus<L>) {
    let to_integer = |limbs: &[u64; L]| -> BigUint {
        let limb = |(index, limb): (usize, &u64)| BigUint::from(*limb) << (64 * index);
        limbs.iter().enumerate().map(limb).sum()
    };
    let n = to_integer(&modulus.limbs);
    let r = BigUint::from(1_u32) << (64 * L);
    let small = |value| core::array::from_fn(|index| if index == 0 { value } else { 0 });
    let below = |value| integers::subtract(&modulus.limbs, &small(value)).0;
    let mut all = vec![small(0), small(1), small(u64::MAX), below(2), below(1)];
    for _ in 0..20 {
        let mut bytes = vec![0; 8 * L];
        getrandom::fill(&mut bytes).expect("randomness");
        all.push(modulus.reduce(&integers::from_bytes(&bytes)));
    }
    for a in &all {
        for b in &all {
            let (x, y) = (to_integer(a), to_integer(b));
            let product = modulus.multiply(&modulus.montgomery_form(a), b);
            assert_eq!(to_integer(&product), &x * &y % &n);
            assert_eq!(to_integer(&modulus.add(a, b)), (&x + &y) % &n);
            assert_eq!(to_integer(&modulus.subtract(a, b)), (&x + &n - &y) % &n);
        }
        assert_eq!(modulus.contains(a), *a != small(0));
    }
    let above = integers::add(&modulus.limbs, &small(1)).0;
    assert_eq!(modulus.reduce(&modulus.limbs), small(0));
    assert_eq!(modulus.reduce(&above), small(1));
    assert_eq!(
        modulus.reduce(&[u64::MAX; L]),
        integers::subtract(&[u64::MAX; L], &modulus.limbs).0
    );
    assert!(!modulus.contains(&modulus.limbs) && !modulus.contains(&above));
    // The largest factors that are allowed.
    let product = modulus.multiply(&[u64::MAX; L], &below(1));
    assert_eq!(
        to_integer(&product) * &r % &n,
        (&r - 1_u32) * (&n - 1_u32) % &n
    );
}

#[test]
fn single_integers_against_num_bigint() {
    single_integers(P256::FIELD);
    single_integers(P256::ORDER);
    single_integers(P384::FIELD);
    single_integers(P384::ORDER);
}

#[test]
fn digits_and_limbs_are_the_same_integer() {
    for limbs_before in [P256::FIELD.limbs, P256::BASE_X, [u64::MAX; 4], [0; 4]] {
        assert_eq!(limbs(&digits::<4, 5>(&limbs_before)), limbs_before);
    }
    for limbs_before in [P384::FIELD.limbs, P384::BASE_X, [u64::MAX; 6], [0; 6]] {
        assert_eq!(limbs(&digits::<6, 8>(&limbs_before)), limbs_before);
    }
}

#[test]
fn wiped_vectors_are_zero() {
    let mut vectors = [splat(witness::<Portable>(), 7); 3];
    wipe(&mut vectors);
    assert!(vectors.iter().all(|vector| lanes_of(*vector) == [0; LANES]));
}
