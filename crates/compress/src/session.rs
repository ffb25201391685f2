//! Sessions: one response each, content in, blocks of output out.

use std::time::Duration;

use slipstream_offload::Pause;

use crate::{Context, Method};
use blocks::Blocks;
use pipeline::{Counts, Pipeline};
use software::SoftwareStream;

mod blocks;
mod pipeline;
mod software;

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Codec and level.
    pub method: Method,
    /// The content of one chunk, in bytes.
    pub chunk_bytes: usize,
    /// The most that a session may hold, in bytes: content that is accumulated or in flight, and
    /// output that has not been taken.
    pub stream_bytes: usize,
    /// Content that is known to be shorter is compressed as one stream on this core, in bytes.
    pub threshold: usize,
    /// The length of the blocks of a stream that is compressed on this core, in bytes.
    pub block_bytes: usize,
    /// The share of the device.
    pub offload: Offload,
    /// The way of waiting for the device.
    pub mode: Mode,
}

/// The share of the device in compressing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing is submitted: this core compresses the response.
    Software,
    /// The device compresses what it can take at once, and this core the rest. Without a device,
    /// this core compresses everything.
    Failover,
    /// The device compresses everything, as long as there is one.
    Device,
}

/// The way of waiting for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The thread does not wait: its event loop goes on, and is notified of answers.
    Asynchronous,
    /// The pipelining of the QWEB paper: content accumulates up to `stream_bytes`, all of its
    /// chunks are submitted, and the thread waits until all have been answered. With `stream_bytes`
    /// equal to `chunk_bytes` it is the straight offload that the paper compares with.
    Pipelined,
}

/// Figures of a session so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of content.
    pub content: u64,
    /// Bytes of output, header and trailer included.
    pub output: u64,
    /// Chunks that the device has compressed.
    pub device_chunks: u64,
    /// Chunks that this core has compressed. A response as one stream counts none.
    pub own_chunks: u64,
    /// Chunks among these that had been submitted to the device, which did not compress them.
    pub lost_chunks: u64,
}

/// A response that is being compressed.
///
/// The caller writes content, flushes and finishes; after each call, and after each
/// [`resume`](Self::resume), it takes all blocks that are ready. When
/// [`is_waiting`](Self::is_waiting), chunks of it are in flight, and the job is notified of each
/// answer.
///
/// It can be dropped at any time: answers to its chunks are then dropped when they arrive.
pub struct Session {
    settings: Settings,
    /// The length of the content, if it is known.
    length: Option<u64>,
    /// The turn of the event loop in which the session began.
    turn: u64,
    route: Route,
    blocks: Blocks,
    /// The content that has been written so far, in bytes.
    taken: u64,
    is_finished: bool,
}

/// The way in which the response is compressed.
enum Route {
    /// Not decided yet, since the response may turn out to be short. Holds its content so far, less
    /// than a chunk.
    Undecided(Vec<u8>),
    /// One stream, on this core.
    Stream(SoftwareStream),
    /// Chunks, by the device and this core.
    Chunks(Pipeline),
}

impl Session {
    /// Begins a session. `length` is the length of the content in bytes, if it is known.
    pub fn new(settings: Settings, length: Option<u64>, context: &mut Context) -> Self {
        let settings = settings.within(context);
        let turn = context.begin_session();
        let is_short = |length| length < settings.threshold as u64;
        let route = if settings.offload == Offload::Software
            || !context.has_device()
            || settings.method.codec().wire_coding().is_none()
            || length.is_some_and(is_short)
        {
            Route::Stream(SoftwareStream::new(&settings, length, context))
        } else if length.is_some() {
            Route::Chunks(Pipeline::new(settings, length, turn, Vec::new(), context))
        } else {
            Route::Undecided(context.buffer())
        };
        Self {
            settings,
            length,
            turn,
            route,
            blocks: Blocks::default(),
            taken: 0,
            is_finished: false,
        }
    }

    /// Takes content. Returns the number of bytes taken, which is less than all if the session holds
    /// [`Settings::stream_bytes`]. The caller writes the rest again when it has taken blocks, or
    /// after [`resume`](Self::resume).
    ///
    /// # Panics
    /// If there is content after [`finish`](Self::finish).
    pub fn write(&mut self, context: &mut Context, job: &dyn Pause, content: &[u8]) -> usize {
        assert!(
            content.is_empty() || !self.is_finished,
            "content after the end"
        );
        let mut left = content;
        loop {
            let taken = match &mut self.route {
                Route::Undecided(held) => {
                    let taken = left.len().min(self.settings.chunk_bytes - held.len());
                    held.extend_from_slice(&left[..taken]);
                    taken
                }
                Route::Stream(stream) => stream.write(left, &mut self.blocks),
                Route::Chunks(pipeline) => pipeline.write(left, context, job, &mut self.blocks),
            };
            left = &left[taken..];
            if !self.switch_to_chunks(context) && !self.switch_to_stream(context) {
                let taken = content.len() - left.len();
                self.taken += taken as u64;
                return taken;
            }
        }
    }

    /// Flushes: all content so far becomes blocks that the client can read, as soon as it is
    /// compressed.
    pub fn flush(&mut self, context: &mut Context, job: &dyn Pause) {
        if self.taken == 0 {
            // nginx flushes after the header of a response that it does not buffer.
            return;
        }
        self.decide_for_stream(context);
        if let Route::Chunks(pipeline) = &mut self.route {
            pipeline.flush(context, job, &mut self.blocks);
        }
        self.switch_to_stream(context);
        if let Route::Stream(stream) = &mut self.route {
            stream.flush(&mut self.blocks);
        }
    }

    /// Ends the response: there is no more content.
    pub fn finish(&mut self, context: &mut Context, job: &dyn Pause) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        self.decide_for_stream(context);
        if let Route::Chunks(pipeline) = &mut self.route {
            pipeline.finish(context, job, &mut self.blocks);
        }
        self.switch_to_stream(context);
        if let Route::Stream(stream) = &mut self.route {
            stream.finish(&mut self.blocks);
        }
    }

    /// Takes the answers that have arrived, after the job was notified.
    pub fn resume(&mut self, context: &mut Context) {
        if let Route::Chunks(pipeline) = &mut self.route {
            pipeline.resume(context, &mut self.blocks);
        }
    }

    /// Takes the next block of output.
    pub fn next_block(&mut self) -> Option<Vec<u8>> {
        self.blocks.pop()
    }

    /// Returns true if chunks are in flight.
    pub fn is_waiting(&self) -> bool {
        match &self.route {
            Route::Undecided(_) | Route::Stream(_) => false,
            Route::Chunks(pipeline) => pipeline.is_waiting(),
        }
    }

    /// Returns true if the response is finished and the caller has taken all output.
    pub fn is_complete(&self) -> bool {
        let is_compressed = match &self.route {
            Route::Undecided(_) => false,
            Route::Stream(_) => true,
            Route::Chunks(pipeline) => pipeline.is_empty(),
        };
        self.is_finished && is_compressed && self.blocks.is_empty()
    }

    /// The bytes that the session holds: content that is accumulated or in flight, and output that
    /// has not been taken. The memory of a [`Stream`](crate::Stream::memory) is not counted.
    pub fn held(&self) -> usize {
        let held = match &self.route {
            Route::Undecided(content) => content.len(),
            Route::Stream(stream) => stream.held(),
            Route::Chunks(pipeline) => pipeline.held(),
        };
        held + self.blocks.bytes()
    }

    /// The figures so far.
    pub fn totals(&self) -> Totals {
        let counts = self.counts();
        Totals {
            content: self.taken,
            output: self.blocks.total(),
            device_chunks: counts.device,
            own_chunks: counts.own,
            lost_chunks: counts.lost,
        }
    }

    /// The time for which the thread has waited for the device ([`Mode::Pipelined`]).
    pub fn waited(&self) -> Duration {
        self.counts().waited
    }

    fn counts(&self) -> Counts {
        match &self.route {
            Route::Undecided(_) | Route::Stream(_) => Counts::default(),
            Route::Chunks(pipeline) => pipeline.counts(),
        }
    }

    /// Decides for chunks if a whole chunk of content has come. Returns true if it has just done
    /// so.
    fn switch_to_chunks(&mut self, context: &Context) -> bool {
        match &mut self.route {
            Route::Undecided(held) if held.len() == self.settings.chunk_bytes => {
                let held = std::mem::take(held);
                let pipeline = Pipeline::new(self.settings, self.length, self.turn, held, context);
                self.route = Route::Chunks(pipeline);
                true
            }
            _ => false,
        }
    }

    /// Decides for one stream if nothing has been decided: the response is short, or is flushed.
    fn decide_for_stream(&mut self, context: &mut Context) {
        if let Route::Undecided(held) = &mut self.route {
            let held = std::mem::take(held);
            self.begin_stream(&held, context);
            context.recycle(held);
        }
    }

    /// Switches to one stream if the device has refused the first chunk. Returns true if it has just
    /// done so.
    fn switch_to_stream(&mut self, context: &mut Context) -> bool {
        let Route::Chunks(pipeline) = &mut self.route else {
            return false;
        };
        let Some(content) = pipeline.take_refused() else {
            return false;
        };
        self.begin_stream(&content, context);
        true
    }

    fn begin_stream(&mut self, content: &[u8], context: &mut Context) {
        let length = match self.is_finished {
            true => Some(content.len() as u64),
            false => self.length,
        };
        let mut stream = SoftwareStream::new(&self.settings, length, context);
        stream.write_all(content, &mut self.blocks);
        self.route = Route::Stream(stream);
    }
}

impl Settings {
    /// Adjusts lengths to the buffers of the context.
    fn within(self, context: &Context) -> Self {
        let chunk_bytes = self.chunk_bytes.min(context.chunk_bytes()).max(1);
        Self {
            chunk_bytes,
            stream_bytes: self.stream_bytes.max(chunk_bytes),
            ..self
        }
    }
}
