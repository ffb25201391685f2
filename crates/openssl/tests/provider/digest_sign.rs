//! Messages hashed and signed, in one go and in steps, against OpenSSL's own provider.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::rc::Rc;

use foreign_types_shared::ForeignType;
use openssl::pkey::{PKey, Private};
use openssl_sys as sys;
use slipstream_accelerators::lanes::Backend;
use slipstream_openssl::lane_operations;

use crate::common::{
    DEFAULT, Outcome, SLIPSTREAM, call, exclusive, import, keys, on_fibers, use_lanes,
};

unsafe extern "C" {
    fn EVP_DigestSignInit_ex(
        context: *mut sys::EVP_MD_CTX,
        key_context: *mut *mut sys::EVP_PKEY_CTX,
        digest: *const c_char,
        library: *mut c_void,
        query: *const c_char,
        key: *mut sys::EVP_PKEY,
        params: *const sys::OSSL_PARAM,
    ) -> c_int;
    fn EVP_PKEY_CTX_ctrl_str(
        context: *mut sys::EVP_PKEY_CTX,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int;
    fn EVP_MD_CTX_get_params(context: *mut sys::EVP_MD_CTX, params: *mut sys::OSSL_PARAM) -> c_int;
    fn EVP_MD_CTX_set_params(
        context: *mut sys::EVP_MD_CTX,
        params: *const sys::OSSL_PARAM,
    ) -> c_int;
}

/// An `EVP_MD_CTX` that signs, with its `EVP_PKEY_CTX`.
struct Signer {
    context: *mut sys::EVP_MD_CTX,
    key_context: *mut sys::EVP_PKEY_CTX,
}

impl Signer {
    /// Ed25519 has no digest.
    fn new<'a>(key: &PKey<Private>, query: &CStr, digest: impl Into<Option<&'a CStr>>) -> Self {
        // SAFETY: no preconditions.
        let context = unsafe { sys::EVP_MD_CTX_new() };
        let mut signer = Self {
            context,
            key_context: std::ptr::null_mut(),
        };
        assert_eq!(signer.init(Some(key), query, digest.into()), 1);
        // OpenSSL 4.0 reports that the provider asked for has no digests, and finds another's.
        let _ = openssl::error::ErrorStack::get();
        signer
    }

    fn init<'a>(
        &mut self,
        key: Option<&PKey<Private>>,
        query: &CStr,
        digest: impl Into<Option<&'a CStr>>,
    ) -> c_int {
        let digest = digest.into().map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: a context, a key or null, and texts that end with NUL or null.
        unsafe {
            EVP_DigestSignInit_ex(
                self.context,
                &mut self.key_context,
                digest,
                std::ptr::null_mut(),
                query.as_ptr(),
                key.map_or(std::ptr::null_mut(), |key| key.as_ptr().cast()),
                std::ptr::null(),
            )
        }
    }

    fn set(&self, name: &CStr, value: &CStr) -> c_int {
        // SAFETY: the context that belongs to the signer, and texts that end with NUL.
        let set = unsafe { EVP_PKEY_CTX_ctrl_str(self.key_context, name.as_ptr(), value.as_ptr()) };
        let _ = openssl::error::ErrorStack::get();
        set
    }

    fn update(&self, data: &[u8]) {
        // SAFETY: as many bytes as the slice has.
        let updated =
            unsafe { sys::EVP_DigestSignUpdate(self.context, data.as_ptr().cast(), data.len()) };
        assert_eq!(updated, 1);
    }

    fn finish(&self, room: usize) -> Outcome {
        call(room, |output, length| {
            // SAFETY: a buffer as long as said.
            unsafe { sys::EVP_DigestSignFinal(self.context, output, length) }
        })
    }

    fn sign(&self, data: &[u8], room: usize) -> Outcome {
        call(room, |output, length| {
            // SAFETY: buffers as long as said.
            unsafe { sys::EVP_DigestSign(self.context, output, length, data.as_ptr(), data.len()) }
        })
    }

    /// What is answered when only the length is asked for.
    fn lengths(&self) -> [(c_int, usize); 2] {
        let (mut finish, mut sign) = (0, 0);
        let null = std::ptr::null_mut();
        // SAFETY: without a buffer only the length is answered.
        unsafe {
            [
                (
                    sys::EVP_DigestSignFinal(self.context, null, &mut finish),
                    finish,
                ),
                (
                    sys::EVP_DigestSign(self.context, null, &mut sign, null, 0),
                    sign,
                ),
            ]
        }
    }

    fn copy(&self) -> Self {
        // SAFETY: no preconditions.
        let context = unsafe { sys::EVP_MD_CTX_new() };
        // SAFETY: two contexts, of which one is new.
        assert_eq!(unsafe { sys::EVP_MD_CTX_copy_ex(context, self.context) }, 1);
        Self {
            context,
            key_context: std::ptr::null_mut(),
        }
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { sys::EVP_MD_CTX_free(self.context) };
    }
}

/// Runs `script` with OpenSSL's own provider and, on a fiber, with ours; they must agree. Answers
/// how many operations lanes computed.
fn agree(backend: Backend, script: fn(&PKey<Private>, &CStr) -> Vec<Outcome>) -> u64 {
    use_lanes(backend);
    let key = import(&keys()[0]);
    let expected = script(&key, DEFAULT);
    let outcomes = Rc::new(RefCell::new(Vec::new()));
    let job = {
        let outcomes = outcomes.clone();
        move || *outcomes.borrow_mut() = script(&key, SLIPSTREAM)
    };
    let before = lane_operations();
    on_fibers(backend, vec![Box::new(job)]);
    assert_eq!(outcomes.take(), expected);
    lane_operations() - before
}

#[test]
fn one_go_and_steps_agree_with_openssl_for_every_digest() {
    let _turn = exclusive();
    for backend in Backend::available() {
        let in_lanes = agree(backend, |key, query| {
            let digests = [
                c"SHA1",
                c"SHA224",
                c"SHA256",
                c"SHA384",
                c"SHA512",
                c"SHA3-256",
                c"MD5",
            ];
            let mut outcomes = Vec::new();
            for digest in digests {
                outcomes.push(Signer::new(key, query, digest).sign(b"message", 256));
                let steps = Signer::new(key, query, digest);
                [&b"mess"[..], b"", b"age"]
                    .into_iter()
                    .for_each(|part| steps.update(part));
                outcomes.push(steps.finish(256));
                assert_eq!(
                    outcomes[outcomes.len() - 2..][0],
                    outcomes[outcomes.len() - 1]
                );
            }
            outcomes
        });
        assert_eq!(in_lanes, 10);
    }
}

#[test]
fn a_context_goes_on_after_a_signature_as_with_openssl() {
    let _turn = exclusive();
    let in_lanes = agree(Backend::Portable, |key, query| {
        let signer = Signer::new(key, query, c"SHA256");
        signer.update(b"one");
        let first = signer.finish(256);
        signer.update(b"two");
        let second = signer.finish(256);
        let third = signer.sign(b"three", 256);
        vec![first, second, third]
    });
    assert_eq!(in_lanes, 3);
}

/// OpenSSL itself decides if a context can be used again after a message was signed in one go. Of a
/// provider that can do so, 3.0 allows it and 3.5 does not, as one sees at its own Ed25519.
#[test]
fn a_second_message_in_one_go_is_signed_where_openssl_allows_it() {
    let _turn = exclusive();
    let key = PKey::generate_ed25519().expect("a key");
    let signer = Signer::new(&key, DEFAULT, None);
    let outcomes = [b"one", b"two"].map(|message| signer.sign(message, 64).is_ok());
    assert!(outcomes[0]);
    let is_allowed = outcomes[1];

    use_lanes(Backend::Portable);
    let signer = Signer::new(&import(&keys()[0]), SLIPSTREAM, c"SHA256");
    let first = signer.sign(b"one", 256);
    let second = signer.sign(b"two", 256);
    assert_eq!((first.is_ok(), second.is_ok()), (true, is_allowed));
    if is_allowed {
        // What was signed before is part of the message.
        let stock = Signer::new(&import(&keys()[0]), DEFAULT, c"SHA256");
        assert_eq!(second, stock.sign(b"onetwo", 256));
    }
}

#[test]
fn a_copy_in_mid_message_is_its_own() {
    let _turn = exclusive();
    let in_lanes = agree(Backend::Portable, |key, query| {
        let signer = Signer::new(key, query, c"SHA256");
        signer.update(b"common ");
        let copy = signer.copy();
        signer.update(b"one");
        copy.update(b"two");
        vec![copy.finish(256), signer.finish(256)]
    });
    assert_eq!(in_lanes, 2);
}

#[test]
fn a_context_can_be_initialised_again() {
    let _turn = exclusive();
    let in_lanes = agree(Backend::Portable, |key, query| {
        let mut signer = Signer::new(key, query, c"SHA256");
        signer.update(b"thrown away");
        let again = signer.init(Some(key), query, c"SHA512");
        let first = signer.sign(b"message", 256);
        let without_key = signer.init(None, query, c"SHA384");
        let second = signer.sign(b"message", 256);
        let _ = openssl::error::ErrorStack::get();
        vec![
            first,
            second,
            Err((again, vec![])),
            Err((without_key, vec![])),
        ]
    });
    assert_eq!(in_lanes, 2);
}

#[test]
fn lengths_and_refusals_are_those_of_openssl() {
    let _turn = exclusive();
    agree(Backend::Portable, |key, query| {
        let signer = Signer::new(key, query, c"SHA256");
        let mut outcomes = vec![
            Err((signer.set(c"digest", c"SHA512"), vec![])),
            Err((signer.set(c"digest", c"SHA256"), vec![])),
            Err((signer.set(c"rsa_pss_saltlen", c"20"), vec![])),
        ];
        outcomes.extend(
            signer
                .lengths()
                .map(|(result, length)| Ok(vec![result as u8, (length >> 4) as u8])),
        );
        outcomes.push(signer.sign(b"message", 255));
        outcomes.push(Signer::new(key, query, c"SHA256").finish(255));
        let padded = Signer::new(key, query, c"SHA256");
        outcomes.push(Err((padded.set(c"rsa_padding_mode", c"none"), vec![])));
        outcomes.push(padded.sign(b"message", 256));
        outcomes
    });
}

#[test]
fn parameters_of_the_digest_are_reached() {
    let _turn = exclusive();
    agree(Backend::Portable, |key, query| {
        let signer = Signer::new(key, query, c"SHA256");
        let mut number = 0;
        // SAFETY: names end with NUL, and the number outlives the calls.
        let results = unsafe {
            let mut params = [
                sys::OSSL_PARAM_construct_uint(c"ssl3-ms".as_ptr(), &mut number),
                sys::OSSL_PARAM_construct_end(),
            ];
            let get = EVP_MD_CTX_get_params(signer.context, params.as_mut_ptr());
            let set = EVP_MD_CTX_set_params(signer.context, params.as_ptr());
            [get, set]
        };
        let _ = openssl::error::ErrorStack::get();
        let mut outcomes = results.map(|result| Err((result, vec![]))).to_vec();
        outcomes.push(signer.sign(b"message", 256));
        outcomes
    });
}
