//! Signatures on fibers, computed in lanes, against OpenSSL's own provider.

use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;

use crate::common::{
    Context, DEFAULT, Outcome, SLIPSTREAM, exclusive, import, keys, on_fibers, use_lanes,
};
use openssl::hash::{MessageDigest, hash};
use openssl::pkey::{PKey, Private};
use slipstream_accelerators::lanes::Backend;
use slipstream_offload::JobToken;
use slipstream_offload::fiber::{Fibers, Progress};
use slipstream_offload::instance;
use slipstream_openssl::{keys_with_lanes, keys_without_lanes, lane_operations};

type Options = &'static [(&'static CStr, &'static CStr)];

/// Options, length of the hash, and whether lanes know the encoding.
const SCHEMES: &[(Options, usize, bool)] = &[
    (&[(c"digest", c"SHA256")], 32, true),
    (&[(c"digest", c"SHA1")], 20, true),
    (&[(c"digest", c"SHA2-224")], 28, true),
    (&[(c"digest", c"sha384")], 48, true),
    (&[(c"digest", c"SHA-512")], 64, true),
    (&[(c"digest", c"MD5-SHA1")], 36, true),
    (&[], 51, true),
    (&[(c"digest", c"MD5")], 16, false),
    (&[(c"digest", c"SHA3-256")], 32, false),
    (&[(c"digest", c"SHA512-256")], 32, false),
    (
        &[(c"digest", c"SHA256"), (c"rsa_padding_mode", c"x931")],
        32,
        false,
    ),
];

const PSS: (&CStr, &CStr) = (c"rsa_padding_mode", c"pss");

/// Options, and length of the hash.
const PSS_SCHEMES: &[(Options, usize)] = &[
    (&[PSS, (c"digest", c"SHA256")], 32),
    (
        &[PSS, (c"digest", c"SHA256"), (c"rsa_pss_saltlen", c"digest")],
        32,
    ),
    (
        &[PSS, (c"digest", c"SHA256"), (c"rsa_pss_saltlen", c"max")],
        32,
    ),
    (
        &[PSS, (c"digest", c"SHA256"), (c"rsa_pss_saltlen", c"0")],
        32,
    ),
    (
        &[PSS, (c"digest", c"SHA384"), (c"rsa_pss_saltlen", c"20")],
        48,
    ),
    (
        &[PSS, (c"digest", c"SHA512"), (c"rsa_mgf1_md", c"SHA1")],
        64,
    ),
    (
        &[PSS, (c"digest", c"SHA1"), (c"rsa_mgf1_md", c"SHA2-512")],
        20,
    ),
    (
        &[PSS, (c"digest", c"SHA224"), (c"rsa_pss_saltlen", c"digest")],
        28,
    ),
    (&[PSS], 20),
];

/// Signs on fibers at once, each entry with its key, options and hash.
fn sign_on_fibers(backend: Backend, work: Vec<(PKey<Private>, Options, Vec<u8>)>) -> Vec<Outcome> {
    let outcomes = Rc::new(RefCell::new(vec![Ok(Vec::new()); work.len()]));
    let jobs = work
        .into_iter()
        .enumerate()
        .map(|(index, (key, options, hash))| {
            let outcomes = outcomes.clone();
            Box::new(move || {
                let context = Context::new(&key, SLIPSTREAM).signing(options);
                outcomes.borrow_mut()[index] = context.sign(&hash, key.size());
            }) as Box<dyn FnOnce()>
        });
    on_fibers(backend, jobs.collect());
    outcomes.take()
}

fn message(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 31 + seed * 7 + 1) as u8)
        .collect()
}

#[test]
fn deterministic_signatures_equal_those_of_openssl() {
    let _turn = exclusive();
    for backend in Backend::available() {
        use_lanes(backend);
        for der in keys() {
            let work: Vec<_> = SCHEMES
                .iter()
                .map(|&(options, length, _)| (import(der), options, message(length, length)))
                .collect();
            let before = lane_operations();
            let outcomes = sign_on_fibers(backend, work.clone());
            let in_lanes = SCHEMES.iter().filter(|scheme| scheme.2).count() as u64;
            assert_eq!(lane_operations() - before, in_lanes, "{backend:?}");
            for ((key, options, hash), outcome) in work.iter().zip(outcomes) {
                let expected = Context::new(key, DEFAULT)
                    .signing(options)
                    .sign(hash, key.size());
                assert!(expected.is_ok(), "{options:?}");
                assert_eq!(outcome, expected, "{backend:?} {options:?}");
            }
        }
    }
}

#[test]
fn pss_signatures_verify_with_openssl() {
    let _turn = exclusive();
    for backend in Backend::available() {
        use_lanes(backend);
        for der in keys() {
            let work: Vec<_> = PSS_SCHEMES
                .iter()
                .map(|&(options, length)| (import(der), options, message(length, 3)))
                .collect();
            let before = lane_operations();
            let outcomes = sign_on_fibers(backend, work.clone());
            assert_eq!(lane_operations() - before, PSS_SCHEMES.len() as u64);
            for ((key, options, hash), outcome) in work.iter().zip(outcomes) {
                let signature = outcome.expect("a signature");
                let verifier = Context::new(key, DEFAULT).verifying(options);
                assert!(verifier.verify(&signature, hash), "{backend:?} {options:?}");
                let mut damaged = hash.clone();
                damaged[0] ^= 1;
                assert!(!verifier.verify(&signature, &damaged));
            }
        }
    }
}

#[test]
fn salts_are_as_long_as_openssl_makes_them() {
    let _turn = exclusive();
    let backend = Backend::Portable;
    use_lanes(backend);
    let longest = c"222";
    let rules = [
        (c"digest", c"32"),
        (c"max", longest),
        (c"auto", longest),
        (c"7", c"7"),
    ];
    for (rule, length) in rules {
        let options: Options = Box::leak(Box::new([
            PSS,
            (c"digest", c"SHA256"),
            (c"rsa_pss_saltlen", rule),
        ]));
        let key = import(&keys()[0]);
        let hash = message(32, 5);
        let outcome = sign_on_fibers(backend, vec![(key.clone(), options, hash.clone())]).remove(0);
        let signature = outcome.expect("a signature");
        let exact = [PSS, (c"digest", c"SHA256"), (c"rsa_pss_saltlen", length)];
        let verifier = Context::new(&key, DEFAULT).verifying(&exact);
        assert!(verifier.verify(&signature, &hash), "{rule:?}");
        let other = [PSS, (c"digest", c"SHA256"), (c"rsa_pss_saltlen", c"8")];
        let verifier = Context::new(&key, DEFAULT).verifying(&other);
        assert!(
            !verifier.verify(&signature, &hash),
            "the length is in the signature"
        );
    }
}

#[test]
fn two_pss_signatures_of_one_hash_differ() {
    let _turn = exclusive();
    let options: Options = &[PSS, (c"digest", c"SHA256")];
    use_lanes(Backend::Portable);
    let work = vec![(import(&keys()[0]), options, message(32, 1)); 2];
    let [first, second] = sign_on_fibers(Backend::Portable, work)
        .try_into()
        .expect("two");
    assert_ne!(first, second);
}

#[test]
fn one_to_twenty_jobs_of_mixed_keys_are_computed_together() {
    let _turn = exclusive();
    let options: Options = &[(c"digest", c"SHA256")];
    for backend in Backend::available() {
        use_lanes(backend);
        let imported: Vec<_> = keys().iter().map(|der| import(der)).collect();
        for count in 1..=20 {
            let work: Vec<_> = (0..count)
                .map(|job| {
                    (
                        imported[job % imported.len()].clone(),
                        options,
                        message(32, job),
                    )
                })
                .collect();
            let before = lane_operations();
            let outcomes = sign_on_fibers(backend, work.clone());
            assert_eq!(lane_operations() - before, count as u64);
            for ((key, options, hash), outcome) in work.iter().zip(outcomes) {
                let verifier = Context::new(key, DEFAULT).verifying(options);
                assert!(verifier.verify(&outcome.expect("a signature"), hash));
            }
        }
    }
}

#[test]
fn errors_are_those_of_openssl() {
    let _turn = exclusive();
    use_lanes(Backend::Portable);
    let cases: &[(Options, usize, usize)] = &[
        (&[(c"digest", c"SHA256")], 31, 256),
        (&[(c"digest", c"SHA256")], 32, 255),
        (&[], 246, 256),
        (&[(c"rsa_padding_mode", c"none")], 255, 256),
        (&[PSS, (c"digest", c"SHA256")], 20, 256),
        (
            &[PSS, (c"digest", c"SHA256"), (c"rsa_pss_saltlen", c"223")],
            32,
            256,
        ),
    ];
    for &(options, length, room) in cases {
        let key = import(&keys()[0]);
        let expected = Context::new(&key, DEFAULT)
            .signing(options)
            .sign(&message(length, 0), room);
        assert!(expected.is_err(), "{options:?}");
        let outcome = Rc::new(RefCell::new(None));
        let job = {
            let (outcome, key) = (outcome.clone(), key.clone());
            move || {
                let context = Context::new(&key, SLIPSTREAM).signing(options);
                *outcome.borrow_mut() = Some(context.sign(&message(length, 0), room));
            }
        };
        on_fibers(Backend::Portable, vec![Box::new(job)]);
        assert_eq!(
            outcome.take(),
            Some(expected),
            "{options:?} {length} {room}"
        );
    }
}

#[test]
fn a_job_that_is_resumed_too_early_signs_in_software_and_leaves_an_orphan() {
    let _turn = exclusive();
    crate::common::install(Backend::Portable);
    let key = import(&keys()[0]);
    let hash = message(32, 9);
    let outcome = Rc::new(RefCell::new(None));
    let job = {
        let (outcome, key, hash) = (outcome.clone(), key.clone(), hash.clone());
        move || {
            let context = Context::new(&key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
            *outcome.borrow_mut() = Some(context.sign(&hash, 256));
        }
    };
    let mut fibers = Fibers::new(1, 256 * 1024);
    let Ok(Progress::Paused(fiber)) = fibers.start(JobToken(0), job) else {
        panic!("the job waits for its operation");
    };
    assert!(matches!(fibers.resume(fiber), Progress::Finished));
    let signature = outcome.take().expect("an outcome").expect("a signature");
    let verifier = Context::new(&key, DEFAULT).verifying(&[(c"digest", c"SHA256")]);
    assert!(verifier.verify(&signature, &hash));
    let (orphans, waiting) =
        instance::with(|instance| (instance.counters().orphans, instance.waiting()))
            .expect("an instance");
    assert_eq!((orphans, waiting), (1, 1));
    instance::uninstall();
}

#[test]
fn without_a_fiber_nothing_waits_and_lanes_stay_unused() {
    let _turn = exclusive();
    crate::common::install(Backend::Portable);
    let before = lane_operations();
    let key = import(&keys()[0]);
    let context = Context::new(&key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
    let signature = context.sign(&message(32, 2), 256).expect("a signature");
    let verifier = Context::new(&key, DEFAULT).verifying(&[(c"digest", c"SHA256")]);
    assert!(verifier.verify(&signature, &message(32, 2)));
    assert_eq!(lane_operations(), before);
    instance::uninstall();
}

#[test]
fn keys_that_lanes_cannot_use_sign_in_software() {
    let _turn = exclusive();
    use_lanes(Backend::Portable);
    let hash = hash(MessageDigest::sha256(), b"message")
        .expect("a hash")
        .to_vec();
    for key in [
        small_key(),
        key_of_three_primes(),
        key_without_primes(),
        key_of_odd_size(),
    ] {
        let before = (keys_with_lanes(), keys_without_lanes(), lane_operations());
        let options: Options = &[(c"digest", c"SHA256")];
        let work = vec![(key.clone(), options, hash.clone())];
        let outcome = sign_on_fibers(Backend::Portable, work).remove(0);
        let verifier = Context::new(&key, DEFAULT).verifying(options);
        assert!(verifier.verify(&outcome.expect("a signature"), &hash));
        let after = (keys_with_lanes(), keys_without_lanes(), lane_operations());
        assert_eq!(
            after,
            (before.0, before.1 + 1, before.2),
            "{} bits",
            key.bits()
        );
    }
}

fn small_key() -> PKey<Private> {
    PKey::from_rsa(openssl::rsa::Rsa::generate(1024).expect("a key")).expect("a key")
}

fn key_of_odd_size() -> PKey<Private> {
    PKey::from_rsa(openssl::rsa::Rsa::generate(2050).expect("a key")).expect("a key")
}

fn key_of_three_primes() -> PKey<Private> {
    let made = std::process::Command::new("openssl")
        .args([
            "genpkey",
            "-quiet",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ])
        .args(["-pkeyopt", "rsa_keygen_primes:3"])
        .output()
        .expect("the openssl command");
    PKey::private_key_from_pem(&made.stdout).expect("a key")
}

fn key_without_primes() -> PKey<Private> {
    let key = crate::common::example(slipstream_keys::rsa::Size::Rsa2048);
    let copy = |number: &openssl::bn::BigNumRef| number.to_owned().expect("a number");
    let bare = openssl::rsa::RsaPrivateKeyBuilder::new(copy(key.n()), copy(key.e()), copy(key.d()));
    PKey::from_rsa(bare.expect("a key").build()).expect("a key")
}

#[test]
fn keys_made_by_the_provider_itself_work_in_lanes() {
    let _turn = exclusive();
    use_lanes(Backend::Portable);
    let key = crate::common::generate(2048);
    let before = lane_operations();
    let options: Options = &[(c"digest", c"SHA256")];
    let work = vec![(key.clone(), options, message(32, 4)); 3];
    let outcomes = sign_on_fibers(Backend::Portable, work);
    assert_eq!(lane_operations() - before, 3);
    let verifier = Context::new(&key, DEFAULT).verifying(options);
    for outcome in outcomes {
        assert!(verifier.verify(&outcome.expect("a signature"), &message(32, 4)));
    }
}

#[test]
fn a_context_can_be_duplicated_and_used_again() {
    let _turn = exclusive();
    use_lanes(Backend::Portable);
    let key = import(&keys()[0]);
    let before = lane_operations();
    let job = {
        let key = key.clone();
        move || {
            let context = Context::new(&key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
            let copy = context.duplicate();
            let first = context.sign(&message(32, 1), 256);
            assert_eq!(context.sign(&message(32, 1), 256), first);
            drop(context);
            assert_eq!(copy.sign(&message(32, 1), 256), first);
            // The copy is its own: a change of the padding concerns nobody else.
            let changed = copy.duplicate();
            assert!(changed.set(c"rsa_padding_mode", c"pss"));
            assert_ne!(changed.sign(&message(32, 1), 256), first);
            assert_eq!(copy.sign(&message(32, 1), 256), first);
        }
    };
    on_fibers(Backend::Portable, vec![Box::new(job)]);
    assert_eq!(lane_operations() - before, 5);
}
