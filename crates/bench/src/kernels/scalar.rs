//! Random private keys and nonces.

use openssl::bn::BigNumContext;
use openssl::ec::EcGroup;
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::rand::rand_priv_bytes;
use slipstream_lanes::ec::Curve;
use slipstream_lanes::x25519;

use super::operation::Group;
use crate::Error;

/// Draws private keys, or nonces, of a group from libcrypto's generator.
pub(super) struct Scalars {
    bytes: usize,
    /// The order of the base point, which they have to be below; X25519 takes any bytes.
    order: Option<Vec<u8>>,
}

impl Scalars {
    pub(super) fn new(group: Group) -> Result<Scalars, Error> {
        match group {
            Group::X25519 => Ok(Scalars {
                bytes: x25519::KEY_BYTES,
                order: None,
            }),
            Group::Ec(curve) => Ok(Scalars {
                bytes: curve.bytes(),
                order: Some(order(curve).map_err(Error::openssl("cannot read a curve's order"))?),
            }),
        }
    }

    /// The length of one in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills `scalars` with as many as it has room for, uniformly random, big-endian on a NIST
    /// curve.
    pub(super) fn draw(&self, scalars: &mut [u8]) -> Result<(), Error> {
        let failed = "libcrypto has no random bytes";
        rand_priv_bytes(scalars).map_err(Error::openssl(failed))?;
        let Some(order) = &self.order else {
            return Ok(());
        };
        for scalar in scalars.chunks_exact_mut(self.bytes) {
            while *scalar >= **order || scalar.iter().all(|&byte| byte == 0) {
                rand_priv_bytes(scalar).map_err(Error::openssl(failed))?;
            }
        }
        Ok(())
    }
}

/// OpenSSL's identifier of a curve.
pub(super) fn nid(curve: Curve) -> Nid {
    match curve {
        Curve::P256 => Nid::X9_62_PRIME256V1,
        Curve::P384 => Nid::SECP384R1,
    }
}

fn order(curve: Curve) -> Result<Vec<u8>, ErrorStack> {
    let group = EcGroup::from_curve_name(nid(curve))?;
    let mut order = openssl::bn::BigNum::new()?;
    group.order(&mut order, &mut *BigNumContext::new()?)?;
    Ok(order.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_in_range_and_differ() {
        for curve in Curve::ALL {
            let mut scalars = Scalars::new(Group::Ec(curve)).unwrap();
            let order = scalars.order.clone().unwrap();
            assert_eq!(order.len(), curve.bytes());
            // Half of all numbers are out of range then, so that some are drawn again.
            let half = [&[0x80][..], &vec![0; curve.bytes() - 1]].concat();
            for bound in [order, half] {
                scalars.order = Some(bound.clone());
                let mut drawn = vec![0; 64 * curve.bytes()];
                scalars.draw(&mut drawn).unwrap();
                let mut each: Vec<&[u8]> = drawn.chunks_exact(curve.bytes()).collect();
                assert!(each.iter().all(|scalar| **scalar < *bound));
                each.sort_unstable();
                each.dedup();
                assert_eq!(each.len(), 64);
            }
        }
    }
}
