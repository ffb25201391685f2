//! Places at a backend: the connections that it may have, and the queue for them.
//!
//! A connection has a place as long as it is open, idle or not. Who finds no place waits in a
//! queue, and gets the place of the next connection that ends; or that connection itself, if it has
//! become idle and is of use: on the same event loop, and not opened in the name of another client.
//! Idle connections that are of no use to those who wait are closed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::gauge::{Gauge, Permit};
use crate::requests::pool::{Checkout, Home};
use crate::settings::Upstream;
use crate::usage::Overload;

/// Places at one backend. Shared by all event loops.
#[derive(Default)]
pub struct Places {
    queue: Mutex<Queue>,
    /// Notified when idle connections are to be closed.
    closing: Notify,
}

#[derive(Default)]
struct Queue {
    open: usize,
    waiting: VecDeque<Waiter>,
    /// Idle connections that are to be closed for those who wait.
    to_close: usize,
}

struct Waiter {
    /// Most connections of the backend for this one.
    most: usize,
    /// Pool whose connections are of use.
    home: Option<Home>,
    tell: oneshot::Sender<Granted>,
}

/// Place at a backend. Dropping it makes room for another connection.
pub struct Place {
    places: Arc<Places>,
    /// `None` once the place has been passed on.
    descriptor: Option<Permit>,
}

/// Answer to a request for a place.
pub enum Granted {
    /// A connection may be opened.
    Place(Place),
    /// A connection that had been opened for another request.
    Connection(Checkout),
}

impl Places {
    /// Takes a place within the limits of `settings`, and a descriptor. If there is none, waits in
    /// the queue. Connections of the pool `home` may be used instead.
    ///
    /// # Errors
    /// Returns the limit that was reached, in the queue for too long.
    pub async fn take(
        self: &Arc<Self>,
        settings: &Upstream,
        home: Option<Home>,
        descriptors: &Arc<Gauge>,
    ) -> Result<Granted, Overload> {
        let (tell, told) = oneshot::channel();
        {
            let mut queue = self.lock();
            if queue.open < settings.max_connections {
                let descriptor = descriptors.permit().ok_or(Overload::Descriptors)?;
                queue.open += 1;
                return Ok(Granted::Place(Place {
                    places: Arc::clone(self),
                    descriptor: Some(descriptor),
                }));
            }
            if queue.waiting.len() >= settings.queue {
                queue.forget_the_gone();
            }
            if queue.waiting.len() >= settings.queue {
                return Err(Overload::Backend);
            }
            queue.waiting.push_back(Waiter {
                most: settings.max_connections,
                home,
                tell,
            });
            queue.to_close += 1;
        }
        self.closing.notify_waiters();
        match timeout(settings.queue_timeout, told).await {
            Ok(Ok(granted)) => Ok(granted),
            // The place is lost with this waiter if it comes now; its own `drop` passes it on.
            Ok(Err(_)) | Err(_) => Err(Overload::Backend),
        }
    }

    /// Offers an idle connection to those who wait. Returns it if nobody does.
    pub fn offer(&self, mut connection: Checkout) -> Option<Checkout> {
        loop {
            let waiter = {
                let mut queue = self.lock();
                queue.forget_the_gone();
                match queue.waiting.front() {
                    None => return Some(connection),
                    Some(first) if first.home != Some(connection.home()) => None,
                    Some(_) => queue.waiting.pop_front(),
                }
            };
            // The connection is closed, and the first in the queue gets its place.
            let waiter = waiter?;
            match waiter.tell.send(Granted::Connection(connection)) {
                Err(Granted::Connection(same)) => connection = same,
                _ => return None,
            }
        }
    }

    /// Returns a future that is ready when idle connections are to be closed.
    pub fn closing(&self) -> Notified<'_> {
        self.closing.notified()
    }

    /// Returns true if an idle connection must be closed, which the caller then does.
    pub fn must_close(&self) -> bool {
        let mut queue = self.lock();
        queue.forget_the_gone();
        queue.to_close = queue.to_close.min(queue.waiting.len());
        let must = queue.to_close > 0;
        queue.to_close -= usize::from(must);
        must
    }

    /// Returns how many wait.
    pub fn waiting(&self) -> usize {
        let mut queue = self.lock();
        queue.forget_the_gone();
        queue.waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn forget_the_gone(&mut self) {
        self.waiting.retain(|waiter| !waiter.tell.is_closed());
    }

    /// Removes the first who may have a place that becomes free.
    fn next(&mut self) -> Option<Waiter> {
        let open = self.open;
        let index = self.waiting.iter().position(|it| open <= it.most)?;
        self.waiting.remove(index)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut descriptor = self.descriptor.take();
        while descriptor.is_some() {
            let waiter = {
                let mut queue = self.places.lock();
                let waiter = queue.next();
                if waiter.is_none() {
                    queue.open -= 1;
                }
                waiter
            };
            let Some(waiter) = waiter else {
                return;
            };
            let passed_on = Place {
                places: Arc::clone(&self.places),
                descriptor: descriptor.take(),
            };
            // One who has gone meanwhile returns it.
            if let Err(Granted::Place(mut place)) = waiter.tell.send(Granted::Place(passed_on)) {
                descriptor = place.descriptor.take();
            }
        }
    }
}
