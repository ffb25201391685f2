//! Signatures with keys that a device holds.

use std::ffi::CStr;

use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Padding;
use openssl::sign::{Signer, Verifier};
use slipstream_accelerators::lanes::Backend;
use slipstream_keys::rsa::Size;
use slipstream_offload::fiber::{self, Rules};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::{Kind, Notification, Reason};
use slipstream_openssl::lane_operations;

use super::{
    Answering, CURVES, Held, NO_ANSWER, NOT_COMPUTED, asked, everywhere, on_curve, on_fiber,
    originals, rsa_2048,
};
use crate::common::{Context, DEFAULT, Outcome, SLIPSTREAM, exclusive, run_fibers};

type Options = &'static [(&'static CStr, &'static CStr)];

const PSS: (&CStr, &CStr) = (c"rsa_padding_mode", c"pss");

/// Options and length of the hash, and whether it always gives the same.
const RSA: [(Options, usize, bool); 7] = [
    (&[(c"digest", c"SHA256")], 32, true),
    (&[(c"digest", c"SHA512")], 64, true),
    (&[(c"digest", c"MD5-SHA1")], 36, true),
    (&[], 51, true),
    (&[PSS, (c"digest", c"SHA256")], 32, false),
    (
        &[PSS, (c"digest", c"SHA384"), (c"rsa_pss_saltlen", c"digest")],
        48,
        false,
    ),
    (
        &[PSS, (c"digest", c"SHA512"), (c"rsa_mgf1_md", c"SHA1")],
        64,
        false,
    ),
];

const ECDSA: [(Options, usize); 6] = [
    (&[(c"digest", c"SHA1")], 20),
    (&[(c"digest", c"SHA256")], 32),
    (&[(c"digest", c"SHA384")], 48),
    (&[(c"digest", c"SHA512")], 64),
    (&[(c"digest", c"SHA3-256")], 32),
    (&[], 1000),
];

/// Longer than any signature.
const ROOM: usize = 600;

fn hash(length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte * 7 + 3) as u8).collect()
}

fn sign(key: &PKey<Private>, options: Options, hash: &[u8], room: usize) -> Outcome {
    Context::new(key, SLIPSTREAM)
        .signing(options)
        .sign(hash, room)
}

fn first_reason(outcome: Outcome) -> String {
    let (result, reasons) = outcome.expect_err("no signature");
    assert_eq!(result, 0);
    reasons.into_iter().next().expect("a reason")
}

#[test]
fn rsa_signatures_are_those_of_the_original() {
    let _turn = exclusive();
    for backend in Backend::available() {
        let originals = &originals()[..3];
        let held = Held::at(backend, originals, Answering::Computing);
        let before = lane_operations();
        for ((key, original), size) in held.keys.iter().zip(originals).zip(Size::ALL) {
            for (options, length, is_deterministic) in RSA {
                let key = key.clone();
                let signatures = everywhere(move || sign(&key, options, &hash(length), ROOM));
                for signature in signatures {
                    let signature = signature.expect("a signature");
                    let verifier = Context::new(original, DEFAULT).verifying(options);
                    assert!(verifier.verify(&signature, &hash(length)), "{options:?}");
                    if is_deterministic {
                        let expected = Context::new(original, DEFAULT).signing(options);
                        assert_eq!(expected.sign(&hash(length), ROOM), Ok(signature));
                    }
                }
            }
            assert_eq!(asked(Kind::Rsa(size)), 2 * RSA.len() as u64);
        }
        assert_eq!(
            lane_operations(),
            before,
            "this process has no key to compute with"
        );
    }
}

#[test]
fn ecdsa_signatures_verify() {
    let _turn = exclusive();
    for curve in CURVES {
        let original = on_curve(curve);
        let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
        for (options, length) in ECDSA {
            let key = held.key();
            for signature in everywhere(move || sign(&key, options, &hash(length), ROOM)) {
                let signature = signature.expect("a signature");
                let verifier = Context::new(&original, DEFAULT).verifying(options);
                assert!(verifier.verify(&signature, &hash(length)), "{options:?}");
                assert!(!verifier.verify(&signature, &vec![0; length]));
            }
        }
    }
}

#[test]
fn messages_are_hashed_and_signed() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        let key = key.clone();
        let is_rsa = original.rsa().is_ok();
        let paddings = if is_rsa {
            vec![Padding::PKCS1, Padding::PKCS1_PSS]
        } else {
            vec![Padding::NONE]
        };
        for padding in paddings {
            let signing = key.clone();
            let signatures = everywhere(move || {
                let digest = MessageDigest::sha256();
                let mut signer = Signer::new(digest, &signing).expect("a context");
                if padding != Padding::NONE {
                    signer.set_rsa_padding(padding).expect("a padding");
                }
                let whole = signer
                    .sign_oneshot_to_vec(b"a message")
                    .expect("a signature");
                let mut signer = Signer::new(digest, &signing).expect("a context");
                if padding != Padding::NONE {
                    signer.set_rsa_padding(padding).expect("a padding");
                }
                signer.update(b"a mess").expect("room");
                signer.update(b"age").expect("room");
                [whole, signer.sign_to_vec().expect("a signature")]
            });
            for signature in signatures.into_iter().flatten() {
                // With the public half of the held key, and with the original.
                for verifying in [&key, original] {
                    let digest = MessageDigest::sha256();
                    let mut verifier = Verifier::new(digest, verifying).expect("a context");
                    if padding != Padding::NONE {
                        verifier.set_rsa_padding(padding).expect("a padding");
                    }
                    let verified = verifier.verify_oneshot(&signature, b"a message");
                    assert!(verified.expect("a signature"));
                }
            }
        }
    }
}

#[test]
fn lengths_are_those_of_the_original() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        let length = |key| {
            let mut signer = Signer::new(MessageDigest::sha256(), key).expect("a context");
            signer.update(b"a message").expect("room");
            signer.len().expect("a length")
        };
        assert_eq!(length(key), length(original));
        let length = key.size();
        assert!(sign(key, &[], &hash(32), length).is_ok());
        let short = sign(key, &[], &hash(32), length - 1);
        assert_eq!(
            first_reason(short),
            "the buffer is too short for the result"
        );
    }
}

#[test]
fn jobs_of_many_fibers_wait_together() {
    let _turn = exclusive();
    let originals = [rsa_2048(), on_curve(CURVES[0])];
    let held = Held::of(&originals, Answering::Computing);
    let jobs = (0..10).map(|job| {
        let (key, original) = (held.keys[job % 2].clone(), originals[job % 2].clone());
        Box::new(move || {
            let signature = sign(&key, &[], &hash(32), ROOM).expect("a signature");
            let verifier = Context::new(&original, DEFAULT).verifying(&[]);
            assert!(verifier.verify(&signature, &hash(32)));
        }) as Box<dyn FnOnce()>
    });
    let counters = run_fibers(jobs.collect());
    assert_eq!(counters.submitted[Kind::Rsa(Size::Rsa2048).index()], 5);
    assert_eq!(counters.polls, 2, "one for all that waited, and one before");
}

#[test]
fn what_a_device_does_not_do_is_refused() {
    let _turn = exclusive();
    let held = Held::of(&[rsa_2048(), on_curve(CURVES[0])], Answering::Computing);
    let [rsa, curve] = [0, 1].map(|index| held.keys[index].clone());
    let refused: [(&PKey<Private>, Options, usize); 7] = [
        (&rsa, &[(c"digest", c"MD5")], 16),
        (&rsa, &[(c"digest", c"SHA3-256")], 32),
        (
            &rsa,
            &[(c"digest", c"SHA256"), (c"rsa_padding_mode", c"x931")],
            32,
        ),
        (&rsa, &[(c"rsa_padding_mode", c"none")], 256),
        (&rsa, &[(c"digest", c"SHA256")], 31),
        (&curve, &[(c"digest", c"SHA256")], 31),
        (&curve, &[], 0),
    ];
    for (key, options, length) in refused {
        let key = key.clone();
        for outcome in everywhere(move || sign(&key, options, &hash(length), ROOM)) {
            let reason = first_reason(outcome);
            assert!(reason.starts_with(NOT_COMPUTED), "{options:?}: {reason}");
        }
    }
    for key in &held.keys {
        for digest in [MessageDigest::md5(), MessageDigest::sha3_256()] {
            let errors = Signer::new(digest, key).err().expect("no context");
            let reason = errors.errors()[0].reason().expect("a reason");
            assert!(reason.starts_with(NOT_COMPUTED), "{reason}");
        }
    }
    assert_eq!(asked(Kind::Rsa(Size::Rsa2048)), 0);
}

#[test]
fn without_an_answer_there_is_no_signature() {
    let _turn = exclusive();
    let answers = Reason::ALL.map(Answering::Refusing);
    for answering in answers.into_iter().chain([Answering::Cutting]) {
        let held = Held::of(&[rsa_2048(), on_curve(CURVES[0])], answering);
        for key in &held.keys {
            let (one, other) = (key.clone(), key.clone());
            for outcome in everywhere(move || sign(&one, &[], &hash(32), ROOM)) {
                assert_eq!(first_reason(outcome), NO_ANSWER, "{answering:?}");
            }
            for reason in everywhere(move || {
                let mut signer = Signer::new(MessageDigest::sha256(), &other).expect("a context");
                let errors = signer
                    .sign_oneshot_to_vec(b"a message")
                    .expect_err("no signature");
                errors.errors()[0].reason().map(str::to_owned)
            }) {
                assert_eq!(reason.as_deref(), Some(NO_ANSWER), "{answering:?}");
            }
        }
    }
}

#[test]
fn a_thread_without_an_instance_gets_no_signature() {
    let _turn = exclusive();
    let held = Held::of(&[rsa_2048(), on_curve(CURVES[0])], Answering::Computing);
    instance::uninstall();
    for key in &held.keys {
        assert_eq!(first_reason(sign(key, &[], &hash(32), ROOM)), NO_ANSWER);
    }
}

#[test]
fn a_context_goes_on_after_a_failure() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let key = held.key();
    on_fiber(move || {
        let context = Context::new(&key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
        assert!(context.sign(&hash(31), ROOM).is_err());
        let signature = context
            .duplicate()
            .sign(&hash(32), ROOM)
            .expect("a signature");
        let options = [(c"digest", c"SHA256")];
        assert!(
            Context::new(&original, DEFAULT)
                .verifying(&options)
                .verify(&signature, &hash(32))
        );
    });
}

#[test]
fn a_fiber_that_may_not_pause_waits() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    fiber::set_rules(Rules {
        admits: |_| Err(Reason::NotAdmitted),
        concurrency: || 1,
        notification: Notification::ReadyQueue,
    });
    let key = held.key();
    let signature = on_fiber(move || sign(&key, &[], &hash(32), ROOM)).expect("a signature");
    let verifier = Context::new(&original, DEFAULT).verifying(&[]);
    assert!(verifier.verify(&signature, &hash(32)));
    let ready = instance::with(Instance::next_ready).flatten();
    assert_eq!(ready, None, "nobody is to be resumed");
}

#[test]
fn where_another_provider_is_preferred_the_key_still_signs() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        let context = Context::new(key, c"?provider=default").signing(&[]);
        assert!(openssl::error::ErrorStack::get().errors().is_empty());
        let signature = context.sign(&hash(32), ROOM).expect("a signature");
        let verifier = Context::new(original, DEFAULT).verifying(&[]);
        assert!(verifier.verify(&signature, &hash(32)));
    }
}
