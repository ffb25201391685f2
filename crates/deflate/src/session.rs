//! One response: content in, blocks of output out.

use std::time::Duration;

use slipstream_offload::Pause;

use crate::{Context, Method};
use blocks::Blocks;
use in_place::InPlace;
use pipeline::{Counts, Pipeline};

mod blocks;
mod in_place;
mod pipeline;

/// How a response is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// With what.
    pub method: Method,
    /// The content of one chunk, in bytes.
    pub chunk_bytes: usize,
    /// How much content may be held at most, in bytes: accumulated, in flight, and as output that has not been taken.
    pub stream_bytes: usize,
    /// Content that is known to be shorter is compressed in place.
    pub threshold: usize,
    /// The length of the blocks that a stream in software puts out, in bytes.
    pub block_bytes: usize,
    /// Where.
    pub place: Place,
    /// How a device is waited for.
    pub mode: Mode,
}

/// Where responses are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Here.
    Software,
    /// At the device and here, whichever is free; here if there is no device.
    Failover,
    /// At the device, as long as there is one.
    Device,
}

/// How a device is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not at all: the event loop goes on, and is told when there are answers.
    Asynchronous,
    /// QWEB's pipelining: content accumulates up to `stream_bytes`, all of its chunks are submitted, and the thread waits
    /// until all have been answered. With `stream_bytes` equal to `chunk_bytes` it is the straight offload that the
    /// paper compares with.
    Pipelined,
}

/// What has gone in and come out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of content.
    pub content: u64,
    /// Bytes of output, header and trailer included.
    pub output: u64,
    /// Chunks that the device has compressed.
    pub device_chunks: u64,
    /// Chunks that were compressed here, a stream in software not counted.
    pub own_chunks: u64,
    /// Those of them that the device had taken before.
    pub lost_chunks: u64,
}

/// A response on its way.
///
/// The caller writes content, flushes and finishes; after each call, and after each [`resume`](Self::resume), it takes all blocks
/// that are ready. When [`is_waiting`](Self::is_waiting), the device has chunks of it, and the job is notified for each.
///
/// It can be dropped at any time: what the device still has of it is forgotten when it is answered.
pub struct Session {
    settings: Settings,
    /// The length of the content, if it is known.
    length: Option<u64>,
    /// When it was begun.
    turn: u64,
    way: Way,
    blocks: Blocks,
    /// Content so far, in bytes.
    taken: u64,
    is_finished: bool,
}

enum Way {
    /// The response may still turn out to be short: its content so far, less than a chunk.
    Undecided(Vec<u8>),
    InPlace(InPlace),
    Pipelined(Pipeline),
}

impl Session {
    /// A session for a response with that much content, if it is known.
    pub fn new(settings: Settings, length: Option<u64>, context: &mut Context) -> Self {
        let settings = settings.possible(context);
        let turn = context.begin_session();
        let is_short = |length| length < settings.threshold as u64;
        let way = if settings.place == Place::Software
            || !context.has_device()
            || length.is_some_and(is_short)
        {
            Way::InPlace(InPlace::new(&settings, length, context))
        } else if length.is_some() {
            Way::Pipelined(Pipeline::new(settings, length, turn, Vec::new(), context))
        } else {
            Way::Undecided(context.buffer())
        };
        Self {
            settings,
            length,
            turn,
            way,
            blocks: Blocks::default(),
            taken: 0,
            is_finished: false,
        }
    }

    /// Takes content; returns how many bytes of it. Fewer than all are taken while as much is held as may be: the rest is
    /// to be written again when blocks have been taken, or after [`resume`](Self::resume).
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
            let taken = match &mut self.way {
                Way::Undecided(held) => {
                    let taken = left.len().min(self.settings.chunk_bytes - held.len());
                    held.extend_from_slice(&left[..taken]);
                    taken
                }
                Way::InPlace(in_place) => in_place.write(left, &mut self.blocks),
                Way::Pipelined(pipeline) => pipeline.write(left, context, job, &mut self.blocks),
            };
            left = &left[taken..];
            if !self.turn_to_pipeline(context) && !self.turn_to_place(context) {
                let taken = content.len() - left.len();
                self.taken += taken as u64;
                return taken;
            }
        }
    }

    /// All content so far is to be put out so that the client can read it, as soon as it is compressed.
    pub fn flush(&mut self, context: &mut Context, job: &dyn Pause) {
        if self.taken == 0 {
            // nginx does that behind the header of a response that it does not buffer.
            return;
        }
        self.decide_for_place(context);
        if let Way::Pipelined(pipeline) = &mut self.way {
            pipeline.flush(context, job, &mut self.blocks);
        }
        self.turn_to_place(context);
        if let Way::InPlace(in_place) = &mut self.way {
            in_place.flush(&mut self.blocks);
        }
    }

    /// There is no more content.
    pub fn finish(&mut self, context: &mut Context, job: &dyn Pause) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        self.decide_for_place(context);
        if let Way::Pipelined(pipeline) = &mut self.way {
            pipeline.finish(context, job, &mut self.blocks);
        }
        self.turn_to_place(context);
        if let Way::InPlace(in_place) = &mut self.way {
            in_place.finish(&mut self.blocks);
        }
    }

    /// The job has been notified: sees which chunks have been answered.
    pub fn resume(&mut self, context: &mut Context) {
        if let Way::Pipelined(pipeline) = &mut self.way {
            pipeline.resume(context, &mut self.blocks);
        }
    }

    /// The next block of output, in order.
    pub fn next_block(&mut self) -> Option<Vec<u8>> {
        self.blocks.pop()
    }

    /// Whether output is missing that the device is still to deliver.
    pub fn is_waiting(&self) -> bool {
        match &self.way {
            Way::Undecided(_) | Way::InPlace(_) => false,
            Way::Pipelined(pipeline) => pipeline.is_waiting(),
        }
    }

    /// Whether all output has been taken, after [`finish`](Self::finish).
    pub fn is_complete(&self) -> bool {
        let is_put_out = match &self.way {
            Way::Undecided(_) => false,
            Way::InPlace(_) => true,
            Way::Pipelined(pipeline) => pipeline.is_empty(),
        };
        self.is_finished && is_put_out && self.blocks.is_empty()
    }

    /// How much is held, in bytes: content that is accumulated or in flight, and output that has not been taken. What a stream
    /// in software keeps for itself ([`Stream::memory`](crate::Stream::memory)) is not counted.
    pub fn held(&self) -> usize {
        let held = match &self.way {
            Way::Undecided(content) => content.len(),
            Way::InPlace(in_place) => in_place.held(),
            Way::Pipelined(pipeline) => pipeline.held(),
        };
        held + self.blocks.bytes()
    }

    /// What has gone in and come out so far.
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

    /// How long the thread has waited for the device ([`Mode::Pipelined`]).
    pub fn waited(&self) -> Duration {
        self.counts().waited
    }

    fn counts(&self) -> Counts {
        match &self.way {
            Way::Undecided(_) | Way::InPlace(_) => Counts::default(),
            Way::Pipelined(pipeline) => pipeline.counts(),
        }
    }

    /// A chunk has come, so the response is long enough. Returns whether it was not decided before.
    fn turn_to_pipeline(&mut self, context: &Context) -> bool {
        match &mut self.way {
            Way::Undecided(held) if held.len() == self.settings.chunk_bytes => {
                let held = std::mem::take(held);
                let pipeline = Pipeline::new(self.settings, self.length, self.turn, held, context);
                self.way = Way::Pipelined(pipeline);
                true
            }
            _ => false,
        }
    }

    /// The response is short, or the client is to read what there is of it: it goes on as one stream.
    fn decide_for_place(&mut self, context: &mut Context) {
        if let Way::Undecided(held) = &mut self.way {
            let held = std::mem::take(held);
            self.compress_in_place(&held, context);
            context.keep(held);
        }
    }

    /// Goes on as one stream if it turned out that there is no device. Returns whether that is so.
    fn turn_to_place(&mut self, context: &mut Context) -> bool {
        let Way::Pipelined(pipeline) = &mut self.way else {
            return false;
        };
        let Some(content) = pipeline.take_refused() else {
            return false;
        };
        self.compress_in_place(&content, context);
        true
    }

    fn compress_in_place(&mut self, content: &[u8], context: &mut Context) {
        let length = match self.is_finished {
            true => Some(content.len() as u64),
            false => self.length,
        };
        let mut in_place = InPlace::new(&self.settings, length, context);
        in_place.write_all(content, &mut self.blocks);
        self.way = Way::InPlace(in_place);
    }
}

impl Settings {
    /// As they can be, with what the context has.
    fn possible(self, context: &Context) -> Self {
        let chunk_bytes = self.chunk_bytes.min(context.chunk_bytes()).max(1);
        Self {
            chunk_bytes,
            stream_bytes: self.stream_bytes.max(chunk_bytes),
            ..self
        }
    }
}
