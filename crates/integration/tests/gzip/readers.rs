//! Clients that fetch pages all the time, while a test does something to the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipstream_integration::{Request, eventually};

use crate::site::check;

/// Threads that each fetch a page and compare it, again and again.
pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    read: AtomicU64,
}

/// A page, and what it is.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    pub(crate) coding: &'static str,
    pub(crate) content: Arc<Vec<u8>>,
}

impl Readers {
    /// Sends `each` readers to every one of `pages`.
    pub(crate) fn start(pages: &[Page], each: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let threads = pages
            .iter()
            .flat_map(|page| std::iter::repeat_n(page.clone(), each))
            .map(|page| {
                let shared = shared.clone();
                thread::spawn(move || shared.read(&page))
            })
            .collect();
        Self { shared, threads }
    }

    /// Waits until `more` pages have been read from now on.
    pub(crate) fn wait_for(&self, more: u64) {
        let read = || self.shared.read.load(Ordering::Relaxed);
        let mut seen = read();
        let wanted = seen + more;
        while seen < wanted {
            // Nobody knows how long many pages take on a busy machine; one that takes too long will
            // not come.
            eventually("pages are read", || read() > seen);
            seen = read();
        }
    }

    /// Lets them finish; every page must have been right.
    pub(crate) fn stop(mut self) {
        let failures = self.join();
        assert!(failures.is_empty(), "{}: {failures:#?}", failures.len());
        assert!(self.shared.read.load(Ordering::Relaxed) > 0);
    }

    fn join(&mut self) -> Vec<String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.threads
            .drain(..)
            .flat_map(|thread| {
                let failures = thread.join();
                failures.unwrap_or_else(|_| vec!["a reader has panicked".to_owned()])
            })
            .collect()
    }
}

impl Drop for Readers {
    /// A test that fails must not leave threads that go on.
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    fn read(&self, page: &Page) -> Vec<String> {
        const RETRY_DELAY: Duration = Duration::from_millis(10);
        let mut failures = Vec::new();
        let request = Request::get(page.address, &page.path);
        while !self.stop.load(Ordering::Relaxed) {
            match check(&request, page.coding, &page.content) {
                Ok(()) => drop(self.read.fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    failures.push(format!("{} as {}: {error}", page.path, page.coding));
                    // A server that is down is not hammered.
                    thread::sleep(RETRY_DELAY);
                }
            }
        }
        failures
    }
}
