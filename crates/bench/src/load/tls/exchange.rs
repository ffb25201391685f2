//! The client's half of an ephemeral key exchange, which costs it nothing.
//!
//! The private key of a curve is 1: the public key is then the group's base point, and the secret shared with
//! a server is what the server has sent, its own public key. For the server the base point is a
//! peer's key like any other. OpenSSL checks and multiplies it as it does every point
//! (`ecp_nistz256_points_mul` uses its tables for the base point only where it is asked for a
//! multiple of the generator, not of a point that happens to be the generator; P-384's generic
//! arithmetic and `ossl_x25519` have no tables at all), and lanes do the same for all points, since
//! they compute in constant time.
//!
//! With any other key a client of libcrypto's would spend two scalar multiplications on each
//! connection with a NIST curve, one of them on checking the server's point, and might well be what
//! is measured.

use std::borrow::Cow;

use slipstream_testbed::suite::Group;

use super::{Failure, mlkem};

/// The u-coordinate 9 of the base point (RFC 7748 section 4.1). No private key that follows the RFC
/// is 1, since each has its bit 254 set, but a server cannot tell.
const X25519_BASE: [u8; 32] = {
    let mut base = [0; 32];
    base[0] = 9;
    base
};

/// The share of X25519MLKEM768: ML-KEM's key, then X25519's (draft-ietf-tls-ecdhe-mlkem section 4.1).
const X25519_ML_KEM_768: [u8; mlkem::KEY.len() + X25519_BASE.len()] = {
    let mut share = [0; mlkem::KEY.len() + X25519_BASE.len()];
    let (key, base) = share.split_at_mut(mlkem::KEY.len());
    key.copy_from_slice(&mlkem::KEY);
    base.copy_from_slice(&X25519_BASE);
    share
};

/// The form of a point that is sent: both coordinates (RFC 8422 section 5.4.1).
const UNCOMPRESSED: u8 = 4;
/// The base point of P-256 (FIPS 186-4 section D.1.2.3), uncompressed.
const P256_BASE: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40,
    0xf2, 0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2,
    0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e,
    0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51,
    0xf5,
];

/// The base point of P-384 (FIPS 186-4 section D.1.2.4), uncompressed.
const P384_BASE: [u8; 97] = [
    0x04, 0xaa, 0x87, 0xca, 0x22, 0xbe, 0x8b, 0x05, 0x37, 0x8e, 0xb1, 0xc7, 0x1e, 0xf3, 0x20, 0xad,
    0x74, 0x6e, 0x1d, 0x3b, 0x62, 0x8b, 0xa7, 0x9b, 0x98, 0x59, 0xf7, 0x41, 0xe0, 0x82, 0x54, 0x2a,
    0x38, 0x55, 0x02, 0xf2, 0x5d, 0xbf, 0x55, 0x29, 0x6c, 0x3a, 0x54, 0x5e, 0x38, 0x72, 0x76, 0x0a,
    0xb7, 0x36, 0x17, 0xde, 0x4a, 0x96, 0x26, 0x2c, 0x6f, 0x5d, 0x9e, 0x98, 0xbf, 0x92, 0x92, 0xdc,
    0x29, 0xf8, 0xf4, 0x1d, 0xbd, 0x28, 0x9a, 0x14, 0x7c, 0xe9, 0xda, 0x31, 0x13, 0xb5, 0xf0, 0xb8,
    0xc0, 0x0a, 0x60, 0xb1, 0xce, 0x1d, 0x7e, 0x81, 0x9d, 0x7a, 0x43, 0x1d, 0x7c, 0x90, 0xea, 0x0e,
    0x5f,
];

/// The public key that every ClientHello and ClientKeyExchange carries.
pub(super) fn share(group: Group) -> &'static [u8] {
    match group {
        Group::X25519 => &X25519_BASE,
        Group::X25519MlKem768 => &X25519_ML_KEM_768,
        Group::P256 => &P256_BASE,
        Group::P384 => &P384_BASE,
    }
}

/// The secret shared with a server that has sent `peer`.
pub(super) fn shared_secret(group: Group, peer: &[u8]) -> Result<Cow<'_, [u8]>, Failure> {
    let secret = match group {
        Group::X25519 => (peer.len() == X25519_BASE.len()).then_some(peer),
        Group::X25519MlKem768 => return hybrid_secret(peer).map(Cow::Owned),
        Group::P256 | Group::P384 => match peer.split_first() {
            // The secret is the x-coordinate (RFC 8446 section 7.4.2, RFC 8422 section 5.10).
            Some((&UNCOMPRESSED, coordinates)) if peer.len() == share(group).len() => {
                Some(&coordinates[..coordinates.len() / 2])
            }
            _ => None,
        },
    };
    secret
        .map(Cow::Borrowed)
        .ok_or(Failure::Protocol("a malformed key share"))
}

/// The secret of X25519MLKEM768: ML-KEM's, then X25519's (draft-ietf-tls-ecdhe-mlkem section 4.3).
fn hybrid_secret(peer: &[u8]) -> Result<Vec<u8>, Failure> {
    let (ciphertext, peer) = peer
        .split_at_checked(mlkem::CIPHERTEXT_LENGTH)
        .ok_or(Failure::Protocol("a malformed key share"))?;
    let mut secret = mlkem::decapsulate(ciphertext)?.to_vec();
    secret.extend_from_slice(&shared_secret(Group::X25519, peer)?);
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use openssl::bn::BigNumContext;
    use openssl::derive::Deriver;
    use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
    use openssl::nid::Nid;
    use openssl::pkey::{Id, PKey, Private, Public};

    use super::*;

    fn derive(own: &PKey<Private>, peer: &PKey<Public>) -> Vec<u8> {
        let mut deriver = Deriver::new(own).unwrap();
        deriver.set_peer(peer).unwrap();
        deriver.derive_to_vec().unwrap()
    }

    #[test]
    fn a_server_with_x25519_comes_to_the_same_secret() {
        let server = PKey::generate_x25519().unwrap();
        let sent = server.raw_public_key().unwrap();
        let peer = PKey::public_key_from_raw_bytes(share(Group::X25519), Id::X25519).unwrap();
        assert_eq!(
            shared_secret(Group::X25519, &sent).unwrap(),
            derive(&server, &peer)
        );
        assert!(shared_secret(Group::X25519, &sent[1..]).is_err());
    }

    #[test]
    fn a_server_with_a_nist_curve_comes_to_the_same_secret() {
        for (offered, curve) in [
            (Group::P256, Nid::X9_62_PRIME256V1),
            (Group::P384, Nid::SECP384R1),
        ] {
            let group = EcGroup::from_curve_name(curve).unwrap();
            let mut context = BigNumContext::new().unwrap();
            let server = EcKey::generate(&group).unwrap();
            let mut sent = server
                .public_key()
                .to_bytes(&group, PointConversionForm::UNCOMPRESSED, &mut context)
                .unwrap();
            let point = EcPoint::from_bytes(&group, share(offered), &mut context).unwrap();
            let peer = PKey::from_ec_key(EcKey::from_public_key(&group, &point).unwrap()).unwrap();
            let server = PKey::from_ec_key(server).unwrap();
            assert_eq!(
                shared_secret(offered, &sent).unwrap(),
                derive(&server, &peer)
            );
            assert!(shared_secret(offered, &sent[..33]).is_err());
            sent[0] = 2;
            assert!(shared_secret(offered, &sent).is_err());
            assert!(shared_secret(offered, &[]).is_err());
        }
    }
}
