//! A real engine: with keys of this process, and with keys that only the engine has.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::nid::Nid;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{SignatureScheme, version};
use slipstream_engine::{Engine, Options};
use slipstream_lanes::rsa::Size;
use slipstream_offload::accelerator::Moment;
use slipstream_offload::device::layout::Layout;
use slipstream_offload::device::message::{Aggregation, Token};
use slipstream_offload::device::{self, Device};
use slipstream_offload::policy::Policy;
use slipstream_offload::{Class, Kind, instance};

use super::super::Isolation;
use super::handshake::{Case, certificate};
use super::signing::verifies;
use super::{
    HANGS, TestKey, counters, install, install_without_pools, on_fiber, test_backend, together,
    unmeasured_costs,
};
use crate::configuration::{Crypto, Group};

struct TestEngine {
    engine: Engine,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl TestEngine {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("engine.sock");
        let usable = rustix::thread::sched_getaffinity(None).expect("the cores of this process");
        let mut cores = 0..rustix::thread::CpuSet::MAX_CPU;
        let core = cores.find(|core| usable.is_set(*core)).expect("a core");
        let engine = Engine::start(Options {
            socket: socket.clone(),
            cores: vec![core],
            backend: test_backend(),
            allow: Vec::new(),
            linger: Some(Duration::ZERO),
            pace: None,
        });
        Self {
            engine: engine.expect("an engine"),
            socket,
            _directory: directory,
        }
    }

    fn isolation(&self) -> Isolation {
        Isolation::new(&self.socket).expect("an engine that listens")
    }

    /// Makes the engine the device of this thread, which may use the keys that the token is for.
    fn install(&self, token: Token) {
        install(Box::new(self.device(Some(token))));
    }

    fn device(&self, token: Option<Token>) -> Device {
        let options = device::Options {
            layout: Layout::new(64).expect("a power of two"),
            weight: 1,
            aggregation: Aggregation::Fixed(1),
            token,
        };
        let path = self.socket.clone();
        let device = Device::new(path, options, Policy::AtLeast(1), unmeasured_costs(), HANGS);
        let device = device.expect("descriptors");
        assert!(device.is_in());
        device
    }
}

#[test]
fn keys_of_this_process_are_used_by_the_engine() {
    let engine = TestEngine::start();
    install_without_pools(Box::new(engine.device(None)));
    for key in [
        TestKey::rsa(Size::Rsa2048),
        TestKey::p256(),
        TestKey::p384(),
    ] {
        let (scheme, held) = (key.schemes()[0], key.load());
        let start = Instant::now();
        let by_engine = || counters().device_operations.iter().sum::<u64>();
        let before = by_engine();
        // At first the key is on its way, and aws-lc signs.
        while by_engine() < before + 3 {
            assert!(start.elapsed() < HANGS, "{} never gets there", key.name);
            let (key, held) = (key.clone(), held.clone());
            on_fiber(move || signs_with(&key, &held, scheme));
            // For the answer that the key is there, for which no job waits.
            instance::with(|instance| instance.poll(Moment::Idle));
        }
    }
}

fn signs(key: &TestKey, held: &Arc<dyn SigningKey>) {
    for scheme in key.schemes() {
        signs_with(key, held, scheme);
    }
}

fn signs_with(key: &TestKey, held: &Arc<dyn SigningKey>, scheme: SignatureScheme) {
    let signer = held.choose_scheme(&[scheme]).expect("a signer");
    let signature = signer.sign(b"message").expect("a signature");
    let verified = verifies(key, scheme, b"message", &signature);
    assert!(verified, "{} {scheme:?}", key.name);
}

#[test]
fn handshakes_with_keys_that_an_engine_holds() {
    let engine = TestEngine::start();
    let isolation = engine.isolation();
    // Before a single key is there.
    engine.install(isolation.token().expect("a token"));
    let keys = TestKey::all();
    let jobs = keys.iter().map(|key| {
        let held = isolation
            .signing_key(&key.der())
            .expect("a key that engines hold");
        let key = key.clone();
        let job = move || {
            for version in [&version::TLS12, &version::TLS13] {
                let case = Case {
                    group: Group::X25519,
                    version,
                    key: key.clone(),
                };
                case.shake_hands(Crypto::Slipstream, held.clone());
            }
            signs(&key, &held);
        };
        Box::new(job) as Box<dyn FnOnce()>
    });
    together(jobs.collect());
    assert_eq!(engine.engine.status().keys, keys.len() as u64);
    let by_engine = counters().device_operations;
    let rsa = Kind::ALL
        .into_iter()
        .filter(|kind| matches!(kind, Kind::Rsa(_)));
    for kind in rsa {
        assert_eq!(by_engine[kind.index()], 2 + 6);
    }
    let ecdsa = Kind::ALL
        .into_iter()
        .filter(|kind| matches!(kind, Kind::Ecdsa(_)));
    for kind in ecdsa {
        assert_eq!(by_engine[kind.index()], 2 + 1);
    }
}

/// A configuration that is reloaded brings new keys to event loops that are connected already.
#[test]
fn a_key_that_comes_later_is_known_to_older_instances() {
    let engine = TestEngine::start();
    let isolation = engine.isolation();
    let first = TestKey::p256();
    let held = isolation.signing_key(&first.der()).expect("a key");
    let token = isolation.token().expect("a token");
    engine.install(token);
    on_fiber(move || signs(&first, &held));
    let later = TestKey::p384();
    let held = isolation.signing_key(&later.der()).expect("a key");
    assert_eq!(isolation.token().expect("a token"), token);
    on_fiber(move || signs(&later, &held));
}

#[test]
fn whoever_cannot_be_paused_waits() {
    let engine = TestEngine::start();
    let isolation = engine.isolation();
    engine.install(isolation.token().expect("a token"));
    for key in [TestKey::new_rsa(), TestKey::p256()] {
        signs(&key, &isolation.signing_key(&key.der()).expect("a key"));
    }
    let in_flight = instance::with(|instance| instance.in_flight(Class::Asymmetric));
    assert_eq!(in_flight, Some(0));
}

#[test]
fn without_an_answer_there_is_no_signature() {
    let engine = TestEngine::start();
    let isolation = engine.isolation();
    let key = TestKey::p256();
    let held = isolation.signing_key(&key.der()).expect("a key");
    let refused = |held: &Arc<dyn SigningKey>| {
        let signer = held.choose_scheme(&super::SCHEMES).expect("a signer");
        signer.sign(b"message").expect_err("no engine").to_string()
    };
    // No instance, and so no way to the engine.
    assert!(refused(&held).contains("does not answer"));
    engine.install(isolation.token().expect("a token"));
    signs(&key, &held);
    let socket = engine.socket.display().to_string();
    drop(engine);
    let start = Instant::now();
    let message = on_fiber(move || refused(&held));
    assert!(
        message.contains("does not answer") && message.contains(&socket),
        "{message}"
    );
    assert!(start.elapsed() < HANGS);
    let error = isolation.token().expect_err("no engine").to_string();
    assert!(error.contains(&socket), "{error}");
    let error = isolation.signing_key(&key.der()).expect_err("no engine");
    assert!(error.contains("does not take the private key"), "{error}");
}

#[test]
fn the_public_key_is_that_of_the_certificate() {
    let engine = TestEngine::start();
    let isolation = engine.isolation();
    for key in TestKey::all() {
        let held = isolation.signing_key(&key.der()).expect("a key");
        let with = |key| CertifiedKey::new(vec![certificate(key)], held.clone());
        with(&key).keys_match().expect("the key of the certificate");
        assert!(with(&TestKey::p256()).keys_match().is_err());
        assert_eq!(held.algorithm(), key.load().algorithm());
    }
}

#[test]
fn what_no_engine_holds_is_refused() {
    let engine = TestEngine::start();
    let isolation = engine.isolation();
    let p521 = TestKey::new_ec("P-521", Nid::SECP521R1);
    let error = isolation
        .signing_key(&p521.der())
        .expect_err("another curve");
    assert!(error.contains("can be isolated"), "{error}");
    let nobody = engine.socket.with_file_name("nobody.sock");
    let error = Isolation::new(&nobody)
        .expect_err("nobody listens")
        .to_string();
    assert!(
        error.contains("slipstream engine") && error.contains("nobody.sock"),
        "{error}"
    );
}
