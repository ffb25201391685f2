//! Every encoding of a private key that OpenSSL writes.

use openssl::nid::Nid;
use openssl::pkey::PKey;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use slipstream_keys::KeyParts;
use slipstream_keys::ec::Curve;
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{Components, Size};

use super::super::private_key::read;
use super::super::signing::load;
use super::{TestKey, test_backend};

#[test]
fn rsa_in_both_encodings() {
    for size in Size::ALL {
        let key = TestKey::rsa(size);
        let pkcs1 = key.openssl.rsa().and_then(|key| key.private_key_to_der());
        let pkcs1 = PrivatePkcs1KeyDer::from(pkcs1.expect("an encoding")).into();
        let expected = example_key(size).components;
        for der in [key.der(), pkcs1] {
            let Some(KeyParts::Rsa(read)) = read(&der) else {
                panic!("{} cannot be read", key.name);
            };
            let numbers = |key: &Components<'_>| {
                [
                    key.modulus,
                    key.public_exponent,
                    key.prime1,
                    key.prime2,
                    key.exponent1,
                    key.exponent2,
                    key.coefficient,
                ]
                .map(|number| {
                    number
                        .iter()
                        .copied()
                        .skip_while(|&byte| byte == 0)
                        .collect::<Vec<_>>()
                })
            };
            assert_eq!(numbers(&read), numbers(&expected));
        }
    }
}

#[test]
fn ec_in_both_encodings() {
    for (key, expected) in [
        (TestKey::p256(), Curve::P256),
        (TestKey::p384(), Curve::P384),
    ] {
        let ec = key.openssl.ec_key().expect("a key on a curve");
        let length = expected.bytes() as i32;
        let scalar = ec.private_key().to_vec_padded(length).expect("a number");
        let sec1 = ec.private_key_to_der().expect("an encoding");
        for der in [key.der(), PrivateSec1KeyDer::from(sec1.clone()).into()] {
            let Some(KeyParts::Ec { curve, private }) = read(&der) else {
                panic!("{} cannot be read", key.name);
            };
            assert_eq!((curve, private), (expected, scalar.as_slice()));
        }
        // What has been cut off or changed is not read.
        for length in 0..sec1.len() {
            let der = PrivateSec1KeyDer::from(sec1[..length].to_vec()).into();
            assert!(read(&der).is_none(), "{length} bytes");
        }
    }
}

#[test]
fn others_are_left_to_aws_lc() {
    let p521 = TestKey::new_ec("P-521", Nid::SECP521R1);
    let ed25519 = TestKey {
        openssl: PKey::generate_ed25519().expect("a key"),
        name: "Ed25519",
    };
    for key in [p521, ed25519] {
        let der = key.der();
        assert!(read(&der).is_none(), "{}", key.name);
        load(&der, Some(test_backend())).expect("a key that aws-lc knows");
    }
}

#[test]
fn what_is_no_key_is_an_error() {
    for der in [&b""[..], b"\x30\x00", &[0x30; 300]] {
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der));
        assert!(read(&der).is_none());
        assert!(load(&der, Some(test_backend())).is_err());
    }
}

#[test]
fn curves_that_contradict_each_other_are_not_read() {
    // The key of one curve, said to be of the other.
    let mut der = TestKey::p256().der().secret_der().to_vec();
    const P256: &[u8] = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
    let place = der.windows(P256.len()).position(|bytes| bytes == P256);
    let place = place.expect("the name of the curve");
    der[place + P256.len() - 1] = 6;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der));
    assert!(read(&der).is_none());
}
