//! Key exchange on single curves: an ephemeral key pair that has been made ahead, and a shared secret that is computed together
//! with those of other handshakes, or in lanes by itself where that is no slower than aws-lc. All else is aws-lc's.

use std::fmt;

use aws_lc_rs::agreement;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved};
use slipstream_lanes::{Backend, ec, x25519};
use slipstream_offload::ahead::{self, KeyPair};
use slipstream_offload::request::Operand;
use slipstream_offload::{Kind, Operation};

use super::{cost, job};

/// X25519 (RFC 7748).
pub(super) static X25519: OffloadedGroup = OffloadedGroup {
    group: ahead::Group::X25519,
    software: kx_group::X25519,
    algorithm: &agreement::X25519,
};

/// NIST P-256.
pub(super) static P256: OffloadedGroup = OffloadedGroup {
    group: ahead::Group::P256,
    software: kx_group::SECP256R1,
    algorithm: &agreement::ECDH_P256,
};

/// NIST P-384.
pub(super) static P384: OffloadedGroup = OffloadedGroup {
    group: ahead::Group::P384,
    software: kx_group::SECP384R1,
    algorithm: &agreement::ECDH_P384,
};

/// What a key share is answered with that is none (RFC 8446, section 4.2.8.2; RFC 7748, section 6.1).
pub(super) const INVALID_KEY_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// The operation by which keys are agreed on in `group`.
pub(super) fn kind(group: ahead::Group) -> Kind {
    group.curve().map_or(Kind::X25519, Kind::Ecdh)
}

/// A group, with the software for what is not offloaded.
#[derive(Clone)]
pub(super) struct OffloadedGroup {
    group: ahead::Group,
    software: &'static dyn SupportedKxGroup,
    algorithm: &'static agreement::Algorithm,
}

impl SupportedKxGroup for OffloadedGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        match self.key_pair() {
            Some(key_pair) => Ok(Box::new(Exchange {
                group: self.clone(),
                key_pair,
            })),
            None => self.software.start(),
        }
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let Some(key_pair) = self.key_pair() else {
            return self.software.start_and_complete(peer);
        };
        Ok(CompletedKeyExchange {
            group: self.name(),
            secret: self.agree(&key_pair, peer)?,
            pub_key: key_pair.public.as_slice().to_vec(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.software.name()
    }
}

impl OffloadedGroup {
    /// A key pair for an exchange that is not left to aws-lc from the start. aws-lc can only go on with a key pair of ours
    /// by computing the public key once more.
    fn key_pair(&self) -> Option<KeyPair> {
        let kind = kind(self.group);
        let alone = || job::takes_part() && cost::alone(self.group).is_some();
        if job::admits(kind).is_none() && !alone() {
            job::count_refusal(kind);
            return None;
        }
        ahead::key_pair(self.group)
    }

    fn agree(&self, own: &KeyPair, peer: &[u8]) -> Result<SharedSecret, Error> {
        if !self.has_shape(peer) {
            return Err(INVALID_KEY_SHARE);
        }
        let kind = kind(self.group);
        let secret = match job::admits(kind) {
            Some(fiber) => job::compute(self.operation(own, peer), &fiber),
            None => {
                job::count_refusal(kind);
                let alone = cost::alone(self.group);
                alone.and_then(|backend| self.agree_alone(backend, own, peer))
            }
        };
        match secret {
            Some(secret) => Ok(SharedSecret::from(secret.as_slice())),
            // Whether the share is to blame, it knows best.
            None => self.agree_in_software(own, peer),
        }
    }

    /// Whether `peer` is as long as a public key, and of the only form that TLS 1.3 has for points.
    fn has_shape(&self, peer: &[u8]) -> bool {
        const UNCOMPRESSED: u8 = 4;
        let is_point = self.group.curve().is_none() || peer.first() == Some(&UNCOMPRESSED);
        is_point && peer.len() == self.group.public_bytes()
    }

    fn operation(&self, own: &KeyPair, peer: &[u8]) -> Operation {
        let (private, peer) = (own.private.clone(), Operand::new(peer));
        match self.group.curve() {
            None => Operation::X25519 { private, peer },
            Some(curve) => Operation::Ecdh {
                curve,
                private,
                peer,
            },
        }
    }

    /// In lanes, at once. `None` if the share cannot be used.
    fn agree_alone(&self, backend: Backend, own: &KeyPair, peer: &[u8]) -> Option<Operand> {
        let private = own.private.as_slice();
        let mut output = Operand::zeroed(kind(self.group).output_bytes());
        let secret = output.as_mut_slice();
        let is_usable = match self.group.curve() {
            None => {
                let mut operation = [x25519::SharedSecret {
                    private: private.try_into().ok()?,
                    peer: peer.try_into().ok()?,
                    secret: secret.try_into().ok()?,
                }];
                x25519::shared_secrets(backend, &mut operation)[0]
            }
            Some(curve) => {
                let mut operation = [ec::SharedSecret {
                    private,
                    peer,
                    secret,
                }];
                ec::shared_secrets(backend, curve, &mut operation)[0].is_ok()
            }
        };
        is_usable.then_some(output)
    }

    fn agree_in_software(&self, own: &KeyPair, peer: &[u8]) -> Result<SharedSecret, Error> {
        let private = own.private.as_slice();
        let private = agreement::PrivateKey::from_private_key(self.algorithm, private)
            .map_err(|_| Error::General("aws-lc refuses an ephemeral private key".into()))?;
        let peer = agreement::UnparsedPublicKey::new(self.algorithm, peer);
        agreement::agree(&private, peer, INVALID_KEY_SHARE, |secret| {
            Ok(SharedSecret::from(secret))
        })
    }
}

impl fmt::Debug for OffloadedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// An exchange that waits for the peer's share: that of a server in TLS 1.2.
struct Exchange {
    group: OffloadedGroup,
    key_pair: KeyPair,
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        self.group.agree(&self.key_pair, peer)
    }

    fn pub_key(&self) -> &[u8] {
        self.key_pair.public.as_slice()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.group.name()
    }
}
