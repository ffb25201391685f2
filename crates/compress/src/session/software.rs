//! A response as one stream, compressed on this core.

use super::Settings;
use super::blocks::Blocks;
use crate::Context;
use crate::context::PooledStream;
use crate::stream::{Flush, Progress};

/// The least capacity of a block, in bytes: a stream needs some room.
const SHORTEST_BLOCK: usize = 128;

/// A stream, and the block that it fills.
pub(super) struct SoftwareStream {
    /// `None` after the end.
    stream: Option<PooledStream>,
    block: Vec<u8>,
    block_bytes: usize,
    /// No content is taken while this many bytes of output wait in blocks.
    limit: usize,
    /// No content has come since the last flush.
    is_flushed: bool,
}

impl SoftwareStream {
    /// Begins a stream. `length` is the length of the content, if it is known.
    pub fn new(settings: &Settings, length: Option<u64>, context: &mut Context) -> Self {
        let framing = settings.method.codec().framing();
        let needed = length
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length < settings.block_bytes)
            .map(|length| {
                settings.method.bound(length) + framing.header.len() + framing.trailer_bytes
            });
        Self {
            stream: Some(context.stream(settings.method)),
            block: Vec::new(),
            block_bytes: needed
                .map_or(settings.block_bytes, |needed| {
                    needed.min(settings.block_bytes)
                })
                .max(SHORTEST_BLOCK),
            limit: settings.block_bytes.max(1),
            is_flushed: true,
        }
    }

    /// The output in the block that is being filled, in bytes.
    pub fn held(&self) -> usize {
        self.block.len()
    }

    /// Takes content while output may be held. Returns the number of bytes taken.
    pub fn write(&mut self, mut content: &[u8], blocks: &mut Blocks) -> usize {
        let length = content.len();
        while !content.is_empty() && blocks.bytes() < self.limit {
            self.step(&mut content, Flush::None, blocks);
        }
        length - content.len()
    }

    /// Takes all of the content, however much output that makes.
    pub fn write_all(&mut self, mut content: &[u8], blocks: &mut Blocks) {
        while !content.is_empty() {
            self.step(&mut content, Flush::None, blocks);
        }
    }

    /// Flushes: all content so far becomes blocks.
    pub fn flush(&mut self, blocks: &mut Blocks) {
        if !self.is_flushed {
            while self.step(&mut &[][..], Flush::Sync, blocks) == Progress::Full {}
            // Blocks of many small events may wait for a client that does not read.
            let mut block = std::mem::take(&mut self.block);
            block.shrink_to_fit();
            blocks.push(block);
            self.is_flushed = true;
        }
    }

    /// Ends the response.
    pub fn finish(&mut self, blocks: &mut Blocks) {
        while self.step(&mut &[][..], Flush::Finish, blocks) == Progress::Full {}
        blocks.push(std::mem::take(&mut self.block));
        self.stream = None;
    }

    /// Compresses until all content has been taken or a block is full.
    fn step(&mut self, content: &mut &[u8], flush: Flush, blocks: &mut Blocks) -> Progress {
        let stream = self
            .stream
            .as_mut()
            .expect("no content comes after the end");
        if self.block.capacity() == 0 {
            self.block.reserve_exact(self.block_bytes);
        }
        self.is_flushed = false;
        let progress = stream.get().compress(content, flush, &mut self.block);
        if progress == Progress::Full {
            assert!(!self.block.is_empty(), "a block has enough room");
            blocks.push(std::mem::take(&mut self.block));
        }
        progress
    }
}
