//! Every kind of operation, against OpenSSL.

use openssl::bn::{BigNum, BigNumContext};
use openssl::derive::Deriver;
use openssl::ec::{EcGroup, EcKey, PointConversionForm};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey};
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::protocol::wire::Outcome;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_keys::{Handle, KeyParts};
use slipstream_offload::Kind;

use crate::client::{Client, PATIENCE, TestEngine, padded, verifies};

#[test]
fn rsa() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    for size in Size::ALL {
        let key = client.register(size);
        for seed in 1..=11 {
            client.submit_rsa(size, key, seed);
        }
        for seed in 1..=11 {
            let (_, signature) = client.computed();
            assert!(
                verifies(size, &padded(size, seed), &signature),
                "{size:?} {seed}"
            );
        }
    }
}

#[test]
fn x25519() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    let ours = PKey::generate_x25519().expect("a key");
    let theirs = PKey::generate_x25519().expect("a key");
    let private = ours.raw_private_key().expect("bytes");
    let peer = theirs.raw_public_key().expect("bytes");
    client.submit(Kind::X25519, Handle(0), &private, &peer);
    let peer = PKey::public_key_from_raw_bytes(&peer, Id::X25519).expect("a key");
    let mut deriver = Deriver::new(&ours).expect("a derivation");
    deriver.set_peer(&peer).expect("a peer");
    assert_eq!(
        client.computed().1,
        deriver.derive_to_vec().expect("a secret")
    );
}

#[test]
fn ecdh() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    for curve in Curve::ALL {
        let group = group(curve);
        let ours = EcKey::generate(&group).expect("a key");
        let theirs = EcKey::generate(&group).expect("a key");
        let mut context = BigNumContext::new().expect("a context");
        let form = PointConversionForm::UNCOMPRESSED;
        let peer = theirs
            .public_key()
            .to_bytes(&group, form, &mut context)
            .expect("a point");
        let private = scalar(curve, ours.private_key());
        client.submit(Kind::Ecdh(curve), Handle(0), &private, &peer);

        let (ours, theirs) = (PKey::from_ec_key(ours), PKey::from_ec_key(theirs));
        let (ours, theirs) = (ours.expect("a key"), theirs.expect("a key"));
        let mut deriver = Deriver::new(&ours).expect("a derivation");
        deriver.set_peer(&theirs).expect("a peer");
        assert_eq!(
            client.computed().1,
            deriver.derive_to_vec().expect("a secret")
        );
    }
}

#[test]
fn ecdsa() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    for curve in Curve::ALL {
        let key = EcKey::generate(&group(curve)).expect("a key");
        let private = scalar(curve, key.private_key());
        let registered = KeyParts::Ec {
            curve,
            private: &private,
        };
        let handle = client
            .connection
            .register(registered, Policy::ANYTHING, PATIENCE)
            .expect("a good key");
        for length in [1, 20, 32, 48, 64] {
            let digest: Vec<u8> = (0..length).collect();
            client.submit(Kind::Ecdsa(curve), handle, &digest, &[]);
            let (_, signature) = client.computed();
            let (r, s) = signature.split_at(curve.bytes());
            let number = |bytes| BigNum::from_slice(bytes).expect("a number");
            let signature = EcdsaSig::from_private_components(number(r), number(s));
            let verified = signature.expect("a signature").verify(&digest, &key);
            assert!(verified.expect("a verification"), "{curve:?} {length}");
        }
    }
}

#[test]
fn several_threads_and_clients() {
    let engine = TestEngine::with(|options| options.cores.push(options.cores[0]));
    let size = Size::Rsa2048;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = engine.client();
                let key = client.register(size);
                for round in 0..10 {
                    for seed in 0..20 {
                        client.submit_rsa(size, key, seed);
                    }
                    // With two threads, responses come in any order.
                    for _ in 0..20 {
                        let (id, signature) = client.computed();
                        let seed = (id - 1 - 20 * round) as u8;
                        assert!(verifies(size, &padded(size, seed), &signature));
                    }
                }
            });
        }
    });
    // Counted when they have been delivered.
    engine.wait_until(|status| status.responses == 800);
    let status = engine.status();
    assert_eq!(status.dropped, 0);
    assert_eq!(status.requests.0[Kind::Rsa(size).index()], 800);
}

#[test]
fn what_the_standards_forbid_is_a_fault() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    let size = Size::Rsa2048;
    let key = client.register(size);
    client.submit(Kind::Rsa(size), key, &[0xff; 256], &[]);
    assert_fault(&mut client);
    client.submit(Kind::X25519, Handle(0), &[1; 32], &[0; 32]);
    assert_fault(&mut client);
    for curve in Curve::ALL {
        let private = vec![1; curve.bytes()];
        let peer = vec![4; curve.point_bytes()];
        client.submit(Kind::Ecdh(curve), Handle(0), &private, &peer);
        assert_fault(&mut client);
    }
    assert_eq!(engine.status().faults, 4);
}

fn assert_fault(client: &mut Client) {
    let outcome = client.wait().outcome;
    assert!(matches!(outcome, Outcome::Fault), "{outcome:?}");
}

fn group(curve: Curve) -> EcGroup {
    let name = match curve {
        Curve::P256 => Nid::X9_62_PRIME256V1,
        Curve::P384 => Nid::SECP384R1,
    };
    EcGroup::from_curve_name(name).expect("a curve that OpenSSL knows")
}

fn scalar(curve: Curve, number: &openssl::bn::BigNumRef) -> Vec<u8> {
    let length = curve.bytes().try_into().expect("a small number");
    number
        .to_vec_padded(length)
        .expect("a number below the order")
}
