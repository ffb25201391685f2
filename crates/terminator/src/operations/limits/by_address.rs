//! Counts by the address of clients.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Interval at which quiet addresses are forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(10);

/// Open connections by network.
#[derive(Debug)]
pub(super) struct Addresses {
    most: AtomicUsize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

impl Addresses {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: AtomicUsize::new(most),
            open: Mutex::default(),
        }
    }

    pub(super) fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    pub(super) fn take(&self, network: IpAddr) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(network).or_default();
        // A limit is at least one, so no entry stays behind without a connection.
        let may = *count < self.most.load(Ordering::Relaxed).max(1);
        *count += usize::from(may);
        may
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.open.lock().unwrap().is_empty()
    }

    pub(super) fn give_back(&self, network: IpAddr) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = open.entry(network) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// Connections per second by address.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: NonZeroU32,
    limiter: DefaultKeyedRateLimiter<IpAddr>,
    /// Time at which quiet addresses were last forgotten.
    cleaned: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(per_second: Option<u32>) -> Option<Self> {
        let per_second = NonZeroU32::new(per_second?)?;
        let burst = per_second.saturating_mul(NonZeroU32::MIN.saturating_add(1));
        let quota = Quota::per_second(per_second).allow_burst(burst);
        Some(Self {
            per_second,
            limiter: RateLimiter::keyed(quota),
            cleaned: Mutex::new(Instant::now()),
        })
    }

    pub(super) fn per_second(&self) -> u32 {
        self.per_second.get()
    }

    pub(super) fn admits(&self, network: IpAddr) -> bool {
        self.forget_the_quiet();
        self.limiter.check_key(&network).is_ok()
    }

    /// Removes quiet addresses; otherwise every address that ever connected would be kept. One
    /// thread does so now and then, and the others do not wait for it.
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

/// Masks an IPv6 address to its first 64 bits: a client usually has all addresses of such a
/// network.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}
