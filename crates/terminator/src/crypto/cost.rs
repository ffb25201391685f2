//! What operations cost in lanes and in aws-lc, and what follows for a handshake that is alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::{rand, signature};
use pkcs1::RsaPrivateKeyRef;
use pkcs1::der::Encode;
use pkcs1::der::asn1::UintRef;
use rustls::crypto::aws_lc_rs::{kx_group, sign};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer};
use rustls::sign::Signer;
use rustls::{Error, SignatureScheme};
use slipstream_lanes::ec::{self, Curve, SigningKey};
use slipstream_lanes::rsa::Size;
use slipstream_lanes::{Backend, LANES, x25519};
use slipstream_offload::Kind;
use slipstream_offload::ahead::Group;
use slipstream_offload::calibration::{calibrate, example_key, example_point, least};
use slipstream_offload::device::message::Key;
use slipstream_offload::policy::Costs;

use super::{encoding, exchange, private_key, signing};

/// Measures.
pub(super) fn measure(backend: Backend) -> Costs {
    let costs = calibrate(backend, |kind| software(backend, kind));
    for group in Group::ALL {
        let is_cheaper = costs.break_even(exchange::kind(group)) == Some(1);
        ALONE[group.index()].store(is_cheaper, Ordering::Relaxed);
    }
    for curve in Curve::ALL.into_iter().filter(|_| ec::offered(backend)) {
        let is_cheaper = ecdsa(backend, curve).is_none_or(|costs| costs.lanes <= costs.software);
        NONCES[curve.index()].store(is_cheaper, Ordering::Relaxed);
    }
    costs
}

/// The lanes in which a lone exchange in `group` takes less time than in aws-lc, once that has been [measured](measure).
pub(super) fn alone(group: Group) -> Option<Backend> {
    if !ALONE[group.index()].load(Ordering::Relaxed) {
        return None;
    }
    super::backend().filter(|backend| group.is_offered(*backend))
}

/// Whether a signature with a nonce that has been made ahead takes less time than aws-lc's. Assumed until it has been
/// [measured](measure).
pub(super) fn signs_with_nonces(curve: Curve) -> bool {
    NONCES[curve.index()].load(Ordering::Relaxed)
}

/// As if it had been measured that lanes are faster for whoever is alone.
#[cfg(test)]
pub(super) fn assume_alone_in_lanes() {
    for group in &ALONE {
        group.store(true, Ordering::Relaxed);
    }
}

/// By [`Group::index`].
static ALONE: [AtomicBool; Group::ALL.len()] = [const { AtomicBool::new(false) }; Group::ALL.len()];
/// By [`Curve::index`].
static NONCES: [AtomicBool; Curve::ALL.len()] = [const { AtomicBool::new(true) }; Curve::ALL.len()];

/// What aws-lc takes for one operation, as rustls uses it; `None` if rustls asks it for no such thing.
fn software(backend: Backend, kind: Kind) -> Option<Duration> {
    match kind {
        Kind::Rsa(size) => {
            let signer = rsa_signer(size)?;
            signing_cost(&*signer).ok()
        }
        Kind::X25519 => exchange_cost(backend, Group::X25519),
        Kind::Ecdh(Curve::P256) => exchange_cost(backend, Group::P256),
        Kind::Ecdh(Curve::P384) => exchange_cost(backend, Group::P384),
        // Not computed here while a job is paused.
        Kind::Ecdsa(_) | Kind::KeyPair(_) | Kind::Compress(_) => None,
    }
}

/// Of a signature in the scheme that rustls prefers.
fn signing_cost(signer: &dyn Signer) -> Result<Duration, Error> {
    let mut outcome = Ok(());
    let cost = least(|| {
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

/// Of an exchange with aws-lc, which makes a key pair for each, without what a key pair costs that has been made ahead: what is
/// left is to be compared with the shared secret alone.
fn exchange_cost(backend: Backend, group: Group) -> Option<Duration> {
    let (software, peer) = match group {
        Group::X25519 => (kx_group::X25519, BASE_POINT.to_vec()),
        Group::P256 => (kx_group::SECP256R1, example_point(Curve::P256)),
        Group::P384 => (kx_group::SECP384R1, example_point(Curve::P384)),
    };
    let mut succeeded = true;
    let cost = least(|| succeeded &= software.start_and_complete(&peer).is_ok());
    let ahead = if group.is_offered(backend) {
        key_pairs_cost(backend, group) / LANES as u32
    } else {
        Duration::ZERO
    };
    succeeded.then_some(cost.saturating_sub(ahead))
}

/// The u-coordinate of the base point of Curve25519 (RFC 7748, section 4.1).
static BASE_POINT: [u8; x25519::KEY_BYTES] = {
    let mut point = [0; x25519::KEY_BYTES];
    point[0] = 9;
    point
};

/// Of a batch of key pairs.
fn key_pairs_cost(backend: Backend, group: Group) -> Duration {
    match group.curve() {
        None => {
            let private = [1; x25519::KEY_BYTES];
            let mut publics = [[0; x25519::KEY_BYTES]; LANES];
            least(|| {
                let mut operations = publics.each_mut().map(|public| x25519::PublicKey {
                    private: &private,
                    public,
                });
                x25519::public_keys(backend, &mut operations);
            })
        }
        Some(curve) => {
            let private = vec![1; curve.bytes()];
            let mut publics: [_; LANES] = std::array::from_fn(|_| vec![0; curve.point_bytes()]);
            least(|| {
                let mut operations = publics.each_mut().map(|public| ec::PublicKey {
                    private: &private,
                    public,
                });
                ec::public_keys(backend, curve, &mut operations);
            })
        }
    }
}

struct EcdsaCosts {
    lanes: Duration,
    software: Duration,
}

/// Of eight signatures: with nonces of one batch, and with aws-lc.
fn ecdsa(backend: Backend, curve: Curve) -> Option<EcdsaCosts> {
    let algorithm = match curve {
        Curve::P256 => &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        Curve::P384 => &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
    };
    let pair = signature::EcdsaKeyPair::generate(algorithm).ok()?;
    let der = pair.to_pkcs8v1().ok()?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der.as_ref()));
    let Some(Key::Ec { private, .. }) = private_key::read(&der) else {
        return None;
    };
    let key = SigningKey::new(curve, private).ok()?;
    let scheme: SignatureScheme = encoding::ecdsa_scheme(curve);
    let signer = sign::any_ecdsa_type(&der).ok()?.choose_scheme(&[scheme])?;
    let mut scalars = vec![[0; 48]; LANES];
    for scalar in &mut scalars {
        rand::fill(scalar).ok()?;
    }
    let scalars: Vec<&[u8]> = scalars
        .iter()
        .map(|bytes| &bytes[..curve.bytes()])
        .collect();
    Some(EcdsaCosts {
        lanes: least(|| {
            let nonces = ec::nonces(backend, curve, &scalars);
            for nonce in nonces.into_iter().flatten() {
                std::hint::black_box(signing::sign_with(nonce, &key, b"message"));
            }
        }),
        software: signing_cost(&*signer).ok()? * LANES as u32,
    })
}
