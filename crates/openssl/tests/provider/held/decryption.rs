//! Decryption for TLS 1.2's RSA key exchange with a key that a device holds.

use openssl::rsa::Padding;
use slipstream_keys::rsa::Size;
use slipstream_offload::{Kind, Reason};

use super::{
    Answering, Held, NO_ANSWER, NOT_COMPUTED, asked, everywhere, on_fiber, originals, rsa_2048,
};
use crate::common::{Context, DEFAULT, SLIPSTREAM, exclusive};
use crate::premaster::{SECRET_BYTES, block, encrypt, tls};

#[test]
fn a_good_block_gives_its_secret() {
    let _turn = exclusive();
    let originals = &originals()[..3];
    let held = Held::of(originals, Answering::Computing);
    for ((key, original), size) in held.keys.iter().zip(originals).zip(Size::ALL) {
        let block = block(size.bytes(), 0x0303);
        let input = encrypt(original, &block);
        let key = key.clone();
        for secret in everywhere(move || tls(&key, SLIPSTREAM, 0x0303, 0).decrypt(&input, 512)) {
            assert_eq!(secret.as_deref(), Ok(&block[block.len() - SECRET_BYTES..]));
        }
        assert_eq!(asked(Kind::Rsa(size)), 2);
    }
}

#[test]
fn a_damaged_block_gives_a_random_secret_and_no_error() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let good = block(256, 0x0303);
    let secret_at = good.len() - SECRET_BYTES;
    for position in [
        0,
        1,
        2,
        100,
        secret_at - 2,
        secret_at - 1,
        secret_at,
        secret_at + 1,
    ] {
        let mut block = good.clone();
        let filling = (2..secret_at - 1).contains(&position);
        block[position] = if filling { 0 } else { block[position] ^ 0x41 };
        let (input, key) = (encrypt(&original, &block), held.key());
        let secrets = on_fiber(move || {
            let decrypt = || tls(&key, SLIPSTREAM, 0x0303, 0).decrypt(&input, 48);
            [decrypt(), decrypt()].map(|secret| secret.expect("never an error"))
        });
        assert_eq!(
            secrets.each_ref().map(Vec::len),
            [SECRET_BYTES; 2],
            "byte {position}"
        );
        assert_ne!(secrets[0], block[secret_at..], "byte {position}");
        assert_ne!(secrets[0], secrets[1], "byte {position}");
    }
}

#[test]
fn the_negotiated_version_is_tolerated_where_openssl_tolerates_it() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let block = block(256, 0x0302);
    let secret = &block[block.len() - SECRET_BYTES..];
    let input = encrypt(&original, &block);
    for (negotiated, tolerated) in [(0, false), (0x0302, true), (0x0301, false)] {
        let decrypted = tls(&held.key(), SLIPSTREAM, 0x0303, negotiated).decrypt(&input, 48);
        assert_eq!(decrypted.expect("never an error") == secret, tolerated);
    }
}

#[test]
fn what_is_publicly_invalid_is_refused() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let modulus = original.rsa().expect("an RSA key").n().to_vec();
    let good = encrypt(&original, &block(256, 0x0303));
    let long = [&[0][..], &good].concat();
    let invalid = "the ciphertext is not less than the modulus";
    for (input, room, reason) in [
        (modulus, 48, invalid),
        (vec![0xff; 256], 48, invalid),
        (long, 48, invalid),
        (good.clone(), 47, "the buffer is too short for the result"),
    ] {
        let outcome = tls(&held.key(), SLIPSTREAM, 0x0303, 0).decrypt(&input, room);
        assert_eq!(outcome, Err((0, vec![reason.to_owned()])));
    }
    assert_eq!(asked(Kind::Rsa(Size::Rsa2048)), 0);
    // Shorter than the modulus, but a number below it.
    let outcome = tls(&held.key(), SLIPSTREAM, 0x0303, 0).decrypt(&good[1..], 48);
    assert_eq!(outcome.expect("never an error").len(), SECRET_BYTES);
}

#[test]
fn a_device_decrypts_for_tls_only() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let rsa = original.rsa().expect("an RSA key");
    let paddings = [
        (Padding::PKCS1, c"pkcs1"),
        (Padding::PKCS1_OAEP, c"oaep"),
        (Padding::NONE, c"none"),
    ];
    for (padding, name) in paddings {
        let message = if padding == Padding::NONE {
            [1; 256].as_slice()
        } else {
            b"secret"
        };
        let mut input = vec![0; 256];
        rsa.public_encrypt(message, &mut input, padding)
            .expect("encryption");
        let key = held.key();
        for outcome in everywhere(move || {
            let context = Context::new(&key, SLIPSTREAM).decrypting(&[(c"rsa_padding_mode", name)]);
            context.duplicate().decrypt(&input, 256)
        }) {
            let (result, reasons) = outcome.expect_err("no such operation");
            assert_eq!(result, 0);
            assert!(
                reasons[0].starts_with(NOT_COMPUTED),
                "{name:?}: {reasons:?}"
            );
        }
    }
    assert_eq!(asked(Kind::Rsa(Size::Rsa2048)), 0);
}

#[test]
fn without_an_answer_there_is_no_secret() {
    let _turn = exclusive();
    let original = rsa_2048();
    // The error is the same whatever has been decrypted.
    let inputs = [0x0303, 0x0301].map(|version| encrypt(&original, &block(256, version)));
    for answering in [
        Answering::Refusing(Reason::Lost),
        Answering::Refusing(Reason::Fault),
        Answering::Refusing(Reason::Cheaper),
        Answering::Cutting,
    ] {
        let held = Held::of(std::slice::from_ref(&original), answering);
        for input in inputs.clone() {
            let key = held.key();
            for outcome in everywhere(move || tls(&key, SLIPSTREAM, 0x0303, 0).decrypt(&input, 48))
            {
                assert_eq!(
                    outcome,
                    Err((0, vec![NO_ANSWER.to_owned()])),
                    "{answering:?}"
                );
            }
        }
    }
}

#[test]
fn the_public_half_encrypts() {
    let _turn = exclusive();
    let original = rsa_2048();
    let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
    let encrypter = openssl::encrypt::Encrypter::new(&held.key()).and_then(|mut encrypter| {
        encrypter.set_rsa_padding(Padding::PKCS1_OAEP)?;
        let mut output = vec![0; 256];
        let length = encrypter.encrypt(b"secret", &mut output)?;
        output.truncate(length);
        Ok(output)
    });
    let input = encrypter.expect("encryption");
    let context = Context::new(&original, DEFAULT).decrypting(&[(c"rsa_padding_mode", c"oaep")]);
    assert_eq!(context.decrypt(&input, 256), Ok(b"secret".to_vec()));
}
