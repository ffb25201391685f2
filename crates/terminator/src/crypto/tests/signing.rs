//! Signatures, verified by OpenSSL.

use std::sync::Arc;

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Padding;
use openssl::sign::{RsaPssSaltlen, Verifier};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use slipstream_accelerators::lanes::LANES;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::accelerator::{Accelerator, Estimate, Moment, Work};
use slipstream_offload::counters::Counters;
use slipstream_offload::fiber::{self, Rules};
use slipstream_offload::request::{Request, Response};
use slipstream_offload::{Answer, Kind, Notification, Operation, Output, Reason};

use super::{
    SOFTWARE, TestKey, counters, install, install_lanes, install_lanes_for_one,
    install_without_pools, on_fiber, together,
};

/// Signs, and has OpenSSL verify.
fn check(key: &TestKey, scheme: SignatureScheme, message: &[u8]) {
    let signer = key.load().choose_scheme(&[scheme]).expect("a signer");
    assert_eq!(signer.scheme(), scheme);
    let signature = signer.sign(message).expect("a signature");
    assert!(
        verifies(key, scheme, message, &signature),
        "{} {scheme:?}",
        key.name
    );
}

pub(super) fn verifies(
    key: &TestKey,
    scheme: SignatureScheme,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let digest = match scheme {
        SignatureScheme::RSA_PSS_SHA256
        | SignatureScheme::RSA_PKCS1_SHA256
        | SignatureScheme::ECDSA_NISTP256_SHA256 => MessageDigest::sha256(),
        SignatureScheme::RSA_PSS_SHA384
        | SignatureScheme::RSA_PKCS1_SHA384
        | SignatureScheme::ECDSA_NISTP384_SHA384 => MessageDigest::sha384(),
        _ => MessageDigest::sha512(),
    };
    let public = key.openssl.public_key_to_der().expect("an encoding");
    let public = PKey::public_key_from_der(&public).expect("a public key");
    let mut verifier = Verifier::new(digest, &public).expect("a verifier");
    if matches!(
        scheme,
        SignatureScheme::RSA_PSS_SHA256
            | SignatureScheme::RSA_PSS_SHA384
            | SignatureScheme::RSA_PSS_SHA512
    ) {
        verifier.set_rsa_padding(Padding::PKCS1_PSS).expect("PSS");
        verifier.set_rsa_mgf1_md(digest).expect("a digest");
        verifier
            .set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)
            .expect("a length");
    }
    verifier.verify_oneshot(signature, message).unwrap_or(false)
}

fn random_message() -> Vec<u8> {
    let mut length = [0];
    aws_lc_rs::rand::fill(&mut length).expect("random bytes");
    let mut message = vec![0; length[0].into()];
    aws_lc_rs::rand::fill(&mut message).expect("random bytes");
    message
}

#[test]
fn every_scheme_in_lanes() {
    install_lanes();
    let mut expected = 0;
    for key in TestKey::all() {
        for scheme in key.schemes() {
            let key = key.clone();
            expected += 1;
            on_fiber(move || check(&key, scheme, &random_message()));
        }
    }
    assert_eq!(expected, 3 * 6 + 2);
    let counters = counters();
    for size in Size::ALL {
        assert_eq!(counters.lane_operations[Kind::Rsa(size).index()], 6);
    }
    for curve in Curve::ALL {
        assert_eq!(counters.lane_operations[Kind::Ecdsa(curve).index()], 1);
    }
    assert_eq!(counters.precomputed(), 0, "nonces");
}

#[test]
fn one_to_eight_live_lanes_with_different_keys() {
    install_lanes();
    let keys: Vec<TestKey> = (0..LANES).map(|_| TestKey::new_rsa()).collect();
    for live in 1..=LANES {
        let job = |(number, key): (usize, &TestKey)| {
            let key = key.clone();
            let schemes = key.schemes();
            let scheme = schemes[number % schemes.len()];
            Box::new(move || check(&key, scheme, &random_message())) as Box<dyn FnOnce()>
        };
        together(keys.iter().take(live).enumerate().map(job).collect());
        assert_eq!(counters().fill[live - 1], 1, "{live} lanes");
    }
}

#[test]
fn many_ecdsa_signatures_in_lanes() {
    const COUNT: u64 = 20;
    install_lanes();
    for key in [TestKey::p256(), TestKey::p384()] {
        let scheme = key.schemes()[0];
        for _ in 0..COUNT {
            let key = key.clone();
            on_fiber(move || check(&key, scheme, &random_message()));
        }
    }
    for curve in Curve::ALL {
        let signatures = counters().lane_operations[Kind::Ecdsa(curve).index()];
        assert_eq!(signatures, COUNT, "{curve:?}");
    }
    assert_eq!(counters().precomputed(), 0);
}

#[test]
fn the_scheme_is_the_one_that_rustls_keys_prefer() {
    for key in TestKey::all() {
        let ours = key.load();
        let theirs = any_supported_type(&key.der()).expect("a good key");
        let mut offered = super::SCHEMES.to_vec();
        while !offered.is_empty() {
            let choose = |key: &Arc<dyn rustls::sign::SigningKey>| {
                key.choose_scheme(&offered).map(|signer| signer.scheme())
            };
            assert_eq!(choose(&ours), choose(&theirs), "{}", key.name);
            offered.pop();
        }
        assert!(ours.choose_scheme(&[SignatureScheme::ED25519]).is_none());
        assert_eq!(ours.algorithm(), theirs.algorithm());
        assert_eq!(ours.public_key(), theirs.public_key());
    }
}

/// Answers everything with the same.
struct Broken {
    answer: fn() -> Answer,
    waiting: Vec<Request>,
}

impl Broken {
    fn new(answer: fn() -> Answer) -> Box<Self> {
        Box::new(Self {
            answer,
            waiting: Vec::new(),
        })
    }
}

impl Accelerator for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn accepts(&mut self, _operation: &Operation) -> bool {
        true
    }

    fn estimate(&self, _work: &Work) -> Option<Estimate> {
        Some(Estimate::default())
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.waiting.push(request);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn poll(&mut self, _: Moment, responses: &mut Vec<Response>, _: &mut Counters) {
        let answer = |request: Request| Response::new(request.id, (self.answer)());
        responses.extend(self.waiting.drain(..).map(answer));
    }
}

#[test]
fn a_fault_or_a_result_of_another_length_is_made_good() {
    let answers: [fn() -> Answer; 4] = [
        || Answer::Software(Reason::Fault),
        || Answer::Software(Reason::Lost),
        || Answer::Computed(Output::new(&[1; 7])),
        || Answer::Computed(Output::new(&[])),
    ];
    for answer in answers {
        install_without_pools(Broken::new(answer));
        for key in TestKey::all() {
            for scheme in key.schemes() {
                let key = key.clone();
                on_fiber(move || check(&key, scheme, b"message"));
            }
        }
        let submitted: u64 = counters().submitted.iter().sum();
        assert_eq!(submitted, 3 * 6 + 2, "all have been asked for");
    }
}

#[test]
fn a_key_exchange_with_a_fault_is_made_good() {
    install(Broken::new(|| Answer::Software(Reason::Fault)));
    super::exchange::every_group_agrees_on_fibers();
    let counters = counters();
    assert!(counters.software[Reason::Fault.index()] > 0);
}

/// A job that is alone does not pause, and what aws-lc computes for it is counted.
#[test]
fn a_lone_connection_is_left_to_aws_lc() {
    install_lanes_for_one(3 * SOFTWARE);
    let key = TestKey::rsa(Size::Rsa2048);
    on_fiber(move || check(&key, SignatureScheme::RSA_PSS_SHA256, b"message"));
    let counted = counters();
    assert_eq!(counted.submitted.iter().sum::<u64>(), 0);
    assert_eq!(counted.software[Reason::Cheaper.index()], 1);

    // A server that takes no part does not use what has been precomputed for others.
    fiber::set_rules(Rules {
        admits: |_| Err(Reason::NotAdmitted),
        concurrency: || 8,
        notification: Notification::ReadyQueue,
    });
    let key = TestKey::p256();
    on_fiber(move || check(&key, SignatureScheme::ECDSA_NISTP256_SHA256, b"message"));
    assert_eq!(counters().precomputed(), 0);
}
