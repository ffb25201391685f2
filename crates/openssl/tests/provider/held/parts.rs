//! What is taken out of a key for a device, and what is put in its place.

use std::ffi::CStr;

use foreign_types_shared::ForeignType;
use openssl::bn::BigNum;
use openssl::ec::EcKey;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use slipstream_keys::ec::Curve;
use slipstream_keys::{Handle, KeyParts};
use slipstream_openssl::held::{PrivateParts, key_with_handle, private_parts};

use super::{Answering, CURVES, Held, NOT_HELD, on_curve, originals, rsa_2048};
use crate::common::{DEFAULT, SLIPSTREAM, exclusive};
use crate::curves::evp::{KEYPAIR, Key};

fn parts(key: &PKey<Private>) -> Option<PrivateParts> {
    // SAFETY: a key of this process's libcrypto; the provider stays loaded.
    let parts = unsafe { private_parts(key.as_ptr().cast()) };
    assert!(openssl::error::ErrorStack::get().errors().is_empty());
    parts
}

/// The same key in both providers.
fn in_both(key: &PKey<Private>, name: &CStr) -> [PKey<Private>; 2] {
    let key = Key::from_pkey(key.clone());
    [DEFAULT, SLIPSTREAM].map(|query| key.transfer(name, KEYPAIR, query).to_pkey())
}

#[test]
fn the_parts_of_rsa_keys_are_their_numbers() {
    let _turn = exclusive();
    for original in &originals()[..3] {
        let rsa = original.rsa().expect("an RSA key");
        let secret = |number: Option<&openssl::bn::BigNumRef>| number.expect("a number").to_vec();
        for key in in_both(original, c"RSA") {
            let parts = parts(&key).expect("a kind that a device holds");
            let KeyParts::Rsa(components) = parts.parts() else {
                panic!("an RSA key");
            };
            assert_eq!(components.modulus, rsa.n().to_vec());
            assert_eq!(components.public_exponent, rsa.e().to_vec());
            assert_eq!(components.prime1, secret(rsa.p()));
            assert_eq!(components.prime2, secret(rsa.q()));
            assert_eq!(components.exponent1, secret(rsa.dmp1()));
            assert_eq!(components.exponent2, secret(rsa.dmq1()));
            assert_eq!(components.coefficient, secret(rsa.iqmp()));
            let secrets: Vec<&[u8]> = parts.secrets().collect();
            let expected = [
                secret(rsa.p()),
                secret(rsa.q()),
                rsa.d().to_vec(),
                secret(rsa.dmp1()),
                secret(rsa.dmq1()),
                secret(rsa.iqmp()),
            ];
            assert_eq!(secrets, expected);
        }
    }
}

#[test]
fn the_part_of_a_key_on_a_curve_is_its_scalar() {
    let _turn = exclusive();
    for (name, expected) in CURVES.into_iter().zip([Curve::P256, Curve::P384]) {
        let original = on_curve(name);
        let scalar = original.ec_key().expect("a key").private_key().to_vec();
        for key in in_both(&original, c"EC") {
            let parts = parts(&key).expect("a kind that a device holds");
            let KeyParts::Ec { curve, private } = parts.parts() else {
                panic!("a key on a curve");
            };
            assert_eq!((curve, private.len()), (expected, expected.bytes()));
            assert_eq!(
                BigNum::from_slice(private).expect("a number").to_vec(),
                scalar
            );
            assert_eq!(parts.secrets().collect::<Vec<_>>(), [scalar.as_slice()]);
        }
    }
}

#[test]
fn a_short_scalar_is_filled_up_with_zeros() {
    let _turn = exclusive();
    let group = openssl::ec::EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a group");
    let scalar = BigNum::from_u32(0x0102).expect("a number");
    let mut point = openssl::ec::EcPoint::new(&group).expect("a point");
    let mut context = openssl::bn::BigNumContext::new().expect("a context");
    point
        .mul_generator2(&group, &scalar, &mut context)
        .expect("a point");
    let key = EcKey::from_private_components(&group, &scalar, &point).and_then(PKey::from_ec_key);
    let parts = parts(&key.expect("a key")).expect("a kind that a device holds");
    let KeyParts::Ec { private, .. } = parts.parts() else {
        panic!("a key on a curve");
    };
    assert_eq!((private.len(), &private[29..]), (32, &[0, 1, 2][..]));
    assert_eq!(parts.secrets().collect::<Vec<_>>(), [[1, 2]]);
}

#[test]
fn a_device_takes_no_other_keys() {
    let _turn = exclusive();
    let without_primes = {
        let rsa = rsa_2048().rsa().expect("an RSA key");
        let number = |number: &openssl::bn::BigNumRef| number.to_owned().expect("a number");
        openssl::rsa::RsaPrivateKeyBuilder::new(number(rsa.n()), number(rsa.e()), number(rsa.d()))
            .and_then(|builder| PKey::from_rsa(builder.build()))
    };
    let without_primes = without_primes.expect("a key");
    let small = Rsa::generate(1024).and_then(PKey::from_rsa);
    let others = [
        small.expect("a key"),
        PKey::generate_ed25519().expect("a key"),
        PKey::generate_x25519().expect("a key"),
        on_curve(c"secp521r1"),
        on_curve(c"secp256k1"),
    ];
    assert!(parts(&without_primes).is_none());
    for key in others {
        assert!(parts(&key).is_none(), "{:?}", key.id());
        // SAFETY: as above.
        let with_handle = unsafe { key_with_handle(key.as_ptr().cast(), Handle(1)) };
        let errors = openssl::error::ErrorStack::get();
        assert!(with_handle.is_null());
        assert_eq!(errors.errors()[0].reason(), Some(NOT_HELD));
    }
}

#[test]
fn what_a_device_holds_has_no_parts() {
    let _turn = exclusive();
    let held = Held::of(&originals(), Answering::Computing);
    for key in &held.keys {
        assert!(parts(key).is_none(), "{:?}", key.id());
    }
}
