//! State that the sessions of one thread share.

use std::cell::RefCell;
use std::rc::Rc;

use slipstream_offload::{Class, instance};

use crate::{Compressor, Method, Stream};

/// The most streams that are kept for the next responses.
const STREAMS: usize = 16;

/// Compressors and reusable memory of the sessions of one thread.
pub struct Context {
    max_in_flight: usize,
    chunk_bytes: usize,
    has_device: bool,
    compressor: Compressor,
    /// Output of a chunk until its length is known.
    scratch: Vec<u8>,
    /// Memory for the content of chunks.
    buffers: Vec<Vec<u8>>,
    streams: Streams,
    turn: u64,
    /// The number of sessions that began in this turn.
    begun: usize,
    /// Cloned once for each response that is being compressed in chunks.
    pipelines: Rc<()>,
}

impl Context {
    /// Makes a context without a device. At most `max_in_flight` chunks may be in flight later, of
    /// at most `chunk_bytes` each: the number and the length of the instance's buffers.
    pub fn new(max_in_flight: usize, chunk_bytes: usize) -> Self {
        Self {
            max_in_flight,
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

    /// Tells if this thread's instance has a device that compresses. While it has none, nothing is
    /// submitted, and each session that begins is compressed as one stream.
    pub fn set_device(&mut self, is_present: bool) {
        self.has_device = is_present;
    }

    /// Begins a turn of the event loop, after it has looked for events. Sessions of the same turn
    /// have all been waiting at the same time.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
        self.begun = 0;
    }

    pub(crate) fn has_device(&self) -> bool {
        self.has_device
    }

    pub(crate) fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Counts a session that begins. Returns the current turn.
    pub(crate) fn begin_session(&mut self) -> u64 {
        self.begun += 1;
        self.turn
    }

    /// Returns true if `turn` is the current one, and several sessions began in it.
    pub(crate) fn is_shared(&self, turn: u64) -> bool {
        turn == self.turn && self.begun > 1
    }

    /// Counts a response that is compressed in chunks until the returned token is dropped.
    pub(crate) fn begin_pipeline(&self) -> Rc<()> {
        self.pipelines.clone()
    }

    /// The number of responses that are being compressed in chunks.
    pub(crate) fn pipelines(&self) -> usize {
        Rc::strong_count(&self.pipelines) - 1
    }

    /// Takes a stream at the beginning of a response. It returns to the context when it is dropped.
    pub(crate) fn stream(&mut self, method: Method) -> PooledStream {
        let mut kept = self.streams.0.borrow_mut();
        let stream = match kept.iter().position(|stream| stream.can_reuse(method)) {
            Some(index) => {
                let mut stream = kept.swap_remove(index);
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

    /// Takes an empty buffer for content.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Keeps the memory of content that has been compressed.
    pub(crate) fn recycle(&mut self, mut content: Vec<u8>) {
        if self.buffers.len() < self.max_in_flight {
            content.clear();
            self.buffers.push(content);
        }
    }

    /// Compresses a chunk on this core. The output has capacity for `extra` bytes more.
    pub(crate) fn compress(
        &mut self,
        method: Method,
        content: &[u8],
        is_last: bool,
        extra: usize,
    ) -> Vec<u8> {
        self.scratch.clear();
        self.scratch.reserve(method.bound(content.len()));
        self.compressor
            .compress(method, content, is_last, &mut self.scratch);
        let mut chunk = Vec::with_capacity(self.scratch.len() + extra);
        chunk.extend_from_slice(&self.scratch);
        chunk
    }
}

/// The number of chunks of this thread that are in flight, including those of dropped sessions.
pub(crate) fn in_flight() -> usize {
    instance::with(|instance| instance.in_flight(Class::Compression)).unwrap_or(0)
}

#[derive(Clone, Default)]
struct Streams(Rc<RefCell<Vec<Stream>>>);

/// A stream of a context. It may outlive the context.
pub(crate) struct PooledStream {
    /// `None` only while this is dropped.
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
