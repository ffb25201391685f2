//! ECDSA with precomputed nonces.

use std::ffi::CStr;

use foreign_types_shared::ForeignTypeRef;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::sign::{Signer, Verifier};
use openssl_sys as sys;
use slipstream_accelerators::lanes::Backend;
use slipstream_openssl::{lane_operations, precomputed_nonces};

use super::evp::{GROUPS, Group, OTHERS};
use super::{backends, collect_on_fibers, on_fiber};
use crate::common::{Context, DEFAULT, Outcome, SLIPSTREAM, call, exclusive};

/// The curves of [`GROUPS`].
const CURVES: [Group; 2] = [GROUPS[1], GROUPS[2]];

/// Longer than any signature here.
const ROOM: usize = 200;

fn key(group: Group) -> PKey<Private> {
    group.generate(DEFAULT).to_pkey()
}

fn hash(length: usize) -> Vec<u8> {
    (0..length).map(|byte| (byte * 7 + 3) as u8).collect()
}

#[test]
fn signatures_verify_with_openssl() {
    let _turn = exclusive();
    let digests = [
        (c"SHA1", 20),
        (c"SHA224", 28),
        (c"SHA256", 32),
        (c"SHA384", 48),
        (c"SHA512", 64),
        (c"SHA3-256", 32),
    ];
    for backend in backends() {
        for group in CURVES {
            let key = key(group);
            let before = (precomputed_nonces(), lane_operations());
            let jobs = digests.map(|(digest, length)| {
                let key = key.clone();
                let job = move || {
                    let context = Context::new(&key, SLIPSTREAM).signing(&[(c"digest", digest)]);
                    context.sign(&hash(length), ROOM)
                };
                Box::new(job) as Box<dyn FnOnce() -> Outcome>
            });
            let signatures = collect_on_fibers(backend, jobs);
            assert_eq!(precomputed_nonces() - before.0, digests.len() as u64);
            assert_eq!(lane_operations(), before.1, "nothing pauses");
            for ((digest, length), signature) in digests.into_iter().zip(signatures) {
                let signature = signature.expect("a signature");
                let verifier = Context::new(&key, DEFAULT).verifying(&[(c"digest", digest)]);
                assert!(verifier.verify(&signature, &hash(length)), "{digest:?}");
                assert!(!verifier.verify(&signature, &vec![0; length]));
            }
        }
    }
}

#[test]
fn many_signatures_differ_and_verify() {
    let _turn = exclusive();
    for group in CURVES {
        let key = key(group);
        let signer = key.clone();
        let mut signatures = on_fiber(Backend::Portable, move || {
            let context = Context::new(&signer, SLIPSTREAM).signing(&[]);
            // More than a pool holds.
            (0..40)
                .map(|_| context.sign(&hash(32), ROOM).expect("a signature"))
                .collect::<Vec<_>>()
        });
        let verifier = Context::new(&key, DEFAULT).verifying(&[]);
        for signature in &signatures {
            assert!(verifier.verify(signature, &hash(32)));
        }
        // r comes first: no nonce has been used twice.
        signatures
            .iter_mut()
            .for_each(|signature| signature.truncate(20));
        signatures.sort();
        signatures.dedup();
        assert_eq!(signatures.len(), 40, "{group:?}");
    }
}

#[test]
fn messages_are_hashed_and_signed() {
    let _turn = exclusive();
    let message = [b"message".as_slice(), &[9; 5000]].concat();
    for group in CURVES {
        for digest in [MessageDigest::sha256(), MessageDigest::sha384()] {
            let key = key(group);
            let (signer, signed) = (key.clone(), message.clone());
            let before = precomputed_nonces();
            let [whole, parts, copied] = on_fiber(Backend::Portable, move || {
                let mut whole = Signer::new(digest, &signer).expect("a context");
                let whole = whole.sign_oneshot_to_vec(&signed).expect("a signature");
                let mut parts = Signer::new(digest, &signer).expect("a context");
                parts.update(&signed[..1000]).expect("a hash");
                assert_eq!(parts.len().expect("a length"), signer.size());
                parts.update(&signed[1000..]).expect("a hash");
                let parts = parts.sign_to_vec().expect("a signature");
                [whole, parts, sign_with_copy(&signer, digest, &signed)]
            });
            assert_eq!(precomputed_nonces() - before, 3);
            for signature in [whole, parts, copied] {
                let mut verifier = Verifier::new(digest, &key).expect("a context");
                assert!(
                    verifier
                        .verify_oneshot(&signature, &message)
                        .expect("a result")
                );
            }
        }
    }
}

/// Signs with a copy of a context that has begun the message.
fn sign_with_copy(key: &PKey<Private>, digest: MessageDigest, message: &[u8]) -> Vec<u8> {
    // SAFETY: contexts that are made and freed here; buffers as long as said.
    unsafe {
        let (first, copy) = (sys::EVP_MD_CTX_new(), sys::EVP_MD_CTX_new());
        let (none, engine) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (begun, rest) = message.split_at(100);
        assert_eq!(
            sys::EVP_DigestSignInit(first, none, digest.as_ptr(), engine, key.as_ptr().cast()),
            1
        );
        assert_eq!(
            sys::EVP_DigestSignUpdate(first, begun.as_ptr().cast(), begun.len()),
            1
        );
        assert_eq!(sys::EVP_MD_CTX_copy_ex(copy, first), 1);
        sys::EVP_MD_CTX_free(first);
        assert_eq!(
            sys::EVP_DigestSignUpdate(copy, rest.as_ptr().cast(), rest.len()),
            1
        );
        let signature = call(ROOM, |output, length| {
            sys::EVP_DigestSignFinal(copy, output, length)
        });
        sys::EVP_MD_CTX_free(copy);
        signature.expect("a signature")
    }
}

#[test]
fn what_openssl_refuses_is_refused() {
    let _turn = exclusive();
    for group in CURVES {
        let key = key(group);
        let outcomes = move |query: &'static CStr| {
            let refused = |digest: Option<&'static CStr>, length, room| {
                let options: Vec<_> = digest
                    .map(|digest| (c"digest", digest))
                    .into_iter()
                    .collect();
                let context = Context::new(&key, query).signing(&options);
                context.sign(&hash(length), room).err()
            };
            [
                refused(Some(c"SHA256"), 31, ROOM),
                refused(Some(c"SHA256"), 33, ROOM),
                refused(Some(c"SHA256"), 0, ROOM),
                refused(Some(c"SHA256"), 32, key.size() - 1),
                refused(Some(c"SHA256"), 32, key.size()),
                refused(None, 51, ROOM),
                refused(None, 0, ROOM),
            ]
        };
        let expected = outcomes(DEFAULT);
        assert_eq!(outcomes(SLIPSTREAM), expected);
        let ours = on_fiber(Backend::Portable, move || outcomes(SLIPSTREAM));
        assert_eq!(ours, expected, "{group:?}");
    }
}

#[test]
fn outside_of_jobs_and_on_other_curves_openssl_signs() {
    let _turn = exclusive();
    let before = precomputed_nonces();
    let sign = |key: &PKey<Private>| {
        let context = Context::new(key, SLIPSTREAM).signing(&[(c"digest", c"SHA256")]);
        context.sign(&hash(32), ROOM).expect("a signature")
    };
    let verify = |key: &PKey<Private>, signature: &[u8]| {
        let verifier = Context::new(key, DEFAULT).verifying(&[(c"digest", c"SHA256")]);
        assert!(verifier.verify(signature, &hash(32)));
        let verifier = Context::new(key, SLIPSTREAM).verifying(&[(c"digest", c"SHA256")]);
        assert!(verifier.verify(signature, &hash(32)));
    };
    for group in CURVES {
        let key = key(group);
        verify(&key, &sign(&key));
    }
    for group in OTHERS.into_iter().filter(|group| group.key_type == c"EC") {
        let key = key(group);
        let signer = key.clone();
        let signature = on_fiber(Backend::Portable, move || sign(&signer));
        verify(&key, &signature);
    }
    assert_eq!(precomputed_nonces(), before);
}

#[test]
fn precomputed_keys_can_sign_too() {
    let _turn = exclusive();
    for group in CURVES {
        let (key, signature) = on_fiber(Backend::Portable, move || {
            let key = group.generate(SLIPSTREAM).to_pkey();
            let context = Context::new(&key, SLIPSTREAM).signing(&[]);
            let signature = context.sign(&hash(32), ROOM).expect("a signature");
            (key, signature)
        });
        let verifier = Context::new(&key, DEFAULT).verifying(&[]);
        assert!(verifier.verify(&signature, &hash(32)), "{group:?}");
    }
}
