//! Tests that a wrong point is not released.

use super::arithmetic::Arithmetic;
use super::curve::{P256, P384, Parameters};
use super::field::Element;
use super::multiplication::{Points, to_montgomery_form};
use super::point::AffinePoint;
use super::*;
use crate::digits::{lanes_mut, lanes_of};
use crate::fault_test::{Damage, with_damaged_table};
use crate::vector::Portable;
use crate::{LANES, OperationError, Outcomes};

/// The damaged multiple of the base point in the first window.
const MULTIPLE: usize = 5;

/// The lane whose scalar asks for it.
const HIT: usize = 2;

fn backends() -> impl Iterator<Item = Backend> {
    Backend::available().filter(|backend| offered(*backend))
}

/// Odd scalars, one of which has the window that the damaged multiple is for.
fn scalars(curve: Curve) -> [Vec<u8>; LANES] {
    let window_bits = match curve {
        Curve::P256 => P256::BASE_WINDOW,
        Curve::P384 => P384::BASE_WINDOW,
    };
    core::array::from_fn(|lane| {
        let mut scalar = vec![0x37 + lane as u8; curve.bytes()];
        let multiple = (MULTIPLE + LANES + lane - HIT) % LANES;
        scalar[curve.bytes() - 1] = (1 << window_bits | multiple << 1 | 1) as u8;
        scalar
    })
}

fn sign(backend: Backend, curve: Curve) -> (Outcomes, Vec<Vec<u8>>) {
    let private = vec![0x51; curve.bytes()];
    let key = slipstream_keys::ec::PrivateKey::new(curve, &private).expect("a private key");
    let key = PreparedKey::new(&key);
    let nonces = scalars(curve);
    let mut outputs = vec![vec![0xa5; 2 * curve.bytes()]; LANES];
    let mut operations: Vec<Signature<'_>> = nonces
        .iter()
        .zip(&mut outputs)
        .map(|(nonce, signature)| Signature {
            key: &key,
            digest: &private,
            nonce,
            signature,
        })
        .collect();
    let outcomes = signatures(backend, curve, &mut operations);
    (outcomes, outputs)
}

fn generate(backend: Backend, curve: Curve) -> (Outcomes, Vec<Vec<u8>>) {
    let privates = scalars(curve);
    let mut outputs = vec![vec![0xa5; curve.point_bytes()]; LANES];
    let mut operations: Vec<PublicKey<'_>> = privates
        .iter()
        .zip(&mut outputs)
        .map(|(private, public)| PublicKey { private, public })
        .collect();
    let outcomes = public_keys(backend, curve, &mut operations);
    (outcomes, outputs)
}

type Kernel = fn(Backend, Curve) -> (Outcomes, Vec<Vec<u8>>);

const KERNELS: [Kernel; 2] = [sign, generate];

#[test]
fn a_flipped_bit_in_the_base_table_fails_the_lane_that_meets_it_and_no_other() {
    for (backend, kernel) in backends().flat_map(|backend| KERNELS.map(|kernel| (backend, kernel)))
    {
        for curve in Curve::ALL {
            let (outcomes, expected) = kernel(backend, curve);
            assert!(outcomes.iter().all(Result::is_ok));
            let damage = Damage::Bit { multiple: MULTIPLE };
            let (outcomes, found) = with_damaged_table(curve, damage, || kernel(backend, curve));
            for lane in 0..LANES {
                if lane == HIT {
                    assert_eq!(outcomes[lane], Err(OperationError::Fault), "{curve:?}");
                    assert!(found[lane].iter().all(|byte| *byte == 0), "released");
                } else {
                    assert_eq!(outcomes[lane], Ok(()), "{curve:?}, lane {lane}");
                    assert_eq!(found[lane], expected[lane]);
                }
            }
        }
    }
}

#[test]
fn a_damaged_table_fails_every_lane_that_meets_it() {
    for (backend, kernel) in backends().flat_map(|backend| KERNELS.map(|kernel| (backend, kernel)))
    {
        let run = || kernel(backend, Curve::P256).0;
        let outcomes = with_damaged_table(Curve::P256, Damage::Bits, run);
        assert_eq!(*outcomes, [Err(OperationError::Fault); LANES]);
        let outcomes = with_damaged_table(Curve::P384, Damage::Bits, run);
        assert_eq!(*outcomes, [Ok(()); LANES]);
    }
}

/// The base point with one digit of one coordinate changed in each lane, in Montgomery form or as
/// it is released.
fn changed_points<C, V, const L: usize, const N: usize>()
where
    C: Parameters<L, N>,
    V: Arithmetic,
{
    // SAFETY: callers name types that the CPU has the instructions of.
    let zero = unsafe { V::splat(0) };
    let [x, y] = [C::BASE_X, C::BASE_Y].map(|limbs| Element::splat(zero, &moduli::digits(&limbs)));
    let point = AffinePoint {
        x: to_montgomery_form::<C::Field, V, N>(&x.0),
        y: to_montgomery_form::<C::Field, V, N>(&y.0),
    };
    let one = splat(zero, 1);
    let are_found = |point: &AffinePoint<V, N>, x: &Element<V, N>, y: &Element<V, N>| {
        let is_on_curve = point.is_on_curve::<C, L>(x, y);
        lanes_of(zero.select(one, is_on_curve))
    };
    assert_eq!(are_found(&point, &x, &y), [0; LANES]);
    for digit in 0..N {
        let changed = |element: Element<V, N>| {
            let mut changed = element;
            for (lane, value) in lanes_mut(&mut changed.0)[digit].iter_mut().enumerate() {
                // All lanes but the first.
                *value ^= u64::from(lane != 0) << (lane * 5);
            }
            changed
        };
        let mut expected = [1; LANES];
        expected[0] = 0;
        let in_montgomery_form = [
            AffinePoint {
                x: changed(point.x),
                ..point
            },
            AffinePoint {
                y: changed(point.y),
                ..point
            },
        ];
        for point in in_montgomery_form {
            assert_eq!(are_found(&point, &x, &y), expected, "digit {digit}");
        }
        assert_eq!(are_found(&point, &changed(x), &y), expected);
        assert_eq!(are_found(&point, &x, &changed(y)), expected);
    }
}

#[test]
fn a_point_with_a_flipped_bit_is_not_on_the_curve() {
    changed_points::<P256, Portable, 4, 5>();
    changed_points::<P384, Portable, 6, 8>();
    #[cfg(target_arch = "x86_64")]
    if Backend::Ifma.missing().next().is_none() {
        changed_points::<P256, crate::vector::IfmaVector, 4, 5>();
        changed_points::<P384, crate::vector::IfmaVector, 6, 8>();
    }
}

/// A multiple of a point that was damaged on its way into the kernel.
fn multiple_of_no_point<C, const L: usize, const N: usize>()
where
    C: Parameters<L, N>,
{
    for backend in backends() {
        let mut scalars = agreement::OddScalars::<L>::new();
        let mut points = Points::<N>::splat(&C::BASE_X, &C::BASE_Y);
        let mut scalar = [7; L];
        scalar[L - 1] = 0x1234;
        for lane in 0..LANES {
            scalars.set_limbs::<C, N>(lane, &scalar);
        }
        let mut y = C::BASE_Y;
        y[0] ^= 1;
        points.y.set(HIT, &y);
        let faults = kernels::multiply_points::<C, L, N>(backend, &scalars.scalars, &mut points);
        let mut expected = [0; LANES];
        expected[HIT] = 1;
        assert_eq!(faults, expected);
    }
}

#[test]
fn a_multiple_of_a_damaged_point_is_a_fault() {
    multiple_of_no_point::<P256, 4, 5>();
    multiple_of_no_point::<P384, 6, 8>();
}
