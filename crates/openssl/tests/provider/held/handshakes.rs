//! TLS with a certificate whose private key a device holds.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use openssl::pkey::{PKey, Private};
use openssl::ssl::{HandshakeError, Ssl, SslContext, SslVersion};
use slipstream_offload::{Reason, instance};

use super::{Answering, CURVES, Held, NO_ANSWER, everywhere, on_curve, originals, rsa_2048};
use crate::async_jobs::{Connection, client_builder, server_builder, set_asynchronous};
use crate::common::exclusive;

/// Version, cipher suites of TLS 1.2, and whether they sign with ECDSA.
const SUITES: [(SslVersion, &str, bool); 5] = [
    (SslVersion::TLS1_3, "ALL", false),
    (SslVersion::TLS1_2, "ECDHE-RSA-AES128-GCM-SHA256", false),
    (SslVersion::TLS1_2, "AES128-GCM-SHA256", false),
    (SslVersion::TLS1_3, "ALL", true),
    (SslVersion::TLS1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", true),
];

/// A server with the certificate of `original`, whose private key is `held`.
fn server(
    original: &PKey<Private>,
    held: &PKey<Private>,
    version: SslVersion,
    suite: &str,
) -> openssl::ssl::SslContextBuilder {
    let mut server = server_builder(original, version, suite);
    server
        .set_private_key(held)
        .expect("the key of the certificate");
    server
}

fn handshake(server: &SslContext, client: &SslContext) {
    let mut connection = Connection::new(server, client);
    while !connection.is_established() {
        connection.step();
    }
    connection.exchange();
}

/// How many operations the device has been asked for.
fn asked() -> u64 {
    let submitted = instance::with(|instance| instance.counters().submitted);
    submitted.expect("an instance").iter().sum()
}

#[test]
fn a_device_takes_part_in_every_handshake() {
    let _turn = exclusive();
    let originals = originals();
    let held = Held::of(&originals, Answering::Computing);
    for (key, original) in held.keys.iter().zip(&originals) {
        for (version, suite, is_ecdsa) in SUITES {
            if is_ecdsa != original.ec_key().is_ok() {
                continue;
            }
            let server = server(original, key, version, suite).build();
            let client = client_builder().build();
            let before = asked();
            everywhere(move || handshake(&server, &client));
            assert_eq!(asked() - before, 2, "{version:?} {suite}");
        }
    }
}

#[test]
fn asynchronous_jobs_wait_for_the_device() {
    let _turn = exclusive();
    for original in [rsa_2048(), on_curve(CURVES[0])] {
        let held = Held::of(std::slice::from_ref(&original), Answering::Computing);
        let mut server = server(&original, &held.key(), SslVersion::TLS1_3, "ALL");
        set_asynchronous(&mut server);
        handshake(&server.build(), &client_builder().build());
        assert_eq!(asked(), 1);
    }
}

/// Serves a connection in this thread, whose handshake has to fail, and answers the reasons.
fn failed_handshake(server: &SslContext) -> Vec<String> {
    let (near, far) = UnixStream::pair().expect("sockets");
    let client = std::thread::spawn(move || {
        let client = Ssl::new(&client_builder().build()).expect("a connection");
        if let Ok(mut stream) = client.connect(far) {
            // In TLS 1.3 a client learns only later that a server has failed.
            let _ = stream.write_all(b"request");
            assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "an answer");
        }
    });
    let failed = Ssl::new(server).expect("a connection").accept(near);
    let reasons = match failed {
        Err(HandshakeError::Failure(stream)) => {
            let errors = stream
                .error()
                .ssl_error()
                .expect("errors of OpenSSL")
                .errors();
            let reasons = errors
                .iter()
                .map(|error| error.reason().unwrap_or("?").to_owned());
            reasons.collect()
        }
        other => panic!("{other:?}"),
    };
    client.join().expect("a client");
    reasons
}

#[test]
fn without_an_answer_the_handshake_fails() {
    let _turn = exclusive();
    for answering in [
        Answering::Refusing(Reason::Lost),
        Answering::Refusing(Reason::Fault),
    ] {
        for original in [rsa_2048(), on_curve(CURVES[0])] {
            let held = Held::of(std::slice::from_ref(&original), answering);
            for (version, suite, is_ecdsa) in SUITES {
                if is_ecdsa != original.ec_key().is_ok() {
                    continue;
                }
                let server = server(&original, &held.key(), version, suite).build();
                for reasons in everywhere(move || failed_handshake(&server)) {
                    assert_eq!(reasons[0], NO_ANSWER, "{version:?} {suite} {reasons:?}");
                }
            }
        }
    }
}
