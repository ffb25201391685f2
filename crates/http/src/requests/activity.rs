//! Activity of a client's connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::settings::Limits;
use crate::upstream::milliseconds;

/// Events of a connection and their times in [`milliseconds`]. Written and read by one thread.
pub struct Activity {
    /// True once a request header has been read.
    has_asked: AtomicBool,
    /// Requests whose response has not ended.
    requests: AtomicUsize,
    /// Requests among them that wait for a backend or a file, not for the client.
    waiting: AtomicUsize,
    progress: AtomicU64,
    /// Time at which the header that is being read began; 0 if none is.
    header_began: AtomicU64,
}

/// Decision about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The connection may go on, and is checked again after this time.
    Fine(Duration),
    /// The client has sent no request for too long.
    Idle,
    /// The client has stopped in the middle of a header, or has stopped reading a response.
    Stalled,
}

impl Activity {
    /// Returns the activity of a connection that begins now.
    pub fn new() -> Self {
        Self {
            has_asked: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            progress: AtomicU64::new(milliseconds()),
            header_began: AtomicU64::new(0),
        }
    }

    /// Notes that a request header has been read.
    pub fn begin_request(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
        self.header_began.store(0, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.note_progress();
    }

    /// Notes that a response has ended.
    pub fn end_request(&self) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.note_progress();
    }

    /// Notes that a request begins to wait for a backend.
    pub fn begin_wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the backend has answered.
    pub fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.note_progress();
    }

    /// Notes that a part of a request or a response has been transferred.
    pub fn note_progress(&self) {
        self.progress.store(milliseconds(), Ordering::Relaxed);
    }

    /// Returns the time since an incomplete header began.
    pub fn header_duration(&self) -> Duration {
        match self.header_began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_millis(milliseconds().saturating_sub(began)),
        }
    }

    /// Returns true while the first header is incomplete. Bytes after a request may belong to its
    /// body.
    pub fn is_reading_first_header(&self) -> bool {
        !self.has_asked.load(Ordering::Relaxed) && self.header_began.load(Ordering::Relaxed) != 0
    }

    /// Returns the decision that `limits` demand now. `unread_since` is the time since which the
    /// client has not taken what was there for it.
    pub fn verdict(&self, limits: &Limits, unread_since: Option<u64>) -> Verdict {
        let now = milliseconds();
        let left = |since: u64, limit: Duration| {
            let elapsed = Duration::from_millis(now.saturating_sub(since));
            limit.checked_sub(elapsed).filter(|left| !left.is_zero())
        };
        let idle = left(self.progress.load(Ordering::Relaxed), limits.idle_timeout);
        let header_began = self.header_began.load(Ordering::Relaxed);
        let header = left(header_began, limits.header_timeout);
        let requests = self.requests.load(Ordering::Relaxed);
        let waiting = self.waiting.load(Ordering::Relaxed);
        if let Some(since) = unread_since {
            // The client's other requests do not matter, nor those that it goes on to send.
            let unread = left(since, limits.idle_timeout);
            return unread.map_or(Verdict::Stalled, Verdict::Fine);
        }
        if requests > waiting {
            // A response waits for the client, although its other requests may wait for a backend.
            return idle.map_or(Verdict::Stalled, Verdict::Fine);
        }
        if waiting > 0 {
            return Verdict::Fine(limits.idle_timeout);
        }
        if header_began != 0 {
            return header.map_or(Verdict::Stalled, Verdict::Fine);
        }
        // A header may begin at any time, and must then be complete in time.
        idle.map_or(Verdict::Idle, |left| {
            Verdict::Fine(left.min(limits.header_timeout))
        })
    }

    fn note_read(&self) {
        if self.requests.load(Ordering::Relaxed) == 0 {
            if self.header_began.load(Ordering::Relaxed) == 0 {
                self.header_began.store(milliseconds(), Ordering::Relaxed);
            }
        } else {
            self.note_progress();
        }
    }
}

/// Protocol of a stream. It decides which bytes are activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Every byte is activity.
    Http1,
    /// Written bytes beyond a few control frames are activity. A client that only answers or sends
    /// pings is idle. A client that is still being sent a response is not, even if its last frame
    /// was handed over long ago: h2 buffers what the client cannot take.
    Http2,
}

impl Protocol {
    /// Returns the number of bytes in one write up to which it is no progress.
    fn overhead(self) -> usize {
        match self {
            Protocol::Http1 => 0,
            // PING has 17 bytes, an acknowledgement of SETTINGS 9, and GOAWAY 17.
            Protocol::Http2 => 256,
        }
    }
}

/// Stream whose bytes are noted as activity.
pub struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    protocol: Protocol,
}

impl<S> Watched<S> {
    /// Wraps `stream`. Bytes that count in `protocol` are noted in `activity`.
    pub fn new(stream: S, activity: Arc<Activity>, protocol: Protocol) -> Self {
        Self {
            stream,
            activity,
            protocol,
        }
    }

    fn note_write(&self, outcome: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(written)) = outcome
            && *written > self.protocol.overhead()
        {
            self.activity.note_progress();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.protocol == Protocol::Http1 && buffer.filled().len() > before {
            self.activity.note_read();
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_write(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note_write(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
