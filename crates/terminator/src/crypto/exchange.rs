//! Key exchange on single curves: by an accelerator, or by aws-lc. Key pairs have been precomputed
//! where there are lanes.

use std::fmt;

use aws_lc_rs::agreement;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved};
use slipstream_keys::{Group, KeyPair, Operand};
use slipstream_offload::{Kind, Operation, Route};

use super::job;

/// X25519 (RFC 7748).
pub(super) static X25519: OffloadedGroup = OffloadedGroup {
    group: Group::X25519,
    software: kx_group::X25519,
    algorithm: &agreement::X25519,
};

/// NIST P-256.
pub(super) static P256: OffloadedGroup = OffloadedGroup {
    group: Group::P256,
    software: kx_group::SECP256R1,
    algorithm: &agreement::ECDH_P256,
};

/// NIST P-384.
pub(super) static P384: OffloadedGroup = OffloadedGroup {
    group: Group::P384,
    software: kx_group::SECP384R1,
    algorithm: &agreement::ECDH_P384,
};

/// Error returned for an invalid key share (RFC 8446, section 4.2.8.2; RFC 7748, section 6.1).
pub(super) const INVALID_KEY_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// A group, with the software for what is not offloaded.
#[derive(Clone)]
pub(super) struct OffloadedGroup {
    group: Group,
    software: &'static dyn SupportedKxGroup,
    algorithm: &'static agreement::Algorithm,
}

impl SupportedKxGroup for OffloadedGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        match self.begin() {
            Some((_, key_pair)) => Ok(Box::new(Exchange {
                group: self.clone(),
                key_pair,
            })),
            None => self.software.start(),
        }
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let Some((route, key_pair)) = self.begin() else {
            return self.software.start_and_complete(peer);
        };
        Ok(CompletedKeyExchange {
            group: self.name(),
            secret: self.agree(Some(route), &key_pair, peer)?,
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
    /// The route of an exchange that is not left to aws-lc from the start, and a key pair for it.
    /// aws-lc can only go on with a key pair of ours by computing the public key once more.
    fn begin(&self) -> Option<(Route, KeyPair)> {
        let exchange = job::admit(Kind::exchange(self.group))
            .map_err(job::refuse)
            .ok()?;
        let generation = job::admit(Kind::KeyPair(self.group)).ok()?;
        let pair = job::compute(generation, Operation::KeyPair(self.group))?;
        Some((exchange, KeyPair::from_bytes(self.group, pair.as_slice())?))
    }

    /// Agrees on a secret. `route` is that of the exchange; `None` if it is left to aws-lc.
    fn agree(
        &self,
        route: Option<Route>,
        own: &KeyPair,
        peer: &[u8],
    ) -> Result<SharedSecret, Error> {
        if !self.has_shape(peer) {
            return Err(INVALID_KEY_SHARE);
        }
        let secret = route.and_then(|route| job::compute(route, self.operation(own, peer)));
        match secret {
            Some(secret) => Ok(SharedSecret::from(secret.as_slice())),
            // aws-lc decides if the share is to blame.
            None => self.agree_in_software(own, peer),
        }
    }

    /// Returns true if `peer` is as long as a public key, and of the only form that TLS 1.3 has for
    /// points.
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
        let route = job::admit(Kind::exchange(self.group.group)).map_err(job::refuse);
        self.group.agree(route.ok(), &self.key_pair, peer)
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
