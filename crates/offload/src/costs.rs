//! Costs, thresholds and patience: every number that decides anything, in one place.
//!
//! A quantity that can be measured on a machine is a [`Cost`], which may be unknown. Every other
//! one is a constant here, with the reason for its value.

use std::time::Duration;

use crate::operation::PerKind;

/// A measured time, or the fact that it has not been measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cost {
    /// Not measured.
    #[default]
    Unknown,
    /// Measured.
    Known(Duration),
}

impl Cost {
    /// The time; `None` if it is unknown.
    pub fn known(self) -> Option<Duration> {
        match self {
            Cost::Unknown => None,
            Cost::Known(cost) => Some(cost),
        }
    }

    /// The time, or zero if it is unknown: for a wait that must not begin before the first
    /// measurement.
    pub fn or_zero(self) -> Duration {
        self.known().unwrap_or_default()
    }

    /// The lesser of two measurements. Disturbances only add to a measurement, so the least is the
    /// truest.
    pub fn least(self, other: Cost) -> Cost {
        match (self, other) {
            (Cost::Known(one), Cost::Known(other)) => Cost::Known(one.min(other)),
            (Cost::Unknown, cost) | (cost, Cost::Unknown) => cost,
        }
    }
}

impl From<Option<Duration>> for Cost {
    fn from(cost: Option<Duration>) -> Self {
        cost.map_or(Cost::Unknown, Cost::Known)
    }
}

/// The cost of one operation of each kind in the caller's own software.
pub type SoftwareCosts = PerKind<Cost>;

/// Measures `operation`: the least of a few repetitions, in CPU time of this thread, since a server
/// may start on a machine that is busy with other things.
pub fn measure(mut operation: impl FnMut()) -> Duration {
    const REPETITIONS: usize = 3;
    let once = |_| {
        let start = thread_cpu_time();
        operation();
        thread_cpu_time().saturating_sub(start)
    };
    (0..REPETITIONS)
        .map(once)
        .min()
        .expect("at least one repetition")
}

/// Concurrent jobs from which one of them pauses for a batch. A job that is alone gains nothing by
/// waiting, even where a batch of one is as cheap as software.
pub const LEAST_CONCURRENCY: usize = 2;

/// Polls for which a batch that is not full waits for more operations while the event loop is busy.
/// A busy loop polls after each batch, so this bounds the wait of a rare kind to as many batches.
pub const PATIENCE_POLLS: u64 = 8;

/// In an engine, a request that does not fill a batch goes before full batches of other kinds once
/// it has waited for this many times what its own batch takes. So it waits for a bounded time, and
/// lanes that stay empty cost no more than a part of what was computed meanwhile.
pub const PATIENCE_BATCHES: u32 = 2;

/// The time by which an engine serves a user before others, after the user has asked for less than
/// its share: longer than any batch takes.
pub const SHARE_CREDIT: Duration = Duration::from_millis(50);

/// The longest sleep while a request is in flight: then at least one poll is made, whatever the
/// scheme (the failover timer of QTLS, section 4.3).
pub const FAILOVER: Duration = Duration::from_millis(5);

/// The time after which a device that has failed is tried again at first. It doubles with each
/// failure, up to [`LONGEST_RETRY`].
pub const RETRY: Duration = Duration::from_millis(100);

/// See [`RETRY`].
pub const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The time for which a device may answer nothing while requests wait. Then it is taken out, and
/// they are run in software.
pub const LATE: Duration = Duration::from_secs(1);

/// The same for a device that holds private keys. No software stands behind it: a request that it
/// does not answer fails.
pub const LATE_WITH_KEYS: Duration = Duration::from_secs(5);

/// The longest wait of a request at a device that answers others: clients give up then.
pub const LATEST: Duration = Duration::from_secs(20);

/// The time after which an answer that its job has not read is wiped, unless the job is a fiber: a
/// server can abandon an asynchronous job of OpenSSL, which then never comes back. One that comes
/// back later computes in software.
pub const UNREAD: Duration = Duration::from_secs(60);

/// The time for which such a job takes the place of a request after that. An abandoned job has
/// memory that nothing frees, so clients that provoke them must not use up places without end.
pub const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A request in flight that is older than this is a reason to check that the device is still
/// connected.
pub const OLD: Duration = Duration::from_millis(4);

/// The time for which a starting worker waits for its device. Until the device is there, software
/// computes.
pub const START_PATIENCE: Duration = Duration::from_millis(500);

/// The time for which an engine waits for more answers before it wakes a client (ACSA, section
/// 3.3).
pub const AGGREGATION_PATIENCE: Duration = Duration::from_micros(100);

/// The time for which an engine keeps keys after their owner has gone. Workers that drain finish
/// handshakes within it: servers give a client a minute for one.
pub const SESSION_GRACE: Duration = Duration::from_secs(90);

/// The time in which an engine has to answer a message about keys.
pub const MESSAGE_PATIENCE: Duration = Duration::from_secs(5);

/// The life of a precomputed key pair. One that is older is wiped, so that whoever gets to read the
/// memory, or a copy of the machine, finds the keys of a few seconds. A pool that is used up more
/// slowly than in this time costs a few microseconds more for each key pair, in a server that has
/// little to do.
pub const KEY_PAIR_LIFE: Duration = Duration::from_secs(10);

/// The life of a precomputed nonce. If a machine is copied while it lies in memory, the key is
/// lost. Under load, which is what nonces are precomputed for, a pool is used up sooner.
pub const NONCE_LIFE: Duration = Duration::from_secs(1);

/// The time without a signature after which an event loop that goes to sleep wipes its nonces.
/// Machines are copied while they have little to do. At ten signatures a second, a batch of nonces
/// that is made for each in vain takes less than a thousandth of a core.
pub const NONCE_REST: Duration = Duration::from_millis(100);

/// A clock that has moved by this much against another has been set, or the machine was suspended:
/// clocks are slewed together.
pub const CLOCK_JUMP: Duration = Duration::from_millis(10);

/// The length of the shortest chunk of content that is submitted to a device, in bytes. The
/// transfer of a shorter one costs more than the device saves.
pub const SHORTEST_CHUNK: usize = 4 << 10;

/// Chunks of one thread that keep a device busy. More would only wait there, while the thread's
/// core could compress them.
pub const ENOUGH_CHUNKS: usize = 4;

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one timespec; the clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero() {
        let known = |micros| Cost::Known(Duration::from_micros(micros));
        assert_eq!(Cost::default(), Cost::Unknown);
        assert_ne!(Cost::Unknown, known(0));
        assert_eq!(Cost::Unknown.least(known(3)), known(3));
        assert_eq!(known(3).least(Cost::Unknown), known(3));
        assert_eq!(known(3).least(known(2)), known(2));
        assert_eq!(Cost::Unknown.least(Cost::Unknown), Cost::Unknown);
    }
}
