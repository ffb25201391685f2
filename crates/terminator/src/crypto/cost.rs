//! Measures the costs of operations in lanes and in aws-lc.

use std::time::Duration;

use aws_lc_rs::signature;
use pkcs1::RsaPrivateKeyRef;
use pkcs1::der::Encode;
use pkcs1::der::asn1::UintRef;
use rustls::Error;
use rustls::crypto::aws_lc_rs::{kx_group, sign};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer};
use rustls::sign::Signer;
use slipstream_accelerators::lanes::{Backend, Measured, calibrate, precomputed_cost};
use slipstream_keys::Group;
use slipstream_keys::ec::Curve;
use slipstream_keys::example::{example_key, example_point};
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;
use slipstream_offload::costs::measure as time;

use super::encoding;

/// Measures lanes of `backend`, if there are any, and aws-lc.
pub(super) fn measure(backend: Option<Backend>) -> Measured {
    calibrate(backend, |kind| software(backend, kind))
}

/// The cost of one operation in aws-lc, as rustls uses it; `None` if rustls does not ask it for
/// such an operation.
fn software(backend: Option<Backend>, kind: Kind) -> Option<Duration> {
    match kind {
        Kind::Rsa(size) => signing_cost(&*rsa_signer(size)?).ok(),
        Kind::X25519 => exchange_cost(backend, Group::X25519),
        Kind::Ecdh(Curve::P256) => exchange_cost(backend, Group::P256),
        Kind::Ecdh(Curve::P384) => exchange_cost(backend, Group::P384),
        Kind::Ecdsa(curve) => signing_cost(&*ecdsa_signer(curve)?).ok(),
        // Exchanges of aws-lc make their own.
        Kind::KeyPair(_) | Kind::Compress(_) => None,
    }
}

/// The cost of a signature.
fn signing_cost(signer: &dyn Signer) -> Result<Duration, Error> {
    let mut outcome = Ok(());
    let cost = time(|| {
        if let Err(error) = signer.sign(b"message") {
            outcome = Err(error);
        }
    });
    outcome.map(|()| cost)
}

/// aws-lc's signer with the published example key.
fn rsa_signer(size: Size) -> Option<Box<dyn Signer>> {
    let der = PrivatePkcs1KeyDer::from(example_pkcs1(size)?);
    let key = sign::any_supported_type(&PrivateKeyDer::from(der)).ok()?;
    key.choose_scheme(&encoding::RSA_SCHEMES)
}

/// The published example key, in DER.
pub(super) fn example_pkcs1(size: Size) -> Option<Vec<u8>> {
    let example = example_key(size);
    let components = &example.components;
    let number = |bytes| UintRef::new(bytes).ok();
    let key = RsaPrivateKeyRef {
        modulus: number(components.modulus)?,
        public_exponent: number(components.public_exponent)?,
        private_exponent: number(example.private_exponent)?,
        prime1: number(components.prime1)?,
        prime2: number(components.prime2)?,
        exponent1: number(components.exponent1)?,
        exponent2: number(components.exponent2)?,
        coefficient: number(components.coefficient)?,
        other_prime_infos: None,
    };
    let mut der = vec![0; usize::try_from(key.encoded_len().ok()?).ok()?];
    key.encode_to_slice(&mut der).ok()?;
    Some(der)
}

/// aws-lc's signer with a new key on `curve`.
fn ecdsa_signer(curve: Curve) -> Option<Box<dyn Signer>> {
    let algorithm = match curve {
        Curve::P256 => &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        Curve::P384 => &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
    };
    let pair = signature::EcdsaKeyPair::generate(algorithm).ok()?;
    let der = pair.to_pkcs8v1().ok()?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der.as_ref()));
    let key = sign::any_ecdsa_type(&der).ok()?;
    key.choose_scheme(&[encoding::ecdsa_scheme(curve)])
}

/// The cost of an exchange with aws-lc, which makes a key pair for each, less the cost of a
/// precomputed key pair: the rest is to be compared with the shared secret alone.
fn exchange_cost(backend: Option<Backend>, group: Group) -> Option<Duration> {
    let (software, peer) = match group {
        Group::X25519 => (kx_group::X25519, BASE_POINT.to_vec()),
        Group::P256 => (kx_group::SECP256R1, example_point(Curve::P256)),
        Group::P384 => (kx_group::SECP384R1, example_point(Curve::P384)),
    };
    let mut succeeded = true;
    let cost = time(|| succeeded &= software.start_and_complete(&peer).is_ok());
    let precomputed = backend.map(|backend| precomputed_cost(backend, Kind::KeyPair(group)));
    let precomputed = precomputed.unwrap_or_default().or_zero();
    succeeded.then_some(cost.saturating_sub(precomputed))
}

/// The u-coordinate of the base point of Curve25519 (RFC 7748, section 4.1).
static BASE_POINT: [u8; Group::X25519.public_bytes()] = {
    let mut point = [0; Group::X25519.public_bytes()];
    point[0] = 9;
    point
};
