//! Key exchanges in both libraries: fresh key pairs, and shared secrets.

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::error::ErrorStack;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private, Public};
use openssl::pkey_ctx::PkeyCtx;
use slipstream_lanes::ec::Curve;
use slipstream_lanes::{Backend, ec, x25519};

use super::Subject;
use super::operation::Group;
use super::scalar::{Scalars, nid};
use crate::Error;

/// The making of key pairs. Both sides draw the private keys too, libcrypto's one at a time, that
/// of lanes for the batch.
pub(super) struct KeyPairs {
    backend: Backend,
    group: Group,
    scalars: Scalars,
    privates: Vec<u8>,
    publics: Vec<u8>,
    libcrypto: PkeyCtx<()>,
}

impl KeyPairs {
    pub(super) fn new(
        backend: Backend,
        group: Group,
        live_lanes: usize,
    ) -> Result<KeyPairs, Error> {
        let scalars = Scalars::new(group)?;
        let libcrypto = generator(group).map_err(Error::openssl("cannot generate keys"))?;
        Ok(KeyPairs {
            backend,
            group,
            privates: vec![0; live_lanes * scalars.bytes()],
            publics: vec![0; live_lanes * share_bytes(group)],
            scalars,
            libcrypto,
        })
    }
}

impl Subject for KeyPairs {
    fn run_lanes(&mut self) -> Result<(), Error> {
        self.scalars.draw(&mut self.privates)?;
        match self.group {
            Group::X25519 => {
                let mut operations: Vec<x25519::PublicKey<'_>> = array_chunks(&self.privates)
                    .zip(array_chunks_mut(&mut self.publics))
                    .map(|(private, public)| x25519::PublicKey { private, public })
                    .collect();
                x25519::public_keys(self.backend, &mut operations)
                    .iter()
                    .try_for_each(|outcome| outcome.map_err(Error::lanes))
            }
            Group::Ec(curve) => {
                let mut operations: Vec<ec::PublicKey<'_>> = self
                    .privates
                    .chunks_exact(curve.bytes())
                    .zip(self.publics.chunks_exact_mut(curve.point_bytes()))
                    .map(|(private, public)| ec::PublicKey { private, public })
                    .collect();
                ec::public_keys(self.backend, curve, &mut operations)
                    .iter()
                    .try_for_each(|outcome| outcome.map_err(Error::lanes))
            }
        }
    }

    fn run_libcrypto(&mut self) -> Result<(), Error> {
        self.libcrypto
            .keygen()
            .map(drop)
            .map_err(Error::openssl("libcrypto's key generation failed"))
    }

    fn agrees(&mut self) -> Result<bool, Error> {
        self.run_libcrypto()?;
        self.run_lanes()?;
        let privates = self.privates.chunks_exact(self.scalars.bytes());
        let publics = self.publics.chunks_exact(share_bytes(self.group));
        for (private, public) in privates.zip(publics) {
            let expected = private_key(self.group, private)
                .and_then(|key| share(self.group, &key))
                .map_err(Error::openssl("libcrypto refused a private key"))?;
            if public != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The computation of shared secrets. Lanes check the peer's key. Of libcrypto `EVP_PKEY_derive`
/// alone is measured, as `openssl speed` does it, which is less than a server pays:
/// `EVP_PKEY_derive_set_peer`, which has to come before, checks the key, in OpenSSL 3.0 with a
/// second multiplication on a NIST curve.
pub(super) struct SharedSecrets {
    backend: Backend,
    group: Group,
    /// One per lane.
    exchanges: Vec<Exchange>,
    /// Index of the next one that libcrypto computes.
    next: usize,
}

struct Exchange {
    private: Vec<u8>,
    peer: Vec<u8>,
    secret: Vec<u8>,
    libcrypto: PkeyCtx<Private>,
    expected: Vec<u8>,
}

impl SharedSecrets {
    pub(super) fn new(
        backend: Backend,
        group: Group,
        live_lanes: usize,
    ) -> Result<SharedSecrets, Error> {
        let scalars = Scalars::new(group)?;
        let exchanges = (0..live_lanes)
            .map(|_| Exchange::new(group, &scalars))
            .collect::<Result<Vec<Exchange>, Error>>()?;
        Ok(SharedSecrets {
            backend,
            group,
            exchanges,
            next: 0,
        })
    }
}

impl Exchange {
    fn new(group: Group, scalars: &Scalars) -> Result<Exchange, Error> {
        let mut private = vec![0; scalars.bytes()];
        let mut peer_private = vec![0; scalars.bytes()];
        scalars.draw(&mut private)?;
        scalars.draw(&mut peer_private)?;
        let prepare = || {
            let own = private_key(group, &private)?;
            let mut libcrypto = PkeyCtx::new(&own)?;
            libcrypto.derive_init()?;
            let peer_key = private_key(group, &peer_private)?;
            let peer = share(group, &peer_key)?;
            let libcrypto_peer = public_key(group, &peer)?;
            libcrypto.derive_set_peer(&libcrypto_peer)?;
            Ok((libcrypto, peer))
        };
        let (libcrypto, peer) =
            prepare().map_err(Error::openssl("cannot prepare a key exchange"))?;
        let bytes = private.len();
        Ok(Exchange {
            private,
            peer,
            secret: vec![0; bytes],
            libcrypto,
            expected: vec![0; bytes],
        })
    }
}

impl Subject for SharedSecrets {
    fn run_lanes(&mut self) -> Result<(), Error> {
        match self.group {
            Group::X25519 => {
                let mut operations: Vec<x25519::SharedSecret<'_>> = self
                    .exchanges
                    .iter_mut()
                    .map(|exchange| x25519::SharedSecret {
                        private: array(&exchange.private),
                        peer: array(&exchange.peer),
                        secret: array_mut(&mut exchange.secret),
                    })
                    .collect();
                x25519::shared_secrets(self.backend, &mut operations)
                    .iter()
                    .try_for_each(|outcome| outcome.map_err(Error::lanes))
            }
            Group::Ec(curve) => {
                let mut operations: Vec<ec::SharedSecret<'_>> = self
                    .exchanges
                    .iter_mut()
                    .map(|exchange| ec::SharedSecret {
                        private: &exchange.private,
                        peer: &exchange.peer,
                        secret: &mut exchange.secret,
                    })
                    .collect();
                ec::shared_secrets(self.backend, curve, &mut operations)
                    .iter()
                    .try_for_each(|outcome| outcome.map_err(Error::lanes))
            }
        }
    }

    fn run_libcrypto(&mut self) -> Result<(), Error> {
        self.next = (self.next + 1) % self.exchanges.len();
        let exchange = &mut self.exchanges[self.next];
        exchange
            .libcrypto
            .derive(Some(&mut exchange.expected))
            .map(drop)
            .map_err(Error::openssl("libcrypto's key exchange failed"))
    }

    fn agrees(&mut self) -> Result<bool, Error> {
        self.run_lanes()?;
        for _ in 0..self.exchanges.len() {
            self.run_libcrypto()?;
        }
        Ok(self
            .exchanges
            .iter()
            .all(|exchange| exchange.secret == exchange.expected))
    }
}

fn share_bytes(group: Group) -> usize {
    match group {
        Group::X25519 => x25519::KEY_BYTES,
        Group::Ec(curve) => curve.point_bytes(),
    }
}

fn array(bytes: &[u8]) -> &[u8; x25519::KEY_BYTES] {
    bytes.try_into().expect("made with this length")
}

fn array_mut(bytes: &mut [u8]) -> &mut [u8; x25519::KEY_BYTES] {
    bytes.try_into().expect("made with this length")
}

fn array_chunks(bytes: &[u8]) -> impl Iterator<Item = &[u8; x25519::KEY_BYTES]> {
    bytes.as_chunks().0.iter()
}

fn array_chunks_mut(bytes: &mut [u8]) -> impl Iterator<Item = &mut [u8; x25519::KEY_BYTES]> {
    bytes.as_chunks_mut().0.iter_mut()
}

/// A context that makes keys.
fn generator(group: Group) -> Result<PkeyCtx<()>, ErrorStack> {
    match group {
        Group::X25519 => {
            let mut context = PkeyCtx::new_id(Id::X25519)?;
            context.keygen_init()?;
            Ok(context)
        }
        Group::Ec(curve) => {
            let mut context = PkeyCtx::new_id(Id::EC)?;
            context.keygen_init()?;
            context.set_ec_paramgen_curve_nid(nid(curve))?;
            Ok(context)
        }
    }
}

fn private_key(group: Group, private: &[u8]) -> Result<PKey<Private>, ErrorStack> {
    match group {
        Group::X25519 => PKey::private_key_from_raw_bytes(private, Id::X25519),
        Group::Ec(curve) => PKey::from_ec_key(ec_key(curve, private)?),
    }
}

fn public_key(group: Group, share: &[u8]) -> Result<PKey<Public>, ErrorStack> {
    match group {
        Group::X25519 => PKey::public_key_from_raw_bytes(share, Id::X25519),
        Group::Ec(curve) => {
            let group = EcGroup::from_curve_name(nid(curve))?;
            let point = EcPoint::from_bytes(&group, share, &mut *BigNumContext::new()?)?;
            PKey::from_ec_key(EcKey::from_public_key(&group, &point)?)
        }
    }
}

/// A public key in the form that is sent.
fn share(group: Group, key: &PKeyRef<impl HasPublic>) -> Result<Vec<u8>, ErrorStack> {
    match group {
        Group::X25519 => key.raw_public_key(),
        Group::Ec(_) => {
            let key = key.ec_key()?;
            key.public_key().to_bytes(
                key.group(),
                PointConversionForm::UNCOMPRESSED,
                &mut *BigNumContext::new()?,
            )
        }
    }
}

/// A private key of a NIST curve, with its public key.
pub(super) fn ec_key(curve: Curve, private: &[u8]) -> Result<EcKey<Private>, ErrorStack> {
    let group = EcGroup::from_curve_name(nid(curve))?;
    let private = BigNum::from_slice(private)?;
    let mut public = EcPoint::new(&group)?;
    public.mul_generator2(&group, &private, &mut *BigNumContext::new()?)?;
    EcKey::from_private_components(&group, &private, &public)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: [Group; 3] = [
        Group::X25519,
        Group::Ec(Curve::P256),
        Group::Ec(Curve::P384),
    ];

    #[test]
    fn a_wrong_shared_secret_is_not_measured() {
        for group in GROUPS {
            let mut subject = SharedSecrets::new(Backend::Portable, group, 2).unwrap();
            assert!(subject.agrees().unwrap());
            subject.exchanges[1].private[16] ^= 1;
            assert!(!subject.agrees().unwrap());
        }
    }

    #[test]
    fn every_run_makes_new_key_pairs() {
        for group in GROUPS {
            let mut subject = KeyPairs::new(Backend::Portable, group, 2).unwrap();
            assert!(subject.agrees().unwrap());
            let first = subject.publics.clone();
            subject.run_lanes().unwrap();
            assert_ne!(subject.publics, first);
        }
    }
}
