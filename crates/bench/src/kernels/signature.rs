//! ECDSA in both libraries.

use openssl::bn::BigNum;
use openssl::ec::EcKey;
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rand::rand_bytes;
use slipstream_accelerators::lanes::draw;
use slipstream_accelerators::lanes::nonce::{self, RANDOM_BYTES};
use slipstream_keys::ec::PrivateKey;
use slipstream_lanes::ec::{self, Curve, Nonce, PreparedKey, PreparedNonce, Signature};
use slipstream_lanes::{Backend, LANES};

use super::Subject;
use super::exchange::ec_key;
use super::operation::Group;
use super::scalar::Scalars;
use crate::Error;

/// Signatures with fresh nonces, which both sides draw, libcrypto one at a time, lanes for the
/// batch, as in a server: hedged with key and digest.
pub(super) struct Signatures {
    backend: Backend,
    curve: Curve,
    random: Vec<u8>,
    nonces: Vec<u8>,
    signers: Signers,
}

impl Signatures {
    pub(super) fn new(
        backend: Backend,
        curve: Curve,
        live_lanes: usize,
    ) -> Result<Signatures, Error> {
        let scalars = Scalars::new(Group::Ec(curve))?;
        Ok(Signatures {
            backend,
            curve,
            random: vec![0; live_lanes * RANDOM_BYTES],
            nonces: vec![0; live_lanes * scalars.bytes()],
            signers: Signers::new(curve, &scalars, live_lanes)?,
        })
    }
}

impl Subject for Signatures {
    fn run_lanes(&mut self) -> Result<(), Error> {
        draw(&mut self.random).map_err(Error::lanes)?;
        let drawn = self.random.chunks_exact(RANDOM_BYTES);
        let mut operations: Vec<Signature<'_>> = self
            .signers
            .all
            .iter_mut()
            .zip(drawn.zip(self.nonces.chunks_exact_mut(self.curve.bytes())))
            .map(|(signer, (random, nonce))| {
                nonce::derive(&signer.private, &signer.digest, random, nonce);
                Signature {
                    key: &signer.lanes,
                    digest: &signer.digest,
                    nonce,
                    signature: &mut signer.signature,
                }
            })
            .collect();
        ec::signatures(self.backend, self.curve, &mut operations)
            .iter()
            .try_for_each(|outcome| outcome.map_err(Error::lanes))
    }

    fn run_libcrypto(&mut self) -> Result<(), Error> {
        self.signers.next().sign_with_libcrypto()
    }

    fn agrees(&mut self) -> Result<bool, Error> {
        self.run_lanes()?;
        self.signers.all_verify()
    }
}

/// Signatures with precomputed nonces.
pub(super) struct SignaturesAhead {
    backend: Backend,
    curve: Curve,
    scalars: Scalars,
    ready: Vec<PreparedNonce>,
    signers: Signers,
}

impl SignaturesAhead {
    pub(super) fn new(backend: Backend, curve: Curve) -> Result<SignaturesAhead, Error> {
        let scalars = Scalars::new(Group::Ec(curve))?;
        Ok(SignaturesAhead {
            backend,
            curve,
            ready: Vec::new(),
            signers: Signers::new(curve, &scalars, LANES)?,
            scalars,
        })
    }
}

impl Subject for SignaturesAhead {
    fn prepare(&mut self, runs: usize) -> Result<(), Error> {
        let bytes = self.scalars.bytes();
        let mut scalars = vec![0; LANES * bytes];
        while self.ready.len() < runs {
            self.scalars.draw(&mut scalars)?;
            let mut prepared = [const { None }; LANES];
            let mut operations: Vec<Nonce<'_>> = scalars
                .chunks_exact(bytes)
                .zip(&mut prepared)
                .map(|(scalar, prepared)| Nonce { scalar, prepared })
                .collect();
            ec::nonces(self.backend, self.curve, &mut operations)
                .iter()
                .try_for_each(|outcome| outcome.map_err(Error::lanes))?;
            self.ready.extend(prepared.into_iter().flatten());
        }
        Ok(())
    }

    fn run_lanes(&mut self) -> Result<(), Error> {
        let nonce = self.ready.pop().expect("prepared");
        let signer = self.signers.next();
        nonce
            .sign(&signer.lanes, &signer.digest, &mut signer.signature)
            .map_err(Error::lanes)
    }

    fn run_libcrypto(&mut self) -> Result<(), Error> {
        self.signers.next().sign_with_libcrypto()
    }

    fn agrees(&mut self) -> Result<bool, Error> {
        let runs = self.signers.all.len();
        self.prepare(runs)?;
        for _ in 0..runs {
            self.run_lanes()?;
        }
        self.signers.all_verify()
    }
}

/// Keys that take turns.
struct Signers {
    all: Vec<Signer>,
    last: usize,
}

/// One key in both libraries, with a digest.
struct Signer {
    private: PrivateKey,
    lanes: PreparedKey,
    libcrypto: PkeyCtx<Private>,
    key: EcKey<Private>,
    digest: Vec<u8>,
    /// Signatures by lanes: r and s.
    signature: Vec<u8>,
    /// Signatures by libcrypto: DER.
    libcrypto_signature: Vec<u8>,
    libcrypto_length: usize,
}

impl Signers {
    fn new(curve: Curve, scalars: &Scalars, count: usize) -> Result<Signers, Error> {
        let all = (0..count)
            .map(|_| Signer::new(curve, scalars))
            .collect::<Result<Vec<Signer>, Error>>()?;
        Ok(Signers { all, last: 0 })
    }

    fn next(&mut self) -> &mut Signer {
        self.last = (self.last + 1) % self.all.len();
        &mut self.all[self.last]
    }

    /// Returns true if libcrypto accepts the signatures of lanes, and those that it makes itself
    /// now.
    fn all_verify(&mut self) -> Result<bool, Error> {
        for signer in &mut self.all {
            signer.sign_with_libcrypto()?;
            if !signer
                .verify()
                .map_err(Error::openssl("libcrypto refused a signature"))?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Signer {
    fn new(curve: Curve, scalars: &Scalars) -> Result<Signer, Error> {
        let mut private = vec![0; curve.bytes()];
        scalars.draw(&mut private)?;
        // As long as the scalar, as the schemes of TLS 1.3 have it (RFC 8446 section 4.2.3).
        let mut digest = vec![0; curve.bytes()];
        let prepare = |digest: &mut [u8]| {
            rand_bytes(digest)?;
            let key = ec_key(curve, &private)?;
            let pkey = PKey::from_ec_key(key.clone())?;
            let mut libcrypto = PkeyCtx::new(&pkey)?;
            libcrypto.sign_init()?;
            Ok((key, libcrypto, pkey.size()))
        };
        let (key, libcrypto, size) =
            prepare(&mut digest).map_err(Error::openssl("cannot prepare a key"))?;
        let private = PrivateKey::new(curve, &private).map_err(Error::lanes)?;
        Ok(Signer {
            lanes: PreparedKey::new(&private),
            private,
            libcrypto,
            key,
            digest,
            signature: vec![0; 2 * curve.bytes()],
            libcrypto_signature: vec![0; size],
            libcrypto_length: 0,
        })
    }

    fn sign_with_libcrypto(&mut self) -> Result<(), Error> {
        self.libcrypto_length = self
            .libcrypto
            .sign(&self.digest, Some(&mut self.libcrypto_signature))
            .map_err(Error::openssl("libcrypto's signature failed"))?;
        Ok(())
    }

    fn verify(&self) -> Result<bool, ErrorStack> {
        let (r, s) = self.signature.split_at(self.signature.len() / 2);
        let ours =
            EcdsaSig::from_private_components(BigNum::from_slice(r)?, BigNum::from_slice(s)?)?;
        let theirs = EcdsaSig::from_der(&self.libcrypto_signature[..self.libcrypto_length])?;
        Ok(ours.verify(&self.digest, &self.key)? && theirs.verify(&self.digest, &self.key)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_another_key_is_not_measured() {
        for curve in Curve::ALL {
            let mut subject = Signatures::new(Backend::Portable, curve, 2).unwrap();
            assert!(subject.agrees().unwrap());
            subject.signers.all[0].key = subject.signers.all[1].key.clone();
            assert!(!subject.agrees().unwrap());
        }
    }

    #[test]
    fn a_nonce_signs_once() {
        for curve in Curve::ALL {
            let mut subject = SignaturesAhead::new(Backend::Portable, curve).unwrap();
            assert!(subject.agrees().unwrap());
            subject.prepare(1).unwrap();
            let before = subject.ready.len();
            subject.run_lanes().unwrap();
            assert_eq!(subject.ready.len(), before - 1);
        }
    }
}
