//! Bodies of requests and responses.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::budget::Held;
use super::from_backend::FromBackend;
use super::record::Record;
use crate::counters::Counters;
use crate::files::FileBody;
use crate::gauge::Permit;
use crate::identity;
use crate::upstream::milliseconds;

/// Reason why a body ended early.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// Counts the body of a request. Written and read by one thread.
pub struct Meter {
    counters: Arc<Counters>,
    received: AtomicU64,
    /// Time in [`milliseconds`] at which the backend last received anything;
    /// [`Self::AWAITS_CLIENT`] while it has to wait for the client.
    progress: AtomicU64,
    failure: AtomicU8,
}

/// Reason why a client's body is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFailure {
    /// The client paused for too long.
    TimedOut,
    /// The body is malformed, or the client has gone.
    Broken,
}

impl Meter {
    const AWAITS_CLIENT: u64 = u64::MAX;
    const TIMED_OUT: u8 = 1;
    const BROKEN: u8 = 2;

    /// Begins to count for a request.
    pub fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            received: AtomicU64::new(0),
            progress: AtomicU64::new(milliseconds()),
            failure: AtomicU8::new(0),
        }
    }

    /// Returns the bytes read from the client.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Adds bytes that were read from a tunnel.
    pub fn add_tunnelled(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the client's failure, if there was one.
    pub fn failure(&self) -> Option<ClientFailure> {
        match self.failure.load(Ordering::Relaxed) {
            Self::TIMED_OUT => Some(ClientFailure::TimedOut),
            Self::BROKEN => Some(ClientFailure::Broken),
            _ => None,
        }
    }

    /// Returns the rest of `limit` that the backend has to answer, or `None` if it has expired. The
    /// time does not run while the client is still sending.
    pub fn backend_has(&self, limit: Duration) -> Option<Duration> {
        let progress = self.progress.load(Ordering::Relaxed);
        if progress == Self::AWAITS_CLIENT {
            return Some(limit);
        }
        let elapsed = Duration::from_millis(milliseconds().saturating_sub(progress));
        limit.checked_sub(elapsed).filter(|left| !left.is_zero())
    }

    /// Starts the backend's time again.
    pub fn note_progress(&self) {
        self.progress.store(milliseconds(), Ordering::Relaxed);
    }
}

/// Body of a client's request, for a backend.
pub struct RequestBody {
    /// `None` if the request has no body.
    body: Option<Incoming>,
    meter: Arc<Meter>,
    idle_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    /// Wraps `body`. The client may pause for `idle_timeout`.
    pub fn new(body: Incoming, meter: &Arc<Meter>, idle_timeout: Duration) -> Self {
        Self {
            body: (!body.is_end_stream()).then_some(body),
            ..Self::empty(meter, idle_timeout)
        }
    }

    /// Returns an empty body.
    pub fn empty(meter: &Arc<Meter>, idle_timeout: Duration) -> Self {
        Self {
            body: None,
            meter: Arc::clone(meter),
            idle_timeout,
            timer: None,
        }
    }

    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep(self.idle_timeout)));
        let was_waiting = self.meter.progress.load(Ordering::Relaxed) == Meter::AWAITS_CLIENT;
        if !was_waiting {
            timer.as_mut().reset(Instant::now() + self.idle_timeout);
        }
        timer.as_mut().poll(context)
    }

    fn fail(&self, failure: u8) {
        self.meter.failure.store(failure, Ordering::Relaxed);
        self.meter.note_progress();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let Poll::Ready(outcome) = Pin::new(body).poll_frame(context) else {
            let timed_out = self.poll_timer(context).is_ready();
            self.meter
                .progress
                .store(Meter::AWAITS_CLIENT, Ordering::Relaxed);
            if timed_out {
                self.fail(Meter::TIMED_OUT);
                return Poll::Ready(Some(Err("the client has stopped sending the body".into())));
            }
            return Poll::Pending;
        };
        self.meter.note_progress();
        match outcome {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    identity::remove_from_trailers(trailers);
                }
                if let Some(data) = frame.data_ref() {
                    let length = data.len() as u64;
                    self.meter.received.fetch_add(length, Ordering::Relaxed);
                    self.meter.counters.received_bytes.add(length);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.fail(Meter::BROKEN);
                Poll::Ready(Some(Err(error.into())))
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// Source of a response's body.
pub enum Content {
    /// Text made by this process.
    Text(Full<Bytes>),
    /// A file, with the permit of its descriptor.
    File { body: FileBody, _permit: Permit },
    /// A backend.
    Backend(FromBackend),
}

impl Content {
    fn is_end_stream(&self) -> bool {
        match self {
            Content::Text(body) => body.is_end_stream(),
            Content::File { body, .. } => body.is_end_stream(),
            Content::Backend(body) => body.is_end_stream(),
        }
    }
}

/// Body of a response, with the record that counts it. The record ends with the body.
pub struct ResponseBody {
    content: Content,
    record: Option<Record>,
    is_waiting: bool,
}

impl ResponseBody {
    /// Wraps `content`, the response to the request of `record`.
    pub fn new(content: Content, record: Record) -> Self {
        Self {
            content,
            record: Some(record),
            is_waiting: false,
        }
    }

    /// Returns an empty body of a response whose record continues elsewhere.
    pub fn unrecorded() -> Self {
        Self {
            content: Content::Text(Full::default()),
            record: None,
            is_waiting: false,
        }
    }

    fn set_waiting(&mut self, is_waiting: bool) {
        if self.is_waiting == is_waiting {
            return;
        }
        if let Some(record) = &self.record {
            self.is_waiting = is_waiting;
            match is_waiting {
                true => record.session().activity.begin_wait(),
                false => record.session().activity.end_wait(),
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Held;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Held>, BodyError>>> {
        let Some(session) = self.record.as_ref().map(|record| record.session().clone()) else {
            return Poll::Ready(None);
        };
        if session.budget.poll_room(context).is_pending() {
            self.set_waiting(false);
            return Poll::Pending;
        }
        let outcome = match &mut self.content {
            Content::Text(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Content::File { body, .. } => Pin::new(body).poll_frame(context).map_err(Into::into),
            Content::Backend(body) => body.poll_frame(context),
        };
        self.set_waiting(outcome.is_pending());
        let outcome = ready!(outcome);
        match &outcome {
            Some(Ok(frame)) => {
                if let (Some(data), Some(record)) = (frame.data_ref(), &mut self.record) {
                    record.note_sent(data.len());
                }
            }
            None | Some(Err(_)) => self.record = None,
        }
        let held = |frame: Frame<Bytes>| frame.map_data(|data| Held::new(data, &session.budget));
        Poll::Ready(outcome.map(|outcome| outcome.map(held)))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Text(body) => body.size_hint(),
            Content::File { body, .. } => body.size_hint(),
            Content::Backend(body) => body.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.set_waiting(false);
    }
}
