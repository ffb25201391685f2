//! Event loops. Each is a thread with its own runtime, sockets and instance of the offload
//! framework.

mod accelerator;
mod accept;
mod connection;
pub(crate) mod jobs;
mod poller;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipstream_accelerators::engine::protocol::message::Token;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use accelerator::Accelerators;
use poller::Renewal;

use crate::operations::limits::Limiter;
use crate::operations::metrics::Metrics;
use crate::site::Site;

/// Parameters of an event loop.
pub(crate) struct EventLoop {
    /// Listening sockets, with the addresses that the site knows them by.
    pub(crate) sockets: Vec<(TcpListener, SocketAddr)>,
    /// Accelerators of the loop. `None` leaves all operations to aws-lc.
    pub(crate) accelerators: Option<Accelerators>,
    /// Token for the keys that an engine holds, whenever it changes.
    pub(crate) tokens: watch::Receiver<Option<Token>>,
    /// Metrics of this loop.
    pub(crate) metrics: Arc<Metrics>,
    /// Limiter that all loops share.
    pub(crate) limiter: Arc<Limiter>,
    /// Site that is served now.
    pub(crate) site: watch::Receiver<Arc<Site>>,
    /// Becomes true when no more connections are accepted.
    pub(crate) draining: watch::Receiver<bool>,
    /// True if this loop runs the health checks of all loops.
    pub(crate) watches_health: bool,
}

/// State that all tasks of a loop share.
struct Shared {
    metrics: Arc<Metrics>,
    limiter: Arc<Limiter>,
    site: watch::Receiver<Arc<Site>>,
    draining: watch::Receiver<bool>,
}

impl EventLoop {
    /// Starts the thread. It ends after it has been drained, and returns the number of connections
    /// that were cut off.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub(crate) fn start(self, index: usize) -> io::Result<JoinHandle<usize>> {
        let metrics = self.metrics.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .on_thread_park(move || {
                poller::before_sleep();
                poller::publish(&metrics);
            })
            .build()?;
        thread::Builder::new()
            .name(format!("event-loop-{index}"))
            .spawn(move || {
                let open = runtime.block_on(self.run());
                // This does not wait for name resolutions and file reads in progress.
                runtime.shutdown_background();
                open
            })
    }

    async fn run(self) -> usize {
        if let Some(accelerators) = self.accelerators.clone()
            && let Err(error) = accelerators.install()
        {
            eprintln!("slipstream serve: {error}: this event loop computes everything with aws-lc");
        }
        jobs::prepare();
        let metrics = self.metrics.clone();
        let renewal = Renewal {
            accelerators: self.accelerators,
            tokens: self.tokens,
        };
        tokio::spawn(async move { poller::run(&metrics, renewal).await });
        tokio::spawn(poller::expire());
        if self.watches_health {
            tokio::spawn(watch_health(self.site.clone()));
        }
        let shared = Arc::new(Shared {
            metrics: self.metrics,
            limiter: self.limiter,
            site: self.site,
            draining: self.draining,
        });
        let acceptors: Vec<_> = self
            .sockets
            .into_iter()
            .map(|(socket, address)| tokio::spawn(accept::run(socket, address, shared.clone())))
            .collect();
        let mut draining = shared.draining.clone();
        // An error means that the sender is gone: the process ends.
        let _ = draining.wait_for(|&draining| draining).await;
        let deadline = Instant::now() + shared.site.borrow().drain_timeout;
        for acceptor in acceptors {
            let _ = acceptor.await;
        }
        end_of_connections(&shared, deadline).await
    }
}

/// Waits for connections to end, until `deadline`. Returns the number of connections that are still
/// open.
async fn end_of_connections(shared: &Shared, deadline: Instant) -> usize {
    const INTERVAL: Duration = Duration::from_millis(10);
    loop {
        let open = shared.metrics.open.get() as usize;
        if open == 0 || Instant::now() >= deadline {
            return open;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn watch_health(mut site: watch::Receiver<Arc<Site>>) {
    loop {
        let upstreams = site.borrow_and_update().upstreams.clone();
        tokio::select! {
            () = upstreams.watch_health() => {}
            changed = site.changed() => {
                if changed.is_err() {
                    return;
                }
                continue;
            }
        }
        // No backend is to be checked until there is another configuration.
        if site.changed().await.is_err() {
            return;
        }
    }
}
