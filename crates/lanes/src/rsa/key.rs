//! RSA private keys in the form that a backend computes with.

use core::fmt;
use core::slice;

use slipstream_keys::integer::Integer;
use slipstream_keys::rsa::{PrivateKey, Size};
use zeroize::{Zeroize, Zeroizing};

use crate::Backend;

/// Error returned if the CPU lacks the instructions of the backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct UnavailableBackend(pub Backend);

impl fmt::Display for UnavailableBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: Vec<&str> = self.0.missing().collect();
        let (name, missing) = (self.0.name(), missing.join(" and "));
        write!(formatter, "{name} lanes need a CPU with {missing}")
    }
}

impl std::error::Error for UnavailableBackend {}

/// A number in the digits of the key's backend, wiped when dropped.
pub(super) type Digits = Zeroizing<Vec<u64>>;

/// A private key in the form that one backend computes with. Its secrets are wiped when it is
/// dropped.
pub struct PreparedKey {
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

/// A modulus with the constants of Montgomery arithmetic; R = 2^(digits * bits per digit).
pub(super) struct Modular {
    pub(super) modulus: Digits,
    /// -1 / modulus modulo 2^(bits per digit).
    pub(super) negated_inverse: u64,
    pub(super) r_squared: Digits,
}

impl Drop for Modular {
    fn drop(&mut self) {
        // That of a prime reveals its low digit.
        self.negated_inverse.zeroize();
    }
}

/// A prime and its exponent.
pub(super) struct Prime {
    pub(super) residue: Modular,
    pub(super) r_cubed: Digits,
    /// Has as many 64-bit words as the prime.
    pub(super) exponent: Digits,
}

impl PreparedKey {
    /// Prepares a key. It takes about as long as a private-key operation, and the time depends on
    /// the key, so prepare keys at startup, not in handshakes.
    ///
    /// # Errors
    /// If the CPU does not run the backend.
    pub fn new(backend: Backend, key: &PrivateKey) -> Result<Self, UnavailableBackend> {
        if !backend.is_available() {
            return Err(UnavailableBackend(backend));
        }
        let (size, components) = (key.size(), key.components());
        let [modulus, p, q, d_p, d_q, q_inverse] = [
            components.modulus,
            components.prime1,
            components.prime2,
            components.exponent1,
            components.exponent2,
            components.coefficient,
        ]
        .map(Integer::from_big_endian);
        let public_exponent = Integer::from_big_endian(components.public_exponent)
            .to_u64()
            .expect("checked when the key was made");
        let radix = Radix::new(backend, size);
        Ok(Self {
            size,
            backend,
            modulus_bytes: components.modulus.into(),
            public_exponent,
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
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// The backend that the key was prepared for.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The modulus, big-endian, [`Size::bytes`] long.
    #[must_use]
    pub fn modulus_bytes(&self) -> &[u8] {
        &self.modulus_bytes
    }

    /// The memory that holds secrets. For tests of constant time.
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

impl fmt::Debug for PreparedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PreparedKey")
            .field("size", &self.size)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// The digits of numbers of one size for a backend.
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

/// 2^`exponent` modulo `modulus`, which is not a power of two; `exponent` is at least its length in
/// bits.
fn power_of_two_modulo(exponent: usize, modulus: &Integer) -> Integer {
    let highest = modulus.bits() - 1;
    Integer::power_of_two(highest).shift_left_modulo(exponent - highest, modulus)
}
