//! An engine: a device made of cores. Its clients, such as the workers of a server, hand over
//! requests on rings in shared memory, as to a QAT endpoint (QTLS section 2.3). One or more cores
//! compute the requests of all clients, in batches.
//!
//! Batches of several clients fill where those of a single client would not, and private keys stay
//! in this process. Content is compressed chunk by chunk, on all cores of the engine. The protocol
//! is defined in [`slipstream_accelerators::engine`], whose `Device` is the client's side; this
//! crate is the server's side only, and knows no TLS and no HTTP.
//!
//! One thread listens on the socket and answers messages (`control`): it makes sessions, which hold
//! keys, and instances, which hold a pair of rings. A thread for each core (`worker`) takes
//! requests in turn (`scheduler`), computes them and fills the response rings. No client is
//! trusted: a client that breaks the rules ends its own connection and harms no other.

mod aggregation;
mod connection;
mod control;
mod counters;
mod instance;
mod listener;
mod pace;
mod queues;
mod quotas;
mod round;
mod scheduler;
mod session;
mod shares;
mod signature;
mod sleep;
mod validation;
mod worker;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::EventfdFlags;
use slipstream_accelerators::lanes::Backend;
use slipstream_offload::costs::SESSION_GRACE;

pub use counters::Status;
pub use pace::Pace;
pub use quotas::Quotas;

use control::Control;
use counters::Counters;
use listener::Listener;
use quotas::Ledger;
use scheduler::Scheduler;
use worker::Worker;

/// The options of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of its socket.
    pub socket: PathBuf,
    /// The cores it computes on, one thread each.
    pub cores: Vec<usize>,
    /// The lanes it computes with.
    pub backend: Backend,
    /// The users that may connect, beside root and the engine's own.
    pub allow: Vec<u32>,
    /// The most that each user but root may have.
    pub quotas: Quotas,
    /// The time for which keys stay after their owner has gone, for workers that finish what they
    /// have begun.
    pub grace: Duration,
    /// The time for which a batch that is not full waits for requests of jobs that clients report
    /// as concurrent. `None`: as long as a batch of its kind takes.
    pub linger: Option<Duration>,
    /// The simulated card, if there is one.
    pub pace: Option<Pace>,
    /// The directory in which the figures are published. `None`: they are not.
    pub publishes: Option<PathBuf>,
}

/// A running engine. It stops when this is dropped.
#[derive(Debug)]
#[must_use = "an engine stops when it is dropped"]
pub struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    unpublished: Option<io::Error>,
}

/// The state that all threads share.
#[derive(Debug)]
struct Shared {
    counters: Arc<Counters>,
    ledger: Ledger,
    scheduler: Mutex<Scheduler>,
    stopping: AtomicBool,
    /// Readable when the engine stops.
    stop: OwnedFd,
    backend: Backend,
}

impl Engine {
    /// The default of [`Options::grace`].
    pub const GRACE: Duration = SESSION_GRACE;

    /// Listens on the socket and starts the threads.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another engine listens at the path,
    /// [`io::ErrorKind::NotFound`] if the directory does not exist, [`io::ErrorKind::InvalidInput`]
    /// if no core is given or this CPU lacks the backend's instructions, and other errors of the
    /// system. The text names the cure.
    pub fn start(options: Options) -> io::Result<Self> {
        check(&options)?;
        let listener = Listener::bind(&options.socket, &options.allow)?;
        let directory = options.publishes.as_deref();
        let (counters, unpublished) = Counters::new(options.cores.len(), directory)?;
        let counters = Arc::new(counters);
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let scheduler = Scheduler::new(&options, counters.clone(), &stop)?;
        let shared = Arc::new(Shared {
            scheduler: Mutex::new(scheduler),
            counters,
            ledger: Ledger::new(options.quotas),
            stopping: AtomicBool::new(false),
            stop,
            backend: options.backend,
        });
        let mut engine = Self {
            shared: shared.clone(),
            threads: Vec::new(),
            unpublished,
        };
        for (index, core) in options.cores.into_iter().enumerate() {
            engine.start_worker(index, core)?;
        }
        let control = Control::new(listener, shared, options.grace)?;
        let thread = thread::Builder::new().name("engine-control".into());
        engine.threads.push(thread.spawn(move || control.run())?);
        Ok(engine)
    }

    /// Returns the figures.
    pub fn status(&self) -> Status {
        self.shared.counters.status()
    }

    /// Returns the reason why the figures are not published as they should be.
    pub fn unpublished(&self) -> Option<&io::Error> {
        self.unpublished.as_ref()
    }

    /// Stops the engine: requests that are being computed are finished and dropped, clients see
    /// their connections closed, and the socket is removed.
    pub fn stop(self) {}

    fn start_worker(&mut self, index: usize, core: usize) -> io::Result<()> {
        let worker = Worker::new(self.shared.clone(), index)?;
        let (sender, pinned) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("engine-{core}"));
        let thread = thread.spawn(move || {
            let outcome = worker::pin(core);
            let is_pinned = outcome.is_ok();
            if sender.send(outcome).is_ok() && is_pinned {
                worker.run();
            }
        })?;
        self.threads.push(thread);
        pinned.recv().map_err(io::Error::other)?
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        // One write does not overflow the event's counter.
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // A thread that has panicked has printed its message.
            let _ = thread.join();
        }
        self.shared.counters.withdraw();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        lock(&self.scheduler)
    }
}

/// Locks although another thread has panicked with the lock held: every structure here is
/// consistent between two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(options: &Options) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if options.cores.is_empty() {
        return invalid("an engine needs at least one core to compute on".to_owned());
    }
    if !options.backend.is_available() {
        let missing: Vec<&str> = options.backend.missing().collect();
        let name = options.backend.name();
        return invalid(format!(
            "{name} lanes need a CPU with {}",
            missing.join(" and ")
        ));
    }
    let lacks_engines = |pace: &Pace| pace.engines == 0 || pace.compression_engines == 0;
    if options.pace.as_ref().is_some_and(lacks_engines) {
        return invalid("a simulated card needs at least one engine of each kind".to_owned());
    }
    Ok(())
}
