//! The time, and if this is still the machine that it was: precomputed secrets must not be used in
//! two copies of it.
//!
//! A virtual machine that is cloned, rolled back or restored is a copy. Where its host tells
//! processes, its generation changes. Otherwise clocks may jump: the system's time is
//! set after a restored machine has come up, and the clock that counts sleep runs ahead of the one
//! that does not after a suspension. On many machines a process sees neither.

mod generation;

use std::time::Duration;

use slipstream_offload::costs::CLOCK_JUMP;

use generation::Generation;

/// The machine of this process.
pub(super) struct Machine {
    clocks: Clocks,
    generation: Option<&'static Generation>,
    last: Option<State>,
}

/// Reads the clocks.
pub(super) type Clocks = Box<dyn Fn() -> Times + Send>;

/// The times of three clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Since the machine was started, without the time for which it was suspended.
    pub(super) monotonic: Duration,
    /// Since the machine was started.
    pub(super) boot: Duration,
    /// Since 1970, as it has been set.
    pub(super) real: Duration,
}

/// The outcome of a look at the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The time since the machine was started. It does not go back.
    pub(super) now: Duration,
    /// True if nothing tells that the machine was copied since the last look.
    pub(super) is_same: bool,
}

/// The values that change if the machine is copied.
#[derive(Clone, Copy)]
struct State {
    suspended: i128,
    wall: i128,
    generation: Option<[u64; 2]>,
}

/// Finds the generation of this machine for all processes that are forked from this one. They may
/// not be allowed to open it. Returns false if the machine shows none.
pub fn find() -> bool {
    Generation::of_this_machine().is_some()
}

impl Machine {
    /// The machine of this process.
    pub(super) fn new() -> Self {
        Self::with(Box::new(Times::now), Generation::of_this_machine())
    }

    /// A machine with these clocks.
    pub(super) fn with(clocks: Clocks, generation: Option<&'static Generation>) -> Self {
        Self {
            clocks,
            generation,
            last: None,
        }
    }

    /// Looks at the clocks and the generation.
    pub(super) fn look(&mut self) -> Look {
        // First: if the machine is copied after this, times are those of the copy.
        let generation = self.generation.map(Generation::read);
        let times = (self.clocks)();
        let state = State {
            suspended: difference(times.boot, times.monotonic),
            wall: difference(times.real, times.monotonic),
            generation: generation.flatten(),
        };
        let is_readable = generation.is_none_or(|read| read.is_some());
        let last = self.last.replace(state);
        Look {
            now: times.boot,
            is_same: is_readable && last.is_none_or(|last| state.follows(&last)),
        }
    }
}

impl State {
    /// Clocks are read one after the other, so that a thread that is suspended in between sees a
    /// jump, too: it makes values anew.
    fn follows(&self, last: &State) -> bool {
        let jump = CLOCK_JUMP.as_nanos() as i128;
        let is_near = |now: i128, then: i128| (now - then).abs() < jump;
        is_near(self.suspended, last.suspended)
            && is_near(self.wall, last.wall)
            && self.generation == last.generation
    }
}

impl Times {
    fn now() -> Self {
        Self {
            monotonic: read(libc::CLOCK_MONOTONIC),
            boot: read(libc::CLOCK_BOOTTIME),
            real: read(libc::CLOCK_REALTIME),
        }
    }
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one timespec; the clocks are those that every Linux has.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn difference(one: Duration, other: Duration) -> i128 {
    one.as_nanos() as i128 - other.as_nanos() as i128
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    pub(in crate::lanes) use super::generation::tests::{Devices, count_up};
    use super::*;

    /// Clocks that a test sets.
    #[derive(Clone)]
    pub(in crate::lanes) struct Dial(Arc<Mutex<Times>>);

    impl Dial {
        pub(in crate::lanes) fn new() -> Self {
            Self(Arc::new(Mutex::new(Times {
                monotonic: Duration::from_secs(1_000),
                boot: Duration::from_secs(1_500),
                real: Duration::from_secs(1_700_000_000),
            })))
        }

        pub(in crate::lanes) fn machine(&self) -> Machine {
            Machine::with(self.clocks(), None)
        }

        pub(in crate::lanes) fn clocks(&self) -> Clocks {
            let dial = self.clone();
            Box::new(move || *dial.times())
        }

        pub(in crate::lanes) fn pass(&self, time: Duration) {
            let mut times = self.times();
            times.monotonic += time;
            times.boot += time;
            times.real += time;
        }

        pub(in crate::lanes) fn suspend(&self, time: Duration) {
            let mut times = self.times();
            times.boot += time;
            times.real += time;
        }

        pub(in crate::lanes) fn set_back(&self, time: Duration) {
            self.times().real -= time;
        }

        fn times(&self) -> std::sync::MutexGuard<'_, Times> {
            self.0.lock().expect("no test panics while it holds it")
        }
    }

    #[test]
    fn a_machine_stays_the_same_while_time_passes() {
        let dial = Dial::new();
        let mut machine = dial.machine();
        let first = machine.look();
        assert!(first.is_same);
        dial.pass(Duration::from_secs(3_600));
        let second = machine.look();
        assert!(second.is_same);
        assert_eq!(second.now - first.now, Duration::from_secs(3_600));
    }

    #[test]
    fn a_jump_of_a_clock_is_seen_once() {
        let dial = Dial::new();
        let mut machine = dial.machine();
        assert!(machine.look().is_same);
        dial.suspend(Duration::from_secs(1));
        assert!(!machine.look().is_same);
        assert!(machine.look().is_same);
        dial.set_back(Duration::from_secs(1));
        assert!(!machine.look().is_same);
        assert!(machine.look().is_same);
        // As clocks are slewed, not set.
        dial.set_back(CLOCK_JUMP / 2);
        assert!(machine.look().is_same);
    }

    #[test]
    fn the_clocks_of_this_machine_run() {
        let mut machine = Machine::new();
        let first = machine.look().now;
        assert!(first > Duration::ZERO);
        assert!(machine.look().now >= first);
    }
}
