//! A real engine: with keys of this process, and with keys that only the engine has.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::nid::Nid;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{SignatureScheme, version};
use slipstream_accelerators::engine::protocol::layout::Layout;
use slipstream_accelerators::engine::protocol::message::{Aggregation, Token};
use slipstream_accelerators::engine::{self, Device, EngineUser};
use slipstream_engine::{Engine, Options, Quotas};
use slipstream_keys::rsa::Size;
use slipstream_offload::accelerator::{Accelerator, Health, Moment};
use slipstream_offload::counters::Counters;
use slipstream_offload::scheduler::Scheduler;
use slipstream_offload::{Class, Kind, Reason, instance};

use super::super::signing::load;
use super::super::{Isolation, IsolationError};
use super::handshake::{Case, certificate};
use super::signing::verifies;
use super::{
    HANGS, TestKey, counters, install, install_all, install_without_pools, on_fiber,
    set_concurrency, test_backend, together,
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
            quotas: Quotas::default(),
            grace: Engine::GRACE,
            linger: Some(Duration::ZERO),
            pace: None,
            publishes: None,
        });
        Self {
            engine: engine.expect("an engine"),
            socket,
            _directory: directory,
        }
    }

    fn isolation(&self) -> Isolation {
        Isolation::new(&self.socket, &EngineUser::default()).expect("an engine that listens")
    }

    /// Makes the engine the device of this thread, which may use the keys that the token is for.
    fn install(&self, token: Token) {
        install(Box::new(self.device(Some(token))));
    }

    fn device(&self, token: Option<Token>) -> Device {
        let options = engine::Options {
            layout: Layout::new(64).expect("a power of two"),
            weight: 1,
            aggregation: Aggregation::Fixed(1),
            token,
            user: EngineUser::default(),
        };
        let path = self.socket.clone();
        let device = Device::new(path, options, HANGS).expect("descriptors");
        assert_eq!(device.health(), Health::Ready);
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
        sign_until_the_engine_has(&key, &held, scheme, 3);
    }
}

/// Signs until the engine has done so `count` times. At first the key is on its way, and aws-lc
/// signs.
fn sign_until_the_engine_has(
    key: &TestKey,
    held: &Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    count: u64,
) {
    let start = Instant::now();
    let by_engine = || counters().device_operations.iter().sum::<u64>();
    let before = by_engine();
    while by_engine() < before + count {
        assert!(start.elapsed() < HANGS, "{} never gets there", key.name);
        let (key, held) = (key.clone(), held.clone());
        on_fiber(move || signs_with(&key, &held, scheme));
        // For the answer that the key is there, for which no job waits.
        instance::with(|instance| instance.poll(Moment::Idle));
    }
}

/// In a process without lanes nothing is known of any cost: two concurrent jobs are enough.
#[test]
fn without_lanes_all_of_a_handshake_is_computed_by_the_engine() {
    let engine = TestEngine::start();
    install_all(vec![Box::new(engine.device(None))], Scheduler::default());
    for key in TestKey::all() {
        let loaded = load(&key.der(), None).expect("a good key");
        set_concurrency(|| 2);
        sign_until_the_engine_has(&key, &loaded, key.schemes()[0], 1);
        for case in Case::all()
            .into_iter()
            .filter(|case| case.key.name == key.name)
        {
            let (key, group) = (key.clone(), case.group);
            let case = Case { key, ..case };
            let handshake = || {
                let (case, loaded) = (case.clone(), loaded.clone());
                Box::new(move || case.shake_hands(Crypto::Slipstream, loaded)) as Box<dyn FnOnce()>
            };
            let before = counters();
            together(vec![handshake(), handshake()]);
            let after = counters();
            for kind in Kind::ALL {
                let is_asked = kind == case.key.signs_by() || exchanges(group).contains(&kind);
                let count = since(&before, &after, |counters| {
                    counters.device_operations[kind.index()]
                });
                assert_eq!(count, 2 * u64::from(is_asked), "{kind:?}: {}", case.name());
            }
            assert_eq!(not_by_the_engine(&before, &after), 0, "{}", case.name());
        }
        // A job that is alone has nothing to wait for.
        set_concurrency(|| 1);
        let before = counters();
        let case = Case {
            group: Group::X25519,
            version: &version::TLS13,
            key,
        };
        on_fiber(move || case.shake_hands(Crypto::Slipstream, loaded));
        let after = counters();
        assert_eq!(after.submitted, before.submitted);
        let cheaper = |counters: &Counters| counters.software[Reason::Cheaper.index()];
        assert_eq!(since(&before, &after, cheaper), 2, "exchange, signature");
    }
}

fn since(before: &Counters, after: &Counters, count: impl Fn(&Counters) -> u64) -> u64 {
    count(after) - count(before)
}

/// The operations that aws-lc or lanes have computed, and those that found no accelerator.
fn not_by_the_engine(before: &Counters, after: &Counters) -> u64 {
    since(before, after, |counters| {
        let [software, lanes, at_once] = [
            &counters.software[..],
            &counters.lane_operations,
            &counters.at_once,
        ]
        .map(|counts| counts.iter().sum::<u64>());
        software + lanes + at_once
    })
}

/// The operations of a key exchange that accelerators compute.
fn exchanges(group: Group) -> [Kind; 2] {
    let group = match group {
        Group::X25519MlKem768 | Group::X25519 => slipstream_keys::Group::X25519,
        Group::P256 => slipstream_keys::Group::P256,
        Group::P384 => slipstream_keys::Group::P384,
    };
    [Kind::KeyPair(group), Kind::exchange(group)]
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

/// A certificate that is renewed brings a new key, and the old one is not needed any more.
#[test]
fn two_thousand_renewals_leave_one_key() {
    let engine = TestEngine::start();
    let isolation = engine.isolation();
    let mut used = None;
    for renewal in 0..2000 {
        let key = TestKey::p256();
        let held = isolation.signing_key(&key.der());
        used = Some((
            key,
            held.unwrap_or_else(|error| panic!("renewal {renewal}: {error}")),
        ));
    }
    assert!(isolation.is_alive());
    assert_eq!(engine.engine.status().keys, 1);
    // A key that two certificates share stays until both have been replaced.
    let (key, held) = used.expect("the last one");
    let again = isolation.signing_key(&key.der()).expect("a key");
    drop(held);
    assert!(isolation.is_alive());
    assert_eq!(engine.engine.status().keys, 1);
    engine.install(isolation.token().expect("a token"));
    on_fiber(move || signs(&key, &again));
    assert!(isolation.is_alive());
    assert_eq!(engine.engine.status().keys, 0);
}

#[test]
fn a_job_that_cannot_pause_blocks() {
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
    assert!(matches!(error, IsolationError::Refused { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("does not take the private key"), "{error}");
    assert!(error.contains(&socket), "{error}");
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
    assert!(matches!(error, IsolationError::Unsupported), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("can be isolated"), "{error}");
    let nobody = engine.socket.with_file_name("nobody.sock");
    let error = Isolation::new(&nobody, &EngineUser::default())
        .expect_err("nobody listens")
        .to_string();
    assert!(
        error.contains("slipstream engine") && error.contains("nobody.sock"),
        "{error}"
    );
}
