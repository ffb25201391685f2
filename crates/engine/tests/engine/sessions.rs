//! The life of keys: who may bring them, what they may be used for, and when they end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_accelerators::engine::protocol::policy::Policy;
use slipstream_accelerators::engine::protocol::wire::Outcome;
use slipstream_accelerators::engine::{Connection, Device, Options};
use slipstream_keys::ec::{self, Curve};
use slipstream_keys::encoding::{self, digest_info};
use slipstream_keys::example::example_key;
use slipstream_keys::rsa::Size;
use slipstream_keys::{Handle, Key, KeyParts, Operand};
use slipstream_offload::accelerator::{Accelerator, Moment};
use slipstream_offload::counters::Counters;
use slipstream_offload::{Kind, Operation};

use crate::client::{
    Client, PATIENCE, TestEngine, client_options, padded, register, verifies, wait_until,
};

const SIZE: Size = Size::Rsa2048;
const KIND: Kind = Kind::Rsa(SIZE);

#[test]
fn who_has_joined_can_use_keys_and_do_nothing_else_with_them() {
    let engine = TestEngine::start();
    let owner = engine.connect();
    let key = register(&owner, SIZE);
    let mut joined = join(&engine, &owner);
    let more = KeyParts::Rsa(example_key(Size::Rsa3072).components);
    let refusals = [
        joined
            .connection
            .register(more, Policy::ANYTHING, PATIENCE)
            .map(drop),
        joined.connection.grant(PATIENCE).map(drop),
        joined.connection.revoke(key, PATIENCE),
    ];
    for refused in refusals {
        let refused = refused.expect_err("only the owner may");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let text = refused.to_string();
        assert!(text.contains("belong to another connection"), "{text}");
    }
    assert_eq!(engine.status().keys, 1);
    assert!(is_signed(&mut joined, key));
}

/// Workers that drain finish what they have begun. Whoever has the token cannot keep the keys.
#[test]
fn keys_end_with_their_owner() {
    for (grace, expected) in [(Duration::ZERO, 0), (Duration::from_secs(3600), 1)] {
        let engine = TestEngine::with(|options| options.grace = grace);
        let owner = engine.connect();
        let key = register(&owner, SIZE);
        let token = owner.grant(PATIENCE).expect("a token");
        let mut joined = join(&engine, &owner);
        assert!(is_signed(&mut joined, key));
        drop(owner);
        engine.wait_until(|status| {
            (status.connections, status.sessions, status.keys) == (1, expected, expected)
        });
        assert_eq!(is_signed(&mut joined, key), expected == 1);
        let options = with_token(token);
        let again = engine.connect().open(&options, PATIENCE);
        assert_eq!(again.is_ok(), expected == 1);
        drop((again, joined));
        engine.wait_until(|status| (status.sessions, status.keys) == (0, 0));
    }
}

#[test]
fn a_key_that_is_revoked_is_used_no_more() {
    let engine = TestEngine::start();
    let owner = engine.connect();
    let (key, other) = (register(&owner, SIZE), register(&owner, Size::Rsa3072));
    let mut joined = join(&engine, &owner);
    assert!(is_signed(&mut joined, key));
    owner.revoke(key, PATIENCE).expect("a key of its own");
    assert_eq!(engine.status().keys, 1);
    assert!(!is_signed(&mut joined, key));
    let message = padded(Size::Rsa3072, 1);
    joined.submit_rsa(Size::Rsa3072, other, 1);
    assert!(verifies(Size::Rsa3072, &message, &joined.computed().1));
    let refused = owner.revoke(key, PATIENCE).expect_err("no such key");
    assert!(refused.to_string().contains("no such key"), "{refused}");
    assert_ne!(register(&owner, SIZE), key, "a name is not given twice");
}

/// A key that signs is no oracle: what was recorded cannot be decrypted with it.
#[test]
fn a_key_that_only_signs_computes_encodings_only() {
    let engine = TestEngine::start();
    let mut client = engine.client();
    let parts = || KeyParts::Rsa(example_key(SIZE).components);
    let bring = |client: &Client, policy| {
        let handle = client.connection.register(parts(), policy, PATIENCE);
        handle.expect("a good key")
    };
    let key = bring(&client, Policy::PSS);
    let encoded = encoding::pkcs1(digest_info::SHA256, &[7; 32], SIZE.bytes()).expect("room");
    let encoded = encoded.as_slice();
    let anything = padded(SIZE, 3);
    let is_computed = |client: &mut Client, residue: &[u8]| {
        client.submit(KIND, key, residue, &[]);
        match client.wait().outcome {
            Outcome::Computed(output) => {
                assert!(verifies(SIZE, residue, output.as_slice()));
                true
            }
            Outcome::Refused => false,
            other => panic!("{other:?}"),
        }
    };
    assert!(!is_computed(&mut client, encoded), "another scheme");
    assert!(!is_computed(&mut client, &anything));
    assert_eq!(bring(&client, Policy::PKCS1), key, "uses add up");
    assert!(is_computed(&mut client, encoded));
    assert!(!is_computed(&mut client, &anything), "a ciphertext, say");
    assert_eq!(bring(&client, Policy::ANYTHING), key);
    assert!(is_computed(&mut client, &anything));
    assert_eq!(engine.status().refused, 3);
}

/// A server that renews certificates takes back the keys of those that it has replaced.
#[test]
fn two_thousand_keys_come_and_go() {
    let engine = TestEngine::start();
    let owner = engine.connect();
    let mut used = None;
    for number in 1..=2000 {
        let private = private(number);
        let parts = KeyParts::Ec {
            curve: Curve::P256,
            private: &private,
        };
        let handle = owner.register(parts, Policy::SIGNATURES, PATIENCE);
        let replaced = used.replace(handle.expect("room for a key"));
        if let Some(replaced) = replaced {
            owner.revoke(replaced, PATIENCE).expect("a key");
        }
    }
    assert_eq!(engine.status().keys, 1);
}

/// The same for keys that the process has itself, and of which the engine has copies.
#[test]
fn two_thousand_keys_of_a_process_come_and_go() {
    let engine = TestEngine::start();
    let path = engine.socket.clone();
    let mut device = Device::new(path, client_options(), PATIENCE).expect("descriptors");
    for number in 1..=2000 {
        let key = ec::PrivateKey::new(Curve::P256, &private(number)).expect("in range");
        let operation = Operation::Ecdsa {
            key: Key::Value(Arc::new(key)),
            digest: Operand::new(&[1; 32]),
        };
        // The engine answers messages one after the other, and software computes until it has.
        let mut accepts = || {
            device.poll(Moment::Idle, &mut Vec::new(), &mut Counters::default());
            device.accepts(&operation)
        };
        let start = std::time::Instant::now();
        while !accepts() {
            assert!(start.elapsed() < PATIENCE, "key {number} is not taken");
        }
    }
    wait_until(|| engine.status().keys <= 1024);
}

/// A private key of P-256.
fn private(number: u16) -> [u8; 32] {
    let mut private = [0; 32];
    private[30..].copy_from_slice(&number.to_be_bytes());
    private
}

fn with_token(token: Token) -> Options {
    Options {
        token: Some(token),
        ..client_options()
    }
}

fn join(engine: &TestEngine, owner: &Connection) -> Client {
    let token = owner.grant(PATIENCE).expect("a token");
    Client::new(engine.connect(), &with_token(token))
}

/// Returns false if the engine refuses to sign with this key.
fn is_signed(client: &mut Client, key: Handle) -> bool {
    client.submit_rsa(SIZE, key, 1);
    match client.wait().outcome {
        Outcome::Computed(signature) => {
            assert!(verifies(SIZE, &padded(SIZE, 1), signature.as_slice()));
            true
        }
        Outcome::Refused => false,
        other => panic!("{other:?}"),
    }
}
