//! The whole provider, on fibers and off them, with instances that compute, fail, or have an engine
//! behind them.

mod engine;
mod exchange;
mod handshake;
mod private_key;
mod signing;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use rustls::SignatureScheme;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::SigningKey;
use slipstream_accelerators::lanes::{Backend, BatchCost, LaneCosts, Lanes, Options};
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::accelerator::{Accelerator, Moment};
use slipstream_offload::costs::Cost;
use slipstream_offload::counters::Counters;
use slipstream_offload::fiber::{self, Fibers, Progress, Rules};
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::scheduler::{FlushPolicy, Scheduler};
use slipstream_offload::{JobToken, Kind, Notification, PerKind};

use super::cost::example_pkcs1;
use super::{STACK_BYTES, signing::load};

/// A job hangs if it takes longer than this, far more than any machine needs.
const HANGS: Duration = Duration::from_secs(120);

/// The lanes to test with: on a CPU without IFMA its algorithms without its instructions.
fn test_backend() -> Backend {
    Some(Backend::Ifma)
        .filter(|backend| backend.is_available())
        .unwrap_or(Backend::Portable)
}

/// Makes an instance with lanes that compute all that waits, and pools.
fn install_lanes() {
    let lanes = Options {
        has_batches: true,
        ..pools()
    };
    install_all(vec![Box::new(Lanes::new(lanes))], always());
}

/// Offloads every operation, whatever it costs and however few jobs are concurrent.
fn always() -> Scheduler {
    Scheduler {
        flush: FlushPolicy::AtLeast(1),
        ..Scheduler::default()
    }
}

/// Lanes without batches, with pools of precomputed values.
fn pools() -> Options {
    Options {
        backend: test_backend(),
        costs: LaneCosts::unknown(test_backend()),
        scheduler: always(),
        has_batches: false,
        key_pairs: 32,
        nonces: 0,
    }
}

/// Makes an instance with lanes of which a batch takes `batch`, and pools, for a job that is alone.
/// One operation takes aws-lc [`SOFTWARE`].
fn install_lanes_for_one(batch: Duration) {
    let mut options = Options {
        has_batches: true,
        scheduler: Scheduler {
            flush: FlushPolicy::Cheapest,
            software: PerKind::new(|_| Cost::Known(SOFTWARE)),
        },
        ..pools()
    };
    for cost in options.costs.batches.0.iter_mut().flatten() {
        *cost = BatchCost {
            full: Cost::Known(batch),
            half: Cost::Known(batch),
        };
    }
    let scheduler = options.scheduler.clone();
    install_all(vec![Box::new(Lanes::new(options))], scheduler);
    set_concurrency(|| 1);
}

const SOFTWARE: Duration = Duration::from_micros(100);

/// Lets fibers pause anywhere, with this many concurrent jobs.
fn set_concurrency(concurrency: fn() -> usize) {
    fiber::set_rules(Rules {
        admits: |_| Ok(()),
        concurrency,
        notification: Notification::ReadyQueue,
    });
}

/// With pools, which come first for what they have.
fn install(accelerator: Box<dyn Accelerator>) {
    let pools = Box::new(Lanes::new(pools()));
    install_all(vec![accelerator, pools], always());
}

/// With nothing precomputed, so that the accelerator is asked for ECDSA too.
fn install_without_pools(accelerator: Box<dyn Accelerator>) {
    install_all(vec![accelerator], always());
}

fn install_all(accelerators: Vec<Box<dyn Accelerator>>, scheduler: Scheduler) {
    let instance = Instance::new(accelerators, scheduler, 64);
    instance::install(instance.expect("an instance"));
}

fn counters() -> Counters {
    instance::with(|instance| instance.counters().clone()).expect("an instance")
}

/// Runs each job on a fiber of its own, all in flight together, and returns what they return.
fn together<T: 'static>(jobs: Vec<Box<dyn FnOnce() -> T>>) -> Vec<T> {
    let count = jobs.len();
    let results: Rc<RefCell<Vec<Option<T>>>> =
        Rc::new(RefCell::new((0..count).map(|_| None).collect()));
    let mut fibers = Fibers::new(count, STACK_BYTES);
    let mut paused = HashMap::new();
    for (number, job) in jobs.into_iter().enumerate() {
        let results = results.clone();
        let body = move || {
            let result = job();
            results.borrow_mut()[number] = Some(result);
        };
        if let Progress::Paused(fiber) = fibers.start(JobToken(number), body).expect("a stack") {
            paused.insert(number, fiber);
        }
    }
    let start = Instant::now();
    while !paused.is_empty() {
        assert!(start.elapsed() < HANGS, "{} jobs hang", paused.len());
        instance::with(|instance| instance.poll(Moment::Idle));
        while let Some(job) = instance::with(Instance::next_ready).flatten() {
            let fiber = paused.remove(&job.0).expect("a job that is paused");
            if let Progress::Paused(fiber) = fibers.resume(fiber) {
                paused.insert(job.0, fiber);
            }
        }
    }
    let mut results = results.borrow_mut();
    results
        .drain(..)
        .map(|result| result.expect("a result"))
        .collect()
}

/// Runs one job on a fiber.
fn on_fiber<T: 'static>(job: impl FnOnce() -> T + 'static) -> T {
    together(vec![Box::new(job)]).remove(0)
}

/// A private key in two hands: OpenSSL's, and as a file would have it.
#[derive(Clone)]
struct TestKey {
    openssl: PKey<Private>,
    name: &'static str,
}

impl TestKey {
    fn der(&self) -> PrivateKeyDer<'static> {
        let der = self.openssl.private_key_to_pkcs8().expect("an encoding");
        PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der))
    }

    /// Loaded for lanes.
    fn load(&self) -> Arc<dyn SigningKey> {
        load(&self.der(), Some(test_backend())).expect("a good key")
    }

    fn rsa(size: Size) -> Self {
        let name = Kind::Rsa(size).name();
        let der = example_pkcs1(size).expect("an encoding");
        let key = Rsa::private_key_from_der(&der).expect("a good key");
        let openssl = PKey::from_rsa(key).expect("a key");
        Self { openssl, name }
    }

    fn new_rsa() -> Self {
        let key = Rsa::generate(2048).expect("a key");
        let openssl = PKey::from_rsa(key).expect("a key");
        let name = "a new RSA-2048";
        Self { openssl, name }
    }

    fn new_ec(name: &'static str, curve: Nid) -> Self {
        let group = EcGroup::from_curve_name(curve).expect("a curve");
        let key = EcKey::generate(&group).expect("a key");
        let openssl = PKey::from_ec_key(key).expect("a key");
        Self { openssl, name }
    }

    fn p256() -> Self {
        Self::new_ec("P-256", Nid::X9_62_PRIME256V1)
    }

    fn p384() -> Self {
        Self::new_ec("P-384", Nid::SECP384R1)
    }

    fn all() -> Vec<Self> {
        let rsa = Size::ALL.into_iter().map(Self::rsa);
        rsa.chain([Self::p256(), Self::p384()]).collect()
    }

    /// The operation that signs with it.
    fn signs_by(&self) -> Kind {
        let size = |size: &Size| self.openssl.bits() as usize == size.bits();
        match self.openssl.bits() {
            256 => Kind::Ecdsa(Curve::P256),
            384 => Kind::Ecdsa(Curve::P384),
            _ => Kind::Rsa(Size::ALL.into_iter().find(size).expect("a size")),
        }
    }

    /// What it can sign with.
    fn schemes(&self) -> Vec<SignatureScheme> {
        let key = self.load();
        SCHEMES
            .into_iter()
            .filter(|scheme| key.choose_scheme(&[*scheme]).is_some())
            .collect()
    }
}

static SCHEMES: [SignatureScheme; 8] = [
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
];
