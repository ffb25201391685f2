//! Precomputed values: ephemeral key pairs and ECDSA nonces.
//!
//! They do not depend on the connection that will use them, so they are computed eight at a time
//! before they are needed, and each is used once, the oldest first. They lie in memory that is
//! wiped on fork (see `pool`), belong to the accelerator of one thread, and are drawn from the
//! system's generator. A pool is filled with one batch when something is taken from it while it is
//! empty, and further while the event loop is about to sleep.
//!
//! Values are wiped when they are too old, and when something tells that the machine was copied
//! (see [`machine`](super::machine)); nonces also when the event loop rests.

use std::io;
use std::time::Duration;

use slipstream_keys::ec::{self as keys_ec, Curve};
use slipstream_keys::{Group, Operand};
use slipstream_lanes::ec::{self, PreparedNonce};
use slipstream_lanes::{Backend, LANES, OperationError, Outcomes, x25519};
use slipstream_offload::costs::{Cost, KEY_PAIR_LIFE, NONCE_LIFE, NONCE_REST, measure};
use slipstream_offload::{Kind, Operation, Output, Reason};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing, zeroize_stack};

use super::key_pair::{self, Room, draw};
use super::machine::Machine;
use super::stock::{Precompute, Stock};
use super::{computes, forms};

/// Computes the tables that all processes which are forked from this one can share: multiples of
/// base points.
pub fn prepare_tables(backend: Backend) {
    if !ec::offered(backend) {
        return;
    }
    for curve in Curve::ALL {
        let mut one = vec![0; curve.bytes()];
        one[curve.bytes() - 1] = 1;
        let mut public = vec![0; curve.point_bytes()];
        let mut operation = [ec::PublicKey {
            private: &one,
            public: &mut public,
        }];
        // Only the tables are wanted.
        let _ = ec::public_keys(backend, curve, &mut operation);
    }
}

/// The pools of one thread.
pub(super) struct Precomputed {
    backend: Backend,
    machine: Machine,
    has_key_pairs: bool,
    has_nonces: bool,
    x25519: Stock<X25519Pair>,
    p256: Stock<P256Pair>,
    p384: Stock<P384Pair>,
    p256_nonces: Stock<P256Nonce>,
    p384_nonces: Stock<P384Nonce>,
    /// The time at which a nonce was last asked for.
    nonces_used: Duration,
}

impl Precomputed {
    /// Empty pools with room for so many key pairs and nonces each, to be filled by `backend`.
    /// `None` if the backend computes no curves, or if no pool has room for a batch.
    pub(super) fn new(
        backend: Backend,
        machine: Machine,
        key_pairs: usize,
        nonces: usize,
    ) -> Option<Self> {
        let offered = x25519::offered(backend) && ec::offered(backend);
        let (has_key_pairs, has_nonces) = (key_pairs >= LANES, nonces >= LANES);
        (offered && (has_key_pairs || has_nonces)).then(|| Self {
            backend,
            machine,
            has_key_pairs,
            has_nonces,
            x25519: Stock::new(key_pairs, KEY_PAIR_LIFE),
            p256: Stock::new(key_pairs, KEY_PAIR_LIFE),
            p384: Stock::new(key_pairs, KEY_PAIR_LIFE),
            p256_nonces: Stock::new(nonces, NONCE_LIFE),
            p384_nonces: Stock::new(nonces, NONCE_LIFE),
            nonces_used: Duration::ZERO,
        })
    }

    /// Returns true if there is a pool of values for operations of `kind`.
    pub(super) fn has_pool(&self, kind: Kind) -> bool {
        let has_pools = match kind {
            Kind::KeyPair(_) => self.has_key_pairs,
            Kind::Ecdsa(_) => self.has_nonces,
            _ => false,
        };
        has_pools && computes(self.backend, kind)
    }

    /// Computes `operation` from a precomputed value.
    ///
    /// # Errors
    /// [`Reason::NotOffered`] if there is no pool for its kind, or if the system's generator fails,
    /// [`Reason::Fault`] once for each value that was discarded since it failed its check.
    pub(super) fn compute(&mut self, operation: &Operation) -> Result<Output, Reason> {
        if !self.has_pool(operation.kind()) {
            return Err(Reason::NotOffered);
        }
        let now = self.look();
        let output = self.take(operation, now);
        zeroize_stack::<TAKE_STACK>();
        output
    }

    /// Adds a batch to every pool that has been used and has room for one. For a moment at which
    /// nothing waits.
    pub(super) fn top_up(&mut self) {
        let (backend, now) = (self.backend, self.look());
        self.x25519.top_up(backend, now);
        self.p256.top_up(backend, now);
        self.p384.top_up(backend, now);
        // Else they would be wiped before the event loop sleeps.
        if now < self.nonces_used + NONCE_REST {
            self.p256_nonces.top_up(backend, now);
            self.p384_nonces.top_up(backend, now);
        }
    }

    /// Wipes what is too old, and nonces that nobody has asked for lately. Returns the time until
    /// there is more to wipe; `None` if nothing is left.
    pub(super) fn expire(&mut self) -> Option<Duration> {
        let now = self.look();
        let rest = self.nonces_used + NONCE_REST;
        if now >= rest {
            self.discard_nonces();
        }
        self.x25519.discard_old(now);
        self.p256.discard_old(now);
        self.p384.discard_old(now);
        self.p256_nonces.discard_old(now);
        self.p384_nonces.discard_old(now);
        let key_pairs = [self.x25519.end(), self.p256.end(), self.p384.end()];
        let nonces = [self.p256_nonces.end(), self.p384_nonces.end()];
        let nonces = nonces.into_iter().flatten().map(|end| end.min(rest));
        let next = key_pairs.into_iter().flatten().chain(nonces).min()?;
        // What ends now is wiped after now.
        Some(next.saturating_sub(now) + Duration::from_millis(1))
    }

    /// The time now. If the machine may be a copy, all values are wiped.
    fn look(&mut self) -> Duration {
        let look = self.machine.look();
        if !look.is_same {
            self.x25519.discard_all();
            self.p256.discard_all();
            self.p384.discard_all();
            self.discard_nonces();
        }
        look.now
    }

    fn discard_nonces(&mut self) {
        self.p256_nonces.discard_all();
        self.p384_nonces.discard_all();
    }

    /// In a frame of its own, so that all copies of a value lie where the stack is wiped.
    #[inline(never)]
    fn take(&mut self, operation: &Operation, now: Duration) -> Result<Output, Reason> {
        match operation {
            Operation::KeyPair(group) => self.key_pair(*group, now),
            Operation::Ecdsa { key, digest } => {
                let key = key.value().ok_or(Reason::NotOffered)?;
                self.sign(key, digest.as_slice(), now)
            }
            _ => Err(Reason::NotOffered),
        }
    }

    fn key_pair(&mut self, group: Group, now: Duration) -> Result<Output, Reason> {
        let backend = self.backend;
        Ok(match group {
            Group::X25519 => self.x25519.take(backend, now)?.output(),
            Group::P256 => self.p256.take(backend, now)?.output(),
            Group::P384 => self.p384.take(backend, now)?.output(),
        })
    }

    /// r and s. [`Reason::NotOffered`] also if another nonce is needed, all but never.
    fn sign(
        &mut self,
        key: &keys_ec::PrivateKey,
        digest: &[u8],
        now: Duration,
    ) -> Result<Output, Reason> {
        self.nonces_used = now;
        let nonce = match key.curve() {
            Curve::P256 => self.p256_nonces.take(self.backend, now)?.0,
            Curve::P384 => self.p384_nonces.take(self.backend, now)?.0,
        };
        sign(nonce, key, digest).ok_or(Reason::NotOffered)
    }
}

/// Stack on which a value lies between its pool and its use, in bytes.
const TAKE_STACK: usize = 4 * 1024;

fn sign(nonce: PreparedNonce, key: &keys_ec::PrivateKey, digest: &[u8]) -> Option<Output> {
    let mut output = Operand::zeroed(Kind::Ecdsa(key.curve()).output_bytes());
    let signed = nonce.sign(forms::ec_form(key), digest, output.as_mut_slice());
    signed.ok().map(|()| output)
}

/// The cost of a key pair out of a batch of `backend`, which computes in `group`.
pub(super) fn key_pairs_cost(backend: Backend, group: Group) -> Cost {
    let mut pairs = vec![Operand::zeroed(Kind::KeyPair(group).output_bytes()); LANES];
    let mut is_made = true;
    let cost = measure(|| {
        let mut rooms: Vec<Room<'_>> = pairs
            .iter_mut()
            .map(|pair| {
                let (private, public) = pair.as_mut_slice().split_at_mut(group.private_bytes());
                Room { private, public }
            })
            .collect();
        is_made &= key_pair::generate(backend, group, &mut rooms).is_ok();
    });
    match is_made {
        true => Cost::Known(cost / LANES as u32),
        false => Cost::Unknown,
    }
}

/// The cost of a signature of `backend`, which computes on `curve`: with its share of a batch of
/// nonces.
pub(super) fn signatures_cost(backend: Backend, curve: Curve) -> Cost {
    let Ok(key) = keys_ec::PrivateKey::new(curve, &vec![1; curve.bytes()]) else {
        return Cost::Unknown;
    };
    let digest = vec![1; curve.bytes()];
    let mut signatures = 0;
    let mut is_made = true;
    let cost = measure(|| {
        let count = |nonce| signatures += usize::from(sign(nonce, &key, &digest).is_some());
        let made = match curve {
            Curve::P256 => make_nonces::<32>(backend, curve, &mut { count }),
            Curve::P384 => make_nonces::<48>(backend, curve, &mut { count }),
        };
        is_made &= made.is_ok();
    });
    match is_made && signatures > 0 {
        true => Cost::Known(cost / LANES as u32),
        false => Cost::Unknown,
    }
}

#[derive(Zeroize, ZeroizeOnDrop)]
struct Pair<const PRIVATE: usize, const PUBLIC: usize> {
    private: [u8; PRIVATE],
    public: [u8; PUBLIC],
}

type X25519Pair = Pair<{ x25519::KEY_BYTES }, { x25519::KEY_BYTES }>;
type P256Pair = Pair<32, 65>;
type P384Pair = Pair<48, 97>;

impl<const PRIVATE: usize, const PUBLIC: usize> Pair<PRIVATE, PUBLIC> {
    fn zeroed() -> Self {
        Self {
            private: [0; PRIVATE],
            public: [0; PUBLIC],
        }
    }

    /// The private key and then the public key.
    fn output(&self) -> Output {
        let mut output = Operand::zeroed(PRIVATE + PUBLIC);
        let (private, public) = output.as_mut_slice().split_at_mut(PRIVATE);
        private.copy_from_slice(&self.private);
        public.copy_from_slice(&self.public);
        output
    }
}

fn make_pairs<const PRIVATE: usize, const PUBLIC: usize>(
    backend: Backend,
    group: Group,
    put: &mut dyn FnMut(Pair<PRIVATE, PUBLIC>),
) -> io::Result<usize> {
    let mut pairs: [Pair<PRIVATE, PUBLIC>; LANES] = std::array::from_fn(|_| Pair::zeroed());
    let mut rooms = pairs.each_mut().map(|pair| Room {
        private: &mut pair.private,
        public: &mut pair.public,
    });
    let outcomes = key_pair::generate(backend, group, &mut rooms)?;
    for (pair, outcome) in pairs.into_iter().zip(outcomes.iter()) {
        if outcome.is_ok() {
            put(pair);
        }
    }
    Ok(count_faults(&outcomes))
}

fn count_faults(outcomes: &Outcomes) -> usize {
    let is_fault = |outcome: &&Result<(), OperationError>| **outcome == Err(OperationError::Fault);
    outcomes.iter().filter(is_fault).count()
}

impl Precompute for X25519Pair {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<usize> {
        make_pairs(backend, Group::X25519, put)
    }
}

impl Precompute for P256Pair {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<usize> {
        make_pairs(backend, Group::P256, put)
    }
}

impl Precompute for P384Pair {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<usize> {
        make_pairs(backend, Group::P384, put)
    }
}

/// A nonce of P-256: the curves differ in type, so that one cannot be taken for the other.
struct P256Nonce(PreparedNonce);

/// A nonce of P-384.
struct P384Nonce(PreparedNonce);

/// Nonces by rejection sampling (FIPS 186-5, appendix A.3.2).
fn make_nonces<const BYTES: usize>(
    backend: Backend,
    curve: Curve,
    put: &mut dyn FnMut(PreparedNonce),
) -> io::Result<usize> {
    let mut scalars = Zeroizing::new([[0; BYTES]; LANES]);
    for scalar in scalars.iter_mut() {
        draw(scalar)?;
    }
    let mut prepared = [const { None }; LANES];
    let mut operations = scalars.iter().zip(&mut prepared);
    let mut operations: [ec::Nonce<'_>; LANES] = std::array::from_fn(|_| {
        let (scalar, prepared) = operations.next().expect("one for each lane");
        ec::Nonce { scalar, prepared }
    });
    // Those that failed have prepared nothing.
    let outcomes = ec::nonces(backend, curve, &mut operations);
    for nonce in prepared.into_iter().flatten() {
        put(nonce);
    }
    Ok(count_faults(&outcomes))
}

impl Precompute for P256Nonce {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<usize> {
        make_nonces::<32>(backend, Curve::P256, &mut |nonce| put(P256Nonce(nonce)))
    }
}

impl Precompute for P384Nonce {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<usize> {
        make_nonces::<48>(backend, Curve::P384, &mut |nonce| put(P384Nonce(nonce)))
    }
}

#[cfg(test)]
mod tests;
