//! Reading private keys: the numbers that accelerators need.

use pkcs1::RsaPrivateKeyRef;
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use rustls::pki_types::PrivateKeyDer;
use sec1::EcPrivateKey;
use slipstream_keys::KeyParts;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Components;

/// Reads the private key in `der`, without a copy of it. `None` if it is neither of RSA with two
/// primes (RFC 8017) nor of P-256 or P-384 (RFC 5915), or cannot be read. The numbers have not been
/// checked against each other.
pub(super) fn read<'a>(der: &'a PrivateKeyDer<'_>) -> Option<KeyParts<'a>> {
    match der {
        PrivateKeyDer::Pkcs1(key) => read_rsa(key.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(key) => read_ec(key.secret_sec1_der(), None),
        PrivateKeyDer::Pkcs8(key) => {
            let info = PrivateKeyInfoRef::try_from(key.secret_pkcs8_der()).ok()?;
            let key = info.private_key.as_bytes();
            match info.algorithm.oid {
                RSA_ENCRYPTION => read_rsa(key),
                EC_PUBLIC_KEY => read_ec(key, Some(info.algorithm.parameters_oid().ok()?)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// RFC 8017, appendix A.1.
const RSA_ENCRYPTION: ObjectIdentifier = pkcs1::ALGORITHM_OID;
/// RFC 5480, section 2.1.1.
const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
/// RFC 5480, section 2.1.1.1.
const SECP256R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
/// RFC 5480, section 2.1.1.1.
const SECP384R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

fn read_rsa(der: &[u8]) -> Option<KeyParts<'_>> {
    let key = RsaPrivateKeyRef::try_from(der).ok()?;
    if key.other_prime_infos.is_some() {
        return None;
    }
    Some(KeyParts::Rsa(Components {
        modulus: key.modulus.as_bytes(),
        public_exponent: key.public_exponent.as_bytes(),
        prime1: key.prime1.as_bytes(),
        prime2: key.prime2.as_bytes(),
        exponent1: key.exponent1.as_bytes(),
        exponent2: key.exponent2.as_bytes(),
        coefficient: key.coefficient.as_bytes(),
    }))
}

/// `outer` is the curve that stands beside the key, which then need not name it.
fn read_ec(der: &[u8], outer: Option<ObjectIdentifier>) -> Option<KeyParts<'_>> {
    let key = EcPrivateKey::try_from(der).ok()?;
    let inner = key.parameters.and_then(sec1::EcParameters::named_curve);
    if outer.is_some() && inner.is_some() && outer != inner {
        return None;
    }
    let curve = match outer.or(inner)? {
        SECP256R1 => Curve::P256,
        SECP384R1 => Curve::P384,
        _ => return None,
    };
    let private = key.private_key;
    (private.len() == curve.bytes()).then_some(KeyParts::Ec { curve, private })
}
