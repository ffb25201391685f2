//! X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem): X25519 as in [`exchange`](super::exchange), and
//! aws-lc's ML-KEM-768. ML-KEM comes first in shares and in secrets.

use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};
use slipstream_keys::Group;

use super::exchange::{INVALID_KEY_SHARE, X25519};

/// See the module.
pub(super) static X25519_ML_KEM_768: X25519MlKem768 = X25519MlKem768;

/// Length of an encapsulation key of ML-KEM-768 (FIPS 203, section 8).
const ENCAPSULATION_KEY_BYTES: usize = 1184;

#[derive(Debug)]
pub(super) struct X25519MlKem768;

impl SupportedKxGroup for X25519MlKem768 {
    /// Only a client starts without the peer's share.
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        kx_group::X25519MLKEM768.start()
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        if peer.len() != ENCAPSULATION_KEY_BYTES + Group::X25519.public_bytes() {
            return Err(INVALID_KEY_SHARE);
        }
        let (encapsulation_key, point) = peer.split_at(ENCAPSULATION_KEY_BYTES);
        let classical = X25519.start_and_complete(point)?;
        let post_quantum = kx_group::MLKEM768.start_and_complete(encapsulation_key)?;
        let secrets = [&post_quantum.secret, &classical.secret].map(SharedSecret::secret_bytes);
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [post_quantum.pub_key, classical.pub_key].concat(),
            // In one allocation, which is wiped with the secret.
            secret: SharedSecret::from(secrets.concat()),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}
