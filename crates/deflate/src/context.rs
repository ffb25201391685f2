//! What the sessions of one thread share.

use std::cell::RefCell;
use std::rc::Rc;

use slipstream_offload::{Class, instance};

use crate::chunk::{Compressor, bound};
use crate::{Method, Stream};

/// Streams that are kept for the next responses.
const STREAMS: usize = 16;

/// Compressors, and memory that is used again. One for each thread.
pub struct Context {
    requests: usize,
    chunk_bytes: usize,
    has_device: bool,
    compressor: Compressor,
    /// Where chunks are compressed before their length is known.
    scratch: Vec<u8>,
    /// For the content of chunks.
    buffers: Vec<Vec<u8>>,
    streams: Streams,
    turn: u64,
    /// Sessions that were begun in this turn.
    begun: usize,
    /// Responses that are under way in chunks.
    pipelines: Rc<()>,
}

impl Context {
    /// `requests` chunks may be in flight at the device at most, of at most `chunk_bytes` each: as many, and as long, as the
    /// instance has buffers. There is no device until [`set_device`](Self::set_device) says so.
    pub fn new(requests: usize, chunk_bytes: usize) -> Self {
        Self {
            requests,
            chunk_bytes,
            has_device: false,
            compressor: Compressor::new(),
            scratch: Vec::new(),
            buffers: Vec::new(),
            streams: Streams::default(),
            turn: 0,
            begun: 0,
            pipelines: Rc::default(),
        }
    }

    /// Whether this thread's instance has a device that compresses. While it has none, nothing is submitted, and sessions that
    /// are begun are compressed as one stream each.
    pub fn set_device(&mut self, present: bool) {
        self.has_device = present;
    }

    /// The event loop has looked for events: sessions that are begun from now on, before it looks again, have all been
    /// waiting at the same time.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
        self.begun = 0;
    }

    pub(crate) fn has_device(&self) -> bool {
        self.has_device
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Counts a session that begins. Returns the turn in which it does.
    pub(crate) fn begin_session(&mut self) -> u64 {
        self.begun += 1;
        self.turn
    }

    /// Whether several sessions were begun in `turn`, which is not over.
    pub(crate) fn is_shared(&self, turn: u64) -> bool {
        turn == self.turn && self.begun > 1
    }

    /// Counts a response that is compressed in chunks, as long as what this returns is kept.
    pub(crate) fn begin_pipeline(&self) -> Rc<()> {
        self.pipelines.clone()
    }

    /// How many responses are under way in chunks.
    pub(crate) fn pipelines(&self) -> usize {
        Rc::strong_count(&self.pipelines) - 1
    }

    /// A stream that has begun; it comes back when it is dropped.
    pub(crate) fn stream(&mut self, method: Method) -> PooledStream {
        let mut kept = self.streams.0.borrow_mut();
        let stream = match kept.iter().position(|stream| stream.fits(method)) {
            Some(place) => {
                let mut stream = kept.swap_remove(place);
                stream.reset(method);
                stream
            }
            None => Stream::new(method),
        };
        drop(kept);
        PooledStream {
            stream: Some(stream),
            streams: self.streams.clone(),
        }
    }

    /// An empty buffer for content.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Keeps the memory of content that has been compressed.
    pub(crate) fn keep(&mut self, mut content: Vec<u8>) {
        if self.buffers.len() < self.requests {
            content.clear();
            self.buffers.push(content);
        }
    }

    /// A chunk compressed here, with room for `extra` bytes more.
    pub(crate) fn compress(
        &mut self,
        method: Method,
        content: &[u8],
        is_last: bool,
        extra: usize,
    ) -> Vec<u8> {
        self.scratch.clear();
        self.scratch.reserve(bound(method, content.len()));
        self.compressor
            .compress(method, content, is_last, &mut self.scratch);
        let mut chunk = Vec::with_capacity(self.scratch.len() + extra);
        chunk.extend_from_slice(&self.scratch);
        chunk
    }
}

/// How many chunks of this thread the device has, those included whose session has gone away.
pub(crate) fn in_flight() -> usize {
    instance::with(|instance| instance.in_flight(Class::Compression)).unwrap_or(0)
}

#[derive(Clone, Default)]
struct Streams(Rc<RefCell<Vec<Stream>>>);

/// A stream of the context's, which its session may outlive.
pub(crate) struct PooledStream {
    /// Taken when this is dropped.
    stream: Option<Stream>,
    streams: Streams,
}

impl PooledStream {
    pub fn get(&mut self) -> &mut Stream {
        self.stream.as_mut().expect("there until this is dropped")
    }
}

impl Drop for PooledStream {
    fn drop(&mut self) {
        let mut streams = self.streams.0.borrow_mut();
        if streams.len() < STREAMS {
            streams.extend(self.stream.take());
        }
    }
}
