//! Precomputed values of one kind, with a limit to their age.

use std::io;
use std::time::Duration;

use slipstream_lanes::{Backend, LANES};
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
    /// times.
    ///
    /// # Errors
    /// If the system's generator fails.
    fn make(backend: Backend, put: &mut dyn FnMut(Self)) -> io::Result<()>;
}

enum State<T: Precompute> {
    Untouched,
    /// There was no memory for it.
    Unavailable,
    Pool(Pool<T>),
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

    /// Takes the oldest value, at the time `now`. `None` if there is no memory for any, or if the
    /// system's generator fails.
    pub(super) fn take(&mut self, backend: Backend, now: Duration) -> Option<T> {
        if let State::Untouched = self.pool {
            self.pool = Pool::new(self.entries).map_or(State::Unavailable, State::Pool);
        }
        self.discard_old(now);
        let State::Pool(pool) = &mut self.pool else {
            return None;
        };
        if pool.len() == 0 {
            fill(pool, backend, now).ok()?;
        }
        pool.take()
    }

    /// Adds a batch if the stock has been used and has room for one.
    pub(super) fn top_up(&mut self, backend: Backend, now: Duration) {
        if let State::Pool(pool) = &mut self.pool
            && pool.room() >= LANES
        {
            // If the generator fails, the next take fails too.
            let _ = fill(pool, backend, now);
        }
    }

    /// Wipes what is too old at the time `now`.
    pub(super) fn discard_old(&mut self, now: Duration) {
        if let State::Pool(pool) = &mut self.pool {
            pool.discard_before(now.saturating_sub(self.life));
        }
    }

    /// Wipes everything.
    pub(super) fn discard_all(&mut self) {
        if let State::Pool(pool) = &mut self.pool {
            pool.discard_all();
        }
    }

    /// The number of values.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        match &self.pool {
            State::Pool(pool) => pool.len(),
            State::Untouched | State::Unavailable => 0,
        }
    }

    /// The time from which on the oldest value is too old; `None` if there is none.
    pub(super) fn end(&mut self) -> Option<Duration> {
        match &mut self.pool {
            State::Pool(pool) => pool.oldest().map(|made| made + self.life),
            State::Untouched | State::Unavailable => None,
        }
    }
}

/// Stack on which values lie before they are in their pool, in bytes.
const FILL_STACK: usize = 16 * 1024;

fn fill<T: Precompute>(pool: &mut Pool<T>, backend: Backend, now: Duration) -> io::Result<()> {
    let filled = make(pool, backend, now);
    zeroize_stack::<FILL_STACK>();
    filled
}

/// In a frame of its own, so that all copies lie where the stack is wiped.
#[inline(never)]
fn make<T: Precompute>(pool: &mut Pool<T>, backend: Backend, now: Duration) -> io::Result<()> {
    T::make(backend, &mut |value| pool.put(value, now))
}
