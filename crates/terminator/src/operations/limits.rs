//! Limits that all event loops share.

mod by_address;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use slipstream_http::gauge::Gauge;
use slipstream_http::usage::Usage;
use tokio::sync::Notify;

use super::metrics::Refusal;
use crate::configuration::Limits;
use by_address::{Addresses, Rate, network_of};

/// Descriptors that are neither a client's connection, nor one to a backend, nor a file that is
/// served: sockets of listeners and of name resolution, logs, event loops.
const OTHER_DESCRIPTORS: usize = 256;

/// Counts connections, handshakes and requests against [`Limits`], which can be changed at any
/// time.
#[derive(Debug)]
pub struct Limiter {
    /// Descriptors that the process may have.
    descriptors: usize,
    connections: Gauge,
    addresses: Addresses,
    handshakes: Gauge,
    /// Notified when a handshake may begin.
    is_free: Notify,
    rate: RwLock<Option<Rate>>,
    usage: Usage,
}

/// Permit of a connection. Dropping it makes room for another one.
#[derive(Debug)]
#[must_use]
pub struct ConnectionPermit {
    limiter: Arc<Limiter>,
    /// Network of the client, once it is known.
    network: Option<IpAddr>,
}

/// Permits of one handshake, which needs one whenever something is computed for it. While its
/// client is waited for, others have it.
#[derive(Debug)]
pub struct Turns {
    limiter: Arc<Limiter>,
    is_waiting: AtomicBool,
}

/// Permit of a step of a handshake. Dropping it makes room for another one.
#[derive(Debug)]
#[must_use]
pub struct HandshakePermit(Arc<Limiter>);

impl Limiter {
    /// Returns a limiter for `limits`, and for a process that may have so many `descriptors`.
    pub fn new(limits: &Limits, descriptors: usize) -> Arc<Self> {
        let shares = Shares::new(limits, descriptors);
        Arc::new(Self {
            descriptors,
            connections: Gauge::new(shares.connections),
            addresses: Addresses::new(limits.connections_per_address),
            handshakes: Gauge::new(limits.handshakes),
            is_free: Notify::new(),
            rate: RwLock::new(Rate::new(limits.connections_per_second)),
            usage: Usage::new(limits.requests, shares.others, limits.unread_bytes_total),
        })
    }

    /// Changes the limits. Permits that were granted stay valid.
    pub fn set(&self, limits: &Limits) {
        let shares = Shares::new(limits, self.descriptors);
        self.connections.set(shares.connections);
        self.usage.requests.set(limits.requests);
        self.usage.descriptors.set(shares.others);
        self.usage.content.set(limits.unread_bytes_total);
        self.addresses.set(limits.connections_per_address);
        self.handshakes.set(limits.handshakes);
        let mut rate = self.rate.write().unwrap_or_else(PoisonError::into_inner);
        let per_second = rate.as_ref().map(|rate| rate.per_second());
        if per_second != limits.connections_per_second {
            *rate = Rate::new(limits.connections_per_second);
        }
        drop(rate);
        // There may be room for several waiters.
        self.is_free.notify_waiters();
    }

    /// Returns the resources that requests share.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Admits a new connection of `address`.
    ///
    /// # Errors
    /// Returns the limit that was reached.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, Refusal> {
        // If another limit is reached, the permit is dropped.
        let mut permit = self.admit_unnamed()?;
        permit.name(address)?;
        Ok(permit)
    }

    /// Admits a new connection whose client is not known yet. The caller must
    /// [name](ConnectionPermit::name) it later.
    ///
    /// # Errors
    /// Returns [`Refusal::Connections`] if there are too many.
    pub fn admit_unnamed(self: &Arc<Self>) -> Result<ConnectionPermit, Refusal> {
        match self.connections.take() {
            true => Ok(ConnectionPermit {
                limiter: Arc::clone(self),
                network: None,
            }),
            false => Err(Refusal::Connections),
        }
    }

    fn check_rate(&self, network: IpAddr) -> Result<(), Refusal> {
        let rate = self.rate.read().unwrap_or_else(PoisonError::into_inner);
        match &*rate {
            Some(rate) if !rate.admits(network) => Err(Refusal::Rate),
            _ => Ok(()),
        }
    }

    /// Waits until something may be computed for a handshake.
    pub async fn begin_handshake(self: &Arc<Self>) -> HandshakePermit {
        loop {
            let mut notified = pin!(self.is_free.notified());
            // From here on no notification is missed, even if a permit is dropped before or after
            // the check below.
            notified.as_mut().enable();
            if self.handshakes.take() {
                return HandshakePermit(Arc::clone(self));
            }
            notified.await;
        }
    }
}

impl ConnectionPermit {
    /// Counts the connection as one of `address`. IPv6 addresses that share the first 64 bits count
    /// as one. Must be called once.
    ///
    /// # Errors
    /// Returns the limit of one address that was reached.
    pub fn name(&mut self, address: IpAddr) -> Result<(), Refusal> {
        let network = network_of(address);
        if !self.limiter.addresses.take(network) {
            return Err(Refusal::Address);
        }
        self.network = Some(network);
        self.limiter.check_rate(network)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(network) = self.network {
            self.limiter.addresses.give_back(network);
        }
        self.limiter.connections.give_back();
    }
}

impl Turns {
    /// Returns the permits of a handshake that begins.
    pub fn new(limiter: &Arc<Limiter>) -> Self {
        Self {
            limiter: Arc::clone(limiter),
            is_waiting: AtomicBool::new(false),
        }
    }

    /// Waits until the next step may be computed.
    pub async fn next(&self) -> HandshakePermit {
        self.is_waiting.store(true, Ordering::Relaxed);
        let permit = self.limiter.begin_handshake().await;
        self.is_waiting.store(false, Ordering::Relaxed);
        permit
    }

    /// Returns true while the handshake waits for a permit.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        self.0.handshakes.give_back();
        self.0.is_free.notify_one();
    }
}

/// Division of the descriptors, so that neither clients nor backends can take all of them.
struct Shares {
    connections: usize,
    /// For connections to backends and for files.
    others: usize,
}

impl Shares {
    fn new(limits: &Limits, descriptors: usize) -> Self {
        let usable = descriptors.saturating_sub(OTHER_DESCRIPTORS).max(2);
        let connections = limits.connections.min(usable / 2);
        Self {
            connections,
            others: usable - connections,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};
    use std::thread;

    use super::*;

    fn limiter(connections: usize, handshakes: usize, per_second: Option<u32>) -> Arc<Limiter> {
        Limiter::new(&limits(connections, handshakes, per_second), usize::MAX)
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
    fn descriptors_are_divided_among_clients_and_backends() {
        let limits = limits(16_384, 1, None);
        for (descriptors, connections, others) in [
            (40_000, 16_384, 40_000 - OTHER_DESCRIPTORS - 16_384),
            (1_024, 384, 384),
            (0, 1, 1),
        ] {
            let shares = Shares::new(&limits, descriptors);
            assert_eq!((shares.connections, shares.others), (connections, others));
        }
        let limiter = Limiter::new(&limits, OTHER_DESCRIPTORS + 4);
        let _clients = [(); 2].map(|()| limiter.admit(CLIENT).unwrap());
        assert_eq!(limiter.admit(CLIENT).unwrap_err(), Refusal::Connections);
        let _backends = [(); 2].map(|()| limiter.usage().descriptors.permit().unwrap());
        assert!(limiter.usage().descriptors.permit().is_none());
    }

    #[test]
    fn open_connections_of_an_address_are_limited() {
        let limiter = Limiter::new(
            &Limits {
                connections_per_address: 2,
                ..Limits::default()
            },
            usize::MAX,
        );
        let admit = |text: &str| limiter.admit(text.parse().unwrap());
        let open = ["2001:db8::1", "2001:db8::2"].map(|it| admit(it).unwrap());
        assert_eq!(admit("2001:db8::3").unwrap_err(), Refusal::Address);
        drop(admit("2001:db8:0:1::1").unwrap());
        let mapped = ["192.0.2.1", "::ffff:192.0.2.1"].map(|it| admit(it).unwrap());
        assert_eq!(admit("192.0.2.1").unwrap_err(), Refusal::Address);
        assert_eq!(limiter.connections.taken(), 4);
        drop((open, mapped));
        drop(admit("2001:db8::3").unwrap());
        assert!(limiter.addresses.is_empty());
    }

    #[test]
    fn a_lower_limit_counts_open_connections() {
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
    fn a_waiter_that_gives_up_takes_no_permit() {
        let limiter = limiter(1, 1, None);
        let mut first = Box::pin(limiter.begin_handshake());
        let Poll::Ready(permit) = poll(first.as_mut()) else {
            panic!("there is room");
        };
        let mut gone = Box::pin(limiter.begin_handshake());
        let mut waits = Box::pin(limiter.begin_handshake());
        assert!(poll(gone.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
        // The waiter that was woken goes away before it has checked.
        drop(permit);
        drop(gone);
        assert!(poll(waits.as_mut()).is_ready());
    }

    #[test]
    fn twice_the_rate_may_come_at_once_and_networks_count_as_one() {
        // The rate is so low that nothing is refilled during the test.
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
        // A refused connection holds no permit.
        assert_eq!(limiter.connections.taken(), 0);
    }

    #[test]
    fn a_rate_that_stays_keeps_its_memory_and_can_be_lifted() {
        let limiter = limiter(1000, 1, Some(1));
        for _ in 0..2 {
            drop(limiter.admit(CLIENT).unwrap());
        }
        limiter.set(&limits(1000, 2, Some(1)));
        assert_eq!(limiter.admit(CLIENT).unwrap_err(), Refusal::Rate);
        limiter.set(&limits(1000, 2, None));
        assert!(limiter.admit(CLIENT).is_ok());
    }
}
