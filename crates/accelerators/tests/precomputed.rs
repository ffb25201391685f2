//! Precomputed values are right, unbiased, used once, and never on both sides of a fork.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::derive::Deriver;
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::ecdsa::EcdsaSig;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use slipstream_accelerators::lanes::{
    Backend, LANES, LaneCosts, Lanes, Options, Workspace, batch, computes,
};
use slipstream_keys::ec::{Curve, PrivateKey};
use slipstream_keys::{Group, Key, KeyPair, Operand};
use slipstream_offload::accelerator::{Accelerator, AtOnce};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::pause::Never;
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_offload::{Answer, Kind, Operation, Reason, Route, admit, compute_at_once};

const ENTRIES: usize = 16;

#[test]
fn nothing_is_precomputed_without_an_instance_that_does() {
    let pair = Operation::KeyPair(Group::X25519);
    let no_backend = lanes(Backend::Avx512, ENTRIES);
    let no_room = lanes(Backend::Portable, LANES - 1);
    for mut lanes in [no_backend, no_room] {
        for kind in Kind::ALL {
            assert_ne!(lanes.at_once(kind), AtOnce::Always, "{kind:?}");
        }
        assert!(lanes.compute_at_once(&pair).is_err());
    }
    on_fresh_thread(move || {
        assert!(compute_at_once(&pair).is_none());
        install(Backend::Portable, 0);
        assert_eq!(admit(pair.kind(), &Never), Err(Reason::NotOffered));
        assert!(compute_at_once(&pair).is_none());
        assert!(sign(&example_key(Curve::P256), &[2; 32]).is_none());
    });
}

#[test]
fn key_pairs_are_those_of_openssl_and_no_two_are_equal() {
    each_backend(|| {
        for group in Group::ALL {
            let kind = Kind::KeyPair(group);
            assert_eq!(admit(kind, &Never), Ok(Route::AtOnce));
            let mut seen = HashSet::new();
            for number in 0..3 * ENTRIES {
                let pair = key_pair(group).expect("a key pair");
                assert_eq!(public_key(group, &pair), pair.public.as_slice());
                assert!(seen.insert(pair.private.as_slice().to_vec()));
                if number % 5 == 0 {
                    instance::with(Instance::precompute);
                }
            }
            let counted = instance::with(|instance| instance.counters().at_once[kind.index()]);
            assert_eq!(counted, Some(3 * ENTRIES as u64));
        }
    });
}

#[test]
fn x25519_keys_agree_with_openssl() {
    each_backend(|| {
        let ours = key_pair(Group::X25519).expect("a key pair");
        let theirs = PKey::generate_x25519().expect("a key");
        let our_private = PKey::private_key_from_raw_bytes(ours.private.as_slice(), Id::X25519);
        let our_public = PKey::public_key_from_raw_bytes(ours.public.as_slice(), Id::X25519);
        let derive = |private: &PKey<Private>, public: &_| {
            let mut deriver = Deriver::new(private).expect("a context");
            deriver.set_peer(public).expect("a peer");
            deriver.derive_to_vec().expect("a secret")
        };
        let raw = theirs.raw_public_key().expect("a public key");
        let their_public = PKey::public_key_from_raw_bytes(&raw, Id::X25519).expect("a key");
        assert_eq!(
            derive(&our_private.expect("a key"), &their_public),
            derive(&theirs, &our_public.expect("a key")),
        );
    });
}

/// The nonce of each signature is recovered with the private key: k = (e + r d) / s mod n.
#[test]
fn nonces_are_unbiased() {
    for (curve, signatures) in [(Curve::P256, 8192), (Curve::P384, 4096)] {
        on_fresh_thread(move || {
            let detected = Backend::detect().filter(|backend| offered(*backend));
            install(detected.unwrap_or(Backend::Portable), ENTRIES);
            let nonces = recovered_nonces(curve, signatures, |key, digest| {
                sign(key, digest).expect("a signature")
            });
            assert_eq!(nonces.iter().collect::<HashSet<_>>().len(), signatures);
            assert!(greatest_bias(&nonces) < LIMIT, "{}", greatest_bias(&nonces));
            for biased in [without_top_bits, with_a_constant_bit, slightly_biased] {
                let biased: Vec<_> = nonces.iter().enumerate().map(biased).collect();
                assert!(greatest_bias(&biased) > LIMIT, "{}", greatest_bias(&biased));
            }
        });
    }
}

#[test]
fn nonces_that_are_drawn_when_they_are_needed_are_unbiased() {
    let detected = Backend::detect().filter(|backend| offered(*backend));
    let backend = detected.unwrap_or(Backend::Portable);
    for (curve, signatures) in [(Curve::P256, 4096), (Curve::P384, 2048)] {
        let mut workspace = Workspace::new();
        let nonces = recovered_nonces(curve, signatures, |key, digest| {
            let operation = Operation::Ecdsa {
                key: Key::Value(key.clone()),
                digest: Operand::new(digest),
            };
            let one = std::iter::once(&operation);
            match batch::compute(backend, &mut workspace, one).pop() {
                Some(Answer::Computed(signature)) => signature.as_slice().to_vec(),
                other => panic!("no signature: {other:?}"),
            }
        });
        assert_eq!(nonces.iter().collect::<HashSet<_>>().len(), signatures);
        assert!(greatest_bias(&nonces) < LIMIT, "{}", greatest_bias(&nonces));
    }
}

#[test]
fn neither_side_of_a_fork_uses_what_the_other_does() {
    each_backend(|| {
        // Both pools are filled, and some of each has been used.
        let before: Vec<Vec<u8>> = (0..3).map(|_| fresh_secret()).collect();
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        // SAFETY: the child computes, writes to its socket and ends; other threads hold no lock
        // that it takes.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork fails");
        if child == 0 {
            let inherited = key_pair(Group::X25519).is_some()
                || sign(&example_key(Curve::P256), &[2; 32]).is_some();
            install(Backend::Portable, ENTRIES);
            let mut report = vec![u8::from(inherited)];
            for _ in 0..2 * LANES {
                report.extend(fresh_secret());
            }
            let written = theirs.write_all(&report);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(written.is_err())) };
        }
        drop(theirs);
        let mut report = Vec::new();
        ours.read_to_end(&mut report)
            .expect("what the child has used");
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);

        let (inherited, used) = report.split_first().expect("a report");
        assert_eq!(*inherited, 0, "the child has used what its parent made");
        let mut seen: HashSet<Vec<u8>> = before.into_iter().collect();
        let childs = used.chunks(64).map(<[u8]>::to_vec);
        let parents = (0..2 * LANES).map(|_| fresh_secret());
        for secret in childs.chain(parents) {
            assert!(seen.insert(secret), "used twice");
        }
        assert_eq!(seen.len(), 3 + 4 * LANES);
    });
}

/// A private key, and the r of a signature, which names its nonce.
fn fresh_secret() -> Vec<u8> {
    let mut secret = key_pair(Group::X25519)
        .expect("a key pair")
        .private
        .as_slice()
        .to_vec();
    let signature = sign(&example_key(Curve::P256), &[2; 32]).expect("a signature");
    secret.extend(&signature[..32]);
    secret
}

fn recovered_nonces(
    curve: Curve,
    count: usize,
    mut sign: impl FnMut(&Arc<PrivateKey>, &[u8]) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let group = openssl_group(curve);
    let key = EcKey::generate(&group).expect("a key");
    let bytes = curve.bytes();
    let private = key
        .private_key()
        .to_vec_padded(bytes as i32)
        .expect("a scalar");
    let signing_key = Arc::new(PrivateKey::new(curve, &private).expect("a key"));
    let mut context = BigNumContext::new().expect("a context");
    let mut order = BigNum::new().expect("a number");
    group.order(&mut order, &mut context).expect("the order");
    (0..count)
        .map(|number| {
            let mut digest = vec![0x5a; bytes];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            let signature = sign(&signing_key, &digest);
            let (r, s) = signature.split_at(bytes);
            let (r, s) = (number_of(r), number_of(s));
            let e = number_of(&digest);
            if number % 64 == 0 {
                let copy = |value: &BigNumRef| value.to_owned().expect("a number");
                let signature = EcdsaSig::from_private_components(copy(&r), copy(&s));
                assert!(
                    signature
                        .expect("a signature")
                        .verify(&digest, &key)
                        .expect("a check")
                );
            }
            let [mut product, mut sum, mut inverse, mut k] =
                [(); 4].map(|()| BigNum::new().expect("a number"));
            product
                .mod_mul(&r, key.private_key(), &order, &mut context)
                .expect("a product");
            sum.mod_add(&product, &e, &order, &mut context)
                .expect("a sum");
            inverse
                .mod_inverse(&s, &order, &mut context)
                .expect("an inverse");
            k.mod_mul(&sum, &inverse, &order, &mut context)
                .expect("a product");
            k.to_vec_padded(bytes as i32).expect("a scalar")
        })
        .collect()
}

/// A deviation above this is a bias: fair bits exceed it once in a billion runs of the test, and the
/// biased ones below stay under it as rarely.
const LIMIT: f64 = 7.3;

/// The greatest deviation of any bit, and of any two neighbouring bits' sum, from fairness, in
/// standard deviations.
fn greatest_bias(nonces: &[Vec<u8>]) -> f64 {
    let count = nonces.len() as f64;
    let deviation = |hits: usize| (hits as f64 - count / 2.0).abs() / (count / 4.0).sqrt();
    let bits = nonces[0].len() * 8;
    let bit = |nonce: &[u8], place: usize| nonce[place / 8] >> (7 - place % 8) & 1;
    // The order of P-256 begins with 32 ones and that of P-384 with 192: so close to a power of two
    // that every bit of a uniform number below it is fair, to one in 2^32.
    (0..bits)
        .flat_map(|place| {
            let ones = nonces.iter().filter(|nonce| bit(nonce, place) == 1).count();
            let next = (place + 1) % bits;
            let differ = nonces
                .iter()
                .filter(|nonce| bit(nonce, place) != bit(nonce, next))
                .count();
            [deviation(ones), deviation(differ)]
        })
        .fold(0.0, f64::max)
}

/// The leading bit is always zero: a generator of one bit too few.
fn without_top_bits((_, nonce): (usize, &Vec<u8>)) -> Vec<u8> {
    let mut nonce = nonce.clone();
    nonce[0] &= 0x7f;
    nonce
}

/// The last bit is always one.
fn with_a_constant_bit((_, nonce): (usize, &Vec<u8>)) -> Vec<u8> {
    let mut nonce = nonce.clone();
    *nonce.last_mut().expect("a byte") |= 1;
    nonce
}

/// One nonce in four repeats a bit of the byte before: a weakness of few bits, in few nonces.
fn slightly_biased((number, nonce): (usize, &Vec<u8>)) -> Vec<u8> {
    let mut nonce = nonce.clone();
    if number % 4 == 0 {
        nonce[9] |= 0x10;
    }
    nonce
}

fn public_key(group: Group, pair: &KeyPair) -> Vec<u8> {
    let curve = match group {
        Group::X25519 => {
            let key = PKey::private_key_from_raw_bytes(pair.private.as_slice(), Id::X25519);
            return key.expect("a key").raw_public_key().expect("a public key");
        }
        Group::P256 => Curve::P256,
        Group::P384 => Curve::P384,
    };
    let group = openssl_group(curve);
    let mut context = BigNumContext::new().expect("a context");
    let mut point = EcPoint::new(&group).expect("a point");
    let scalar = number_of(pair.private.as_slice());
    point
        .mul_generator2(&group, &scalar, &mut context)
        .expect("a product");
    let form = openssl::ec::PointConversionForm::UNCOMPRESSED;
    point.to_bytes(&group, form, &mut context).expect("bytes")
}

fn openssl_group(curve: Curve) -> EcGroup {
    let name = match curve {
        Curve::P256 => Nid::X9_62_PRIME256V1,
        Curve::P384 => Nid::SECP384R1,
    };
    EcGroup::from_curve_name(name).expect("a known curve")
}

fn number_of(bytes: &[u8]) -> BigNum {
    BigNum::from_slice(bytes).expect("a number")
}

/// A precomputed key pair; `None` if this thread's instance has none.
fn key_pair(group: Group) -> Option<KeyPair> {
    let pair = compute_at_once(&Operation::KeyPair(group))?;
    Some(KeyPair::from_bytes(group, pair.as_slice()).expect("as long as a pair of the group"))
}

/// r and s of a signature with a precomputed nonce; `None` if this thread's instance has none.
fn sign(key: &Arc<PrivateKey>, digest: &[u8]) -> Option<Vec<u8>> {
    let operation = Operation::Ecdsa {
        key: Key::Value(key.clone()),
        digest: Operand::new(digest),
    };
    let signature = compute_at_once(&operation)?.as_slice().to_vec();
    assert_eq!(signature.len(), 2 * key.curve().bytes());
    Some(signature)
}

fn example_key(curve: Curve) -> Arc<PrivateKey> {
    let scalar = vec![1; curve.bytes()];
    Arc::new(PrivateKey::new(curve, &scalar).expect("in range"))
}

/// Runs `test` with an instance of each backend that computes curves here.
fn each_backend(test: fn()) {
    for backend in Backend::available().filter(|backend| offered(*backend)) {
        on_fresh_thread(move || {
            install(backend, ENTRIES);
            test();
        });
    }
}

/// Returns true if `backend` computes everything that is precomputed.
fn offered(backend: Backend) -> bool {
    let pairs = Group::ALL.map(Kind::KeyPair);
    let signatures = Curve::ALL.map(Kind::Ecdsa);
    let mut kinds = pairs.into_iter().chain(signatures);
    kinds.all(|kind| computes(backend, kind))
}

/// Makes lanes the only accelerator of this thread.
fn install(backend: Backend, entries: usize) {
    let lanes: Box<dyn Accelerator> = Box::new(lanes(backend, entries));
    let instance = Instance::new(vec![lanes], scheduler(), 1);
    instance::install(instance.expect("an instance"));
}

fn lanes(backend: Backend, entries: usize) -> Lanes {
    Lanes::new(Options {
        backend,
        costs: LaneCosts::unknown(backend),
        scheduler: scheduler(),
        has_batches: true,
        key_pairs: entries,
        nonces: entries,
    })
}

fn scheduler() -> Scheduler {
    Scheduler {
        flush: FlushPolicy::AtLeast(1),
        ..Scheduler::default()
    }
}

/// An instance belongs to a thread.
fn on_fresh_thread(test: impl FnOnce() + Send + 'static) {
    if let Err(panic) = thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}
