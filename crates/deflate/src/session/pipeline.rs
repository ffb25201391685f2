//! A response in chunks, of which the device compresses some and this core the others.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipstream_offload::accelerator::Moment;
use slipstream_offload::{
    Answer, Coding, Compression, Operation, Pause, Reason, Ticket, instance, submit,
};

use super::blocks::Blocks;
use super::{Mode, Settings};
use crate::chunk::bound;
use crate::context::{Context, in_flight};
use crate::gzip::{self, Member};
use crate::policy::Situation;

/// Room for a gzip member's header, its last block and its trailer, in bytes.
const FRAMING: usize = gzip::HEADER.len() + gzip::EMPTY_LAST_BLOCK.len() + 8;

/// Chunks on their way.
pub(super) struct Pipeline {
    settings: Settings,
    /// The length of the response's content, if it is known.
    length: Option<u64>,
    /// When the session was begun.
    turn: u64,
    /// Content that is not a chunk yet.
    content: Vec<u8>,
    /// In order.
    chunks: VecDeque<Chunk>,
    /// What stands around the chunks, for DEFLATE.
    member: Option<Member>,
    /// Content that has become chunks, in bytes.
    chunked: u64,
    /// The first chunk has been put out.
    has_begun: bool,
    was_last_sent: bool,
    /// The first chunk, if it turned out that there is no device.
    refused: Option<Arc<Vec<u8>>>,
    counts: Counts,
    /// Others see that this one is under way.
    _counted: Rc<()>,
}

/// What has become of chunks.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub device: u64,
    pub own: u64,
    pub lost: u64,
    /// For the device.
    pub waited: Duration,
}

enum Chunk {
    /// Submitted together with others.
    Accumulated {
        content: Arc<Vec<u8>>,
        is_last: bool,
    },
    InFlight {
        content: Arc<Vec<u8>>,
        is_last: bool,
        ticket: Ticket,
    },
    Compressed(Vec<u8>),
}

/// Why content becomes a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Full,
    Flush,
    Finish,
}

impl Pipeline {
    /// `content` has come already: no more than a chunk.
    pub fn new(
        settings: Settings,
        length: Option<u64>,
        turn: u64,
        content: Vec<u8>,
        context: &Context,
    ) -> Self {
        Self {
            settings,
            length,
            turn,
            content,
            chunks: VecDeque::new(),
            member: (settings.method.coding() == Coding::Deflate).then(Member::default),
            chunked: 0,
            has_begun: false,
            was_last_sent: false,
            refused: None,
            counts: Counts::default(),
            _counted: context.begin_pipeline(),
        }
    }

    /// What has become of chunks so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the device has chunks.
    pub fn is_waiting(&self) -> bool {
        self.in_flight() > 0
    }

    /// Whether chunks have not been put out.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Content, and chunks that wait for those before them, in bytes.
    pub fn held(&self) -> usize {
        self.content.len() + self.chunks.iter().map(Chunk::held).sum::<usize>()
    }

    /// All content of the session so far, if it turned out with its first chunk that there is no device. The pipeline has
    /// then come to its end.
    pub fn take_refused(&mut self) -> Option<Arc<Vec<u8>>> {
        self.refused.take()
    }

    /// Takes content while some may be held; returns how many bytes.
    pub fn write(
        &mut self,
        content: &[u8],
        context: &mut Context,
        job: &dyn Pause,
        blocks: &mut Blocks,
    ) -> usize {
        let mut left = content;
        loop {
            if self.content.len() == self.settings.chunk_bytes {
                self.cut(Occasion::Full, context, job, blocks);
            }
            if self.settings.mode == Mode::Pipelined
                && self.accumulated() >= self.settings.stream_bytes
            {
                self.cut(Occasion::Full, context, job, blocks);
                self.submit_all_and_wait(context, job, blocks);
            }
            let room = self.room(blocks);
            let (taken, rest) = left.split_at(left.len().min(room));
            if taken.is_empty() || self.refused.is_some() {
                return content.len() - left.len();
            }
            self.take(taken, context);
            left = rest;
        }
    }

    /// How much content may be taken, in bytes.
    fn room(&self, blocks: &Blocks) -> usize {
        let held = self.held() + blocks.bytes();
        let left = self.settings.stream_bytes.saturating_sub(held);
        let chunk = self.settings.chunk_bytes;
        // A chunk has memory for all of its content from its beginning.
        let begins = self.content.is_empty() && self.settings.mode == Mode::Asynchronous;
        if begins && held > 0 && left < chunk {
            return 0;
        }
        left.min(chunk - self.content.len())
    }

    /// What has come becomes a chunk, and chunks that were to be submitted together are.
    pub fn flush(&mut self, context: &mut Context, job: &dyn Pause, blocks: &mut Blocks) {
        self.cut(Occasion::Flush, context, job, blocks);
        self.submit_all_and_wait(context, job, blocks);
    }

    /// Ends the stream with what has come.
    pub fn finish(&mut self, context: &mut Context, job: &dyn Pause, blocks: &mut Blocks) {
        let is_empty = self.chunked == 0;
        if is_empty || !self.content.is_empty() {
            self.cut(Occasion::Finish, context, job, blocks);
        } else if self.member.is_some() {
            let end = gzip::EMPTY_LAST_BLOCK.to_vec();
            self.chunks.push_back(Chunk::Compressed(end));
        }
        if self.refused.is_some() {
            return;
        }
        if let Some(member) = &self.member {
            let trailer = member.trailer().to_vec();
            self.chunks.push_back(Chunk::Compressed(trailer));
        }
        self.submit_all_and_wait(context, job, blocks);
        self.put_out(blocks);
    }

    /// Sees which chunks have been answered.
    pub fn resume(&mut self, context: &mut Context, blocks: &mut Blocks) {
        let is_abandoned = instance::with(|_| ()).is_none();
        for chunk in &mut self.chunks {
            let Chunk::InFlight {
                content,
                is_last,
                ticket,
            } = chunk
            else {
                continue;
            };
            let answer = match ticket.take() {
                None if is_abandoned => Answer::Software(Reason::Lost),
                None => continue,
                Some(answer) => answer,
            };
            let most = bound(self.settings.method, content.len());
            let compressed = match answer {
                Answer::Computed(output) if (1..=most).contains(&output.as_slice().len()) => {
                    self.counts.device += 1;
                    output.into_content()
                }
                Answer::Computed(_) | Answer::Software(_) => {
                    self.counts.lost += 1;
                    self.counts.own += 1;
                    context.compress(self.settings.method, content, *is_last, FRAMING)
                }
            };
            let content = std::mem::take(content);
            *chunk = Chunk::Compressed(compressed);
            recycle(content, context);
        }
        self.put_out(blocks);
    }

    /// Adds content to what is to become the next chunk.
    fn take(&mut self, content: &[u8], context: &mut Context) {
        if self.content.capacity() == 0 {
            self.content = context.buffer();
            let to_come = self.length.map_or(0, |length| {
                let left = length.saturating_sub(self.chunked);
                usize::try_from(left).unwrap_or(usize::MAX)
            });
            let needed = to_come.max(content.len()).min(self.settings.chunk_bytes);
            self.content.reserve_exact(needed);
        }
        self.content.extend_from_slice(content);
    }

    /// What has come, if anything, becomes a chunk. With nothing at all, an empty one ends the stream.
    fn cut(
        &mut self,
        occasion: Occasion,
        context: &mut Context,
        job: &dyn Pause,
        blocks: &mut Blocks,
    ) {
        let is_last = occasion == Occasion::Finish;
        if self.content.is_empty() && !is_last {
            return;
        }
        let content = Arc::new(std::mem::take(&mut self.content));
        if let Some(member) = &mut self.member {
            member.update(&content);
        }
        self.chunked += content.len() as u64;
        let chunk = match self.settings.mode {
            Mode::Pipelined => Some(Chunk::Accumulated { content, is_last }),
            Mode::Asynchronous => self.start(content, occasion, context, job),
        };
        self.chunks.extend(chunk);
        self.put_out(blocks);
    }

    /// Submits a chunk or compresses it here; `None` if it has been [refused](Self::take_refused).
    fn start(
        &mut self,
        content: Arc<Vec<u8>>,
        occasion: Occasion,
        context: &mut Context,
        job: &dyn Pause,
    ) -> Option<Chunk> {
        let is_last = occasion == Occasion::Finish;
        let own = self.in_flight();
        let situation_with = |in_flight| Situation {
            place: self.settings.place,
            length: content.len(),
            in_flight,
            requests: context.requests(),
            others_wait: context.pipelines() > 1 || context.is_shared(self.turn),
            more_follows: !is_last && self.length.is_none_or(|length| self.chunked < length),
            was_last_sent: self.was_last_sent,
        };
        let mut situation = situation_with(in_flight());
        if context.has_device() && situation.is_device_busy() {
            // A long response may come in one turn of the event loop. What the device has answered meanwhile is still counted as
            // in flight, and the device would have nothing to do until the turn is over.
            instance::with(|instance| instance.poll(Moment::Busy));
            situation = situation_with(in_flight());
        }
        // What is flushed is waited for: nothing is faster than to compress it at once.
        let is_urgent = occasion == Occasion::Flush && own == 0;
        self.was_last_sent = context.has_device() && !is_urgent && situation.is_for_device();
        if !self.was_last_sent {
            return Some(self.compress(content, is_last, context));
        }
        let is_first = !self.has_begun && self.chunks.is_empty();
        match self.submit(&content, is_last, job) {
            Ok(ticket) => Some(Chunk::InFlight {
                content,
                is_last,
                ticket,
            }),
            Err(Reason::NotOffered) if is_first => {
                self.refused = Some(content);
                None
            }
            Err(_) => Some(self.compress(content, is_last, context)),
        }
    }

    /// Submits what has accumulated, compresses here what cannot be submitted, and waits until all has been answered.
    fn submit_all_and_wait(&mut self, context: &mut Context, job: &dyn Pause, blocks: &mut Blocks) {
        if self.settings.mode != Mode::Pipelined {
            return;
        }
        for index in 0..self.chunks.len() {
            let Chunk::Accumulated { content, is_last } = &self.chunks[index] else {
                continue;
            };
            let (content, is_last) = (content.clone(), *is_last);
            let situation = Situation {
                place: super::Place::Device,
                length: content.len(),
                in_flight: in_flight(),
                requests: context.requests(),
                others_wait: false,
                more_follows: !is_last,
                was_last_sent: false,
            };
            let is_for_device = context.has_device() && situation.is_for_device();
            let ticket = is_for_device.then(|| self.submit(&content, is_last, job).ok());
            // The clone that the chunk holds goes away with it, so that the content can be used again.
            self.chunks[index] = Chunk::Compressed(Vec::new());
            self.chunks[index] = match ticket.flatten() {
                Some(ticket) => Chunk::InFlight {
                    content,
                    is_last,
                    ticket,
                },
                None => self.compress(content, is_last, context),
            };
        }
        let start = Instant::now();
        while self.is_waiting() {
            let answers = instance::with(|instance| instance.poll(Moment::Idle));
            self.resume(context, blocks);
            if answers == Some(0) {
                std::thread::yield_now();
            }
        }
        self.counts.waited += start.elapsed();
        self.put_out(blocks);
    }

    fn submit(
        &self,
        content: &Arc<Vec<u8>>,
        is_last: bool,
        job: &dyn Pause,
    ) -> Result<Ticket, Reason> {
        let operation = Operation::Compress(Compression {
            coding: self.settings.method.coding(),
            level: self.settings.method.level(),
            is_last,
            content: content.clone(),
        });
        submit(operation, job)
    }

    fn compress(&mut self, content: Arc<Vec<u8>>, is_last: bool, context: &mut Context) -> Chunk {
        self.counts.own += 1;
        let compressed = context.compress(self.settings.method, &content, is_last, FRAMING);
        recycle(content, context);
        Chunk::Compressed(compressed)
    }

    /// Puts out the chunks that wait for no other.
    fn put_out(&mut self, blocks: &mut Blocks) {
        while let Some(Chunk::Compressed(_)) = self.chunks.front() {
            let Some(Chunk::Compressed(mut block)) = self.chunks.pop_front() else {
                unreachable!("a compressed chunk is at the front");
            };
            if !self.has_begun && self.member.is_some() {
                block.splice(..0, gzip::HEADER);
            }
            self.has_begun = true;
            // The end and the trailer are no blocks of their own, if that can be helped.
            if block.len() < FRAMING {
                blocks.append(&block);
            } else {
                blocks.push(block);
            }
        }
    }

    fn in_flight(&self) -> usize {
        let is_in_flight = |chunk: &&Chunk| matches!(chunk, Chunk::InFlight { .. });
        self.chunks.iter().filter(is_in_flight).count()
    }

    /// Content that has not been submitted, in bytes.
    fn accumulated(&self) -> usize {
        let accumulated = |chunk: &Chunk| match chunk {
            Chunk::Accumulated { content, .. } => content.len(),
            Chunk::InFlight { .. } | Chunk::Compressed(_) => 0,
        };
        self.content.len() + self.chunks.iter().map(accumulated).sum::<usize>()
    }
}

impl Chunk {
    /// What it holds, in bytes.
    fn held(&self) -> usize {
        match self {
            Chunk::Accumulated { content, .. } | Chunk::InFlight { content, .. } => content.len(),
            Chunk::Compressed(block) => block.len(),
        }
    }
}

/// Keeps the memory of content that nobody else has any more.
fn recycle(content: Arc<Vec<u8>>, context: &mut Context) {
    if let Some(content) = Arc::into_inner(content) {
        context.keep(content);
    }
}
