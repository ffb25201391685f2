//! The NIST curves P-256 and P-384 (SP 800-186, section 3.2.1), and private keys on them.

use core::fmt;

use hex_literal::hex;
use zeroize::Zeroizing;

use crate::{Forms, Value};

/// A NIST curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Curve {
    /// NIST P-256, secp256r1, prime256v1.
    P256,
    /// NIST P-384, secp384r1.
    P384,
}

impl Curve {
    /// All curves; [`Curve::index`] is the position here.
    pub const ALL: [Curve; 2] = [Curve::P256, Curve::P384];

    /// Length of a coordinate and of a scalar in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
        }
    }

    /// Length of an uncompressed point in bytes (SEC 1, section 2.3.3).
    pub const fn point_bytes(self) -> usize {
        1 + 2 * self.bytes()
    }

    /// Position in [`Curve::ALL`], for tables by curve.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The order n of the base point, big-endian, [`Curve::bytes`] long.
    pub const fn order(self) -> &'static [u8] {
        match self {
            Curve::P256 => &P256_ORDER,
            Curve::P384 => &P384_ORDER,
        }
    }

    /// Returns true if `bytes` are an integer between 1 and n - 1, big-endian, of
    /// [`Curve::bytes`]. The time does not depend on the integer, except that the outcome is
    /// public.
    pub fn is_scalar(self, bytes: &[u8]) -> bool {
        bytes.len() == self.bytes() && is_in_range(bytes, self.order())
    }
}

/// A private key on a NIST curve: a scalar between 1 and n - 1. It is wiped when dropped.
pub struct PrivateKey {
    curve: Curve,
    scalar: Zeroizing<Vec<u8>>,
    forms: Forms,
}

/// The reason why bytes are no private key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum KeyError {
    /// The scalar does not have the length that the curve asks for.
    Length,
    /// The scalar is not between 1 and n - 1, where n is the order of the base point.
    OutOfRange,
}

impl PrivateKey {
    /// The key with this scalar, a big-endian integer of [`Curve::bytes`] bytes.
    ///
    /// The check takes a time that does not depend on the scalar, except that its outcome is
    /// public.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn new(curve: Curve, scalar: &[u8]) -> Result<Self, KeyError> {
        if scalar.len() != curve.bytes() {
            return Err(KeyError::Length);
        }
        if !is_in_range(scalar, curve.order()) {
            return Err(KeyError::OutOfRange);
        }
        Ok(Self {
            curve,
            scalar: Zeroizing::new(scalar.to_vec()),
            forms: Forms::default(),
        })
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        self.curve
    }

    /// The scalar, big-endian, [`Curve::bytes`] long.
    pub fn scalar(&self) -> &[u8] {
        &self.scalar
    }
}

impl Value for PrivateKey {
    type Parameters = Curve;

    fn parameters(&self) -> Curve {
        self.curve
    }

    fn forms(&self) -> &Forms {
        &self.forms
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PrivateKey")
            .field("curve", &self.curve)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            KeyError::Length => "the EC private key does not have the length of the curve's order",
            KeyError::OutOfRange => "the EC private key is not between 1 and the curve's order",
        })
    }
}

impl std::error::Error for KeyError {}

/// Returns true if 0 < `scalar` < `order`, in constant time.
fn is_in_range(scalar: &[u8], order: &[u8]) -> bool {
    let mut borrow = 0;
    let mut bits = 0;
    for (scalar, order) in scalar.iter().zip(order).rev() {
        borrow = (u16::from(*scalar))
            .wrapping_sub(u16::from(*order))
            .wrapping_sub(borrow)
            >> 15;
        bits |= scalar;
    }
    // One branch on both conditions: neither is told apart from the other.
    (borrow & u16::from(bits != 0)) == 1
}

static P256_ORDER: [u8; 32] =
    hex!("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551");

static P384_ORDER: [u8; 48] = hex!(
    "
    ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf
    581a0db248b0a77aecec196accc52973
"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_between_one_and_the_order_are_keys() {
        for curve in Curve::ALL {
            let key = |scalar: &[u8]| PrivateKey::new(curve, scalar).map(drop);
            let order = curve.order().to_vec();
            let mut one = vec![0; curve.bytes()];
            one[curve.bytes() - 1] = 1;
            let mut largest = order.clone();
            largest[curve.bytes() - 1] -= 1;
            let mut above = order.clone();
            above[curve.bytes() - 1] += 1;
            assert_eq!(key(&one), Ok(()));
            assert_eq!(key(&largest), Ok(()));
            for scalar in [
                vec![0; curve.bytes()],
                order.clone(),
                above,
                vec![0xff; curve.bytes()],
            ] {
                assert_eq!(key(&scalar), Err(KeyError::OutOfRange), "{scalar:x?}");
                assert!(!curve.is_scalar(&scalar), "{scalar:x?}");
            }
            assert_eq!(key(&one[1..]), Err(KeyError::Length));
            assert_eq!(key(&[&[0][..], &one].concat()), Err(KeyError::Length));
            assert_eq!(key(&[]), Err(KeyError::Length));
            assert!(curve.is_scalar(&one) && curve.is_scalar(&largest));
            assert!(!curve.is_scalar(&one[1..]));
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        let key = PrivateKey::new(Curve::P384, &[0x5a; 48]).expect("in range");
        assert_eq!(format!("{key:?}"), "PrivateKey { curve: P384, .. }");
    }
}
