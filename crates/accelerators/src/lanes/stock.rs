//! Precomputed values of one kind, with a limit to their age.

use std::io;
use std::time::Duration;

use slipstream_lanes::{Backend, LANES};
use slipstream_offload::Reason;
use zeroize::zeroize_stack;

use super::pool::Pool;

/// A pool, made when something is first taken from it. What is older than its life is not given
/// away.
pub(super) struct Stock<T: Precompute> {
    entries: usize,
    life: Duration,
    pool: State<T>,
}

/// A value that is computed eight at a time.
pub(super) trait Precompute: Sized {
    /// Makes up to eight values, as many as random scalars are in range: all but once in 2^32
    /// times. Returns the number of those that failed their check.
    ///
    /// # Errors
    /// If the system's generator fails.
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<usize>;
}

enum State<T: Precompute> {
    Untouched,
    /// There was no memory for it.
    Unavailable,
    Pool {
        pool: Pool<T>,
        /// The number of values that failed their check, and have not been reported.
        faults: usize,
    },
}

impl<T: Precompute> Stock<T> {
    /// A stock of at most `entries` values.
    pub(super) fn new(entries: usize, life: Duration) -> Self {
        Self {
            entries,
            life,
            pool: State::Untouched,
        }
    }

    /// Takes the oldest value, at the time `now`.
    ///
    /// # Errors
    /// [`Reason::NotOffered`] if there is no memory for any, or if the system's generator fails;
    /// [`Reason::Fault`] once for each value that was discarded since it failed its check.
    pub(super) fn take(&mut self, backend: Backend, now: Duration) -> Result<T, Reason> {
        if let State::Untouched = self.pool {
            self.pool = Pool::new(self.entries)
                .map_or(State::Unavailable, |pool| State::Pool { pool, faults: 0 });
        }
        self.discard_old(now);
        let State::Pool { pool, faults } = &mut self.pool else {
            return Err(Reason::NotOffered);
        };
        if pool.len() == 0 && *faults == 0 {
            *faults = fill(pool, backend, now).map_err(|_| Reason::NotOffered)?;
        }
        if *faults > 0 {
            *faults -= 1;
            return Err(Reason::Fault);
        }
        pool.take().ok_or(Reason::NotOffered)
    }

    /// Adds a batch if the stock has been used and has room for one.
    pub(super) fn top_up(&mut self, backend: Backend, now: Duration) {
        if let State::Pool { pool, faults } = &mut self.pool
            && pool.room() >= LANES
            && *faults == 0
        {
            // If the generator fails, the next take fails too.
            *faults = fill(pool, backend, now).unwrap_or(0);
        }
    }

    /// Wipes what is too old at the time `now`.
    pub(super) fn discard_old(&mut self, now: Duration) {
        if let State::Pool { pool, .. } = &mut self.pool {
            pool.discard_before(now.saturating_sub(self.life));
        }
    }

    /// Wipes everything.
    pub(super) fn discard_all(&mut self) {
        if let State::Pool { pool, .. } = &mut self.pool {
            pool.discard_all();
        }
    }

    /// The number of values.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        match &self.pool {
            State::Pool { pool, .. } => pool.len(),
            State::Untouched | State::Unavailable => 0,
        }
    }

    /// The time from which on the oldest value is too old; `None` if there is none.
    pub(super) fn end(&mut self) -> Option<Duration> {
        match &mut self.pool {
            State::Pool { pool, .. } => pool.oldest().map(|made| made + self.life),
            State::Untouched | State::Unavailable => None,
        }
    }
}

/// Stack on which values lie before they are in their pool, in bytes.
const FILL_STACK: usize = 16 * 1024;

/// Adds a batch, and returns the number of values that failed their check.
fn fill<T: Precompute>(pool: &mut Pool<T>, backend: Backend, now: Duration) -> io::Result<usize> {
    let filled = make(pool, backend, now);
    zeroize_stack::<FILL_STACK>();
    filled
}

/// In a frame of its own, so that all copies lie where the stack is wiped.
#[inline(never)]
fn make<T: Precompute>(pool: &mut Pool<T>, backend: Backend, now: Duration) -> io::Result<usize> {
    T::make(backend, &mut |value| pool.put(value, now))
}
