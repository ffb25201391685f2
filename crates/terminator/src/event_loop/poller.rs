//! The poller: polls the accelerators when the event loop would sleep, and under load before each
//! look at the network.
//!
//! tokio polls epoll when no task is left to run. A task that yields is run again after that, so
//! this one sees, turn by turn, if any event has been handled in between. If none has, every
//! concurrent handshake waits for its operation or for its client: the moment that QTLS section 3.3
//! approximates by counting.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::task::{Poll, Waker};

use slipstream_accelerators::engine::protocol::message::Token;
use slipstream_offload::accelerator::Moment;
use slipstream_offload::costs::FAILOVER;
use slipstream_offload::instance::{self, Instance};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::accelerator::Accelerators;
use super::jobs;
use crate::operations::metrics::Metrics;

/// Polls the accelerators of this thread for as long as the event loop runs, and replaces them when
/// `renewal` says so.
pub(crate) async fn run(metrics: &Metrics, mut renewal: Renewal) {
    let mut descriptor = descriptor();
    let mut seen = jobs::progress();
    loop {
        tokio::select! {
            biased;
            () = wait_for_requests(descriptor.as_ref()) => {}
            // Nothing is in flight.
            () = renewal.wait() => {
                renewal.install();
                descriptor = self::descriptor();
                continue;
            }
        }
        let progress = jobs::progress();
        let moment = match seen == progress {
            true => Moment::Idle,
            false => Moment::Busy,
        };
        seen = progress;
        let answers = instance::with(|instance| instance.poll(moment)).unwrap_or(0);
        let mut has_resumed = false;
        while let Some(job) = instance::with(Instance::next_ready).flatten() {
            jobs::resume(job);
            has_resumed = true;
        }
        if answers > 0 {
            publish(metrics);
        }
        let may_sleep = !has_resumed && answers == 0 && moment == Moment::Idle;
        match &descriptor {
            Some(descriptor) if may_sleep && arm() => wait_for_answers(descriptor).await,
            _ => tokio::task::yield_now().await,
        }
    }
}

/// A replacement of the accelerators: it may use the keys that an engine holds since it has been
/// started again.
pub(crate) struct Renewal {
    pub(crate) accelerators: Option<Accelerators>,
    pub(crate) tokens: watch::Receiver<Option<Token>>,
}

impl Renewal {
    async fn wait(&mut self) {
        // The sender has gone, as it does when the process ends.
        if self.tokens.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn install(&mut self) {
        let token = *self.tokens.borrow_and_update();
        let Some(accelerators) = &mut self.accelerators else {
            return;
        };
        accelerators.token = token;
        if let Err(error) = accelerators.clone().install() {
            eprintln!("slipstream serve: {error}: this event loop stays with the keys that it had");
        }
    }
}

/// Called when the event loop is about to sleep: nothing waits for this process's own computation,
/// unless requests are in flight.
pub(crate) fn before_sleep() {
    let progress = jobs::progress();
    if TOPPED_UP.replace(progress) != progress {
        instance::with(Instance::precompute);
        // It may be waiting for the first secrets.
        if let Some(waker) = EXPIRY.with_borrow_mut(Option::take) {
            waker.wake();
        }
    }
}

/// Has secrets wiped that were precomputed and are too old, for as long as the event loop runs:
/// otherwise one that sleeps would keep them.
pub(crate) async fn expire() {
    loop {
        match instance::with(Instance::expire).flatten() {
            Some(wait) => tokio::time::sleep(wait).await,
            None => wait_for_secrets().await,
        }
    }
}

/// Waits until there may be precomputed secrets.
async fn wait_for_secrets() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        EXPIRY.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

thread_local! {
    /// The progress when values were last precomputed.
    static TOPPED_UP: Cell<u64> = const { Cell::new(0) };

    /// Wakes the task that has secrets wiped, while there are none.
    static EXPIRY: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Copies the counters to the memory that the metrics listener and other processes read.
pub(crate) fn publish(metrics: &Metrics) {
    let published = instance::with(|instance| metrics.publish(Some(instance.counters())));
    if published.is_none() {
        metrics.publish(None);
    }
}

/// Waits until requests are in flight. A device may send something meanwhile: that it has taken a
/// key, or that it has gone.
async fn wait_for_requests(descriptor: Option<&AsyncFd<OwnedFd>>) {
    let requests = poll_fn(|context| match in_flight() {
        false => {
            jobs::set_poller(context.waker());
            Poll::Pending
        }
        true => Poll::Ready(()),
    });
    let Some(descriptor) = descriptor else {
        return requests.await;
    };
    let messages = async {
        while let Ok(mut ready) = descriptor.readable().await {
            ready.clear_ready();
            instance::with(|instance| instance.poll(Moment::Idle));
        }
    };
    tokio::select! {
        () = requests => {}
        () = messages => {}
    }
}

fn in_flight() -> bool {
    instance::with(|instance| instance.waiting() > 0 || instance.has_ready()).unwrap_or(false)
}

fn arm() -> bool {
    instance::with(Instance::arm).unwrap_or(true)
}

/// Returns the descriptor that a device makes readable.
fn descriptor() -> Option<AsyncFd<OwnedFd>> {
    let descriptor = instance::with(|instance| {
        let descriptor = instance.descriptor()?;
        descriptor.try_clone_to_owned().ok()
    });
    let descriptor = descriptor.flatten()?;
    // SAFETY: the registered value owns the descriptor, and does not replace it.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.ok()
}

async fn wait_for_answers(descriptor: &AsyncFd<OwnedFd>) {
    // A step that pauses meanwhile submits a request, which may join others.
    let paused = jobs::progress();
    let request = poll_fn(|context| {
        jobs::set_poller(context.waker());
        match jobs::progress() == paused {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    });
    tokio::select! {
        ready = descriptor.readable() => {
            if let Ok(mut ready) = ready {
                ready.clear_ready();
            }
        }
        () = request => {}
        () = tokio::time::sleep(FAILOVER) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use slipstream_offload::Operation;
    use slipstream_offload::accelerator::{Accelerator, Estimate, Work};
    use slipstream_offload::counters::Counters;
    use slipstream_offload::request::{Request, Response};
    use slipstream_offload::scheduler::Scheduler;

    use super::*;

    /// Has a secret that is wiped when it is looked at for the third time.
    struct Secret(Arc<AtomicUsize>);

    impl Accelerator for Secret {
        fn name(&self) -> &str {
            "secret"
        }

        fn accepts(&mut self, _: &Operation) -> bool {
            false
        }

        fn estimate(&self, _: &Work) -> Option<Estimate> {
            None
        }

        fn submit(&mut self, request: Request) -> Result<(), Request> {
            Err(request)
        }

        fn waiting(&self) -> usize {
            0
        }

        fn poll(&mut self, _: Moment, _: &mut Vec<Response>, _: &mut Counters) {}

        fn expire(&mut self) -> Option<Duration> {
            let looks = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            (!looks.is_multiple_of(3)).then_some(Duration::from_millis(1))
        }
    }

    #[tokio::test]
    async fn an_event_loop_that_sleeps_looks_at_secrets_until_they_are_wiped() {
        let looks = Arc::new(AtomicUsize::new(0));
        let secret: Box<dyn Accelerator> = Box::new(Secret(looks.clone()));
        let instance = Instance::new(vec![secret], Scheduler::default(), 1);
        instance::install(instance.expect("an instance"));
        let task = tokio::spawn(expire());
        for rounds in 1..=2 {
            while EXPIRY.with_borrow(Option::is_none) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(looks.load(Ordering::Relaxed), 3 * rounds);
            // As before a sleep after a handshake, which has taken a secret.
            if let Some(waker) = EXPIRY.with_borrow_mut(Option::take) {
                waker.wake();
            }
        }
        assert!(!task.is_finished());
        instance::uninstall();
    }
}
