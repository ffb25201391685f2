//! Public keys and shared secrets for ECDH, from bytes to bytes.

use zeroize::Zeroizing;

use super::curve::Parameters;
use super::multiplication::{Points, Scalars};
use super::{Curve, base_stack, integers, kernels, offered, point_stack, with_parameters};
use crate::stack::wiped;
use crate::{Backend, LANES, OperationError, Outcomes, check_call};

/// The first byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// The computation of a public key.
pub struct PublicKey<'a> {
    /// The private key: a big-endian integer of [`Curve::bytes`] bytes between 1 and n - 1.
    pub private: &'a [u8],
    /// Receives the public key: an uncompressed point of [`Curve::point_bytes`] bytes. All zero if
    /// the operation fails.
    pub public: &'a mut [u8],
}

/// A key agreement (SP 800-56A, section 5.7.1.2).
pub struct SharedSecret<'a> {
    /// The private key: a big-endian integer of [`Curve::bytes`] bytes between 1 and n - 1.
    pub private: &'a [u8],
    /// The peer's public key: an uncompressed point.
    pub peer: &'a [u8],
    /// Receives the shared secret, the x coordinate: [`Curve::bytes`] bytes. All zero if the
    /// operation fails.
    pub secret: &'a mut [u8],
}

/// Computes one to eight public keys.
///
/// The first call for a curve computes a table of a few hundred kilobytes, which the process keeps.
///
/// # Panics
/// See the [crate] documentation.
pub fn public_keys(backend: Backend, curve: Curve, operations: &mut [PublicKey<'_>]) -> Outcomes {
    check_call(backend, offered, operations.len());
    wiped(base_stack(backend, curve), || {
        with_parameters!(curve, compute_public_keys, backend, curve, operations)
    })
}

/// Computes one to eight shared secrets. Peers' keys are validated in full (SP 800-56A, section
/// 5.6.2.3.3): the curves have cofactor 1, so every point of a curve has the right order.
///
/// # Panics
/// See the [crate] documentation.
pub fn shared_secrets(
    backend: Backend,
    curve: Curve,
    operations: &mut [SharedSecret<'_>],
) -> Outcomes {
    check_call(backend, offered, operations.len());
    wiped(point_stack(backend, curve), || {
        with_parameters!(curve, compute_shared_secrets, backend, curve, operations)
    })
}

/// Returns true if `point` is an uncompressed point of the curve.
#[must_use]
pub fn check_point(curve: Curve, point: &[u8]) -> bool {
    with_parameters!(curve, is_point, point)
}

fn compute_public_keys<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    curve: Curve,
    operations: &mut [PublicKey<'_>],
) -> Outcomes {
    let mut outcomes = Outcomes::new(operations.len());
    let mut scalars = OddScalars::<L>::new();
    let pairs = operations.iter_mut().zip(outcomes.as_mut_slice());
    for (lane, (operation, outcome)) in pairs.enumerate() {
        operation.public.fill(0);
        *outcome = if operation.public.len() == curve.point_bytes() {
            scalars.set::<C, N>(lane, operation.private)
        } else {
            Err(OperationError::OutputLength)
        };
    }
    let mut products = Points::splat(&C::BASE_X, &C::BASE_Y);
    let faults = kernels::multiply_base::<C, L, N>(backend, &scalars.scalars, &mut products);
    outcomes.note_faults(faults);
    for (lane, (operation, outcome)) in operations.iter_mut().zip(outcomes.iter()).enumerate() {
        if outcome.is_err() {
            continue;
        }
        let y = products.y.get(lane);
        let negated = Zeroizing::new(C::FIELD.subtract(&[0; L], &y));
        let y = Zeroizing::new(integers::select(&negated, &y, scalars.negated[lane]));
        let (first, coordinates) = operation.public.split_at_mut(1);
        let (x_bytes, y_bytes) = coordinates.split_at_mut(curve.bytes());
        first[0] = UNCOMPRESSED;
        integers::to_bytes(&products.x.get::<L>(lane)[..], x_bytes);
        integers::to_bytes(&y[..], y_bytes);
    }
    outcomes
}

fn compute_shared_secrets<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    curve: Curve,
    operations: &mut [SharedSecret<'_>],
) -> Outcomes {
    let mut outcomes = Outcomes::new(operations.len());
    let mut scalars = OddScalars::<L>::new();
    let mut points = Points::splat(&C::BASE_X, &C::BASE_Y);
    let pairs = operations.iter_mut().zip(outcomes.as_mut_slice());
    for (lane, (operation, outcome)) in pairs.enumerate() {
        operation.secret.fill(0);
        *outcome = if operation.secret.len() != curve.bytes() {
            Err(OperationError::OutputLength)
        } else if let Some((x, y)) = parse_point::<C, L, N>(operation.peer) {
            points.x.set(lane, &x);
            points.y.set(lane, &y);
            scalars.set::<C, N>(lane, operation.private)
        } else {
            Err(OperationError::InvalidPoint)
        };
    }
    let faults = kernels::multiply_points::<C, L, N>(backend, &scalars.scalars, &mut points);
    outcomes.note_faults(faults);
    for (lane, (operation, outcome)) in operations.iter_mut().zip(outcomes.iter()).enumerate() {
        if outcome.is_ok() {
            integers::to_bytes(&points.x.get::<L>(lane)[..], operation.secret);
        }
    }
    outcomes
}

fn is_point<C: Parameters<L, N>, const L: usize, const N: usize>(point: &[u8]) -> bool {
    parse_point::<C, L, N>(point).is_some()
}

/// The coordinates of an uncompressed point; `None` if the bytes are no point of the curve.
fn parse_point<C: Parameters<L, N>, const L: usize, const N: usize>(
    point: &[u8],
) -> Option<([u64; L], [u64; L])> {
    let (first, coordinates) = point.split_first()?;
    if *first != UNCOMPRESSED || coordinates.len() != 16 * L {
        return None;
    }
    let (x, y) = coordinates.split_at(8 * L);
    let (x, y) = (integers::from_bytes(x), integers::from_bytes(y));
    let field = &const { C::FIELD };
    let is_below = |coordinate| integers::subtract(coordinate, &field.limbs).1 != 0;
    if !is_below(&x) || !is_below(&y) {
        return None;
    }
    // y^2 = (x^2 - 3) x + b, where one factor is in Montgomery form and the other is not.
    let montgomery_x = field.montgomery_form(&x);
    let mut three = [0; L];
    three[0] = 3;
    let left = field.multiply(&field.montgomery_form(&y), &y);
    let factor = field.subtract(&field.multiply(&montgomery_x, &x), &three);
    let right = field.add(&field.multiply(&montgomery_x, &factor), &C::B);
    (left == right).then_some((x, y))
}

/// Odd scalars for the kernels. A scalar that was not set is one.
pub(super) struct OddScalars<const L: usize> {
    pub(super) scalars: Scalars,
    /// All ones in the lanes that hold n minus the scalar that was set.
    pub(super) negated: Zeroizing<[u64; LANES]>,
}

impl<const L: usize> OddScalars<L> {
    pub(super) fn new() -> Self {
        let mut scalars = Scalars::new();
        for lane in 0..LANES {
            scalars.set(lane, &[1]);
        }
        OddScalars {
            scalars,
            negated: Zeroizing::new([0; LANES]),
        }
    }

    /// Sets the scalar of a lane to a private key.
    fn set<C: Parameters<L, N>, const N: usize>(
        &mut self,
        lane: usize,
        private: &[u8],
    ) -> Result<(), OperationError> {
        if private.len() != 8 * L {
            return Err(OperationError::InputLength);
        }
        let limbs = Zeroizing::new(integers::from_bytes(private));
        if !C::ORDER.contains(&limbs) {
            return Err(OperationError::PrivateKeyOutOfRange);
        }
        self.set_limbs::<C, N>(lane, &limbs);
        Ok(())
    }

    /// Sets the scalar of a lane, which is 1 to n - 1.
    pub(super) fn set_limbs<C: Parameters<L, N>, const N: usize>(
        &mut self,
        lane: usize,
        limbs: &[u64; L],
    ) {
        let (negated, _) = integers::subtract(&const { C::ORDER }.limbs, limbs);
        let negated = Zeroizing::new(negated);
        let is_even = integers::value_barrier((limbs[0] & 1).wrapping_sub(1));
        let odd = Zeroizing::new(integers::select(&negated, limbs, is_even));
        self.scalars.set(lane, &odd[..]);
        self.negated[lane] = is_even;
    }
}
