//! A key with a handle, as a key.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use foreign_types_shared::ForeignType;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslContext, SslMethod};
use openssl_sys as sys;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;

use super::{
    Answering, CURVES, Held, NOT_COMPUTED, NOT_EXPORTED, NOT_HELD, asked, on_curve, originals,
    rsa_2048,
};
use crate::async_jobs::certificate;
use crate::common::{Context, DEFAULT, SLIPSTREAM, exclusive};
use crate::curves::evp::{KEYPAIR, Key, PUBLIC_KEY};

unsafe extern "C" {
    fn EVP_PKEY_todata(
        key: *const sys::EVP_PKEY,
        selection: c_int,
        params: *mut *mut sys::OSSL_PARAM,
    ) -> c_int;
    fn EVP_PKEY_CTX_new_from_name(
        library: *mut c_void,
        name: *const c_char,
        query: *const c_char,
    ) -> *mut sys::EVP_PKEY_CTX;
    fn EVP_PKEY_fromdata_init(context: *mut sys::EVP_PKEY_CTX) -> c_int;
    fn EVP_PKEY_fromdata(
        context: *mut sys::EVP_PKEY_CTX,
        key: *mut *mut sys::EVP_PKEY,
        selection: c_int,
        params: *mut sys::OSSL_PARAM,
    ) -> c_int;
    fn EVP_PKEY_fromdata_settable(
        context: *mut sys::EVP_PKEY_CTX,
        selection: c_int,
    ) -> *const sys::OSSL_PARAM;
    fn EVP_PKEY_set_utf8_string_param(
        key: *mut sys::EVP_PKEY,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int;
    fn X509_check_private_key(certificate: *const c_void, key: *const sys::EVP_PKEY) -> c_int;
}

const UNSIGNED_INTEGER: c_uint = 2;
const UTF8_STRING: c_uint = 4;
const OCTET_STRING: c_uint = 5;

/// Makes a key of the provider, or answers the reasons why it refuses.
fn make(
    name: &CStr,
    selection: c_int,
    values: &mut [(&'static CStr, c_uint, Vec<u8>)],
) -> Result<Key, Vec<String>> {
    let mut params: Vec<sys::OSSL_PARAM> = values
        .iter_mut()
        .map(|(name, data_type, value)| sys::OSSL_PARAM {
            key: name.as_ptr(),
            data_type: *data_type,
            data: value.as_mut_ptr().cast(),
            data_size: value.len(),
            return_size: 0,
        })
        .collect();
    // SAFETY: no preconditions.
    params.push(unsafe { sys::OSSL_PARAM_construct_end() });
    let mut key = std::ptr::null_mut();
    // SAFETY: texts that end with NUL, a context that is freed, and an array that ends.
    let made = unsafe {
        let (library, query) = (std::ptr::null_mut(), SLIPSTREAM.as_ptr());
        let context = EVP_PKEY_CTX_new_from_name(library, name.as_ptr(), query);
        assert_eq!(EVP_PKEY_fromdata_init(context), 1);
        let made = EVP_PKEY_fromdata(context, &mut key, selection, params.as_mut_ptr());
        sys::EVP_PKEY_CTX_free(context);
        made
    };
    let reasons = reasons();
    if made != 1 {
        return Err(reasons);
    }
    // SAFETY: a new key, which is owned.
    Ok(Key::from_pkey(unsafe { PKey::from_ptr(key.cast()) }))
}

fn reasons() -> Vec<String> {
    let errors = openssl::error::ErrorStack::get();
    let reasons = errors.errors().iter();
    reasons
        .map(|error| error.reason().unwrap_or("?").to_owned())
        .collect()
}

/// The parameters of a 2048-bit key with this handle.
fn rsa_values(handle: Vec<u8>) -> [(&'static CStr, c_uint, Vec<u8>); 3] {
    let rsa = rsa_2048().rsa().expect("an RSA key");
    let number = |number: &openssl::bn::BigNumRef| number.to_vec().into_iter().rev().collect();
    [
        (c"n", UNSIGNED_INTEGER, number(rsa.n())),
        (c"e", UNSIGNED_INTEGER, number(rsa.e())),
        (c"slipstream-handle", UNSIGNED_INTEGER, handle),
    ]
}

fn export(key: &PKey<Private>, selection: c_int) -> Result<(), Vec<String>> {
    let mut params = std::ptr::null_mut();
    // SAFETY: a key, and the array that is made and freed here.
    let exported = unsafe {
        let exported = EVP_PKEY_todata(key.as_ptr().cast(), selection, &mut params);
        sys::OSSL_PARAM_free(params);
        exported
    };
    let reasons = reasons();
    if exported == 1 { Ok(()) } else { Err(reasons) }
}

#[test]
fn a_key_belongs_to_its_certificate_and_to_no_other() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (index, original) in originals.iter().enumerate() {
        let certificate = certificate(original);
        for (other, key) in held.keys.iter().enumerate() {
            // SAFETY: a certificate and a key.
            let belongs = unsafe {
                let (certificate, key) = (certificate.as_ptr().cast(), key.as_ptr().cast());
                X509_check_private_key(certificate, key)
            };
            assert_eq!(
                (belongs == 1, reasons().is_empty()),
                (index == other, index == other)
            );
        }
        let mut context = SslContext::builder(SslMethod::tls_server()).expect("a context");
        context
            .set_certificate(&certificate)
            .expect("a certificate");
        context
            .set_private_key(&held.keys[index])
            .expect("the key of the certificate");
        context
            .check_private_key()
            .expect("the key of the certificate");
    }
}

#[test]
fn a_key_equals_its_original_in_either_provider() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        let key = Key::from_pkey(key.clone());
        let original = Key::from_pkey(original.clone());
        let name = if key.is_a(c"RSA") { c"RSA" } else { c"EC" };
        let another = match name == c"RSA" {
            true => Key::from_pkey(crate::common::import(&crate::common::keys()[0])),
            false => Key::generate(c"EC", Some(CURVES[0]), DEFAULT),
        };
        for query in [DEFAULT, SLIPSTREAM] {
            let original = original.transfer(name, KEYPAIR, query);
            assert!(key.equals(&original) && original.equals(&key));
            assert!(!key.equals(&another) && !another.equals(&key));
        }
    }
}

#[test]
fn parameters_are_those_of_the_original() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        assert_eq!((key.bits(), key.size()), (original.bits(), original.size()));
        assert_eq!(
            (key.id(), key.security_bits()),
            (original.id(), original.security_bits())
        );
        let [key, original] = [key, original].map(|key| Key::from_pkey(key.clone()));
        let name = if key.is_a(c"RSA") { c"RSA" } else { c"EC" };
        let original = original.transfer(name, KEYPAIR, DEFAULT);
        assert_eq!(key.provider(), "slipstream");
        for name in [c"bits", c"security-bits", c"max-size"] {
            assert_eq!(key.int(name), original.int(name), "{name:?}");
            assert!(key.int(name).is_some(), "{name:?}");
        }
        assert_eq!(key.group(), original.group());
        assert_eq!(key.encoded_public_key(), original.encoded_public_key());
        assert!(key.check(SLIPSTREAM) && key.public_check(SLIPSTREAM));
    }
}

#[test]
fn only_the_public_half_is_exported() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        assert_eq!(export(key, PUBLIC_KEY), Ok(()));
        assert_eq!(
            key.public_key_to_der().expect("DER"),
            original.public_key_to_der().expect("DER")
        );
        let refused = export(key, KEYPAIR).expect_err("a private key");
        assert!(refused.contains(&NOT_EXPORTED.to_owned()), "{refused:?}");
        assert!(key.private_key_to_der().is_err());
        assert!(key.private_key_to_pkcs8().is_err());
        assert!(reasons().is_empty());
    }
}

#[test]
fn a_copy_has_the_handle_too() {
    let _turn = exclusive();
    let originals = [rsa_2048(), on_curve(CURVES[0])];
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        let copy = Key::from_pkey(key.clone()).duplicate().to_pkey();
        let hash = [7; 32];
        let signature = Context::new(&copy, SLIPSTREAM)
            .signing(&[])
            .sign(&hash, 256);
        let verifier = Context::new(original, DEFAULT).verifying(&[]);
        assert!(verifier.verify(&signature.expect("a signature"), &hash));
    }
}

#[test]
fn a_key_keeps_its_handle_when_it_is_told_how_to_be_encoded() {
    let _turn = exclusive();
    let original = on_curve(CURVES[0]);
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let key = held.key();
    let set = |name: &CStr, value: &CStr| {
        // SAFETY: a key and texts that end with NUL.
        unsafe {
            EVP_PKEY_set_utf8_string_param(key.as_ptr().cast(), name.as_ptr(), value.as_ptr())
        }
    };
    assert_eq!(set(c"point-format", c"compressed"), 1);
    let sign = || {
        Context::new(&key, SLIPSTREAM)
            .signing(&[])
            .sign(&[7; 32], 256)
    };
    let verifier = Context::new(&original, DEFAULT).verifying(&[]);
    assert!(verifier.verify(&sign().expect("a signature"), &[7; 32]));
    // But not when it becomes another key.
    let other = Key::generate(c"EC", Some(CURVES[0]), DEFAULT);
    let encoded = other.encoded_public_key().expect("a public key");
    assert!(Key::from_pkey(key.clone()).set_encoded_public_key(&encoded));
    let before = asked(Kind::Ecdsa(slipstream_keys::ec::Curve::P256));
    assert!(sign().is_err());
    assert_eq!(asked(Kind::Ecdsa(slipstream_keys::ec::Curve::P256)), before);
}

#[test]
fn a_handle_is_listed_among_what_can_be_imported() {
    let _turn = exclusive();
    for (name, selection, listed) in [
        (c"RSA", KEYPAIR, true),
        (c"EC", KEYPAIR, true),
        (c"EC", PUBLIC_KEY, false),
        (c"X25519", KEYPAIR, false),
    ] {
        // SAFETY: texts that end with NUL; the answer is an array that ends with a null key.
        let found = unsafe {
            let (library, query) = (std::ptr::null_mut(), SLIPSTREAM.as_ptr());
            let context = EVP_PKEY_CTX_new_from_name(library, name.as_ptr(), query);
            assert_eq!(EVP_PKEY_fromdata_init(context), 1);
            let mut param = EVP_PKEY_fromdata_settable(context, selection);
            let mut found = false;
            while !(*param).key.is_null() {
                found |= CStr::from_ptr((*param).key) == c"slipstream-handle";
                param = param.add(1);
            }
            sys::EVP_PKEY_CTX_free(context);
            found
        };
        assert_eq!(found, listed, "{name:?} {selection:x}");
    }
}

#[test]
fn handles_are_numbers_of_64_bits() {
    let _turn = exclusive();
    let with_zeros = [[1; 8], [0; 8]].concat();
    for handle in [vec![1], vec![0xff; 8], with_zeros] {
        assert!(make(c"RSA", KEYPAIR, &mut rsa_values(handle)).is_ok());
    }
    let refused = make(c"RSA", KEYPAIR, &mut rsa_values(vec![1; 9])).map(|_| ());
    let text = "slipstream-handle is an unsigned integer of at most 64 bits";
    assert_eq!(refused, Err(vec![text.to_owned()]));
    let mut octets = rsa_values(vec![1; 8]);
    octets[2].1 = OCTET_STRING;
    assert_eq!(
        make(c"RSA", KEYPAIR, &mut octets).map(|_| ()),
        Err(vec![text.to_owned()])
    );
}

#[test]
fn a_public_key_that_no_device_holds_takes_no_handle() {
    let _turn = exclusive();
    let handle = || (c"slipstream-handle", UNSIGNED_INTEGER, vec![1; 8]);
    let group = |name: &CStr| (c"group", UTF8_STRING, name.to_bytes_with_nul().to_vec());
    let public = |name: &CStr| {
        let key = Key::generate(c"EC", Some(name), DEFAULT);
        (
            c"pub",
            OCTET_STRING,
            key.encoded_public_key().expect("a public key"),
        )
    };
    let refused = |name, values: &mut [_]| {
        make(name, KEYPAIR, values)
            .map(|_| ())
            .expect_err("refused")
    };
    let mut small = rsa_values(vec![1; 8]);
    small[0].2.truncate(128);
    let last = |reasons: Vec<String>| reasons.last().cloned();
    assert_eq!(last(refused(c"RSA", &mut small)), Some(NOT_HELD.to_owned()));
    let mut other_curve = [group(c"secp521r1"), public(c"secp521r1"), handle()];
    assert_eq!(
        last(refused(c"EC", &mut other_curve)),
        Some(NOT_HELD.to_owned())
    );
    let mut without_public_key = [group(c"prime256v1"), handle()];
    assert!(!refused(c"EC", &mut without_public_key).is_empty());
    let mut usual = [group(c"prime256v1"), public(c"prime256v1"), handle()];
    assert!(make(c"EC", KEYPAIR, &mut usual).is_ok());
}

#[test]
fn a_handle_is_no_part_of_a_public_key() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let key = make(c"RSA", PUBLIC_KEY, &mut rsa_values(vec![1; 8])).expect("a public key");
    let signature = Context::new(&key.to_pkey(), SLIPSTREAM)
        .signing(&[])
        .sign(&[7; 32], 256);
    assert!(signature.is_err());
    assert_eq!(asked(Kind::Rsa(Size::Rsa2048)), 0);
    drop(held);
}

#[test]
fn a_device_exchanges_no_keys() {
    let _turn = exclusive();
    let held = Held::of(&[on_curve(CURVES[0])], Answering::Computing);
    let key = Key::from_pkey(held.key());
    let context = Context::new(&held.key(), SLIPSTREAM);
    // SAFETY: a context.
    assert!(unsafe { sys::EVP_PKEY_derive_init(context.as_ptr()) } <= 0);
    let refused = reasons();
    assert!(
        refused
            .iter()
            .any(|reason| reason.starts_with(NOT_COMPUTED)),
        "{refused:?}"
    );
    // Its public half is a peer like any other.
    let other = Key::generate(c"EC", Some(CURVES[0]), DEFAULT);
    assert!(other.derive(&key, SLIPSTREAM).is_ok());
}
