//! RSA private keys with two primes (RFC 8017, section 3.2).

use core::fmt;

use zeroize::Zeroizing;

use crate::integer::Integer;
use crate::{Forms, Value};

/// A supported size of the modulus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Size {
    /// 2048 bits.
    Rsa2048,
    /// 3072 bits.
    Rsa3072,
    /// 4096 bits.
    Rsa4096,
}

impl Size {
    /// All sizes, ascending; [`Size::index`] is the position here.
    pub const ALL: [Size; 3] = [Size::Rsa2048, Size::Rsa3072, Size::Rsa4096];

    /// Length of the modulus in bits.
    pub const fn bits(self) -> usize {
        match self {
            Size::Rsa2048 => 2048,
            Size::Rsa3072 => 3072,
            Size::Rsa4096 => 4096,
        }
    }

    /// Length of the modulus, and so of inputs and outputs, in bytes.
    pub const fn bytes(self) -> usize {
        self.bits() / 8
    }

    /// Position in [`Size::ALL`], for tables by size.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The size with a modulus of `bits` bits, if it is supported.
    pub fn from_bits(bits: usize) -> Option<Size> {
        Size::ALL.into_iter().find(|size| size.bits() == bits)
    }

    /// The size of a big-endian modulus, if it is supported. Leading zeros do not count.
    pub fn of_modulus(modulus: &[u8]) -> Option<Size> {
        let zeros = modulus.iter().take_while(|&&byte| byte == 0).count();
        let modulus = &modulus[zeros..];
        let leading = modulus.first()?.leading_zeros() as usize;
        Size::from_bits(8 * modulus.len() - leading)
    }
}

/// The numbers of a private key with two primes, as in RFC 8017, section 3.2: big-endian, leading
/// zeros allowed.
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

/// A private key whose numbers belong together. Its secrets are wiped when it is dropped.
pub struct PrivateKey {
    size: Size,
    modulus: Box<[u8]>,
    public_exponent: [u8; 8],
    prime1: Secret,
    prime2: Secret,
    exponent1: Secret,
    exponent2: Secret,
    coefficient: Secret,
    forms: Forms,
}

/// The reason why numbers are no private key that is supported here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum KeyError {
    /// The modulus has none of the supported sizes.
    UnsupportedModulus,
    /// The public exponent is even, less than 3, or 2^64 or more.
    UnsupportedPublicExponent,
    /// A prime is not exactly half as long as the modulus.
    UnbalancedPrimes,
    /// The numbers do not belong together: n = p q, e dP = 1 mod p - 1, e dQ = 1 mod q - 1, q qInv
    /// = 1 mod p.
    Inconsistent,
}

impl PrivateKey {
    /// Checks the numbers of a key.
    ///
    /// The primality of the primes is not checked. If they are not prime, operations fail when
    /// their result is checked with the public exponent. The check takes about as long as a
    /// private-key operation, and a time that depends on the key: it is for setting up, not for
    /// every handshake.
    ///
    /// # Errors
    /// See [`KeyError`]. Keys with other sizes, shapes or more primes are for another
    /// implementation.
    pub fn new(components: &Components<'_>) -> Result<Self, KeyError> {
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
        let secret = |number: &Integer| Zeroizing::new(number.to_big_endian(size.bytes() / 2));
        Ok(Self {
            size,
            modulus: modulus.to_big_endian(size.bytes()).into_boxed_slice(),
            public_exponent: public_exponent_word.to_be_bytes(),
            prime1: secret(&p),
            prime2: secret(&q),
            exponent1: secret(&d_p),
            exponent2: secret(&d_q),
            coefficient: secret(&q_inverse),
            forms: Forms::default(),
        })
    }

    /// The size of the modulus.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The modulus, big-endian, [`Size::bytes`] long.
    pub fn modulus(&self) -> &[u8] {
        &self.modulus
    }

    /// The numbers. All but the public exponent are as long as the size asks for.
    pub fn components(&self) -> Components<'_> {
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

type Secret = Zeroizing<Vec<u8>>;

impl Value for PrivateKey {
    type Parameters = Size;

    fn parameters(&self) -> Size {
        self.size
    }

    fn forms(&self) -> &Forms {
        &self.forms
    }
}

impl fmt::Debug for Components<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Components").finish_non_exhaustive()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PrivateKey")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example_key;

    #[test]
    fn a_key_is_what_it_was_made_of() {
        for size in Size::ALL {
            let components = &example_key(size).components;
            let key = PrivateKey::new(components).expect("a good key");
            assert_eq!(key.size(), size);
            let own = key.components();
            assert_eq!(own.modulus, components.modulus);
            assert_eq!(own.public_exponent, [0, 0, 0, 0, 0, 1, 0, 1]);
            assert_eq!(own.prime1, components.prime1);
            assert_eq!(own.prime2, components.prime2);
            assert_eq!(own.exponent1, components.exponent1);
            assert_eq!(own.exponent2, components.exponent2);
            assert_eq!(own.coefficient, components.coefficient);
            assert!(PrivateKey::new(&own).is_ok());
        }
    }

    #[test]
    fn each_number_has_to_fit_the_others() {
        let good = example_key(Size::Rsa2048).components;
        let error = |components: Components<'_>| PrivateKey::new(&components).map(drop);
        let damaged = |number: &[u8]| {
            let mut number = number.to_vec();
            let last = number.len() - 1;
            number[last] ^= 2;
            number
        };
        let inconsistent = Err(KeyError::Inconsistent);
        let modulus = &damaged(good.modulus);
        assert_eq!(error(Components { modulus, ..good }), inconsistent);
        let prime1 = &damaged(good.prime1);
        assert_eq!(error(Components { prime1, ..good }), inconsistent);
        let prime2 = &damaged(good.prime2);
        assert_eq!(error(Components { prime2, ..good }), inconsistent);
        let exponent1 = &damaged(good.exponent1);
        assert_eq!(error(Components { exponent1, ..good }), inconsistent);
        let exponent2 = &damaged(good.exponent2);
        assert_eq!(error(Components { exponent2, ..good }), inconsistent);
        let coefficient = &damaged(good.coefficient);
        assert_eq!(
            error(Components {
                coefficient,
                ..good
            }),
            inconsistent
        );
        let exponents: [&[u8]; 6] = [
            &[],
            &[0],
            &[1],
            &[2],
            &[1, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        for public_exponent in exponents {
            let components = Components {
                public_exponent,
                ..good
            };
            assert_eq!(
                error(components),
                Err(KeyError::UnsupportedPublicExponent),
                "{public_exponent:?}"
            );
        }
        let modulus = &good.modulus[1..];
        assert_eq!(
            error(Components { modulus, ..good }),
            Err(KeyError::UnsupportedModulus)
        );
        let prime1 = &good.prime1[1..];
        assert_eq!(
            error(Components { prime1, ..good }),
            Err(KeyError::UnbalancedPrimes)
        );
    }

    #[test]
    fn the_size_of_a_modulus_is_its_length_without_leading_zeros() {
        assert_eq!(Size::of_modulus(&[0x80; 256]), Some(Size::Rsa2048));
        assert_eq!(
            Size::of_modulus(&[&[0][..], &[0xff; 512]].concat()),
            Some(Size::Rsa4096)
        );
        assert_eq!(Size::of_modulus(&[0x7f; 256]), None, "one bit less");
        assert_eq!(Size::of_modulus(&[0x80; 128]), None);
        assert_eq!(Size::of_modulus(&[]), None);
        assert_eq!(Size::of_modulus(&[0; 256]), None);
    }

    #[test]
    fn nothing_secret_is_printed() {
        let components = &example_key(Size::Rsa2048).components;
        let key = PrivateKey::new(components).expect("a good key");
        assert_eq!(format!("{key:?}"), "PrivateKey { size: Rsa2048, .. }");
        assert_eq!(format!("{components:?}"), "Components { .. }");
    }
}
