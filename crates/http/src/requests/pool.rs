//! Pool of idle connections to backends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};

use super::body::RequestBody;
use crate::connect::BackendStream;
use crate::upstream::Backend;

/// Most idle connections of an event loop to one backend.
const MAX_IDLE: usize = 64;
/// Most bytes that are read at once: the longest header of a response, and the longest piece of
/// content that a client that does not read has to be held for.
const MAX_BUFFER: usize = 64 * 1024;
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

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
    static EVENT_LOOP_POOL: RefCell<Pool> = RefCell::default();
}

/// Handle to the pool that a connection belongs to.
#[derive(Clone)]
pub enum PoolHandle {
    /// Pool of the event loop, for any request.
    EventLoop,
    /// Pool of one client's connection, for backends that were told the client's address.
    Client(Weak<Mutex<Pool>>),
}

impl PoolHandle {
    /// Takes an idle connection to `backend`.
    pub fn take(&self, backend: &Arc<Backend>) -> Option<Checkout> {
        let idle = self.with(|pool| pool.take(backend.number))??;
        Some(Checkout {
            sender: idle.sender,
            connection: idle.connection,
            backend: Arc::clone(backend),
            pool: self.clone(),
        })
    }

    /// Returns what tells this pool from others. Must be called on the thread of its event loop.
    pub fn home(&self) -> Home {
        let client = match self {
            PoolHandle::EventLoop => None,
            PoolHandle::Client(pool) => Some(pool.as_ptr().addr()),
        };
        Home {
            thread: thread::current().id(),
            client,
        }
    }

    /// Calls `work` with the pool. Returns `None` if the pool is gone.
    fn with<T>(&self, work: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        match self {
            // The thread may be ending.
            PoolHandle::EventLoop => EVENT_LOOP_POOL
                .try_with(|pool| work(&mut pool.borrow_mut()))
                .ok(),
            PoolHandle::Client(pool) => {
                let pool = pool.upgrade()?;
                let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
                Some(work(&mut pool))
            }
        }
    }
}

/// Identity of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    thread: ThreadId,
    /// Address of the pool of one client's connection.
    client: Option<usize>,
}

/// Connection in use by a request. It is closed if dropped before the response has ended.
pub struct Checkout {
    /// Sends the request.
    pub sender: SendRequest<RequestBody>,
    connection: u64,
    backend: Arc<Backend>,
    pool: PoolHandle,
}

impl Checkout {
    /// Begins HTTP/1.1 on `stream`, in a task of its own.
    ///
    /// # Errors
    /// Returns the error of hyper.
    pub async fn begin(
        stream: BackendStream,
        backend: &Arc<Backend>,
        pool: PoolHandle,
    ) -> hyper::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let connection = NEXT.fetch_add(1, Ordering::Relaxed);
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(stream))
            .await?;
        let (task_pool, task_backend) = (pool.clone(), Arc::clone(backend));
        tokio::spawn(async move {
            let (number, places) = (task_backend.number, task_backend.places());
            let mut driver = std::pin::pin!(driver.with_upgrades());
            let mut timer = std::pin::pin!(sleep(IDLE_TIMEOUT));
            let mut closing = std::pin::pin!(places.closing());
            let idle_since = || {
                task_pool
                    .with(|pool| pool.idle_since(number, connection))
                    .flatten()
            };
            loop {
                tokio::select! {
                    // The task that waits for a response receives the error.
                    _ = &mut driver => break,
                    () = &mut timer => {
                        let until = idle_since().map(|since| since + IDLE_TIMEOUT);
                        if until.is_some_and(|until| until <= Instant::now()) {
                            break;
                        }
                        timer.as_mut().reset(until.unwrap_or_else(|| Instant::now() + IDLE_TIMEOUT));
                    }
                    () = &mut closing => {
                        if idle_since().is_some() && places.must_close() {
                            break;
                        }
                        closing.set(places.closing());
                    }
                }
            }
            // Before the connection is dropped with its place.
            task_pool.with(|pool| pool.remove(number, connection));
        });
        Ok(Self {
            sender,
            connection,
            backend: Arc::clone(backend),
            pool,
        })
    }

    /// Returns the backend.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Returns what tells its pool from others.
    pub fn home(&self) -> Home {
        self.pool.home()
    }

    /// Returns the connection to its pool at the end of a response, if it can take another request.
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

    /// Returns the connection to its pool, or hands it to a request that waits for one.
    fn keep(self) {
        let backend = Arc::clone(&self.backend);
        let Some(unwanted) = backend.places().offer(self) else {
            return;
        };
        let idle = Idle {
            connection: unwanted.connection,
            since: Instant::now(),
            sender: unwanted.sender,
        };
        unwanted.pool.with(|pool| pool.put(backend.number, idle));
    }
}

impl Pool {
    /// Returns a pool for one client's connection.
    pub fn shared() -> Arc<Mutex<Pool>> {
        Arc::default()
    }

    fn take(&mut self, backend: u64) -> Option<Idle> {
        let idle = self.idle.get_mut(&backend)?;
        // Closed connections are removed by their own tasks.
        let index = idle.iter().rposition(|idle| idle.sender.is_ready())?;
        Some(idle.remove(index))
    }

    fn put(&mut self, backend: u64, connection: Idle) {
        let idle = self.idle.entry(backend).or_default();
        if idle.len() == MAX_IDLE {
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
