//! The private key of an `EVP_PKEY`, on its way to a device.

use std::ffi::c_void;

use slipstream_lanes::ec::Curve;
use slipstream_lanes::rsa::{Components, Size};
use slipstream_offload::Kind;
use slipstream_offload::device::message;
use zeroize::Zeroizing;

use super::original::{LONGEST, Original};
use crate::provider;

/// The numbers of a private key, wiped when dropped.
pub struct PrivateParts(Parts);

/// Big-endian, without leading zeros unless a length is named.
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
        /// As long as the order.
        private: Number,
    },
}

type Number = Zeroizing<Vec<u8>>;

/// The private key of `key`, an `EVP_PKEY`. `None` if it has none of a kind that a device holds: RSA with two primes and
/// 2048, 3072 or 4096 bits, P-256 and P-384; or if the provider is not loaded.
///
/// # Safety
/// As for [`key_with_handle`](super::key_with_handle).
pub unsafe fn private_parts(key: *mut c_void) -> Option<PrivateParts> {
    let loaded = provider::last_loaded()?;
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
    /// For [`ToEngine::Register`](message::ToEngine::Register).
    pub fn as_message(&self) -> message::Key<'_> {
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
            } => message::Key::Rsa(Components {
                modulus,
                public_exponent,
                prime1,
                prime2,
                exponent1,
                exponent2,
                coefficient,
            }),
            Parts::Ec { curve, private } => message::Key::Ec {
                curve: *curve,
                private,
            },
        }
    }

    /// The secrets, by which remains of the key can be found in memory: p, q, d, dP, dQ and qInv of an RSA key, the
    /// scalar of a key on a curve. Big-endian, without leading zeros.
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
