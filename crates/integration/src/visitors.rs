//! Well-behaved clients that come and go all the time, while a test does something to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Client, eventually};

const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Threads that each connect, complete a handshake, fetch `/` and close, again and again.
pub struct Visitors {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    served: AtomicU64,
}

/// The results of all visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visits {
    /// Pages served.
    pub served: u64,
    /// Why others were not.
    pub failures: Vec<String>,
}

impl Visits {
    /// Nobody was turned away.
    ///
    /// # Panics
    /// If somebody was, or nobody has come.
    pub fn expect_all_served(&self) {
        assert!(
            self.served > 0 && self.failures.is_empty(),
            "{} served, {} not: {:#?}",
            self.served,
            self.failures.len(),
            self.failures,
        );
    }
}

impl Visitors {
    /// Sends `each` visitors of every one of `clients`.
    pub fn start(clients: &[Client], each: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = clients
            .iter()
            .flat_map(|client| std::iter::repeat_n(client.clone(), each))
            .map(|client| {
                let shared = shared.clone();
                thread::spawn(move || shared.visit(&client))
            })
            .collect();
        Self { shared, threads }
    }

    /// Waits until `more` pages have been served from now on.
    ///
    /// # Panics
    /// If they are not.
    pub fn wait_for(&self, more: u64) {
        let served = || self.shared.served.load(Ordering::Relaxed);
        let mut seen = served();
        let wanted = seen + more;
        while seen < wanted {
            // Nobody knows how long many pages take on a busy machine; one that takes too long will
            // not come.
            eventually("well-behaved clients are served", || served() > seen);
            seen = served();
        }
    }

    /// Lets them finish.
    ///
    /// # Panics
    /// If a thread has.
    pub fn stop(mut self) -> Visits {
        let failures = self.join();
        Visits {
            served: self.shared.served.load(Ordering::Relaxed),
            failures,
        }
    }

    fn join(&mut self) -> Vec<String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.threads
            .drain(..)
            .flat_map(|thread| thread.join().expect("a visitor does not panic"))
            .collect()
    }
}

impl Drop for Visitors {
    /// A test that fails must not leave threads that go on knocking.
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn visit(&self, client: &Client) -> Vec<String> {
        let mut failures = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let failure = match client.get("/") {
                Ok(response) if response.status == 200 => {
                    self.served.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Ok(response) => format!("status {}", response.status),
                Err(error) => error.to_string(),
            };
            failures.push(failure);
            // A server that is down is not hammered.
            thread::sleep(RETRY_DELAY);
        }
        failures
    }
}
