//! Retrieval of answers: when the accelerator is polled.

use std::cell::Cell;

use nginx_sys::{ngx_current_msec, ngx_log_t, ngx_msec_t};
use slipstream_offload::Class;
use slipstream_offload::accelerator::Moment;
use slipstream_offload::costs::FAILOVER;
use slipstream_offload::instance::{self, Instance};
use slipstream_offload::polling::{Load, Scheme};

use crate::hold::Hold;

/// The state of retrieval in a worker.
pub(crate) struct Retrieval {
    scheme: Scheme,
    /// nginx's time when the accelerator was last polled.
    polled_at: Cell<ngx_msec_t>,
    /// The accelerator wakes the worker when it has an answer.
    is_armed: Cell<bool>,
    hold: Hold,
}

/// Connections that have a handshake, or a response that waits.
#[derive(Clone, Copy)]
pub(crate) struct Active(pub(crate) usize);

impl Retrieval {
    pub(crate) fn new(scheme: Scheme, log: *mut ngx_log_t) -> Self {
        Self {
            scheme,
            polled_at: Cell::new(0),
            is_armed: Cell::new(false),
            hold: Hold::new(log),
        }
    }

    /// Called when a handshake has paused, or a response waits: before nginx checks that a timer is
    /// left, and where the number of requests in flight has grown.
    pub(crate) fn paused(&self, active: Active) {
        self.hold.begin();
        if let Scheme::Heuristic(_) = self.scheme {
            self.poll_if_due(active);
        }
    }

    /// Called when nothing is in flight any more. Returns true if a timer was removed.
    pub(crate) fn end(&self) -> bool {
        self.hold.end()
    }

    /// Notes that the accelerator has been polled elsewhere, so it does not wake the worker any more.
    pub(crate) fn disarm(&self) {
        self.is_armed.set(false);
    }

    /// Polls in a turn of the event loop, if the scheme asks for it. Returns the number of answers.
    pub(crate) fn retrieve(&self, moment: Moment, active: Active) -> usize {
        match self.scheme {
            Scheme::Idle | Scheme::Hybrid | Scheme::Timer(_) => self.poll(moment),
            Scheme::Interrupt if self.is_armed.get() && !self.is_overdue() => 0,
            Scheme::Interrupt => self.poll(Moment::Idle),
            Scheme::Heuristic(_) => self.poll_if_due(active),
        }
    }

    /// Returns true if nginx may sleep while requests are in flight. `is_told`: each answer wakes
    /// nginx through a descriptor of its connection.
    pub(crate) fn may_sleep(&self, moment: Moment, active: Active, is_told: bool) -> bool {
        match self.scheme {
            Scheme::Idle => false,
            Scheme::Hybrid => moment == Moment::Idle && arm(),
            Scheme::Interrupt => {
                let is_armed = self.is_armed.get() || arm();
                self.is_armed.set(is_armed);
                is_armed
            }
            Scheme::Timer(_) => is_told,
            // While a poll is due, nothing else can be waited for.
            Scheme::Heuristic(heuristic) => is_told && heuristic.due(load(active)).is_none(),
        }
    }

    pub(crate) fn poll(&self, moment: Moment) -> usize {
        self.polled_at.set(now());
        self.is_armed.set(false);
        instance::with(|instance| instance.poll(moment)).unwrap_or(0)
    }

    /// Polls until no poll is due any more (QTLS section 4.3).
    fn poll_if_due(&self, active: Active) -> usize {
        let Scheme::Heuristic(heuristic) = self.scheme else {
            return 0;
        };
        let mut total = 0;
        loop {
            let due = heuristic.due(load(active));
            let Some(moment) = due.or(self.is_overdue().then_some(Moment::Idle)) else {
                return total;
            };
            match self.poll(moment) {
                0 => return total,
                answers => total += answers,
            }
        }
    }

    fn is_overdue(&self) -> bool {
        let since = now().wrapping_sub(self.polled_at.get());
        since >= FAILOVER.as_millis() as ngx_msec_t && in_flight() > 0
    }
}

/// The number of requests in flight.
pub(crate) fn in_flight() -> usize {
    instance::with(|instance| instance.waiting()).unwrap_or(0)
}

fn load(active: Active) -> Load {
    let of_class = |class| instance::with(|instance| instance.in_flight(class)).unwrap_or(0);
    Load {
        asymmetric: of_class(Class::Asymmetric),
        otherwise: of_class(Class::Cipher) + of_class(Class::Prf) + of_class(Class::Compression),
        active: active.0,
    }
}

fn arm() -> bool {
    instance::with(Instance::arm).unwrap_or(true)
}

/// The time of this turn of the event loop.
pub(crate) fn now() -> ngx_msec_t {
    // SAFETY: nginx's cached time, written by this thread only.
    unsafe { (&raw const ngx_current_msec).read_volatile() }
}
