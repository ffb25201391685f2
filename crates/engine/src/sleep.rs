//! Sleep and wake-up of engine threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// The descriptors that engine threads sleep on. A thread counts itself when it goes to sleep and
/// when it wakes up.
#[derive(Debug)]
pub(crate) struct Sleep {
    /// Doorbells, the timer and the wake-up event, all edge-triggered: they are never read, and
    /// each event wakes one thread. The stop event is level-triggered.
    pub(crate) epoll: Arc<OwnedFd>,
    timer: OwnedFd,
    deadline: Option<Instant>,
    call: OwnedFd,
    /// The number of threads that sleep.
    pub(crate) sleepers: usize,
    /// True if a bell may be armed.
    pub(crate) is_armed: bool,
}

impl Sleep {
    /// Makes a watch under which all threads wake up, and stay awake, when `stop` is readable.
    ///
    /// # Errors
    /// If the system has no descriptors for it.
    pub(crate) fn new(stop: &OwnedFd) -> io::Result<Self> {
        let sleep = Self {
            epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            timer: rustix::time::timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?,
            deadline: None,
            call: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            sleepers: 0,
            is_armed: false,
        };
        sleep.watch(&sleep.timer)?;
        sleep.watch(&sleep.call)?;
        sleep.add(stop, epoll::EventFlags::IN)?;
        Ok(sleep)
    }

    /// Wakes a thread whenever `descriptor` becomes readable.
    ///
    /// # Errors
    /// If the system has no memory for it.
    pub(crate) fn watch(&self, descriptor: &OwnedFd) -> io::Result<()> {
        self.add(descriptor, epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    /// Stops watching `descriptor`. Closing it is not enough, since the client has a copy.
    pub(crate) fn forget(&self, descriptor: &OwnedFd) {
        // Fails only if it is not watched.
        let _ = epoll::delete(&*self.epoll, descriptor);
    }

    fn add(&self, descriptor: &OwnedFd, flags: epoll::EventFlags) -> io::Result<()> {
        // The source of an event does not matter.
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(&*self.epoll, descriptor, data, flags)?)
    }

    /// Wakes a thread that sleeps.
    pub(crate) fn call(&self) {
        // Its counter is never read, and does not overflow in the lifetime of a machine.
        let _ = rustix::io::write(&self.call, &1_u64.to_ne_bytes());
    }

    /// Wakes a thread at `deadline`, at the earliest. `None`: never.
    pub(crate) fn set_timer(&mut self, now: Instant, deadline: Option<Instant>) {
        if self.deadline == deadline {
            return;
        }
        self.deadline = deadline;
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A duration of zero would mean never.
        let left = deadline.map(|deadline| (deadline - now).max(Duration::from_nanos(1)));
        let timer = Itimerspec {
            it_interval: zero,
            it_value: left.map_or(zero, |left| {
                Timespec::try_from(left).expect("deadlines are near")
            }),
        };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer)
            .expect("a timer of our own, and a time that it can be set to");
    }
}
