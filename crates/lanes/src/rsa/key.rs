//! Private keys: checked, and precomputed for a backend.

use core::fmt;
use core::slice;

use zeroize::{Zeroize, Zeroizing};

use super::Size;
use super::integer::Integer;
use crate::Backend;

/// The numbers of a private key with two primes, as in RFC 8017, section 3.2: big-endian, leading zeros allowed.
#[derive(Clone, Copy)]
pub struct Components<'a> {
    /// n = p q.
    pub modulus: &'a [u8],
    /// e, odd, 3 to 2^64 - 1.
    pub public_exponent: &'a [u8],
    /// p.
    pub prime1: &'a [u8],
    /// q.
    pub prime2: &'a [u8],
    /// dP, the inverse of e modulo p - 1.
    pub exponent1: &'a [u8],
    /// dQ, the inverse of e modulo q - 1.
    pub exponent2: &'a [u8],
    /// qInv, the inverse of q modulo p.
    pub coefficient: &'a [u8],
}

impl fmt::Debug for Components<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Components").finish_non_exhaustive()
    }
}

/// The numbers of a private key, owned; secrets are wiped when it is dropped.
pub struct OwnedComponents {
    modulus: Box<[u8]>,
    public_exponent: [u8; 8],
    prime1: Zeroizing<Vec<u8>>,
    prime2: Zeroizing<Vec<u8>>,
    exponent1: Zeroizing<Vec<u8>>,
    exponent2: Zeroizing<Vec<u8>>,
    coefficient: Zeroizing<Vec<u8>>,
}

impl OwnedComponents {
    /// The numbers, to be read.
    pub fn borrow(&self) -> Components<'_> {
        Components {
            modulus: &self.modulus,
            public_exponent: &self.public_exponent,
            prime1: &self.prime1,
            prime2: &self.prime2,
            exponent1: &self.exponent1,
            exponent2: &self.exponent2,
            coefficient: &self.coefficient,
        }
    }
}

/// Why a key cannot be used in lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum KeyError {
    /// The CPU cannot run the backend.
    BackendUnavailable,
    /// The modulus has none of the supported sizes.
    UnsupportedModulus,
    /// The public exponent is even, less than 3, or 2^64 or more.
    UnsupportedPublicExponent,
    /// A prime is not exactly half as long as the modulus.
    UnbalancedPrimes,
    /// The numbers do not belong together: n = p q, e dP = 1 mod p - 1, e dQ = 1 mod q - 1, q qInv = 1 mod p.
    Inconsistent,
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            KeyError::BackendUnavailable => "this CPU lacks the instructions of the backend",
            KeyError::UnsupportedModulus => "the RSA modulus has not 2048, 3072 or 4096 bits",
            KeyError::UnsupportedPublicExponent => {
                "the RSA public exponent is not odd and from 3 to 2^64 - 1"
            }
            KeyError::UnbalancedPrimes => "an RSA prime is not half as long as the modulus",
            KeyError::Inconsistent => "the numbers of the RSA private key contradict each other",
        })
    }
}

impl std::error::Error for KeyError {}

/// A number in the digits of the key's backend, wiped when dropped.
pub(super) type Digits = Zeroizing<Vec<u64>>;

/// A private key, ready for one backend. Its secrets are wiped when it is dropped.
pub struct PrivateKey {
    size: Size,
    backend: Backend,
    modulus_bytes: Box<[u8]>,
    pub(super) public_exponent: u64,
    pub(super) residue: Modular,
    pub(super) prime1: Prime,
    pub(super) prime2: Prime,
    pub(super) coefficient: Digits,
    /// q R mod n.
    pub(super) prime2_montgomery: Digits,
}

/// A modulus with what Montgomery arithmetic needs; R = 2^(digits * bits per digit).
pub(super) struct Modular {
    pub(super) modulus: Digits,
    /// -1 / modulus modulo 2^(bits per digit).
    pub(super) negated_inverse: u64,
    pub(super) r_squared: Digits,
}

impl Drop for Modular {
    fn drop(&mut self) {
        // Of a prime it gives away the low digit.
        self.negated_inverse.zeroize();
    }
}

/// A prime and its exponent.
pub(super) struct Prime {
    pub(super) residue: Modular,
    pub(super) r_cubed: Digits,
    /// In 64-bit words, as many as the prime has.
    pub(super) exponent: Digits,
}

impl PrivateKey {
    /// Checks and precomputes a key.
    ///
    /// That the primes are prime is not checked; were they not, operations would fail with
    /// [`Fault`](super::OperationError::Fault). Takes as long as a few private-key operations, and a time that
    /// depends on the key: for setting up, not for every handshake.
    ///
    /// # Errors
    /// See [`KeyError`]. Keys with other sizes, shapes or more primes are for another implementation.
    pub fn new(backend: Backend, components: &Components<'_>) -> Result<PrivateKey, KeyError> {
        if !backend.is_available() {
            return Err(KeyError::BackendUnavailable);
        }
        let modulus = Integer::from_big_endian(components.modulus);
        let size = Size::from_bits(modulus.bits()).ok_or(KeyError::UnsupportedModulus)?;
        let public_exponent = Integer::from_big_endian(components.public_exponent);
        let public_exponent_word = public_exponent
            .to_u64()
            .filter(|e| *e >= 3 && *e & 1 == 1)
            .ok_or(KeyError::UnsupportedPublicExponent)?;
        let [p, q] = [components.prime1, components.prime2].map(Integer::from_big_endian);
        if p.bits() != size.bits() / 2 || q.bits() != size.bits() / 2 {
            return Err(KeyError::UnbalancedPrimes);
        }
        let [d_p, d_q, q_inverse] = [
            components.exponent1,
            components.exponent2,
            components.coefficient,
        ]
        .map(Integer::from_big_endian);
        let are_inverse = |a: &Integer, b: &Integer, modulus: &Integer| {
            a < modulus && a.multiply(b).remainder(modulus).to_u64() == Some(1)
        };
        let is_consistent = p.is_odd()
            && q.is_odd()
            && p.multiply(&q) == modulus
            && are_inverse(&d_p, &public_exponent, &p.odd_minus_one())
            && are_inverse(&d_q, &public_exponent, &q.odd_minus_one())
            && are_inverse(&q_inverse, &q, &p);
        if !is_consistent {
            return Err(KeyError::Inconsistent);
        }

        let radix = Radix::new(backend, size);
        Ok(PrivateKey {
            size,
            backend,
            modulus_bytes: modulus.to_big_endian(size.bytes()).into_boxed_slice(),
            public_exponent: public_exponent_word,
            prime2_montgomery: q
                .shift_left_modulo(radix.bits_of(radix.modulus_digits), &modulus)
                .digits(radix.modulus_digits, radix.digit_bits),
            residue: radix.modular(&modulus, radix.modulus_digits),
            prime1: radix.prime(&p, &d_p),
            prime2: radix.prime(&q, &d_q),
            coefficient: q_inverse.digits(radix.prime_digits, radix.digit_bits),
        })
    }

    /// The size of the modulus.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The backend that the key is for.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The modulus, big-endian, [`Size::bytes`] long.
    pub fn modulus_bytes(&self) -> &[u8] {
        &self.modulus_bytes
    }

    /// The numbers of which the key was made: for somebody who computes with it elsewhere.
    pub fn components(&self) -> OwnedComponents {
        let length = self.size.bytes() / 2;
        let bits = Radix::new(self.backend, self.size).digit_bits;
        OwnedComponents {
            modulus: self.modulus_bytes.clone(),
            public_exponent: self.public_exponent.to_be_bytes(),
            prime1: big_endian(&self.prime1.residue.modulus, bits, length),
            prime2: big_endian(&self.prime2.residue.modulus, bits, length),
            exponent1: big_endian(&self.prime1.exponent, 64, length),
            exponent2: big_endian(&self.prime2.exponent, 64, length),
            coefficient: big_endian(&self.coefficient, bits, length),
        }
    }

    /// The memory that holds secrets, for tests of constant time.
    #[doc(hidden)]
    pub fn secrets(&mut self) -> impl Iterator<Item = &mut [u64]> {
        [&mut self.prime1, &mut self.prime2]
            .into_iter()
            .flat_map(|prime| {
                [
                    &mut prime.residue.modulus[..],
                    slice::from_mut(&mut prime.residue.negated_inverse),
                    &mut prime.residue.r_squared,
                    &mut prime.r_cubed,
                    &mut prime.exponent,
                ]
            })
            .chain([&mut self.coefficient[..], &mut self.prime2_montgomery])
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PrivateKey")
            .field("size", &self.size)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// How numbers of one size are cut into digits for a backend.
struct Radix {
    digit_bits: u32,
    prime_digits: usize,
    modulus_digits: usize,
}

impl Radix {
    fn new(backend: Backend, size: Size) -> Radix {
        let (digit_bits, digits) = match backend {
            Backend::Ifma | Backend::Portable => (52, [(20, 40), (30, 60), (40, 80)]),
            Backend::Avx512 => (28, [(37, 74), (55, 110), (74, 147)]),
        };
        let (prime_digits, modulus_digits) = digits[size.index()];
        Radix {
            digit_bits,
            prime_digits,
            modulus_digits,
        }
    }

    fn bits_of(&self, digits: usize) -> usize {
        digits * self.digit_bits as usize
    }

    fn prime(&self, prime: &Integer, exponent: &Integer) -> Prime {
        let r_cubed = power_of_two_modulo(3 * self.bits_of(self.prime_digits), prime);
        Prime {
            residue: self.modular(prime, self.prime_digits),
            r_cubed: r_cubed.digits(self.prime_digits, self.digit_bits),
            exponent: exponent.digits(prime.bits() / 64, 64),
        }
    }

    fn modular(&self, modulus: &Integer, digits: usize) -> Modular {
        let r_squared = power_of_two_modulo(2 * self.bits_of(digits), modulus);
        Modular {
            modulus: modulus.digits(digits, self.digit_bits),
            negated_inverse: modulus.negated_inverse(self.digit_bits),
            r_squared: r_squared.digits(digits, self.digit_bits),
        }
    }
}

/// The `length` bytes of a number in digits of `bits` bits, the least significant first.
fn big_endian(digits: &[u64], bits: u32, length: usize) -> Zeroizing<Vec<u8>> {
    let bits = bits as usize;
    let bit = |place: usize| {
        let digit = digits.get(place / bits).copied().unwrap_or(0);
        (digit >> (place % bits)) as u8 & 1
    };
    let byte = |index: usize| (0..8).fold(0, |byte, place| byte | bit(8 * index + place) << place);
    Zeroizing::new((0..length).rev().map(byte).collect())
}

/// 2^`exponent` modulo `modulus`, which is not a power of two; `exponent` is at least its length in bits.
fn power_of_two_modulo(exponent: usize, modulus: &Integer) -> Integer {
    let highest = modulus.bits() - 1;
    Integer::power_of_two(highest).shift_left_modulo(exponent - highest, modulus)
}
