//! The same operations by OpenSSL.

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::ec::{EcGroup, EcKey, EcPoint, EcPointRef, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use slipstream_lanes::ec::Curve;

/// A curve in OpenSSL.
pub struct Reference {
    curve: Curve,
    group: EcGroup,
}

impl Reference {
    pub fn new(curve: Curve) -> Self {
        let name = match curve {
            Curve::P256 => Nid::X9_62_PRIME256V1,
            Curve::P384 => Nid::SECP384R1,
        };
        Reference {
            curve,
            group: EcGroup::from_curve_name(name).expect("a known curve"),
        }
    }

    /// A random number from 1 to n - 1.
    pub fn random_scalar(&self) -> Vec<u8> {
        loop {
            let mut scalar = BigNum::new().expect("memory");
            self.order().rand_range(&mut scalar).expect("randomness");
            if scalar.num_bits() > 0 {
                return self.bytes(&scalar);
            }
        }
    }

    /// n.
    pub fn order(&self) -> BigNum {
        let mut order = BigNum::new().expect("memory");
        self.group
            .order(&mut order, &mut context())
            .expect("an order");
        order
    }

    /// p.
    pub fn field(&self) -> BigNum {
        let [mut p, mut a, mut b] = [(); 3].map(|()| BigNum::new().expect("memory"));
        self.group
            .components_gfp(&mut p, &mut a, &mut b, &mut context())
            .expect("a prime curve");
        p
    }

    /// `count` for a positive number, n + `count` for a negative one.
    pub fn scalar(&self, count: i32) -> Vec<u8> {
        let size = count.unsigned_abs();
        if count >= 0 {
            return self.bytes(&BigNum::from_u32(size).expect("memory"));
        }
        let mut number = self.order();
        number.sub_word(size).expect("a smaller number");
        self.bytes(&number)
    }

    /// A number in as many bytes as a scalar of the curve.
    pub fn bytes(&self, number: &BigNumRef) -> Vec<u8> {
        number
            .to_vec_padded(self.curve.bytes() as i32)
            .expect("a number that fits")
    }

    pub fn public_key(&self, private: &[u8]) -> Vec<u8> {
        let mut point = EcPoint::new(&self.group).expect("memory");
        let scalar = BigNum::from_slice(private).expect("memory");
        point
            .mul_generator2(&self.group, &scalar, &mut context())
            .expect("a multiple");
        self.point_bytes(&point)
    }

    pub fn shared_secret(&self, private: &[u8], peer: &[u8]) -> Vec<u8> {
        let peer = self.point(peer);
        let mut point = EcPoint::new(&self.group).expect("memory");
        let scalar = BigNum::from_slice(private).expect("memory");
        point
            .mul2(&self.group, &peer, &scalar, &mut context())
            .expect("a multiple");
        self.point_bytes(&point)[1..1 + self.curve.bytes()].to_vec()
    }

    /// Returns true if `signature`, r and then s, is a signature of the digest.
    pub fn verifies(&self, public: &[u8], digest: &[u8], signature: &[u8]) -> bool {
        let (r, s) = signature.split_at(self.curve.bytes());
        let [r, s] = [r, s].map(|half| BigNum::from_slice(half).expect("memory"));
        let signature = EcdsaSig::from_private_components(r, s).expect("memory");
        let key = EcKey::from_public_key(&self.group, &self.point(public)).expect("a key");
        signature.verify(digest, &key).expect("an answer")
    }

    /// The y of a compressed point, if there is a point.
    pub fn y_of(&self, compressed: &[u8]) -> Option<Vec<u8>> {
        let point = EcPoint::from_bytes(&self.group, compressed, &mut context()).ok()?;
        Some(self.point_bytes(&point)[1 + self.curve.bytes()..].to_vec())
    }

    fn point(&self, bytes: &[u8]) -> EcPoint {
        EcPoint::from_bytes(&self.group, bytes, &mut context()).expect("a point")
    }

    fn point_bytes(&self, point: &EcPointRef) -> Vec<u8> {
        point
            .to_bytes(
                &self.group,
                PointConversionForm::UNCOMPRESSED,
                &mut context(),
            )
            .expect("memory")
    }
}

fn context() -> BigNumContext {
    BigNumContext::new().expect("memory")
}
