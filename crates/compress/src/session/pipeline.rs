//! A response in chunks. The device compresses some of them, and this core the others.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipstream_offload::accelerator::Moment;
use slipstream_offload::{Answer, Compression, Operation, Pause, Reason, Ticket, instance, submit};

use super::blocks::Blocks;
use super::{Mode, Offload, Settings};
use crate::codec::{Framing, Trailer};
use crate::context::{Context, in_flight};
use crate::policy::Candidate;

/// Output of fewer bytes is appended to the block before it, which has capacity for it.
const SHORT_BLOCK: usize = 20;

/// The chunks of one response.
pub(super) struct Pipeline {
    settings: Settings,
    /// The length of the response's content, if it is known.
    length: Option<u64>,
    /// The turn of the event loop in which the session began.
    turn: u64,
    /// The beginning of the next chunk.
    content: Vec<u8>,
    /// The chunks that have not become blocks, in order.
    chunks: VecDeque<Chunk>,
    framing: Framing,
    trailer: Option<Box<dyn Trailer>>,
    /// The content of all chunks so far, in bytes.
    chunked: u64,
    /// The first chunk has become a block.
    has_begun: bool,
    /// The last chunk was submitted to the device.
    was_last_submitted: bool,
    /// The first chunk, if the device has refused it.
    refused: Option<Arc<Vec<u8>>>,
    counts: Counts,
    /// Counts this pipeline in the context.
    _counted: Rc<()>,
}

/// Figures of the chunks so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Compressed by the device.
    pub device: u64,
    /// Compressed on this core.
    pub own: u64,
    /// Compressed on this core after they had been submitted to the device.
    pub lost: u64,
    /// The time for which the thread has waited for the device.
    pub waited: Duration,
}

enum Chunk {
    /// To be submitted together with others.
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

/// The reason for which content becomes a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Full,
    Flush,
    Finish,
}

impl Pipeline {
    /// Begins a response. `content` has come already: no more than a chunk.
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
            framing: settings.method.codec().framing(),
            trailer: settings.method.codec().trailer(),
            chunked: 0,
            has_begun: false,
            was_last_submitted: false,
            refused: None,
            counts: Counts::default(),
            _counted: context.begin_pipeline(),
        }
    }

    /// The figures so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns true if chunks are in flight.
    pub fn is_waiting(&self) -> bool {
        self.in_flight() > 0
    }

    /// Returns true if all chunks have become blocks.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The bytes of content, and of chunks that have not become blocks.
    pub fn held(&self) -> usize {
        self.content.len() + self.chunks.iter().map(Chunk::held).sum::<usize>()
    }

    /// Takes back all content of the session so far, if the device has refused the first chunk. The
    /// pipeline is then not used any more.
    pub fn take_refused(&mut self) -> Option<Arc<Vec<u8>>> {
        self.refused.take()
    }

    /// Takes content while some may be held. Returns the number of bytes taken.
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
                self.cut(Cut::Full, context, job, blocks);
            }
            if self.settings.mode == Mode::Pipelined
                && self.accumulated() >= self.settings.stream_bytes
            {
                self.cut(Cut::Full, context, job, blocks);
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

    /// The number of bytes of content that may be taken.
    fn room(&self, blocks: &Blocks) -> usize {
        let held = self.held() + blocks.bytes();
        let left = self.settings.stream_bytes.saturating_sub(held);
        let chunk = self.settings.chunk_bytes;
        // A chunk allocates memory for all of its content when it begins.
        let begins = self.content.is_empty() && self.settings.mode == Mode::Asynchronous;
        if begins && held > 0 && left < chunk {
            return 0;
        }
        left.min(chunk - self.content.len())
    }

    /// Makes a chunk of the content so far, and submits accumulated chunks.
    pub fn flush(&mut self, context: &mut Context, job: &dyn Pause, blocks: &mut Blocks) {
        self.cut(Cut::Flush, context, job, blocks);
        self.submit_all_and_wait(context, job, blocks);
    }

    /// Ends the response with the content so far.
    pub fn finish(&mut self, context: &mut Context, job: &dyn Pause, blocks: &mut Blocks) {
        let is_empty = self.chunked == 0;
        if is_empty || !self.content.is_empty() {
            self.cut(Cut::Finish, context, job, blocks);
        } else {
            let end = self.framing.terminator.to_vec();
            self.chunks.push_back(Chunk::Compressed(end));
        }
        if self.refused.is_some() {
            return;
        }
        if let Some(trailer) = &self.trailer {
            self.chunks.push_back(Chunk::Compressed(trailer.bytes()));
        }
        self.submit_all_and_wait(context, job, blocks);
        self.emit(blocks);
    }

    /// Takes the answers that have arrived.
    pub fn resume(&mut self, context: &mut Context, blocks: &mut Blocks) {
        let is_abandoned = instance::with(|_| ()).is_none();
        let extra = self.framing_room();
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
            let most = self.settings.method.bound(content.len());
            let compressed = match answer {
                Answer::Computed(output) if (1..=most).contains(&output.as_slice().len()) => {
                    self.counts.device += 1;
                    output.into_content()
                }
                Answer::Computed(_) | Answer::Software(_) => {
                    self.counts.lost += 1;
                    self.counts.own += 1;
                    context.compress(self.settings.method, content, *is_last, extra)
                }
            };
            let content = std::mem::take(content);
            *chunk = Chunk::Compressed(compressed);
            recycle(content, context);
        }
        self.emit(blocks);
    }

    /// Adds content to the next chunk.
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

    /// Makes a chunk of the content so far, if there is any. A response without content is an empty
    /// last chunk.
    fn cut(&mut self, reason: Cut, context: &mut Context, job: &dyn Pause, blocks: &mut Blocks) {
        let is_last = reason == Cut::Finish;
        if self.content.is_empty() && !is_last {
            return;
        }
        let content = Arc::new(std::mem::take(&mut self.content));
        if let Some(trailer) = &mut self.trailer {
            trailer.update(&content);
        }
        self.chunked += content.len() as u64;
        let chunk = match self.settings.mode {
            Mode::Pipelined => Some(Chunk::Accumulated { content, is_last }),
            Mode::Asynchronous => self.start(content, reason, context, job),
        };
        self.chunks.extend(chunk);
        self.emit(blocks);
    }

    /// Submits a chunk or compresses it on this core. Returns `None` if the device has
    /// [refused](Self::take_refused) it.
    fn start(
        &mut self,
        content: Arc<Vec<u8>>,
        reason: Cut,
        context: &mut Context,
        job: &dyn Pause,
    ) -> Option<Chunk> {
        let is_last = reason == Cut::Finish;
        let own = self.in_flight();
        let candidate_with = |in_flight| Candidate {
            offload: self.settings.offload,
            length: content.len(),
            in_flight,
            max_in_flight: context.max_in_flight(),
            has_competitors: context.pipelines() > 1 || context.is_shared(self.turn),
            more_follows: !is_last && self.length.is_none_or(|length| self.chunked < length),
            was_previous_submitted: self.was_last_submitted,
        };
        let mut candidate = candidate_with(in_flight());
        if context.has_device() && candidate.is_device_full() {
            // A long response may come in one turn of the event loop. Answers that have arrived
            // meanwhile count as in flight until they are polled, and the device would have nothing
            // to do until the end of the turn.
            instance::with(|instance| instance.poll(Moment::Busy));
            candidate = candidate_with(in_flight());
        }
        // Somebody waits for flushed content: it is fastest to compress it at once.
        let is_urgent = reason == Cut::Flush && own == 0;
        self.was_last_submitted =
            context.has_device() && !is_urgent && candidate.is_to_be_submitted();
        if !self.was_last_submitted {
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

    /// Submits the accumulated chunks, compresses those that cannot be submitted on this core, and
    /// waits until all have been answered.
    fn submit_all_and_wait(&mut self, context: &mut Context, job: &dyn Pause, blocks: &mut Blocks) {
        if self.settings.mode != Mode::Pipelined {
            return;
        }
        for index in 0..self.chunks.len() {
            let Chunk::Accumulated { content, is_last } = &self.chunks[index] else {
                continue;
            };
            let (content, is_last) = (content.clone(), *is_last);
            let candidate = Candidate {
                offload: Offload::Device,
                length: content.len(),
                in_flight: in_flight(),
                max_in_flight: context.max_in_flight(),
                has_competitors: false,
                more_follows: !is_last,
                was_previous_submitted: false,
            };
            let is_submitted = context.has_device() && candidate.is_to_be_submitted();
            let ticket = is_submitted.then(|| self.submit(&content, is_last, job).ok());
            // Drops the chunk's clone of the content, so that its memory can be reused.
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
        self.emit(blocks);
    }

    fn submit(
        &self,
        content: &Arc<Vec<u8>>,
        is_last: bool,
        job: &dyn Pause,
    ) -> Result<Ticket, Reason> {
        let coding = self.settings.method.codec().wire_coding();
        let coding = coding.ok_or(Reason::NotOffered)?;
        let operation = Operation::Compress(Compression {
            coding,
            level: self.settings.method.level(),
            is_last,
            content: content.clone(),
        });
        submit(operation, job)
    }

    fn compress(&mut self, content: Arc<Vec<u8>>, is_last: bool, context: &mut Context) -> Chunk {
        self.counts.own += 1;
        let extra = self.framing_room();
        let compressed = context.compress(self.settings.method, &content, is_last, extra);
        recycle(content, context);
        Chunk::Compressed(compressed)
    }

    /// Makes blocks of the chunks that are compressed and do not wait for an earlier one.
    fn emit(&mut self, blocks: &mut Blocks) {
        while let Some(Chunk::Compressed(_)) = self.chunks.front() {
            let Some(Chunk::Compressed(mut block)) = self.chunks.pop_front() else {
                unreachable!("a compressed chunk is at the front");
            };
            if !self.has_begun {
                block.splice(..0, self.framing.header.iter().copied());
            }
            self.has_begun = true;
            // Terminator and trailer are appended to the last block, unless it has been taken.
            if block.len() < SHORT_BLOCK {
                blocks.append(&block);
            } else {
                blocks.push(block);
            }
        }
    }

    /// The capacity that a block has beyond its chunk, in bytes.
    fn framing_room(&self) -> usize {
        self.framing.length().max(SHORT_BLOCK)
    }

    fn in_flight(&self) -> usize {
        let is_in_flight = |chunk: &&Chunk| matches!(chunk, Chunk::InFlight { .. });
        self.chunks.iter().filter(is_in_flight).count()
    }

    /// The content that has not been submitted, in bytes.
    fn accumulated(&self) -> usize {
        let accumulated = |chunk: &Chunk| match chunk {
            Chunk::Accumulated { content, .. } => content.len(),
            Chunk::InFlight { .. } | Chunk::Compressed(_) => 0,
        };
        self.content.len() + self.chunks.iter().map(accumulated).sum::<usize>()
    }
}

impl Chunk {
    /// The bytes of content or output that the chunk holds.
    fn held(&self) -> usize {
        match self {
            Chunk::Accumulated { content, .. } | Chunk::InFlight { content, .. } => content.len(),
            Chunk::Compressed(block) => block.len(),
        }
    }
}

/// Keeps the memory of content for reuse, unless somebody else holds it.
fn recycle(content: Arc<Vec<u8>>, context: &mut Context) {
    if let Some(content) = Arc::into_inner(content) {
        context.recycle(content);
    }
}
