//! Decryption for TLS 1.2's RSA key exchange, on fibers, against OpenSSL's own provider.

use std::cell::RefCell;
use std::ffi::{CStr, c_uint};
use std::rc::Rc;

use crate::common::{
    Context, DEFAULT, Outcome, SLIPSTREAM, exclusive, import, keys, on_fibers, use_lanes,
};
use openssl::pkey::{PKey, Private};
use openssl::rsa::Padding;
use openssl_sys as sys;
use slipstream_accelerators::lanes::Backend;
use slipstream_openssl::lane_operations;

/// Bytes of a premaster secret.
pub const SECRET_BYTES: usize = 48;

/// `RSA_PKCS1_WITH_TLS_PADDING`.
const TLS_PADDING: c_uint = 7;

/// A context that decrypts as a TLS server does for a client that offered `client`.
pub fn tls(key: &PKey<Private>, query: &CStr, client: c_uint, negotiated: c_uint) -> Context {
    let context = Context::new(key, query).decrypting(&[]);
    let (mut padding, mut client, mut negotiated) = (TLS_PADDING, client, negotiated);
    // SAFETY: names end with NUL and the numbers outlive the call.
    let set = unsafe {
        let params = [
            sys::OSSL_PARAM_construct_uint(c"tls-client-version".as_ptr(), &mut client),
            sys::OSSL_PARAM_construct_uint(c"tls-negotiated-version".as_ptr(), &mut negotiated),
            integer(c"pad-mode", &mut padding),
            sys::OSSL_PARAM_construct_end(),
        ];
        sys::EVP_PKEY_CTX_set_params(context.as_ptr(), params.as_ptr())
    };
    assert_eq!(set, 1);
    context
}

/// OpenSSL wants a signed number for the padding.
fn integer(name: &'static CStr, value: &mut c_uint) -> sys::OSSL_PARAM {
    const INTEGER: c_uint = 1;
    sys::OSSL_PARAM {
        key: name.as_ptr(),
        data_type: INTEGER,
        data: std::ptr::from_mut(value).cast(),
        data_size: size_of::<c_uint>(),
        return_size: 0,
    }
}

/// A good block: 00 02, padding, 00, and a secret that begins with `version`.
pub fn block(length: usize, version: u16) -> Vec<u8> {
    let mut block: Vec<u8> = (0..length).map(|index| (index % 251) as u8 | 1).collect();
    block[0] = 0;
    block[1] = 2;
    block[length - SECRET_BYTES - 1] = 0;
    block[length - SECRET_BYTES..][..2].copy_from_slice(&version.to_be_bytes());
    block
}

/// `block` to the power of the public exponent.
pub fn encrypt(key: &PKey<Private>, block: &[u8]) -> Vec<u8> {
    let mut output = vec![0; key.size()];
    let rsa = key.rsa().expect("an RSA key");
    rsa.public_encrypt(block, &mut output, Padding::NONE)
        .expect("less than the modulus");
    output
}

/// Decrypts on fibers, all at once.
fn decrypt_on_fibers(
    backend: Backend,
    key: &PKey<Private>,
    versions: (c_uint, c_uint),
    inputs: &[Vec<u8>],
    room: usize,
) -> Vec<Outcome> {
    let outcomes = Rc::new(RefCell::new(vec![Ok(Vec::new()); inputs.len()]));
    let jobs = inputs.iter().cloned().enumerate().map(|(index, input)| {
        let (outcomes, key) = (outcomes.clone(), key.clone());
        Box::new(move || {
            let context = tls(&key, SLIPSTREAM, versions.0, versions.1);
            outcomes.borrow_mut()[index] = context.decrypt(&input, room);
        }) as Box<dyn FnOnce()>
    });
    on_fibers(backend, jobs.collect());
    outcomes.take()
}

#[test]
fn a_good_block_gives_its_secret() {
    let _turn = exclusive();
    for backend in Backend::available() {
        use_lanes(backend);
        for der in keys() {
            let key = import(der);
            let block = block(key.size(), 0x0303);
            let input = encrypt(&key, &block);
            let before = lane_operations();
            let inputs = [input.clone()];
            let outcome = decrypt_on_fibers(backend, &key, (0x0303, 0), &inputs, 48).remove(0);
            assert_eq!(lane_operations() - before, 1);
            assert_eq!(
                outcome.expect("a secret"),
                block[block.len() - SECRET_BYTES..]
            );
            let expected = tls(&key, DEFAULT, 0x0303, 0).decrypt(&input, 48);
            assert_eq!(
                expected.expect("a secret"),
                block[block.len() - SECRET_BYTES..]
            );
        }
    }
}

#[test]
fn every_damaged_byte_gives_a_random_secret_and_no_error() {
    let _turn = exclusive();
    let backend = Backend::detect().unwrap_or(Backend::Portable);
    use_lanes(backend);
    let key = import(&keys()[0]);
    let good = block(key.size(), 0x0303);
    let secret_at = good.len() - SECRET_BYTES;
    // Bytes of the padding are damaged by being zero, others by being different. Two of each: what
    // is random differs.
    let damaged: Vec<Vec<u8>> = (0..secret_at + 2)
        .flat_map(|position| {
            let mut block = good.clone();
            let filling = (2..secret_at - 1).contains(&position);
            block[position] = if filling { 0 } else { block[position] ^ 0x41 };
            [block.clone(), block]
        })
        .collect();
    let inputs: Vec<Vec<u8>> = damaged
        .iter()
        .map(|block| {
            // The modulus begins with a set bit, hence 0x41 with or without 00 is below it.
            encrypt(&key, block)
        })
        .collect();
    let before = lane_operations();
    let outcomes: Vec<Outcome> = inputs
        .chunks(40)
        .flat_map(|inputs| decrypt_on_fibers(backend, &key, (0x0303, 0), inputs, 256))
        .collect();
    assert_eq!(lane_operations() - before, inputs.len() as u64);
    let secrets: Vec<Vec<u8>> = outcomes
        .into_iter()
        .map(|outcome| outcome.expect("never an error"))
        .collect();
    for (position, (pair, block)) in secrets.chunks(2).zip(damaged.chunks(2)).enumerate() {
        assert_eq!(pair[0].len(), SECRET_BYTES, "byte {position}");
        assert_ne!(pair[0], block[0][secret_at..], "byte {position}");
        assert_ne!(pair[0], pair[1], "byte {position}");
    }
}

#[test]
fn the_negotiated_version_is_tolerated_where_openssl_tolerates_it() {
    let _turn = exclusive();
    use_lanes(Backend::Portable);
    let key = import(&keys()[0]);
    let block = block(key.size(), 0x0302);
    let secret = &block[block.len() - SECRET_BYTES..];
    let inputs = [encrypt(&key, &block)];
    for (negotiated, tolerated) in [(0, false), (0x0302, true), (0x0301, false)] {
        let versions = (0x0303, negotiated);
        let outcome = decrypt_on_fibers(Backend::Portable, &key, versions, &inputs, 48).remove(0);
        assert_eq!(outcome.expect("never an error") == secret, tolerated);
        let expected = tls(&key, DEFAULT, 0x0303, negotiated).decrypt(&inputs[0], 48);
        assert_eq!(expected.expect("never an error") == secret, tolerated);
    }
}

#[test]
fn what_is_publicly_invalid_gives_the_errors_of_openssl() {
    let _turn = exclusive();
    use_lanes(Backend::Portable);
    let key = import(&keys()[0]);
    let modulus = key.rsa().expect("an RSA key").n().to_vec();
    let good = encrypt(&key, &block(key.size(), 0x0303));
    let mut long = good.clone();
    long.insert(0, 1);
    let cases = [
        (0x0303, modulus.clone(), 48),
        (0x0303, vec![0xff; 256], 48),
        (0x0303, long, 48),
        (0x0303, good.clone(), 47),
        (0, good.clone(), 48),
    ];
    for (client, input, room) in cases {
        let expected = tls(&key, DEFAULT, client, 0).decrypt(&input, room);
        assert!(expected.is_err());
        let outcomes = decrypt_on_fibers(Backend::Portable, &key, (client, 0), &[input], room);
        assert_eq!(outcomes, [expected]);
    }
    // Shorter than the modulus, but a number below it: both decrypt it.
    let short = good[1..].to_vec();
    let outcome = decrypt_on_fibers(Backend::Portable, &key, (0x0303, 0), &[short], 48).remove(0);
    assert_eq!(outcome.expect("never an error").len(), SECRET_BYTES);
}

#[test]
fn other_paddings_are_decrypted_by_openssl() {
    let _turn = exclusive();
    use_lanes(Backend::Portable);
    let key = import(&keys()[0]);
    let rsa = key.rsa().expect("an RSA key");
    let before = lane_operations();
    for (padding, name) in [(Padding::PKCS1, c"pkcs1"), (Padding::PKCS1_OAEP, c"oaep")] {
        let mut input = vec![0; 256];
        rsa.public_encrypt(b"secret", &mut input, padding)
            .expect("encryption");
        let outcome = Rc::new(RefCell::new(None));
        let job = {
            let (outcome, key) = (outcome.clone(), key.clone());
            move || {
                let options = [(c"rsa_padding_mode", name)];
                let context = Context::new(&key, SLIPSTREAM)
                    .decrypting(&options)
                    .duplicate();
                *outcome.borrow_mut() = Some(context.decrypt(&input, 256));
            }
        };
        on_fibers(Backend::Portable, vec![Box::new(job)]);
        assert_eq!(outcome.take(), Some(Ok(b"secret".to_vec())));
    }
    assert_eq!(lane_operations(), before);
}
