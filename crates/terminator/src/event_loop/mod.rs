//! Event loops: a thread each, with a runtime of its own, its own sockets and its own instance of the offload framework.

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

use slipstream_offload::device::message::Token;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use accelerator::Accelerator;
use poller::Renewal;

use crate::operations::limits::Limiter;
use crate::operations::metrics::Metrics;
use crate::site::Site;

/// What an event loop is started with.
pub(crate) struct EventLoop {
    /// Sockets that listen, with the addresses under which the site knows them.
    pub(crate) sockets: Vec<(TcpListener, SocketAddr)>,
    /// What computes its operations; `None` leaves all of them to aws-lc.
    pub(crate) accelerator: Option<Accelerator>,
    /// With which an engine lets its keys be used, when that has changed.
    pub(crate) tokens: watch::Receiver<Option<Token>>,
    /// Only this loop counts in them.
    pub(crate) metrics: Arc<Metrics>,
    /// Shared by all loops.
    pub(crate) limiter: Arc<Limiter>,
    /// What is served now.
    pub(crate) site: watch::Receiver<Arc<Site>>,
    /// True from the moment on when no more connections are taken.
    pub(crate) draining: watch::Receiver<bool>,
    /// This loop asks backends whether they are well, for all loops.
    pub(crate) watches_health: bool,
}

/// What all tasks of a loop share.
struct Shared {
    metrics: Arc<Metrics>,
    limiter: Arc<Limiter>,
    site: watch::Receiver<Arc<Site>>,
    draining: watch::Receiver<bool>,
}

impl EventLoop {
    /// Starts the thread. It ends when it has been drained, and returns how many connections were cut off.
    ///
    /// # Errors
    /// Those of the system.
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
                // Names that are being resolved, and files that are being read, keep nobody.
                runtime.shutdown_background();
                open
            })
    }

    async fn run(self) -> usize {
        if let Some(accelerator) = self.accelerator.clone()
            && let Err(error) = accelerator.install()
        {
            eprintln!("slipstream serve: {error}: this event loop computes everything with aws-lc");
        }
        jobs::prepare();
        let metrics = self.metrics.clone();
        let renewal = Renewal {
            accelerator: self.accelerator,
            tokens: self.tokens,
        };
        tokio::spawn(async move { poller::run(&metrics, renewal).await });
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
        // Whoever could say so has gone: the process ends.
        let _ = draining.wait_for(|&draining| draining).await;
        let deadline = Instant::now() + shared.site.borrow().drain_timeout;
        for acceptor in acceptors {
            let _ = acceptor.await;
        }
        end_of_connections(&shared, deadline).await
    }
}

/// Waits for connections to end, until `deadline`. Returns how many have not.
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
        // Nobody wants to be asked, until there is another configuration.
        if site.changed().await.is_err() {
            return;
        }
    }
}
