//! The private key of an `EVP_PKEY`, to be sent to a device.

use std::ffi::c_void;

use slipstream_keys::KeyParts;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::{Components, Size};
use slipstream_offload::Kind;
use zeroize::Zeroizing;

use super::original::{LONGEST, Original};
use crate::loaded;

/// The numbers of a private key, wiped when dropped.
pub struct PrivateParts(Parts);

/// The numbers, big-endian and without leading zeros unless a length is given.
enum Parts {
    Rsa {
        modulus: Number,
        public_exponent: Number,
        private_exponent: Number,
        prime1: Number,
        prime2: Number,
        exponent1: Number,
        exponent2: Number,
        coefficient: Number,
    },
    Ec {
        curve: Curve,
        /// Padded to the length of the order.
        private: Number,
    },
}

type Number = Zeroizing<Vec<u8>>;

/// Reads the private key of `key`, an `EVP_PKEY`. `None` if the provider is not loaded, or `key`
/// has no private key that a device can hold: RSA with two primes and 2048, 3072 or 4096 bits,
/// P-256, P-384.
///
/// # Safety
/// As for [`key_with_handle`](super::key_with_handle).
#[must_use]
pub unsafe fn private_parts(key: *mut c_void) -> Option<PrivateParts> {
    let loaded = loaded::last_loaded()?;
    // SAFETY: the caller's promise.
    let original = unsafe { Original::new(&loaded.default.libcrypto, key.cast()) };
    match original.kind()? {
        Kind::Rsa(size) => rsa(&original, size),
        Kind::Ecdsa(curve) => ec(&original, curve),
        Kind::X25519 | Kind::Ecdh(_) | Kind::KeyPair(_) | Kind::Compress(_) => None,
    }
    .map(PrivateParts)
}

impl PrivateParts {
    /// The numbers that an accelerator needs.
    #[must_use]
    pub fn parts(&self) -> KeyParts<'_> {
        match &self.0 {
            Parts::Rsa {
                modulus,
                public_exponent,
                prime1,
                prime2,
                exponent1,
                exponent2,
                coefficient,
                ..
            } => KeyParts::Rsa(Components {
                modulus,
                public_exponent,
                prime1,
                prime2,
                exponent1,
                exponent2,
                coefficient,
            }),
            Parts::Ec { curve, private } => KeyParts::Ec {
                curve: *curve,
                private,
            },
        }
    }

    /// The secret numbers: p, q, d, dP, dQ and qInv of an RSA key, the scalar of a key on a curve.
    /// Big-endian, without leading zeros. They serve to find copies of the key in memory.
    pub fn secrets(&self) -> impl Iterator<Item = &[u8]> {
        let secrets: Vec<&[u8]> = match &self.0 {
            Parts::Rsa {
                private_exponent,
                prime1,
                prime2,
                exponent1,
                exponent2,
                coefficient,
                ..
            } => vec![
                prime1,
                prime2,
                private_exponent,
                exponent1,
                exponent2,
                coefficient,
            ],
            Parts::Ec { private, .. } => {
                let zeros = private.iter().take_while(|&&byte| byte == 0).count();
                vec![&private[zeros..]]
            }
        };
        secrets.into_iter()
    }
}

fn rsa(key: &Original<'_>, size: Size) -> Option<Parts> {
    if key.number(c"rsa-factor3", LONGEST).is_some() {
        return None;
    }
    let number = |name| key.number(name, size.bytes());
    Some(Parts::Rsa {
        modulus: number(c"n")?,
        public_exponent: number(c"e")?,
        private_exponent: number(c"d")?,
        prime1: number(c"rsa-factor1")?,
        prime2: number(c"rsa-factor2")?,
        exponent1: number(c"rsa-exponent1")?,
        exponent2: number(c"rsa-exponent2")?,
        coefficient: number(c"rsa-coefficient1")?,
    })
}

fn ec(key: &Original<'_>, curve: Curve) -> Option<Parts> {
    let scalar = key.number(c"priv", curve.bytes())?;
    let mut private = Zeroizing::new(vec![0; curve.bytes()]);
    let zeros = private.len() - scalar.len();
    private[zeros..].copy_from_slice(&scalar);
    Some(Parts::Ec { curve, private })
}
