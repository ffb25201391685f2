//! ECDSA (FIPS 186-5, section 6.4.1) in two parts: what depends on the nonce alone, eight at once in lanes, and the
//! rest, which takes less than a microsecond.

use core::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::agreement::OddScalars;
use super::curve::Parameters;
use super::multiplication::{Integers, Points};
use super::{
    Curve, MAXIMUM_LIMBS, OperationError, Outcomes, check_call, integers, kernels, moduli,
    with_parameters,
};
use crate::{Backend, LANES};

/// A nonce made ahead: of a secret k, r = (k G).x mod n and 1 / k mod n. It signs once, and is wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Nonce {
    #[zeroize(skip)]
    curve: Curve,
    r: [u64; MAXIMUM_LIMBS],
    /// In Montgomery form.
    inverse: [u64; MAXIMUM_LIMBS],
}

/// A private key prepared for [`sign`], wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct SigningKey {
    #[zeroize(skip)]
    curve: Curve,
    /// In Montgomery form.
    private: [u64; MAXIMUM_LIMBS],
}

/// A signature that is computed in one go.
pub struct Sign<'a> {
    /// The private key.
    pub key: &'a SigningKey,
    /// The digest of the message.
    pub digest: &'a [u8],
    /// A secret, uniformly random integer between 1 and n - 1, big-endian, of [`Curve::bytes`] bytes. Whoever learns it
    /// learns the private key, and so does whoever sees two signatures with the same.
    pub nonce: &'a [u8],
    /// Receives r and s, big-endian: twice [`Curve::bytes`]. All zero if the operation fails.
    pub signature: &'a mut [u8],
}

impl SigningKey {
    /// Prepares a private key, a big-endian integer.
    ///
    /// # Errors
    /// [`OperationError::Length`] unless it has [`Curve::bytes`] bytes, [`OperationError::PrivateKeyOutOfRange`] unless
    /// it is between 1 and n - 1.
    pub fn new(curve: Curve, private: &[u8]) -> Result<Self, OperationError> {
        let mut key = SigningKey {
            curve,
            private: [0; MAXIMUM_LIMBS],
        };
        if private.len() != curve.bytes() {
            return Err(OperationError::Length);
        }
        if !with_parameters!(curve, prepare, private, &mut key.private) {
            return Err(OperationError::PrivateKeyOutOfRange);
        }
        Ok(key)
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        self.curve
    }

    /// The private key as [`SigningKey::new`] takes it, for whoever else is to compute with it.
    pub fn private(&self) -> Zeroizing<Vec<u8>> {
        let mut private = Zeroizing::new(vec![0; self.curve.bytes()]);
        with_parameters!(self.curve, recover, self, &mut private);
        private
    }
}

impl Nonce {
    /// The curve.
    pub fn curve(&self) -> Curve {
        self.curve
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SigningKey")
            .field("curve", &self.curve)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Nonce")
            .field("curve", &self.curve)
            .finish_non_exhaustive()
    }
}

/// Makes one to eight nonces from secret, uniformly random big-endian integers of [`Curve::bytes`] bytes each. `None`
/// stands for one that is not between 1 and n - 1 or has another length, and follows the last.
///
/// # Panics
/// As [`public_keys`](super::public_keys).
pub fn nonces(backend: Backend, curve: Curve, scalars: &[&[u8]]) -> [Option<Nonce>; LANES] {
    check_call(backend, scalars.len());
    with_parameters!(curve, make_nonces, backend, curve, scalars)
}

/// Signs a digest, of which as many bits are used as n has: `signature` receives r and s, big-endian, each of
/// [`Curve::bytes`] bytes, or zeros if there is an error.
///
/// # Errors
/// [`OperationError::Length`] for a signature of another length. [`OperationError::Retry`] if r or s would be zero.
///
/// # Panics
/// If key and nonce are of different curves.
pub fn sign(
    private: &SigningKey,
    digest: &[u8],
    nonce: Nonce,
    signature: &mut [u8],
) -> Result<(), OperationError> {
    assert_eq!(private.curve, nonce.curve, "a nonce of another curve");
    signature.fill(0);
    if signature.len() != 2 * private.curve.bytes() {
        return Err(OperationError::Length);
    }
    with_parameters!(private.curve, sign_on, private, digest, &nonce, signature)
}

/// Computes one to eight signatures, each with a nonce of its own.
///
/// # Panics
/// As [`public_keys`](super::public_keys), and if a key is of another curve.
pub fn sign_batch(backend: Backend, curve: Curve, operations: &mut [Sign<'_>]) -> Outcomes {
    let mut scalars: [&[u8]; LANES] = [&[]; LANES];
    for (scalar, operation) in scalars.iter_mut().zip(&*operations) {
        *scalar = operation.nonce;
    }
    check_call(backend, operations.len());
    let nonces = nonces(backend, curve, &scalars[..operations.len()]);
    let mut outcomes = Outcomes::new(operations.len());
    for (lane, (operation, nonce)) in operations.iter_mut().zip(nonces).enumerate() {
        outcomes.outcomes[lane] = match nonce {
            Some(nonce) => sign(operation.key, operation.digest, nonce, operation.signature),
            None => {
                operation.signature.fill(0);
                Err(if operation.nonce.len() == curve.bytes() {
                    OperationError::NonceOutOfRange
                } else {
                    OperationError::Length
                })
            }
        };
    }
    outcomes
}

fn prepare<C: Parameters<L, N>, const L: usize, const N: usize>(
    private: &[u8],
    montgomery_form: &mut [u64; MAXIMUM_LIMBS],
) -> bool {
    let limbs = Zeroizing::new(integers::from_bytes(private));
    let order = &const { C::ORDER };
    montgomery_form[..L].copy_from_slice(&Zeroizing::new(order.montgomery_form(&limbs))[..]);
    order.contains(&limbs)
}

fn recover<C: Parameters<L, N>, const L: usize, const N: usize>(
    key: &SigningKey,
    private: &mut [u8],
) {
    let order = &const { C::ORDER };
    let mut one = [0; L];
    one[0] = 1;
    let limbs = Zeroizing::new(order.multiply(first(&key.private), &one));
    integers::to_bytes(&limbs[..], private);
}

fn make_nonces<C: Parameters<L, N>, const L: usize, const N: usize>(
    backend: Backend,
    curve: Curve,
    scalars: &[&[u8]],
) -> [Option<Nonce>; LANES] {
    let order = &const { C::ORDER };
    let mut odd_scalars = OddScalars::<L>::new();
    let mut one = [0; L];
    one[0] = 1;
    let mut inverses = Integers::<N>::splat(&one);
    let mut usable = [false; LANES];
    for (lane, scalar) in scalars.iter().enumerate() {
        if scalar.len() != curve.bytes() {
            continue;
        }
        let limbs = Zeroizing::new(integers::from_bytes(scalar));
        if order.contains(&limbs) {
            odd_scalars.set_limbs::<C, N>(lane, &limbs);
            inverses.set(lane, &limbs);
            usable[lane] = true;
        }
    }
    let mut products = Points::splat(&C::BASE_X, &C::BASE_Y);
    kernels::multiply_base::<C, L, N>(backend, &odd_scalars.scalars, &mut products);
    let power = const { moduli::digits(&integers::power_of_two(&C::ORDER.limbs, 64 * L)) };
    kernels::invert_scalars::<C, L, N>(backend, &mut inverses, &power);
    core::array::from_fn(|lane| {
        usable[lane].then(|| {
            let mut nonce = Nonce {
                curve,
                r: [0; MAXIMUM_LIMBS],
                inverse: [0; MAXIMUM_LIMBS],
            };
            // A coordinate is below p, which is less than 2 n.
            let x = products.x.get(lane);
            nonce.r[..L].copy_from_slice(&order.reduce(&x));
            nonce.inverse[..L].copy_from_slice(&inverses.get::<L>(lane)[..]);
            nonce
        })
    })
}

/// s = (e + r d) / k.
fn sign_on<C: Parameters<L, N>, const L: usize, const N: usize>(
    key: &SigningKey,
    digest: &[u8],
    nonce: &Nonce,
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
        return Err(OperationError::Retry);
    }
    let (r_bytes, s_bytes) = signature.split_at_mut(8 * L);
    integers::to_bytes(r, r_bytes);
    integers::to_bytes(&s, s_bytes);
    Ok(())
}

fn first<const L: usize>(limbs: &[u64; MAXIMUM_LIMBS]) -> &[u64; L] {
    limbs.first_chunk().expect("no curve has more limbs")
}
