//! Connections to backends, kept between requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};

use super::body::RequestBody;
use crate::forward::connect::BackendStream;

/// Idle connections of an event loop to one backend; more are closed.
const MOST_IDLE: usize = 64;
/// For how long a connection may be idle.
const LONGEST_IDLE: Duration = Duration::from_secs(30);

/// Idle connections by the number of their backend, the latest last.
#[derive(Default)]
pub struct Pool {
    idle: HashMap<u64, Vec<Idle>>,
}

struct Idle {
    connection: u64,
    since: Instant,
    sender: SendRequest<RequestBody>,
}

thread_local! {
    static OF_EVENT_LOOP: RefCell<Pool> = RefCell::default();
}

/// The pool that a connection belongs to.
#[derive(Clone)]
pub enum Home {
    /// The event loop's: any request may go there.
    EventLoop,
    /// That of a client's connection, for backends that have been told who the client is.
    Client(Weak<Mutex<Pool>>),
}

impl Home {
    /// An idle connection to `backend`.
    pub fn take(&self, backend: u64) -> Option<Checkout> {
        let idle = self.with(|pool| pool.take(backend))??;
        Some(Checkout {
            sender: idle.sender,
            connection: idle.connection,
            backend,
            home: self.clone(),
        })
    }

    /// What `work` returns; `None` if the pool is no more.
    fn with<T>(&self, work: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        match self {
            // The thread may be about to end.
            Home::EventLoop => OF_EVENT_LOOP
                .try_with(|pool| work(&mut pool.borrow_mut()))
                .ok(),
            Home::Client(pool) => {
                let pool = pool.upgrade()?;
                let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
                Some(work(&mut pool))
            }
        }
    }
}

/// A connection that a request goes over. Dropped before its response has ended, it is closed.
pub struct Checkout {
    /// Takes the request.
    pub sender: SendRequest<RequestBody>,
    connection: u64,
    backend: u64,
    home: Home,
}

impl Checkout {
    /// Speaks HTTP/1.1 on `stream`, in a task of its own.
    ///
    /// # Errors
    /// Those of hyper.
    pub async fn begin(stream: BackendStream, backend: u64, home: Home) -> hyper::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let connection = NEXT.fetch_add(1, Ordering::Relaxed);
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        let task_home = home.clone();
        tokio::spawn(async move {
            let mut driver = std::pin::pin!(driver.with_upgrades());
            let mut timer = std::pin::pin!(sleep(LONGEST_IDLE));
            loop {
                tokio::select! {
                    // Errors are told to whoever waits for a response.
                    _ = &mut driver => break,
                    () = &mut timer => {
                        let until = task_home
                            .with(|pool| pool.idle_since(backend, connection))
                            .flatten()
                            .map(|since| since + LONGEST_IDLE);
                        if until.is_some_and(|until| until <= Instant::now()) {
                            break;
                        }
                        timer.as_mut().reset(until.unwrap_or_else(|| Instant::now() + LONGEST_IDLE));
                    }
                }
            }
            task_home.with(|pool| pool.remove(backend, connection));
        });
        Ok(Self {
            sender,
            connection,
            backend,
            home,
        })
    }

    /// The response has ended: keeps the connection for another request, if it takes one.
    pub fn give_back(mut self) {
        if self.sender.is_ready() {
            self.keep();
        } else if !self.sender.is_closed() {
            tokio::spawn(async move {
                if self.sender.ready().await.is_ok() {
                    self.keep();
                }
            });
        }
    }

    fn keep(self) {
        let idle = Idle {
            connection: self.connection,
            since: Instant::now(),
            sender: self.sender,
        };
        self.home.with(|pool| pool.put(self.backend, idle));
    }
}

impl Pool {
    /// One of its own, for a client's connection.
    pub fn shared() -> Arc<Mutex<Pool>> {
        Arc::default()
    }

    fn take(&mut self, backend: u64) -> Option<Idle> {
        let idle = self.idle.get_mut(&backend)?;
        // Those that have been closed are removed by their own tasks.
        let index = idle.iter().rposition(|idle| idle.sender.is_ready())?;
        Some(idle.remove(index))
    }

    fn put(&mut self, backend: u64, connection: Idle) {
        let idle = self.idle.entry(backend).or_default();
        if idle.len() == MOST_IDLE {
            idle.remove(0);
        }
        idle.push(connection);
    }

    fn idle_since(&self, backend: u64, connection: u64) -> Option<Instant> {
        let idle = self.idle.get(&backend)?;
        let found = idle.iter().find(|idle| idle.connection == connection)?;
        Some(found.since)
    }

    fn remove(&mut self, backend: u64, connection: u64) {
        if let Some(idle) = self.idle.get_mut(&backend) {
            idle.retain(|idle| idle.connection != connection);
            if idle.is_empty() {
                self.idle.remove(&backend);
            }
        }
    }
}
