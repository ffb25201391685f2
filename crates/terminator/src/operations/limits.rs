//! Limits, shared by all event loops.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::sync::Notify;

use super::metrics::Refusal;
use crate::configuration::Limits;

/// How often addresses that have been quiet are forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(10);

/// Counts connections and handshakes against [`Limits`]. Limits can be changed while connections are open.
#[derive(Debug)]
pub struct Limiter {
    connections: Gauge,
    handshakes: Gauge,
    /// Somebody may begin a handshake.
    is_free: Notify,
    rate: RwLock<Option<Rate>>,
}

/// A connection that has been let in; dropped, it makes room for another one.
#[derive(Debug)]
pub struct ConnectionPermit(Arc<Limiter>);

/// A handshake that is under way; dropped, it makes room for another one.
#[derive(Debug)]
pub struct HandshakePermit(Arc<Limiter>);

impl Limiter {
    /// A limiter for `limits`.
    pub fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            connections: Gauge::new(limits.connections),
            handshakes: Gauge::new(limits.handshakes),
            is_free: Notify::new(),
            rate: RwLock::new(Rate::new(limits.connections_per_second)),
        })
    }

    /// Has other limits from now on. Who has been let in stays.
    pub fn set(&self, limits: &Limits) {
        self.connections.set(limits.connections);
        self.handshakes.set(limits.handshakes);
        let mut rate = self.rate.write().unwrap_or_else(PoisonError::into_inner);
        let per_second = rate.as_ref().map(|rate| rate.per_second.get());
        if per_second != limits.connections_per_second {
            *rate = Rate::new(limits.connections_per_second);
        }
        drop(rate);
        // There may be room for many who wait.
        self.is_free.notify_waiters();
    }

    /// Whether a new connection of `address` is let in.
    ///
    /// # Errors
    /// The reason why not.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, Refusal> {
        // Who is refused for its rate gives the place back.
        let permit = self.admit_unnamed()?;
        self.check_rate(address)?;
        Ok(permit)
    }

    /// Whether a new connection is let in of which it is not known yet whose it is: [`check_rate`](Self::check_rate) follows.
    ///
    /// # Errors
    /// [`Refusal::Connections`].
    pub fn admit_unnamed(self: &Arc<Self>) -> Result<ConnectionPermit, Refusal> {
        match self.connections.take() {
            true => Ok(ConnectionPermit(Arc::clone(self))),
            false => Err(Refusal::Connections),
        }
    }

    /// Counts a connection of `address`. Of IPv6, addresses with the first 64 bits in common count as one.
    ///
    /// # Errors
    /// [`Refusal::Rate`] if there have been too many.
    pub fn check_rate(&self, address: IpAddr) -> Result<(), Refusal> {
        let rate = self.rate.read().unwrap_or_else(PoisonError::into_inner);
        match &*rate {
            Some(rate) if !rate.admits(address) => Err(Refusal::Rate),
            _ => Ok(()),
        }
    }

    /// Waits until a handshake may begin.
    pub async fn begin_handshake(self: &Arc<Self>) -> HandshakePermit {
        loop {
            let mut notified = pin!(self.is_free.notified());
            // From here on nobody's leaving is missed: neither before the count is looked at, nor after.
            notified.as_mut().enable();
            if self.handshakes.take() {
                return HandshakePermit(Arc::clone(self));
            }
            notified.await;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.give_back();
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.0.handshakes.give_back();
        self.0.is_free.notify_one();
    }
}

/// How many there are, and how many there may be.
#[derive(Debug)]
struct Gauge {
    taken: AtomicUsize,
    limit: AtomicUsize,
}

impl Gauge {
    fn new(limit: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        }
    }

    fn set(&self, limit: usize) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        let limit = self.limit.load(Ordering::SeqCst);
        let one_more = |taken| (taken < limit).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more)
            .is_ok()
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Connections per second, by address.
#[derive(Debug)]
struct Rate {
    per_second: NonZeroU32,
    limiter: DefaultKeyedRateLimiter<IpAddr>,
    /// When addresses were last forgotten.
    cleaned: Mutex<Instant>,
}

impl Rate {
    fn new(per_second: Option<u32>) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second?)?;
        let burst = per_second.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        let quota = Quota::per_second(per_second).allow_burst(burst);
        Some(Self {
            per_second,
            limiter: RateLimiter::keyed(quota),
            cleaned: Mutex::new(Instant::now()),
        })
    }

    fn admits(&self, address: IpAddr) -> bool {
        self.forget_the_quiet();
        self.limiter.check_key(&network_of(address)).is_ok()
    }

    /// Otherwise each address that ever came would be kept. Whoever comes first after a while does it, and nobody waits for it.
    fn forget_the_quiet(&self) {
        let Ok(mut cleaned) = self.cleaned.try_lock() else {
            return;
        };
        if cleaned.elapsed() >= FORGET_INTERVAL {
            *cleaned = Instant::now();
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
        }
    }
}

/// Whoever has one IPv6 address has all with its first 64 bits.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    use std::thread;

    use super::*;

    fn limiter(connections: usize, handshakes: usize, per_second: Option<u32>) -> Arc<Limiter> {
        Limiter::new(&limits(connections, handshakes, per_second))
    }

    fn limits(connections: usize, handshakes: usize, per_second: Option<u32>) -> Limits {
        Limits {
            connections,
            handshakes,
            connections_per_second: per_second,
            ..Limits::default()
        }
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn connections_are_counted_exactly_over_threads() {
        let limiter = limiter(100, 1, None);
        let permits: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..50)
                            .filter_map(|_| limiter.admit(CLIENT).ok())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(permits.len(), 100);
        assert_eq!(limiter.admit(CLIENT).unwrap_err(), Refusal::Connections);
        drop(permits);
        assert!(limiter.admit(CLIENT).is_ok());
    }

    #[test]
    fn a_lower_limit_counts_who_is_there() {
        let limiter = limiter(2, 1, None);
        let one = limiter.admit(CLIENT).unwrap();
        let other = limiter.admit(CLIENT).unwrap();
        limiter.set(&limits(1, 1, None));
        drop(one);
        assert_eq!(limiter.admit(CLIENT).unwrap_err(), Refusal::Connections);
        drop(other);
        assert!(limiter.admit(CLIENT).is_ok());
    }

    #[test]
    fn handshakes_wait_for_room() {
        let limiter = limiter(1, 1, None);
        let mut first = pin!(limiter.begin_handshake());
        let Poll::Ready(permit) = poll(first.as_mut()) else {
            panic!("there is room");
        };
        let mut second = pin!(limiter.begin_handshake());
        let mut third = pin!(limiter.begin_handshake());
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(third.as_mut()).is_pending());
        drop(permit);
        let Poll::Ready(permit) = poll(second.as_mut()) else {
            panic!("a permit has been given back");
        };
        assert!(poll(third.as_mut()).is_pending());
        limiter.set(&limits(1, 2, None));
        assert!(poll(third.as_mut()).is_ready());
        drop(permit);
    }

    #[test]
    fn who_gives_up_waiting_takes_nobodys_place() {
        let limiter = limiter(1, 1, None);
        let mut first = Box::pin(limiter.begin_handshake());
        let Poll::Ready(permit) = poll(first.as_mut()) else {
            panic!("there is room");
        };
        let mut gone = Box::pin(limiter.begin_handshake());
        let mut waits = Box::pin(limiter.begin_handshake());
        assert!(poll(gone.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
        // The one that is woken goes away before it has looked.
        drop(permit);
        drop(gone);
        assert!(poll(waits.as_mut()).is_ready());
    }

    #[test]
    fn twice_the_rate_may_come_at_once_and_networks_count_as_one() {
        // A rate so low that nothing comes back while the test runs.
        let limiter = limiter(1000, 1, Some(1));
        let admitted = |text: &str| limiter.admit(text.parse().unwrap()).is_ok();
        assert!(admitted("2001:db8::1"));
        assert!(admitted("2001:db8::2"));
        let refused = limiter.admit("2001:db8::3".parse().unwrap());
        assert_eq!(refused.unwrap_err(), Refusal::Rate);
        assert!(admitted("2001:db8:0:1::1"));
        assert!(admitted("192.0.2.1"));
        assert!(admitted("::ffff:192.0.2.1"));
        assert!(!admitted("192.0.2.1"));
        // Who was refused holds no connection.
        assert_eq!(limiter.connections.taken.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_rate_that_stays_keeps_its_memory_and_can_be_lifted() {
        let limiter = limiter(1000, 1, Some(1));
        for _ in 0..2 {
            limiter.admit(CLIENT).unwrap();
        }
        limiter.set(&limits(1000, 2, Some(1)));
        assert_eq!(limiter.admit(CLIENT).unwrap_err(), Refusal::Rate);
        limiter.set(&limits(1000, 2, None));
        assert!(limiter.admit(CLIENT).is_ok());
    }
}
