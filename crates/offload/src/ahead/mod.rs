//! Made ahead: ephemeral key pairs and ECDSA nonces do not depend on the connection that will use them, so they
//! are computed eight at a time before they are needed, and each is used once.
//!
//! What waits lies in memory that is wiped on fork (see [`pool`]), belongs to the instance of one thread, and is drawn
//! from the system's generator. A pool is filled with one batch when something is taken from it while it is
//! empty, and further while the event loop is [about to sleep](Ahead::top_up).

mod pool;

use std::io;

use slipstream_lanes::ec::{self, Curve, Nonce};
use slipstream_lanes::{Backend, LANES, x25519};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing, zeroize_stack};

use crate::instance;
use crate::key_pair::{self, Room, draw};
use crate::request::Operand;
use pool::Pool;

pub use crate::key_pair::{Group, KeyPair};

/// A key pair that nobody has been given before. `None` if this thread has no instance, or one that makes nothing
/// ahead, or if the system's generator fails.
pub fn key_pair(group: Group) -> Option<KeyPair> {
    taken(|ahead| match group {
        Group::X25519 => ahead.x25519.take(ahead.backend, ahead.entries)?.key_pair(),
        Group::P256 => ahead.p256.take(ahead.backend, ahead.entries)?.key_pair(),
        Group::P384 => ahead.p384.take(ahead.backend, ahead.entries)?.key_pair(),
    })
}

/// An ECDSA nonce that nobody has been given before; `None` as for [`key_pair`].
pub fn nonce(curve: Curve) -> Option<Nonce> {
    taken(|ahead| match curve {
        Curve::P256 => ahead
            .p256_nonces
            .take(ahead.backend, ahead.entries)
            .map(|nonce| nonce.0),
        Curve::P384 => ahead
            .p384_nonces
            .take(ahead.backend, ahead.entries)
            .map(|nonce| nonce.0),
    })
}

fn taken<T>(take: impl FnOnce(&mut Ahead) -> Option<T>) -> Option<T> {
    instance::with(|instance| {
        let taken = take(instance.ahead.as_mut()?)?;
        instance.counters.taken_ahead += 1;
        Some(taken)
    })
    .flatten()
}

/// Computes what all processes that are forked from this one can share: multiples of base points.
pub fn prepare(backend: Backend) {
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
        ec::public_keys(backend, curve, &mut operation);
    }
}

/// The pools of an instance.
pub struct Ahead {
    backend: Backend,
    entries: usize,
    x25519: Stock<X25519Pair>,
    p256: Stock<P256Pair>,
    p384: Stock<P384Pair>,
    p256_nonces: Stock<P256Nonce>,
    p384_nonces: Stock<P384Nonce>,
}

impl Ahead {
    /// Empty pools of `entries` entries each, to be filled by `backend`. `None` if the backend computes no curves, or if
    /// a batch does not fit.
    pub fn new(backend: Backend, entries: usize) -> Option<Self> {
        let offered = x25519::offered(backend) && ec::offered(backend);
        (offered && entries >= LANES).then(|| Self {
            backend,
            entries,
            x25519: Stock::Untouched,
            p256: Stock::Untouched,
            p384: Stock::Untouched,
            p256_nonces: Stock::Untouched,
            p384_nonces: Stock::Untouched,
        })
    }

    /// Adds a batch to every pool that has been used and has room for one. For a moment at which nobody waits.
    pub fn top_up(&mut self) {
        self.x25519.top_up(self.backend);
        self.p256.top_up(self.backend);
        self.p384.top_up(self.backend);
        self.p256_nonces.top_up(self.backend);
        self.p384_nonces.top_up(self.backend);
    }
}

/// A pool, made when it is first asked.
enum Stock<T: MadeAhead> {
    Untouched,
    /// There was no memory for it.
    Unavailable,
    Pool(Pool<T>),
}

impl<T: MadeAhead> Stock<T> {
    fn take(&mut self, backend: Backend, entries: usize) -> Option<T> {
        if let Stock::Untouched = self {
            *self = Pool::new(entries).map_or(Stock::Unavailable, Stock::Pool);
        }
        let Stock::Pool(pool) = self else {
            return None;
        };
        if pool.len() == 0 {
            fill(pool, backend).ok()?;
            zeroize_stack::<FILL_STACK>();
        }
        pool.take()
    }

    fn top_up(&mut self, backend: Backend) {
        if let Stock::Pool(pool) = self
            && pool.room() >= LANES
        {
            // If the generator fails, whoever needs a value next is told so.
            let _ = fill(pool, backend);
            zeroize_stack::<FILL_STACK>();
        }
    }
}

/// Stack on which values lie before they are in their pool, in bytes.
const FILL_STACK: usize = 16 * 1024;

/// In a frame of its own, so that all copies lie where the stack is wiped.
#[inline(never)]
fn fill<T: MadeAhead>(pool: &mut Pool<T>, backend: Backend) -> io::Result<()> {
    T::make(backend, &mut |value| pool.put(value))
}

/// What is made eight at a time.
trait MadeAhead: Sized {
    /// Makes up to eight values, as many as random scalars are in range: all but once in 2^32 times.
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<()>;
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

    fn key_pair(&self) -> Option<KeyPair> {
        Some(KeyPair {
            private: Operand::new(&self.private),
            public: Operand::new(&self.public),
        })
    }
}

fn make_pairs<const PRIVATE: usize, const PUBLIC: usize>(
    backend: Backend,
    group: Group,
    put: &mut dyn FnMut(Pair<PRIVATE, PUBLIC>),
) -> io::Result<()> {
    let mut pairs: [Pair<PRIVATE, PUBLIC>; LANES] = std::array::from_fn(|_| Pair::zeroed());
    let mut rooms = pairs.each_mut().map(|pair| Room {
        private: &mut pair.private,
        public: &mut pair.public,
    });
    let made = key_pair::generate(backend, group, &mut rooms)?;
    for (pair, is_made) in pairs.into_iter().zip(made) {
        if is_made {
            put(pair);
        }
    }
    Ok(())
}

impl MadeAhead for X25519Pair {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<()> {
        make_pairs(backend, Group::X25519, put)
    }
}

impl MadeAhead for P256Pair {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<()> {
        make_pairs(backend, Group::P256, put)
    }
}

impl MadeAhead for P384Pair {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<()> {
        make_pairs(backend, Group::P384, put)
    }
}

/// A nonce of P-256: the curves differ in type, so that one cannot be taken for the other.
struct P256Nonce(Nonce);

/// A nonce of P-384.
struct P384Nonce(Nonce);

/// Nonces by rejection sampling (FIPS 186-5, appendix A.3.2).
fn make_nonces<const BYTES: usize>(
    backend: Backend,
    curve: Curve,
    put: &mut dyn FnMut(Nonce),
) -> io::Result<()> {
    let mut scalars = Zeroizing::new([[0; BYTES]; LANES]);
    for scalar in scalars.iter_mut() {
        draw(scalar)?;
    }
    let scalars = scalars.each_ref().map(|scalar| &scalar[..]);
    for nonce in ec::nonces(backend, curve, &scalars).into_iter().flatten() {
        put(nonce);
    }
    Ok(())
}

impl MadeAhead for P256Nonce {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<()> {
        make_nonces::<32>(backend, Curve::P256, &mut |nonce| put(P256Nonce(nonce)))
    }
}

impl MadeAhead for P384Nonce {
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<()> {
        make_nonces::<48>(backend, Curve::P384, &mut |nonce| put(P384Nonce(nonce)))
    }
}
