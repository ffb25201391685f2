//! X25519 (RFC 7748), one to eight operations at once. [`public_keys`] and [`shared_secrets`] are
//! the kernels.
//!
//! ```
//! # use slipstream_lanes::{Backend, OperationError};
//! # use slipstream_lanes::x25519::{PublicKey, SharedSecret, public_keys, shared_secrets};
//! # fn agree(
//! #     backend: Backend,
//! #     private: &[u8; 32],
//! #     peer: &[u8; 32],
//! # ) -> Result<([u8; 32], [u8; 32]), OperationError> {
//! let (mut public, mut secret) = ([0; 32], [0; 32]);
//! let outcomes = public_keys(
//!     backend,
//!     &mut [PublicKey { private, public: &mut public }], // up to eight
//! );
//! outcomes[0]?;
//! let outcomes = shared_secrets(
//!     backend,
//!     &mut [SharedSecret { private, peer, secret: &mut secret }],
//! );
//! outcomes[0].map(|()| (public, secret))
//! # }
//! ```

mod base_table;
mod element;
mod field;
mod fixed_base;
mod inversion;
mod ladder;

use core::hint::select_unpredictable;

use zeroize::{Zeroize, Zeroizing};

use crate::stack::wiped;
use crate::vector::{Lanes, MultiplyAdd52};
use crate::{Backend, LANES, OperationError, Outcomes, check_call};
use element::Element;
use field::Factor;

/// Bytes of a private key, a public key and a shared secret.
pub const KEY_BYTES: usize = 32;

/// The computation of a public key: X25519(private, 9) (RFC 7748, section 5).
pub struct PublicKey<'a> {
    /// The private key: 32 random bytes. They are clamped here.
    pub private: &'a [u8; KEY_BYTES],
    /// Receives the public key.
    pub public: &'a mut [u8; KEY_BYTES],
}

/// A key agreement: X25519(private, peer) (RFC 7748, section 5).
pub struct SharedSecret<'a> {
    /// The private key: 32 random bytes. They are clamped here.
    pub private: &'a [u8; KEY_BYTES],
    /// The peer's public key. Any bytes are a public key, and the top bit is ignored.
    pub peer: &'a [u8; KEY_BYTES],
    /// Receives the shared secret. All zero if the operation fails.
    pub secret: &'a mut [u8; KEY_BYTES],
}

/// Bytes of stack that are wiped after a call.
fn stack(backend: Backend) -> usize {
    match backend {
        Backend::Ifma => 12 * 1024,
        _ => 76 * 1024,
    }
}

/// Returns true if there are X25519 kernels for the backend. There are none for plain AVX-512F.
#[must_use]
pub fn offered(backend: Backend) -> bool {
    match backend {
        Backend::Ifma | Backend::Portable => true,
        Backend::Avx512 => false,
    }
}

/// Computes one to eight public keys. None fails.
///
/// # Panics
/// See the [crate] documentation.
pub fn public_keys(backend: Backend, operations: &mut [PublicKey<'_>]) -> Outcomes {
    check_call(backend, offered, operations.len());
    wiped(stack(backend), || compute_public_keys(backend, operations));
    Outcomes::new(operations.len())
}

fn compute_public_keys(backend: Backend, operations: &mut [PublicKey<'_>]) {
    let mut batch = Zeroizing::new(fixed_base::Batch::default());
    for (lane, operation) in operations.iter().enumerate() {
        batch.set(lane, clamp(operation.private));
    }
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the backend is available.
        Backend::Ifma => unsafe { x86_64::multiply_base(&mut batch) },
        _ => portable::multiply_base(&mut batch),
    }
    let mut coordinates = Zeroizing::new([Element::ZERO; LANES]);
    batch.coordinates(&mut coordinates);
    for (operation, public) in operations.iter_mut().zip(coordinates.iter()) {
        *operation.public = public.to_bytes();
    }
}

/// Computes one to eight shared secrets. An operation fails with [`OperationError::ZeroSecret`] if
/// the peer's key has small order.
///
/// # Panics
/// See the [crate] documentation.
pub fn shared_secrets(backend: Backend, operations: &mut [SharedSecret<'_>]) -> Outcomes {
    check_call(backend, offered, operations.len());
    wiped(stack(backend), || {
        compute_shared_secrets(backend, operations)
    })
}

fn compute_shared_secrets(backend: Backend, operations: &mut [SharedSecret<'_>]) -> Outcomes {
    let mut batch = Zeroizing::new(ladder::Batch::default());
    for (lane, operation) in operations.iter().enumerate() {
        batch.set(lane, clamp(operation.private), words(operation.peer));
    }
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the backend is available.
        Backend::Ifma => unsafe { x86_64::multiply(&mut batch) },
        _ => portable::multiply(&mut batch),
    }
    let mut coordinates = Zeroizing::new([Element::ZERO; LANES]);
    batch.coordinates(&mut coordinates);
    let mut outcomes = Outcomes::new(operations.len());
    for ((operation, secret), outcome) in operations
        .iter_mut()
        .zip(coordinates.iter())
        .zip(outcomes.as_mut_slice())
    {
        *operation.secret = secret.to_bytes();
        let zero = Err(OperationError::ZeroSecret);
        *outcome = select_unpredictable(secret.is_zero() == 1, zero, Ok(()));
    }
    outcomes
}

/// The functions that turn the generic code into AVX-512 code. Everything is inlined into them.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{fixed_base, ladder};
    use crate::vector::IfmaVector;

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    pub(super) fn multiply(batch: &mut ladder::Batch) {
        // SAFETY: the CPU has AVX-512 IFMA, else this function must not be called.
        unsafe { batch.run::<IfmaVector>() }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    pub(super) fn multiply_base(batch: &mut fixed_base::Batch) {
        // SAFETY: the CPU has AVX-512 IFMA, else this function must not be called.
        unsafe { batch.run::<IfmaVector>() }
    }
}

/// None is inlined into another function, so that none pays for the stack of another.
mod portable {
    use super::{fixed_base, ladder};
    use crate::vector::Portable;

    #[inline(never)]
    pub(super) fn multiply(batch: &mut ladder::Batch) {
        // SAFETY: the portable vector needs no particular CPU.
        unsafe { batch.run::<Portable>() }
    }

    #[inline(never)]
    pub(super) fn multiply_base(batch: &mut fixed_base::Batch) {
        // SAFETY: as above.
        unsafe { batch.run::<Portable>() }
    }
}

/// decodeScalar25519 (RFC 7748, section 5).
fn clamp(private: &[u8; KEY_BYTES]) -> [u64; 4] {
    let [a, b, c, d] = words(private);
    [a & !7, b, c, d & (u64::MAX >> 1) | 1 << 62]
}

/// Bytes as 64-bit words, the least significant first.
fn words(bytes: &[u8; KEY_BYTES]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Field elements in all lanes, in digits of radix 2^52.
#[derive(Clone, Copy)]
struct Elements(Lanes<5>);

impl Default for Elements {
    fn default() -> Self {
        Elements(Lanes::splat(0))
    }
}

impl Zeroize for Elements {
    fn zeroize(&mut self) {
        self.0.0.zeroize();
    }
}

impl Elements {
    fn set(&mut self, lane: usize, digits: [u64; 5]) {
        for (digits, digit) in self.0.0.iter_mut().zip(digits) {
            digits[lane] = digit;
        }
    }

    fn get(&self, lane: usize) -> Element {
        Element::from_digits52(self.0.0.map(|digits| digits[lane]))
    }

    /// # Safety
    /// The CPU has the instructions of `V`.
    #[inline(always)]
    unsafe fn store<V: MultiplyAdd52>(&mut self, factor: &Factor<V>) {
        // SAFETY: by the contract of this function.
        *unsafe { self.0.as_vectors_mut() } = factor.0;
    }
}

/// Divides the numerators by the denominators. A denominator of zero becomes one, and its quotient
/// is zero.
fn divide(numerators: &mut [Element; LANES], denominators: &mut [Element; LANES]) {
    // Montgomery's trick: one inversion, of the product of all denominators. Multiplied by the
    // product of all others it is the inverse of one.
    let mut products = Zeroizing::new([Element::ONE; LANES + 1]);
    for lane in 0..LANES {
        let zero = denominators[lane].is_zero();
        denominators[lane] = denominators[lane].select(Element::ONE, zero);
        numerators[lane] = numerators[lane].select(Element::ZERO, zero);
        products[lane + 1] = products[lane].multiply(denominators[lane]);
    }
    let mut inverse = Zeroizing::new(products[LANES].invert());
    for lane in (0..LANES).rev() {
        numerators[lane] = numerators[lane].multiply(inverse.multiply(products[lane]));
        *inverse = inverse.multiply(denominators[lane]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_do_not_disturb_each_other() {
        let small = |number: usize| Element::from_words([number as u64, 0, 0, 0]);
        for zeros in 0..=u8::MAX {
            let is_zero = |lane: usize| zeros >> lane & 1 == 1;
            let mut numerators = core::array::from_fn(|lane| small(6 * (lane + 2) * (lane + 1)));
            let mut denominators = core::array::from_fn(|lane| {
                if is_zero(lane) {
                    Element::ZERO
                } else {
                    small(3 * (lane + 2))
                }
            });
            divide(&mut numerators, &mut denominators);
            for (lane, quotient) in numerators.iter().enumerate() {
                let expected = if is_zero(lane) { 0 } else { 2 * (lane + 1) };
                assert_eq!(quotient.to_words(), small(expected).to_words());
            }
        }
    }

    #[test]
    fn batches_are_wiped() {
        let mut exchange = ladder::Batch::default();
        exchange.set(3, [u64::MAX; 4], [u64::MAX; 4]);
        let mut generation = fixed_base::Batch::default();
        generation.set(3, [u64::MAX; 4]);
        portable::multiply(&mut exchange);
        portable::multiply_base(&mut generation);
        assert!(!is_all_zero(&exchange) && !is_all_zero(&generation));
        exchange.zeroize();
        generation.zeroize();
        assert!(is_all_zero(&exchange) && is_all_zero(&generation));
    }

    fn is_all_zero<T>(value: &T) -> bool {
        // SAFETY: the batches consist of integers alone, without padding.
        let bytes = unsafe {
            core::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>())
        };
        bytes.iter().all(|byte| *byte == 0)
    }

    #[test]
    #[should_panic(expected = "one to eight operations")]
    fn no_operation_is_too_few() {
        let _ = public_keys(Backend::Portable, &mut []);
    }

    #[test]
    #[should_panic(expected = "one to eight operations")]
    fn nine_operations_are_too_many() {
        let key = [7; KEY_BYTES];
        let mut secrets = [[0; KEY_BYTES]; LANES + 1];
        let mut operations = secrets.each_mut().map(|secret| SharedSecret {
            private: &key,
            peer: &key,
            secret,
        });
        let _ = shared_secrets(Backend::Portable, &mut operations);
    }

    #[test]
    #[should_panic(expected = "avx512f is not offered here")]
    fn plain_avx512_is_not_offered() {
        let mut public = [0; KEY_BYTES];
        let private = &[7; KEY_BYTES];
        let public = &mut public;
        let _ = public_keys(Backend::Avx512, &mut [PublicKey { private, public }]);
    }
}
