//! ECDSA (FIPS 186-5, section 6.4.1) in two parts: the part that depends on the nonce alone, for
//! eight nonces at once in lanes, and the rest, which takes less than a microsecond.

use core::fmt;

use slipstream_keys::ec::PrivateKey;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::agreement::OddScalars;
use super::curve::Parameters;
use super::multiplication::{Integers, Points};
use super::{
    Curve, MAXIMUM_LIMBS, base_stack, integers, kernels, moduli, offered, with_parameters,
};
use crate::stack::wiped;
use crate::{Backend, LANES, OperationError, Outcomes, check_call};

/// The computation of a signature.
pub struct Signature<'a> {
    /// The private key.
    pub key: &'a PreparedKey,
    /// The digest of the message. As many of its bits are used as n has.
    pub digest: &'a [u8],
    /// The nonce: see [`Nonce::scalar`].
    pub nonce: &'a [u8],
    /// Receives r and s, big-endian, each of [`Curve::bytes`] bytes. All zero if the operation
    /// fails.
    pub signature: &'a mut [u8],
}

/// The preparation of a nonce for a signature to come.
pub struct Nonce<'a> {
    /// A secret, uniformly random integer k between 1 and n - 1, big-endian, of [`Curve::bytes`]
    /// bytes. Anyone who learns it can compute the private key, and so can anyone who sees two
    /// signatures with the same nonce.
    pub scalar: &'a [u8],
    /// Receives the prepared nonce. `None` if the operation fails.
    pub prepared: &'a mut Option<PreparedNonce>,
}

/// A nonce in the form that [`PreparedNonce::sign`] computes with: r = (k G).x mod n and 1 / k mod
/// n. It signs once, and is wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct PreparedNonce {
    #[zeroize(skip)]
    curve: Curve,
    r: [u64; MAXIMUM_LIMBS],
    /// In Montgomery form.
    inverse: [u64; MAXIMUM_LIMBS],
}

/// A private key in the form that signatures are computed with, wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct PreparedKey {
    #[zeroize(skip)]
    curve: Curve,
    /// In Montgomery form.
    private: [u64; MAXIMUM_LIMBS],
}

/// Computes one to eight signatures, each with a key and a nonce of its own.
///
/// # Panics
/// See the [crate] documentation. For example, if a key is of another curve.
pub fn signatures(backend: Backend, curve: Curve, operations: &mut [Signature<'_>]) -> Outcomes {
    check_call(backend, offered, operations.len());
    assert!(
        operations
            .iter()
            .all(|operation| operation.key.curve == curve),
        "a key of another curve"
    );
    wiped(base_stack(backend, curve), || {
        compute_signatures(backend, curve, operations)
    })
}

fn compute_signatures(
    backend: Backend,
    curve: Curve,
    operations: &mut [Signature<'_>],
) -> Outcomes {
    let mut prepared = [const { None }; LANES];
    let mut nonces = prepared.each_mut().map(|prepared| Nonce {
        scalar: &[],
        prepared,
    });
    let nonces = &mut nonces[..operations.len()];
    for (nonce, operation) in nonces.iter_mut().zip(&*operations) {
        nonce.scalar = operation.nonce;
    }
    let mut outcomes = with_parameters!(curve, prepare_nonces, backend, curve, nonces);
    let pairs = operations.iter_mut().zip(outcomes.as_mut_slice());
    for ((operation, outcome), prepared) in pairs.zip(prepared) {
        operation.signature.fill(0);
        if let Some(nonce) = prepared {
            *outcome = nonce.sign(operation.key, operation.digest, operation.signature);
        }
    }
    outcomes
}

/// Prepares one to eight nonces.
///
/// # Panics
/// See the [crate] documentation.
pub fn nonces(backend: Backend, curve: Curve, operations: &mut [Nonce<'_>]) -> Outcomes {
    check_call(backend, offered, operations.len());
    wiped(base_stack(backend, curve), || {
        with_parameters!(curve, prepare_nonces, backend, curve, operations)
    })
}

impl PreparedNonce {
    /// Signs a digest. As many of its bits are used as n has. `signature` receives r and s,
    /// big-endian, each of [`Curve::bytes`] bytes, or zeros if there is an error.
    ///
    /// # Errors
    /// [`OperationError::OutputLength`] if `signature` has another length.
    /// [`OperationError::UnusableNonce`] if r or s would be zero.
    ///
    /// # Panics
    /// If the key is of another curve.
    pub fn sign(
        self,
        key: &PreparedKey,
        digest: &[u8],
        signature: &mut [u8],
    ) -> Result<(), OperationError> {
        assert_eq!(key.curve, self.curve, "a key of another curve");
        signature.fill(0);
        if signature.len() != 2 * key.curve.bytes() {
            return Err(OperationError::OutputLength);
        }
        with_parameters!(key.curve, sign_on, key, digest, &self, signature)
    }

    /// The curve.
    #[must_use]
    pub fn curve(&self) -> Curve {
        self.curve
    }
}

impl PreparedKey {
    /// Prepares a private key. The time does not depend on the key.
    #[must_use]
    pub fn new(key: &PrivateKey) -> Self {
        let mut prepared = PreparedKey {
            curve: key.curve(),
            private: [0; MAXIMUM_LIMBS],
        };
        with_parameters!(key.curve(), prepare, key.scalar(), &mut prepared.private);
        prepared
    }

    /// The curve.
    #[must_use]
    pub fn curve(&self) -> Curve {
        self.curve
    }
}

impl fmt::Debug for PreparedNonce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PreparedNonce")
            .field("curve", &self.curve)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PreparedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PreparedKey")
            .field("curve", &self.curve)
            .finish_non_exhaustive()
    }
}

fn prepare<C: Parameters<L, N>, const L: usize, const N: usize>(
    private: &[u8],
    montgomery_form: &mut [u64; MAXIMUM_LIMBS],
) {
    let limbs = Zeroizing::new(integers::from_bytes(private));
    let order = &const { C::ORDER };
    montgomery_form[..L].copy_from_slice(&Zeroizing::new(order.montgomery_form(&limbs))[..]);
}

fn prepare_nonces<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    curve: Curve,
    operations: &mut [Nonce<'_>],
) -> Outcomes {
    let order = &const { C::ORDER };
    let mut outcomes = Outcomes::new(operations.len());
    let mut odd_scalars = OddScalars::<L>::new();
    let mut one = [0; L];
    one[0] = 1;
    let mut inverses = Integers::<N>::splat(&one);
    let pairs = operations.iter_mut().zip(outcomes.as_mut_slice());
    for (lane, (operation, outcome)) in pairs.enumerate() {
        *operation.prepared = None;
        if operation.scalar.len() != curve.bytes() {
            *outcome = Err(OperationError::InputLength);
            continue;
        }
        let limbs = Zeroizing::new(integers::from_bytes(operation.scalar));
        if !order.contains(&limbs) {
            *outcome = Err(OperationError::NonceOutOfRange);
            continue;
        }
        odd_scalars.set_limbs::<C, N>(lane, &limbs);
        inverses.set(lane, &limbs);
    }
    let mut products = Points::splat(&C::BASE_X, &C::BASE_Y);
    let faults = kernels::multiply_base::<C, L, N>(backend, &odd_scalars.scalars, &mut products);
    outcomes.note_faults(faults);
    let power = const { moduli::digits(&integers::power_of_two(&C::ORDER.limbs, 64 * L)) };
    kernels::invert_scalars::<C, L, N>(backend, &mut inverses, &power);
    for (lane, (operation, outcome)) in operations.iter_mut().zip(outcomes.iter()).enumerate() {
        if outcome.is_err() {
            continue;
        }
        let prepared = operation.prepared.insert(PreparedNonce {
            curve,
            r: [0; MAXIMUM_LIMBS],
            inverse: [0; MAXIMUM_LIMBS],
        });
        // A coordinate is below p, which is less than 2 n.
        let x = products.x.get(lane);
        prepared.r[..L].copy_from_slice(&order.reduce(&x));
        prepared.inverse[..L].copy_from_slice(&inverses.get::<L>(lane)[..]);
    }
    outcomes
}

/// s = (e + r d) / k.
fn sign_on<C: Parameters<L, N>, const L: usize, const N: usize>(
    key: &PreparedKey,
    digest: &[u8],
    nonce: &PreparedNonce,
    signature: &mut [u8],
) -> Result<(), OperationError> {
    let order = &const { C::ORDER };
    let mut bytes = [[0; 8]; MAXIMUM_LIMBS];
    let bytes = &mut bytes.as_flattened_mut()[..8 * L];
    let used = digest.len().min(bytes.len());
    let unused = bytes.len() - used;
    bytes[unused..].copy_from_slice(&digest[..used]);
    let e = order.reduce(&integers::from_bytes(bytes));

    let (r, private, inverse) = (first(&nonce.r), first(&key.private), first(&nonce.inverse));
    let product = Zeroizing::new(order.multiply(r, private));
    let sum = Zeroizing::new(order.add(&product, &e));
    let s = order.multiply(&sum, inverse);
    if (integers::is_zero(r) | integers::is_zero(&s)) != 0 {
        return Err(OperationError::UnusableNonce);
    }
    let (r_bytes, s_bytes) = signature.split_at_mut(8 * L);
    integers::to_bytes(r, r_bytes);
    integers::to_bytes(&s, s_bytes);
    Ok(())
}

fn first<const L: usize>(limbs: &[u64; MAXIMUM_LIMBS]) -> &[u64; L] {
    limbs.first_chunk().expect("no curve has more limbs")
}
