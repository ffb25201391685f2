//! RSA: keys, signatures, encryption.

use crate::workshop::{BOTH, Ours, Stock, Workshop, text};

#[test]
fn keys_are_made_read_and_written() {
    let workshop = Workshop::new("");
    for bits in [2048, 3072, 4096] {
        let made = format!("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:{bits} -out key.pem");
        workshop.openssl(Ours, &made);
        for words in [
            "pkey -in key.pem -noout -check",
            "pkey -in key.pem -text",
            "pkey -in key.pem -pubout",
            "pkey -in key.pem -traditional",
            "rsa -in key.pem -noout -check",
        ] {
            let [ours, stock] = BOTH.map(|provider| workshop.openssl(provider, words));
            assert_eq!(text(&ours), text(&stock), "{words}");
        }
        let encrypted = "pkey -in key.pem -aes256 -passout pass:secret -out encrypted.pem";
        workshop.openssl(Ours, encrypted);
        workshop.openssl(
            Stock,
            "pkey -in encrypted.pem -passin pass:secret -out decrypted.pem",
        );
        assert_eq!(workshop.read("decrypted.pem"), workshop.read("key.pem"));
    }
}

#[test]
fn digests_are_signed_and_verified() {
    let workshop = Workshop::new("");
    workshop.certificate(Stock, 2048);
    workshop.openssl(Stock, "pkey -in key.pem -pubout -out public.pem");
    workshop.write("message", b"a message");
    for digest in [
        "sha1", "sha224", "sha256", "sha384", "sha512", "sha3-256", "md5",
    ] {
        let [ours, stock] = BOTH.map(|provider| {
            workshop.openssl(provider, &format!("dgst -{digest} -sign key.pem message"))
        });
        assert_eq!(ours, stock, "{digest}");
    }
    let pss = "-sigopt rsa_padding_mode:pss";
    let options = [
        ("sha256", format!("{pss} -sigopt rsa_pss_saltlen:digest")),
        ("sha256", format!("{pss} -sigopt rsa_pss_saltlen:max")),
        ("sha384", format!("{pss} -sigopt rsa_pss_saltlen:auto")),
        ("sha512", format!("{pss} -sigopt rsa_pss_saltlen:0")),
        ("sha1", format!("{pss} -sigopt rsa_pss_saltlen:20")),
        (
            "sha256",
            format!("{pss} -sigopt rsa_pss_saltlen:20 -sigopt rsa_mgf1_md:sha512"),
        ),
        ("sha3-384", format!("{pss} -sigopt rsa_mgf1_md:sha256")),
        ("sha256", "-sigopt rsa_padding_mode:x931".into()),
    ];
    for (digest, options) in &options {
        for (signer, verifier) in [(Ours, Stock), (Stock, Ours)] {
            let sign = format!("dgst -{digest} {options} -sign key.pem -out signature message");
            workshop.openssl(signer, &sign);
            let verify =
                format!("dgst -{digest} {options} -verify public.pem -signature signature message");
            assert_eq!(text(&workshop.openssl(verifier, &verify)), "Verified OK\n");
            let mut damaged = workshop.read("signature");
            damaged[100] ^= 4;
            workshop.write("signature", &damaged);
            assert!(!workshop.try_openssl(verifier, &verify).status.success());
        }
    }
}

#[test]
fn pkeyutl_signs_recovers_encrypts_and_decrypts() {
    let workshop = Workshop::new("");
    workshop.certificate(Stock, 2048);
    workshop.openssl(Stock, "dgst -sha256 -binary -out hash certificate.pem");
    let bare = "pkeyutl -sign -inkey key.pem -in hash";
    let [ours, stock] = BOTH.map(|provider| workshop.openssl(provider, bare));
    assert_eq!(ours, stock);
    workshop.write("bare", &ours);
    for provider in BOTH {
        let recover = "pkeyutl -verifyrecover -inkey key.pem -in bare";
        assert_eq!(workshop.openssl(provider, recover), workshop.read("hash"));
        let verify = "pkeyutl -verify -inkey key.pem -in hash -sigfile bare";
        workshop.openssl(provider, verify);
    }
    let options = [
        "-pkeyopt digest:sha256",
        "-pkeyopt digest:sha256 -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:digest",
    ];
    for options in options {
        for (signer, verifier) in [(Ours, Stock), (Stock, Ours)] {
            let sign = format!("pkeyutl -sign {options} -inkey key.pem -in hash -out signature");
            workshop.openssl(signer, &sign);
            let verify =
                format!("pkeyutl -verify {options} -inkey key.pem -in hash -sigfile signature");
            workshop.openssl(verifier, &verify);
        }
    }
    workshop.write("block", &[&[0; 1][..], &[0x5a; 255]].concat());
    let paddings = [
        ("pkcs1", "hash"),
        ("oaep", "hash"),
        (
            "oaep -pkeyopt rsa_oaep_md:sha256 -pkeyopt rsa_mgf1_md:sha1",
            "hash",
        ),
        ("none", "block"),
    ];
    for (padding, input) in paddings {
        for (sender, receiver) in [(Ours, Stock), (Stock, Ours)] {
            let options = format!("-pkeyopt rsa_padding_mode:{padding} -inkey key.pem");
            let encrypt = format!("pkeyutl -encrypt {options} -in {input} -out encrypted");
            workshop.openssl(sender, &encrypt);
            let decrypt = format!("pkeyutl -decrypt {options} -in encrypted");
            assert_eq!(workshop.openssl(receiver, &decrypt), workshop.read(input));
        }
    }
    // Of what was not encrypted for the key, OpenSSL since 3.2 makes a message that depends on the
    // key, and earlier ones refuse it.
    for input in ["hash", "block"] {
        let decrypt = format!("pkeyutl -decrypt -inkey key.pem -in {input}");
        let outputs = BOTH.map(|provider| workshop.try_openssl(provider, &decrypt));
        let [ours, stock] = outputs.map(|output| (output.status.success(), output.stdout));
        assert_eq!(ours, stock, "{input}");
    }
}

#[test]
fn certificates_and_messages_are_signed() {
    let workshop = Workshop::new("");
    workshop.certificate(Ours, 3072);
    workshop.openssl(Stock, "verify -CAfile certificate.pem certificate.pem");
    workshop.openssl(
        Stock,
        "req -new -key key.pem -subj /CN=leaf -out request.pem",
    );
    workshop.openssl(Ours, "req -in request.pem -noout -verify");
    let issue = "x509 -req -in request.pem -CA certificate.pem -CAkey key.pem -days 1 \
                 -CAcreateserial -out leaf.pem -sigopt rsa_padding_mode:pss \
                 -extfile leaf.cnf -extensions leaf";
    // OpenSSL 4.0 would look for extensions in the configuration.
    workshop.write("leaf.cnf", b"[leaf]\nbasicConstraints = CA:FALSE\n");
    workshop.openssl(Ours, issue);
    workshop.openssl(Stock, "verify -CAfile certificate.pem leaf.pem");
    workshop.write("message", b"a message\n");
    for (sender, receiver) in [(Ours, Stock), (Stock, Ours)] {
        for options in ["", "-keyopt rsa_padding_mode:pss"] {
            let sign = format!(
                "cms -sign -in message -signer certificate.pem -inkey key.pem {options} -out signed"
            );
            workshop.openssl(sender, &sign);
            workshop.openssl(
                receiver,
                "cms -verify -in signed -CAfile certificate.pem -out out",
            );
        }
        for options in ["", "-keyopt rsa_padding_mode:oaep"] {
            let encrypt = format!(
                "cms -encrypt -aes256 -in message -recip certificate.pem {options} -out encrypted"
            );
            workshop.openssl(sender, &encrypt);
            let decrypt = "cms -decrypt -in encrypted -inkey key.pem -recip certificate.pem";
            let decrypted = workshop.openssl(receiver, decrypt);
            assert_eq!(text(&decrypted).replace('\r', ""), "a message\n");
        }
        let sign = "smime -sign -in message -signer certificate.pem -inkey key.pem -out signed";
        workshop.openssl(sender, sign);
        workshop.openssl(
            receiver,
            "smime -verify -in signed -CAfile certificate.pem -out out",
        );
    }
}

#[test]
fn keys_restricted_to_pss_stay_with_openssl() {
    let workshop = Workshop::new("");
    let make = "genpkey -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:2048 \
                -pkeyopt rsa_pss_keygen_md:sha256 -pkeyopt rsa_pss_keygen_mgf1_md:sha256 \
                -pkeyopt rsa_pss_keygen_saltlen:32 -out key.pem";
    workshop.openssl(Ours, make);
    workshop.openssl(Ours, "pkey -in key.pem -pubout -out public.pem");
    workshop.openssl(Ours, "dgst -sha256 -sign key.pem -out signature ours.cnf");
    let verify = "dgst -sha256 -verify public.pem -signature signature ours.cnf";
    workshop.openssl(Stock, verify);
    let refused = "dgst -sha512 -sign key.pem -out signature ours.cnf";
    assert!(!workshop.try_openssl(Ours, refused).status.success());
}
