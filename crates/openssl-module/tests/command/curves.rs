//! Curves: keys, exchanges, signatures, servers.

use crate::workshop::{BOTH, Ours, Provider, Server, Stock, Workshop, fetch, fetch_with, text};

/// Options that generate a key, and whether keys of its type sign and exchange secrets.
struct Kind {
    generate: &'static str,
    signs: bool,
    derives: bool,
}

const fn kind(generate: &'static str, signs: bool, derives: bool) -> Kind {
    Kind {
        generate,
        signs,
        derives,
    }
}

const KINDS: [Kind; 12] = [
    kind("X25519", false, true),
    kind("X448", false, true),
    kind("EC -pkeyopt group:P-256", true, true),
    kind("EC -pkeyopt ec_paramgen_curve:P-384", true, true),
    kind("EC -pkeyopt group:secp521r1", true, true),
    kind("EC -pkeyopt group:secp256k1", true, true),
    kind("EC -pkeyopt group:brainpoolP256r1", true, true),
    kind("EC -pkeyopt group:sect283k1", true, true),
    kind(
        "EC -pkeyopt group:P-256 -pkeyopt ec_param_enc:explicit",
        true,
        true,
    ),
    kind(
        "EC -pkeyopt group:P-384 -pkeyopt point-format:compressed",
        true,
        true,
    ),
    kind("ED25519", false, false),
    kind("ED448", false, false),
];

/// Configurations of the provider: what is usual, and lanes wherever they can be used.
const CONFIGURATIONS: [&str; 2] = ["", "lanes = portable\nflush = always"];

fn generate(workshop: &Workshop, provider: Provider, kind: &Kind, name: &str) {
    let words = format!("genpkey -algorithm {} -out {name}.pem", kind.generate);
    workshop.openssl(provider, &words);
    let public = format!("pkey -in {name}.pem -pubout -out {name}.pub");
    workshop.openssl(provider, &public);
}

#[test]
fn keys_are_made_read_and_written() {
    for lines in CONFIGURATIONS {
        let workshop = Workshop::new(lines);
        for kind in &KINDS {
            generate(&workshop, Ours, kind, "key");
            let is_ec = kind.generate.starts_with("EC ");
            let mut commands = vec![
                "pkey -in key.pem -noout -check",
                "pkey -in key.pem -text",
                "pkey -in key.pem -pubout",
                "pkey -in key.pem -outform DER",
                "pkey -pubin -in key.pub -text -pubcheck",
            ];
            if is_ec {
                commands.extend([
                    "pkey -in key.pem -traditional",
                    "ec -in key.pem -text -check",
                    "ec -in key.pem -conv_form compressed",
                    "ec -in key.pem -conv_form hybrid -pubout",
                    "ec -in key.pem -param_enc explicit",
                    "ec -in key.pem -no_public",
                    "pkey -in key.pem -ec_conv_form compressed -pubout",
                ]);
            }
            for words in commands {
                let [ours, stock] = BOTH.map(|provider| workshop.openssl(provider, words));
                assert_eq!(ours, stock, "{}: {words}", kind.generate);
            }
        }
        for words in [
            "ecparam -name prime256v1 -genkey -noout -out key.pem",
            "ecparam -name secp384r1 -param_enc explicit -genkey -out key.pem",
        ] {
            workshop.openssl(Ours, words);
            workshop.openssl(Stock, "ec -in key.pem -noout -check");
        }
        let words = "pkey -in key.pem -aes256 -passout pass:secret -out encrypted.pem";
        workshop.openssl(Ours, words);
        workshop.openssl(Stock, "pkey -in encrypted.pem -passin pass:secret -noout");
    }
}

#[test]
fn secrets_are_the_same_on_both_sides() {
    for lines in CONFIGURATIONS {
        let workshop = Workshop::new(lines);
        for kind in KINDS.iter().filter(|kind| kind.derives) {
            generate(&workshop, Ours, kind, "one");
            generate(&workshop, Stock, kind, "other");
            let derived = [("one", "other"), ("other", "one")].map(|(own, peer)| {
                let words = format!("pkeyutl -derive -inkey {own}.pem -peerkey {peer}.pub");
                BOTH.map(|provider| workshop.openssl(provider, &words))
            });
            let expected = &derived[0][0];
            assert!(!expected.is_empty());
            assert!(
                derived.iter().flatten().all(|secret| secret == expected),
                "{}",
                kind.generate
            );
        }
        let refused = "pkeyutl -derive -inkey one.pem -peerkey key.pub";
        generate(&workshop, Ours, &KINDS[2], "one");
        generate(&workshop, Ours, &KINDS[3], "key");
        assert!(!workshop.try_openssl(Ours, refused).status.success());
    }
}

#[test]
fn messages_and_digests_are_signed_and_verified() {
    for lines in CONFIGURATIONS {
        let workshop = Workshop::new(lines);
        workshop.write("message", b"a message");
        workshop.openssl(Stock, "dgst -sha256 -binary -out hash message");
        for kind in KINDS.iter().filter(|kind| kind.signs) {
            generate(&workshop, Ours, kind, "key");
            for (signer, verifier) in [(Ours, Stock), (Stock, Ours), (Ours, Ours)] {
                for digest in ["sha1", "sha256", "sha384", "sha512", "sha3-256"] {
                    let sign = format!("dgst -{digest} -sign key.pem -out signature message");
                    workshop.openssl(signer, &sign);
                    let verify =
                        format!("dgst -{digest} -verify key.pub -signature signature message");
                    assert_eq!(text(&workshop.openssl(verifier, &verify)), "Verified OK\n");
                }
                workshop.openssl(
                    signer,
                    "pkeyutl -sign -inkey key.pem -in hash -out signature",
                );
                let verify = "pkeyutl -verify -pubin -inkey key.pub -in hash -sigfile signature";
                workshop.openssl(verifier, verify);
                workshop.openssl(Stock, "dgst -sha384 -binary -out other message");
                let refused = verify.replace("-in hash", "-in other");
                assert!(!workshop.try_openssl(verifier, &refused).status.success());
            }
        }
        // Ed25519 stays with OpenSSL.
        generate(&workshop, Ours, &KINDS[10], "key");
        workshop.openssl(
            Ours,
            "pkeyutl -sign -inkey key.pem -rawin -in message -out signature",
        );
        let verify = "pkeyutl -verify -pubin -inkey key.pub -rawin -in message -sigfile signature";
        workshop.openssl(Stock, verify);
    }
}

#[test]
fn certificates_and_encrypted_messages_work_with_both() {
    let workshop = Workshop::new("");
    workshop.write("message", b"a message\n");
    for curve in ["P-256", "P-384", "P-521"] {
        for (one, other) in [(Ours, Stock), (Stock, Ours)] {
            certificate(
                &workshop,
                one,
                &format!("ec -pkeyopt ec_paramgen_curve:{curve}"),
            );
            workshop.openssl(other, "verify -CAfile certificate.pem certificate.pem");
            workshop.openssl(
                one,
                "cms -sign -in message -signer certificate.pem -inkey key.pem -out signed",
            );
            workshop.openssl(
                other,
                "cms -verify -in signed -CAfile certificate.pem -out out",
            );
            // Key agreement with an ephemeral key (RFC 5753).
            workshop.openssl(
                one,
                "cms -encrypt -aes256 -in message -recip certificate.pem -out encrypted",
            );
            let decrypted = workshop.openssl(
                other,
                "cms -decrypt -in encrypted -inkey key.pem -recip certificate.pem",
            );
            assert_eq!(text(&decrypted).replace('\r', ""), "a message\n", "{curve}");
        }
    }
}

#[test]
fn points_that_openssl_refuses_are_refused() {
    let workshop = Workshop::new("");
    generate(&workshop, Stock, &KINDS[2], "key");
    workshop.openssl(
        Stock,
        "pkey -pubin -in key.pub -outform DER -out public.der",
    );
    let good = workshop.read("public.der");
    let check = "pkey -pubin -inform DER -in public.der -noout -pubcheck";
    let accepted = |point: &[u8]| {
        workshop.write("public.der", point);
        BOTH.map(|provider| workshop.try_openssl(provider, check).status.success())
    };
    assert_eq!(accepted(&good), [true, true]);
    for (place, value) in [
        (good.len() - 1, good[good.len() - 1] ^ 1),
        (good.len() - 64, good[good.len() - 64] ^ 1),
        (good.len() - 65, 5),
    ] {
        let mut bad = good.clone();
        bad[place] = value;
        assert_eq!(accepted(&bad), [false, false], "{place}");
    }
}

fn certificate(workshop: &Workshop, provider: Provider, key: &str) {
    workshop.openssl(
        provider,
        &format!(
            "req -x509 -newkey {key} -nodes -keyout key.pem -out certificate.pem \
             -subj /CN=localhost -days 1 -sha256"
        ),
    );
}

#[test]
fn s_server_exchanges_keys_on_every_group() {
    let groups = ["X25519", "P-256", "P-384", "P-521", "X448"];
    for (lines, mode) in [
        ("", ""),
        ("lanes = portable\nflush = always", "-async"),
        ("", "-async"),
        ("lanes = off", ""),
    ] {
        for key in ["P-256", "P-384", "P-521"] {
            let workshop = Workshop::new(lines);
            certificate(
                &workshop,
                Ours,
                &format!("ec -pkeyopt ec_paramgen_curve:{key}"),
            );
            let server = Server::start(&workshop, mode);
            for group in groups {
                for version in ["-tls1_3", "-tls1_2"] {
                    // In TLS 1.2 a client also has to know the curve of the certificate.
                    let others = groups.into_iter().filter(|&other| other != group);
                    let list = [group].into_iter().chain(others).collect::<Vec<_>>();
                    let options = format!("{version} -groups {}", list.join(":"));
                    let page = fetch(&workshop, &server.address, &options);
                    let what = format!("{lines} {mode} {key} {options}: {page}");
                    assert!(page.contains("HTTP/1.0 200 ok"), "{what}");
                    // The first that both know is taken. OpenSSL calls it as TLS does.
                    let name = match group {
                        "P-256" => "secp256r1",
                        "P-384" => "secp384r1",
                        "P-521" => "secp521r1",
                        other => &other.to_lowercase(),
                    };
                    let shared = format!("Shared groups: {name}");
                    assert!(page.contains(&shared), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_client_of_ours_speaks_with_a_stock_server_and_retries_with_another_group() {
    for lines in CONFIGURATIONS {
        let workshop = Workshop::new(lines);
        certificate(&workshop, Stock, "ec -pkeyopt ec_paramgen_curve:P-256");
        for (server, client) in [(Stock, Ours), (Ours, Stock), (Ours, Ours)] {
            for mode in ["", "-async"] {
                let options = format!("{mode} -groups P-384:P-256 -serverpref");
                let server = Server::start_with(&workshop, "openssl", server, &options);
                for options in [
                    "-tls1_3 -groups P-256",
                    "-tls1_3 -groups P-384",
                    // HelloRetryRequest: the first group is the only one that a key is sent for.
                    "-tls1_3 -groups X25519:P-384",
                    "-tls1_3 -groups X25519:P-521:P-256",
                    "-tls1_2 -groups X25519:P-256",
                    "-tls1_2 -groups P-384:P-256",
                ] {
                    let page = fetch_with(&workshop, client, &server.address, options);
                    assert!(page.contains("HTTP/1.0 200 ok"), "{lines} {mode} {options}");
                }
            }
        }
    }
}
