//! The keys that a client may use: sessions, tokens, handles.

use std::io;

use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::protocol::wire::Outcome;
use slipstream_keys::ec::Curve;
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::{Components, Size};
use slipstream_keys::{Handle, KeyParts};
use slipstream_offload::Kind;

use crate::client::{Client, PATIENCE, TestEngine, client_options, padded, register, verifies};

const SIZE: Size = Size::Rsa2048;

#[test]
fn a_handle_means_nothing_to_another_client() {
    let engine = TestEngine::start();
    let (mut one, mut other) = (engine.client(), engine.client());
    let (ours, theirs) = (one.register(SIZE), other.register(SIZE));
    assert_ne!(ours, theirs);
    other.submit_rsa(SIZE, ours, 1);
    assert_refused(&mut other);
    one.submit_rsa(SIZE, ours, 1);
    assert!(verifies(SIZE, &padded(SIZE, 1), &one.computed().1));
    assert_eq!(engine.status().refused, 1);
}

#[test]
fn a_token_joins_the_keys_of_another_connection() {
    let engine = TestEngine::start();
    let holder = engine.connect();
    let key = register(&holder, SIZE);
    let token = holder.grant(PATIENCE).expect("a token");
    assert_eq!(holder.grant(PATIENCE).expect("a token"), token);
    let join = |token| {
        let options = slipstream_accelerators::engine::Options {
            token: Some(token),
            ..client_options()
        };
        let connection = engine.connect();
        let instance = connection.open(&options, PATIENCE);
        instance.map(|_| ()).map_err(|error| error.kind())
    };
    let mut wrong = token;
    wrong[31] ^= 1;
    assert_eq!(join(wrong), Err(io::ErrorKind::PermissionDenied));
    assert_eq!(join([0; 32]), Err(io::ErrorKind::PermissionDenied));

    let options = slipstream_accelerators::engine::Options {
        token: Some(token),
        ..client_options()
    };
    let mut joined = Client::new(engine.connect(), &options);
    joined.submit_rsa(SIZE, key, 2);
    assert!(verifies(SIZE, &padded(SIZE, 2), &joined.computed().1));
    drop((holder, joined));
    engine.wait_until(|status| (status.sessions, status.keys) == (0, 0));
    assert_eq!(
        join(token),
        Err(io::ErrorKind::PermissionDenied),
        "the session has gone"
    );
}

#[test]
fn keys_of_its_own_cannot_be_mixed_with_those_of_another() {
    let engine = TestEngine::start();
    let (holder, other) = (engine.connect(), engine.connect());
    register(&holder, SIZE);
    register(&other, SIZE);
    let token = Some(holder.grant(PATIENCE).expect("a token"));
    let options = slipstream_accelerators::engine::Options {
        token,
        ..client_options()
    };
    let refused = other.open(&options, PATIENCE).expect_err("keys of its own");
    assert!(refused.to_string().contains("keys of its own"), "{refused}");
    // Its own token joins what it is in already.
    holder.open(&options, PATIENCE).expect("an instance");
}

#[test]
fn the_same_rsa_key_has_the_same_handle() {
    let engine = TestEngine::start();
    let connection = engine.connect();
    let handle = register(&connection, SIZE);
    assert_eq!(register(&connection, SIZE), handle);
    assert_ne!(register(&connection, Size::Rsa3072), handle);
    assert_eq!(engine.status().keys, 2);
}

#[test]
fn the_same_ecdsa_key_has_the_same_handle() {
    let engine = TestEngine::start();
    let connection = engine.connect();
    let register = |curve, private: &[u8]| {
        let handle =
            connection.register(KeyParts::Ec { curve, private }, Policy::ANYTHING, PATIENCE);
        handle.expect("a good key")
    };
    let handle = register(Curve::P256, &[1; 32]);
    assert_eq!(register(Curve::P256, &[1; 32]), handle);
    assert_ne!(register(Curve::P256, &[2; 32]), handle);
    assert_ne!(register(Curve::P384, &[1; 48]), handle);
    assert_eq!(engine.status().keys, 3);
}

#[test]
fn bad_keys_are_refused_with_a_reason() {
    let engine = TestEngine::start();
    let connection = engine.connect();
    let good = example_key(SIZE).components;
    let bad = Components {
        coefficient: good.exponent1,
        ..good
    };
    let refused = connection
        .register(KeyParts::Rsa(bad), Policy::ANYTHING, PATIENCE)
        .expect_err("a bad key");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("contradict"), "{refused}");
    let curve = Curve::P256;
    let refused = connection.register(
        KeyParts::Ec {
            curve,
            private: &[0; 32],
        },
        Policy::ANYTHING,
        PATIENCE,
    );
    assert!(refused.is_err());
    let refused = connection.register(
        KeyParts::Ec {
            curve,
            private: &[1; 31],
        },
        Policy::ANYTHING,
        PATIENCE,
    );
    assert!(refused.is_err());
    // The connection goes on.
    register(&connection, SIZE);
    assert_eq!(engine.status().refused_messages, 3);
}

#[test]
fn requests_that_do_not_fit_their_key_are_refused() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    let rsa = client.register(SIZE);
    // Below the order of the curve, which begins with 0xff.
    let private = [0x7f; 32];
    let curve = Curve::P256;
    let ec = client.connection.register(
        KeyParts::Ec {
            curve,
            private: &private,
        },
        Policy::ANYTHING,
        PATIENCE,
    );
    let ec = ec.expect("a good key");

    let none = Handle(0);
    let cases: [(Kind, Handle, usize, usize); 17] = [
        (Kind::Rsa(SIZE), none, 256, 0),
        (Kind::Rsa(SIZE), Handle(rsa.0 ^ 1), 256, 0),
        (Kind::Rsa(SIZE), ec, 256, 0),
        (Kind::Rsa(SIZE), rsa, 255, 0),
        (Kind::Rsa(SIZE), rsa, 257, 0),
        (Kind::Rsa(SIZE), rsa, 256, 1),
        (Kind::Rsa(Size::Rsa3072), rsa, 384, 0),
        (Kind::Ecdsa(curve), rsa, 32, 0),
        (Kind::Ecdsa(curve), ec, 0, 0),
        (Kind::Ecdsa(curve), ec, 65, 0),
        (Kind::Ecdsa(curve), ec, 32, 1),
        (Kind::Ecdsa(Curve::P384), ec, 32, 0),
        (Kind::X25519, none, 31, 32),
        (Kind::X25519, none, 32, 33),
        (Kind::Ecdh(curve), none, 32, 64),
        (Kind::Ecdh(curve), none, 48, 97),
        (Kind::Ecdh(Curve::P384), none, 32, 65),
    ];
    for (kind, key, first, second) in cases {
        client.submit(kind, key, &vec![1; first], &vec![1; second]);
        assert_refused(&mut client);
    }
    client.submit_rsa(SIZE, rsa, 1);
    client.computed();
    assert_eq!(engine.status().refused, 17);
}

#[test]
fn there_is_a_limit_of_keys() {
    let engine = TestEngine::start();
    let connection = engine.connect();
    let key = |number: u16| {
        let mut private = [0; 32];
        private[30..].copy_from_slice(&number.to_be_bytes());
        let curve = Curve::P256;
        connection.register(
            KeyParts::Ec {
                curve,
                private: &private,
            },
            Policy::ANYTHING,
            PATIENCE,
        )
    };
    for number in 1..=1024 {
        key(number).expect("room");
    }
    let refused = key(1025).expect_err("no more room");
    assert!(refused.to_string().contains("1024 keys"), "{refused}");
}

fn assert_refused(client: &mut Client) {
    let outcome = client.wait().outcome;
    assert!(matches!(outcome, Outcome::Refused), "{outcome:?}");
}
