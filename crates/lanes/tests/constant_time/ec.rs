//! The NIST curves. Secret are private keys, nonces and shared secrets.

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::Private;
use slipstream_keys::ec::PrivateKey;
use slipstream_lanes::ec::{
    Curve, PreparedKey, PublicKey, SharedSecret, Signature, public_keys, shared_secrets, signatures,
};
use slipstream_lanes::{Backend, LANES};

use crate::memcheck::{Exception, expect_constant_time, make_public, make_secret, publish};

/// The functions that decide by the success of operations, which is public: scalars may be out of
/// range, a product may be no point of the curve, and half of a signature may be zero.
const PUBLIC: [Exception; 8] = [
    ("src/ec/agreement.rs", "set"),
    ("src/ec/agreement.rs", "compute_public_keys"),
    ("src/ec/agreement.rs", "compute_shared_secrets"),
    ("src/outcome.rs", "note_faults"),
    ("src/ec/ecdsa.rs", "signatures"),
    ("../keys/src/ec.rs", "new"),
    ("src/ec/ecdsa.rs", "prepare_nonces"),
    ("src/ec/ecdsa.rs", "sign_on"),
];

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn public_keys_on_p256() {
    expect_constant_time(&PUBLIC, || compute_public_keys(Curve::P256));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn public_keys_on_p384() {
    expect_constant_time(&PUBLIC, || compute_public_keys(Curve::P384));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn shared_secrets_on_p256() {
    expect_constant_time(&PUBLIC, || compute_shared_secrets(Curve::P256));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn shared_secrets_on_p384() {
    expect_constant_time(&PUBLIC, || compute_shared_secrets(Curve::P384));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn signatures_on_p256() {
    expect_constant_time(&PUBLIC, || compute_signatures(Curve::P256));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs --release")]
fn signatures_on_p384() {
    expect_constant_time(&PUBLIC, || compute_signatures(Curve::P384));
}

fn compute_public_keys(curve: Curve) {
    let mut privates = private_keys(curve, 1);
    let expected: Vec<Vec<u8>> = privates
        .iter()
        .map(|private| public_bytes(&key(curve, private)))
        .collect();
    let mut publics = vec![vec![0; curve.point_bytes()]; LANES];

    make_all_secret(&mut privates);
    let mut operations: Vec<PublicKey<'_>> = privates
        .iter()
        .zip(&mut publics)
        .map(|(private, public)| PublicKey { private, public })
        .collect();
    let mut outcomes = public_keys(Backend::Portable, curve, &mut operations);

    make_public(&mut outcomes);
    assert!(outcomes.iter().all(Result::is_ok));
    for (public, expected) in publics.iter_mut().zip(&expected) {
        publish(&mut public[..]);
        assert!(public == expected);
    }
}

fn compute_shared_secrets(curve: Curve) {
    let mut privates = private_keys(curve, 1);
    let peers: Vec<EcKey<Private>> = private_keys(curve, 101)
        .iter()
        .map(|private| key(curve, private))
        .collect();
    let expected: Vec<Vec<u8>> = privates
        .iter()
        .zip(&peers)
        .map(|(private, peer)| x_coordinate_of_product(private, peer))
        .collect();
    let peers: Vec<Vec<u8>> = peers.iter().map(public_bytes).collect();
    let mut secrets = vec![vec![0; curve.bytes()]; LANES];

    make_all_secret(&mut privates);
    let mut operations: Vec<SharedSecret<'_>> = privates
        .iter()
        .zip(&peers)
        .zip(&mut secrets)
        .map(|((private, peer), secret)| SharedSecret {
            private,
            peer,
            secret,
        })
        .collect();
    let mut outcomes = shared_secrets(Backend::Portable, curve, &mut operations);

    make_public(&mut outcomes);
    assert!(outcomes.iter().all(Result::is_ok));
    for (secret, expected) in secrets.iter_mut().zip(&expected) {
        publish(&mut secret[..]);
        assert!(secret == expected);
    }
}

fn compute_signatures(curve: Curve) {
    let mut privates = private_keys(curve, 1);
    let openssl: Vec<EcKey<Private>> = privates.iter().map(|private| key(curve, private)).collect();
    let mut scalars = private_keys(curve, 101);
    let digest = vec![0xd1; curve.bytes()];
    let mut outputs = vec![vec![0; 2 * curve.bytes()]; LANES];

    make_all_secret(&mut privates);
    make_all_secret(&mut scalars);
    let keys: Vec<PreparedKey> = privates
        .iter()
        .map(|private| {
            let key = PrivateKey::new(curve, private).expect("a private key");
            PreparedKey::new(&key)
        })
        .collect();
    let mut operations: Vec<Signature<'_>> = keys
        .iter()
        .zip(&scalars)
        .zip(&mut outputs)
        .map(|((key, nonce), signature)| Signature {
            key,
            digest: &digest,
            nonce,
            signature,
        })
        .collect();
    let mut outcomes = signatures(Backend::Portable, curve, &mut operations);

    make_public(&mut outcomes);
    assert!(outcomes.iter().all(Result::is_ok));
    for (signature, key) in outputs.iter_mut().zip(&openssl) {
        publish(&mut signature[..]);
        let (r, s) = signature.split_at(curve.bytes());
        let [r, s] = [r, s].map(|bytes| BigNum::from_slice(bytes).expect("memory"));
        let signature = EcdsaSig::from_private_components(r, s).expect("memory");
        assert!(signature.verify(&digest, key).expect("a verdict"));
    }
}

/// Different odd and even scalars below the order.
fn private_keys(curve: Curve, seed: u8) -> Vec<Vec<u8>> {
    (seed..)
        .take(LANES)
        .map(|value| vec![value; curve.bytes()])
        .collect()
}

fn make_all_secret(scalars: &mut [Vec<u8>]) {
    for scalar in scalars {
        make_secret(&mut scalar[..]);
    }
}

/// A key for OpenSSL.
fn key(curve: Curve, private: &[u8]) -> EcKey<Private> {
    let name = match curve {
        Curve::P256 => Nid::X9_62_PRIME256V1,
        Curve::P384 => Nid::SECP384R1,
    };
    let group = EcGroup::from_curve_name(name).expect("a curve");
    let private = BigNum::from_slice(private).expect("memory");
    let mut context = BigNumContext::new().expect("memory");
    let mut public = EcPoint::new(&group).expect("memory");
    public
        .mul_generator2(&group, &private, &mut context)
        .expect("a public key");
    EcKey::from_private_components(&group, &private, &public).expect("a key")
}

fn public_bytes(key: &EcKey<Private>) -> Vec<u8> {
    let mut context = BigNumContext::new().expect("memory");
    key.public_key()
        .to_bytes(key.group(), PointConversionForm::UNCOMPRESSED, &mut context)
        .expect("a point")
}

fn x_coordinate_of_product(private: &[u8], peer: &EcKey<Private>) -> Vec<u8> {
    let mut context = BigNumContext::new().expect("memory");
    let scalar = BigNum::from_slice(private).expect("memory");
    let group = peer.group();
    let mut product = EcPoint::new(group).expect("memory");
    product
        .mul2(group, peer.public_key(), &scalar, &mut context)
        .expect("a point");
    let [mut x, mut y] = [(); 2].map(|()| BigNum::new().expect("memory"));
    product
        .affine_coordinates(group, &mut x, &mut y, &mut context)
        .expect("a point other than infinity");
    x.to_vec_padded(private.len() as i32)
        .expect("that long at most")
}
